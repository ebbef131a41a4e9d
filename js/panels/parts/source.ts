/** Python stack frames as rows that open or copy their line. */

import { h } from "../../base/dom.ts";
import { shortPlace, wholePlace } from "../../base/lines.ts";
import type { ViewModel } from "../../base/model.ts";
import { frameOf } from "../../state/source/lines.ts";
import { codeOf } from "../../state/source/places.ts";
import { sourcesOf } from "../../state/source/sources.ts";
import type { PanelContext } from "../panel.ts";
import { copyButton } from "./parts.ts";

export interface FrameLine {
  file: string;
  line: number;
  function: string;
}

/** The stack, innermost frame first; if it has none, that of what it serves, see `inferredLine`. */
export function stackOf(model: ViewModel, i: number): FrameLine[] {
  const { frame, strings } = model;
  const out: FrameLine[] = [];
  for (let f = frameOf(model, i); f >= 0 && out.length < 100; f = frame.parent[f]) {
    out.push({
      file: strings.get(frame.file[f]),
      line: frame.line[f],
      function: strings.get(frame.function[f]),
    });
  }
  return out;
}

/** "dir/train.py:31" as a link to the source panel, coloured by `figure`, or else to the editor. */
export function lineLink(
  ctx: PanelContext,
  line: string,
  { text = wholePlace(line), figure }: { text?: string; figure?: string } = {},
): HTMLElement {
  const at = line.lastIndexOf(":");
  const file = line.slice(0, at);
  const number = Number(line.slice(at + 1));
  const { openSource } = ctx.host;
  const go = sourcesOf(ctx.model)?.knows(file)
    ? () => ctx.store.showLine(file, number, figure)
    : openSource && (() => openSource(file, number));
  if (!go) return h("code", { title: wholePlace(line) }, text);
  return h("button", { class: "link", type: "button", title: wholePlace(line), onclick: go }, text);
}

export function stackList(ctx: PanelContext, frames: FrameLine[]): HTMLElement {
  return h(
    "ol",
    { class: "list stack" },
    ...frames.map(({ file, line, function: name }) => {
      const text = shortPlace(file, line);
      const { openSource } = ctx.host;
      return h(
        "li",
        { title: wholePlace(`${file}:${line}`) },
        openSource
          ? h(
              "button",
              { class: "link", type: "button", onclick: () => openSource(file, line) },
              text,
            )
          : lineLink(ctx, `${file}:${line}`, { text }),
        name && h("span", { class: "dim" }, `in ${name}`),
        h("code", { class: "frame-code" }, codeOf(ctx.model, `${file}:${line}`)),
        copyButton(() => wholePlace(`${file}:${line}`), "file and line"),
      );
    }),
  );
}
