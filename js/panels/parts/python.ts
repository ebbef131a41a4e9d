/** What an operation is in the user's own Python: its line, or all lines in a fusion. */
import { type Child, h } from "../../base/dom.ts";
import * as format from "../../base/format.ts";
import type { ViewModel } from "../../base/model.ts";
import { frameOf, inferredLine } from "../../state/source/lines.ts";
import { codeOf, lineOfFrame, shortLine } from "../../state/source/places.ts";
import type { PanelContext } from "../panel.ts";
import { longList, note, section, selectionLink } from "./parts.ts";
import { lineLink } from "./source.ts";

/** Opcodes that compute nothing, so that their lines do not matter. */
const QUIET = new Set(["parameter", "constant", "tuple", "get-tuple-element", "bitcast"]);
const FEW = 8;

interface Line {
  text: string; // "dir/train.py:31"; "" without a line
  flops: number;
  names: string[]; // opcodes of what is done there, without repeats
  members: number[];
  inferred: boolean;
}

export function pythonSection(ctx: PanelContext, i: number): Child {
  const { model } = ctx;
  const inside = model.opcode(i) === "fusion" ? insideOf(model, i) : [];
  if (inside.length > 1) return fusion(ctx, i, inside);
  const line = lineOfFrame(model, frameOf(model, i));
  const guess = inferredLine(model, i);
  if (!line) return null;
  return section(
    "In Python",
    codeRow(ctx, line),
    guess &&
      h(
        "p",
        { class: "note" },
        `inferred: the compiler made it, as ${guess.words} `,
        selectionLink(ctx, { kind: "instruction", index: guess.via }),
      ),
  );
}

function codeRow(ctx: PanelContext, line: string): HTMLElement {
  return h(
    "p",
    { class: "python-line" },
    lineLink(ctx, line, { text: shortLine(line) }),
    " ",
    h("code", null, codeOf(ctx.model, line)),
  );
}

function insideOf(model: ViewModel, i: number): number[] {
  const out: number[] = [];
  for (let e = model.called.offsets[i]; e < model.called.offsets[i + 1]; e++) {
    const c = model.called.values[e];
    const first = model.computation.first[c];
    for (let k = 0; k < model.computation.size[c]; k++) out.push(first + k);
  }
  return out.filter((k) => !QUIET.has(model.opcode(k)));
}

/** The lines inside a fusion, those with the most FLOPs first, then those with the most operations. */
function fusion(ctx: PanelContext, i: number, inside: number[]): Child {
  const { model } = ctx;
  const flops = model.optional<Float64Array>("source.flops");
  const found = new Map<string, Line>();
  for (const k of inside) {
    const text = lineOfFrame(model, frameOf(model, k));
    let line = found.get(text);
    if (!line) {
      line = { text, flops: 0, names: [], members: [], inferred: true };
      found.set(text, line);
    }
    line.members.push(k);
    line.flops += flops && flops[k] > 0 ? flops[k] : 0;
    if (inferredLine(model, k) === null) line.inferred = false;
    const name = model.opcode(k);
    if (!line.names.includes(name)) line.names.push(name);
  }
  const lines = [...found.values()];
  const total = lines.reduce((sum, l) => sum + l.flops, 0);
  lines.sort((a, b) => b.flops - a.flops || b.members.length - a.members.length);
  const share = (l: Line) =>
    total > 0 ? `${Math.round((100 * l.flops) / total)} %` : format.plural(l.members.length, "op");
  const guess = inferredLine(model, i);
  return section(
    "In Python",
    note(
      `${format.plural(inside.length, "operation")} of ${format.plural(lines.length, "line")} in one kernel${total > 0 ? ", with their share of its FLOPs" : ""}:`,
    ),
    longList(
      lines,
      (l) =>
        h(
          "li",
          { class: "figured python-line" },
          h(
            "span",
            null,
            l.text ? lineLink(ctx, l.text, { text: shortLine(l.text) }) : "no line",
            " ",
            h("code", null, codeOf(model, l.text)),
            h("span", { class: "dim" }, ` ${l.names.slice(0, 6).join(", ")}`),
            l.inferred && l.text ? h("span", { class: "tag" }, "inferred") : null,
          ),
          h("span", { class: "figure" }, share(l)),
        ),
      FEW,
    ),
    guess &&
      h(
        "p",
        { class: "note" },
        `It appears as ${guess.words} `,
        selectionLink(ctx, { kind: "instruction", index: guess.via }),
      ),
  );
}
