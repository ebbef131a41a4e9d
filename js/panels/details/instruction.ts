/** One instruction: what it is, its operands and users, where it comes from, its own HLO line. */

import { type Child, fill, h } from "../../base/dom.ts";
import * as format from "../../base/format.ts";
import type { ViewModel } from "../../base/model.ts";
import { inferredLine } from "../../state/source/lines.ts";
import { Flag } from "../../view.ts";
import type { PanelContext } from "../panel.ts";
import { compilerSections } from "../parts/compiler.ts";
import {
  copyButton,
  facts,
  instructionRow,
  longList,
  longText,
  note,
  section,
  selectionLink,
} from "../parts/parts.ts";
import { passesSection } from "../parts/pass-history.ts";
import { pythonSection } from "../parts/python.ts";
import { stackList, stackOf } from "../parts/source.ts";
import { instructionCost } from "./cost.ts";
import { moveSection } from "./moves.ts";
import { explainShape } from "./shape-words.ts";
import { transitionSection } from "./transitions.ts";

const FLAG_WORDS: [Flag, string][] = [
  [Flag.Root, "root"],
  [Flag.Parameter, "parameter"],
  [Flag.Output, "module output"],
  [Flag.AsyncStart, "async start"],
  [Flag.AsyncDone, "async done"],
];

/** Attributes that are shown elsewhere in the panel. */
const SHOWN = new Set(["metadata", "sharding"]);

export function instructionDetails(ctx: PanelContext, i: number): Child[] {
  const { model } = ctx;
  const name = model.name(i);
  const label = model.label(i);
  const family = model.header.families[model.instruction.family[i]];
  const words = FLAG_WORDS.filter(([flag]) => model.has(i, flag)).map(([, word]) => word);
  const shape = model.shape(i);
  const late = h("div", null, note("Loading text…"));
  fillFromText(ctx, i, late);
  return [
    h("h2", { class: "title" }, model.code(i) || label || name),
    h(
      "p",
      { class: "value" },
      h("code", null, `%${name}`),
      copyButton(() => name, "name"),
    ),
    pythonSection(ctx, i),
    facts([
      [
        "Opcode",
        [
          h("code", null, model.code(i) && label ? label : model.opcode(i)),
          family && h("span", { class: "dim" }, ` ${family.label}`),
        ],
      ],
      ...(words.length ? ([["Role", words.join(", ")]] as [string, Child][]) : []),
      ["Shape", longText(shape, "shape", 120)],
      ...explainShape(shape),
      [
        "Output bytes",
        model.instruction.bytes[i] === 0 && shape.startsWith("(")
          ? "in its parts"
          : format.bytes(model.instruction.bytes[i]),
      ],
      ...instructionCost(model, i),
      [
        "Computation",
        selectionLink(ctx, { kind: "computation", index: model.instruction.computation[i] }),
      ],
    ]),
    ...compilerSections(ctx, [i]),
    passesSection(ctx, i),
    transitionSection(ctx, i),
    moveSection(ctx, i),
    opNameSection(ctx, i),
    neighbours(ctx, i),
    sourceSection(ctx, i),
    late,
  ];
}

function opNameSection(ctx: PanelContext, i: number): Child {
  const opName = ctx.model.opName(i);
  if (!opName) return section("Operation", note("No op_name: the compiler made this instruction."));
  const parts = splitOpName(opName);
  return section(
    "Operation",
    h(
      "p",
      { class: "crumbs" },
      ...parts.flatMap((part, k) => [
        k > 0 && h("span", { class: "dim" }, " › "),
        h("span", null, part),
      ]),
      copyButton(() => opName, "op_name"),
    ),
  );
}

/** Splits op_name at slashes outside brackets: `jit(f)/jvp(a/b)/dot` has three parts. */
export function splitOpName(text: string): string[] {
  const parts: string[] = [];
  let depth = 0;
  let begin = 0;
  for (let k = 0; k < text.length; k++) {
    const c = text[k];
    if (c === "(" || c === "[") depth++;
    else if (c === ")" || c === "]") depth = Math.max(0, depth - 1);
    else if (c === "/" && depth === 0) {
      parts.push(text.slice(begin, k));
      begin = k + 1;
    }
  }
  parts.push(text.slice(begin));
  return parts.filter(Boolean);
}

const row = (csr: { offsets: Uint32Array; values: Uint32Array }, i: number): number[] =>
  Array.from(csr.values.subarray(csr.offsets[i], csr.offsets[i + 1]));

function neighbours(ctx: PanelContext, i: number): HTMLElement {
  const { model } = ctx;
  const operands = row(model.operands, i);
  const users = row(model.users, i);
  const control = row(model.control, i);
  const callers = callersOf(model, i);
  const listed = (title: string, items: number[]) =>
    items.length > 0 &&
    section(
      `${title} (${format.count(items.length)})`,
      longList(items, (k) => instructionRow(ctx, k)),
    );
  const called: Child[] = [];
  for (let e = model.called.offsets[i]; e < model.called.offsets[i + 1]; e++) {
    const role = model.header.callRoles[model.called.role[e]] ?? "calls";
    const index = model.called.values[e];
    called.push(
      h(
        "li",
        null,
        selectionLink(ctx, { kind: "computation", index }),
        h(
          "span",
          { class: "dim" },
          `${role}, ${format.plural(model.computation.size[index], "instruction")}`,
        ),
      ),
    );
  }
  return h(
    "div",
    null,
    listed("Operands", operands),
    users.length
      ? listed("Users", users)
      : section(
          "Users",
          note(model.has(i, Flag.Root) ? "None: it is the root of its computation." : "None."),
        ),
    listed("Runs after (control)", control),
    called.length > 0 && section("Calls", h("ul", { class: "list" }, ...called)),
    callers.length > 0 && listed("Called by", callers),
  );
}

/** For a parameter or root of a called computation: its caller. */
function callersOf(model: ViewModel, i: number): number[] {
  if (!model.has(i, Flag.Parameter) && !model.has(i, Flag.Root)) return [];
  const group = model.computation.group[model.instruction.computation[i]];
  const owner = group >= 0 ? model.group.owner[group] : -1;
  return owner >= 0 ? [owner] : [];
}

function sourceSection(ctx: PanelContext, i: number): HTMLElement {
  const frames = stackOf(ctx.model, i);
  const inferred = inferredLine(ctx.model, i);
  return section(
    "Source",
    inferred &&
      h(
        "p",
        { class: "note" },
        `inferred: ${inferred.words} `,
        selectionLink(ctx, { kind: "instruction", index: inferred.via }),
      ),
    frames.length ? stackList(ctx, frames) : note("This program has no source line for it."),
  );
}

async function fillFromText(ctx: PanelContext, i: number, element: HTMLElement): Promise<void> {
  try {
    const text = await ctx.text();
    if (ctx.signal.aborted) return;
    const attributes = text.attributesOf(i);
    const sharding = attributes.find(([key]) => key === "sharding")?.[1];
    const rest = attributes.filter(([key]) => !SHOWN.has(key));
    const line = text.instruction(i).trim();
    fill(
      element,
      sharding !== undefined && section("Sharding", longText(sharding, "sharding")),
      rest.length > 0 &&
        section(
          "Attributes",
          facts(rest.map(([key, value]) => [key, value ? longText(value, key) : "yes"])),
        ),
      line &&
        section(
          "HLO",
          h("pre", { class: "wrap", tabindex: "0" }, line),
          copyButton(() => line, "line"),
        ),
    );
  } catch (error) {
    if (!ctx.signal.aborted)
      fill(element, note(`Attributes and text are missing: ${(error as Error).message}`));
  }
}
