/** The text on boxes, containers and chips. */
import { Flag } from "../../view.ts";
import { type Flow, Hidden } from "./flow.ts";
import { ItemKind, type Projection } from "./projection.ts";
import type { Tree } from "./tree.ts";

/** Instructions of each family in each node, not counting those inside fusions and reducers. */
export class FamilyCounts {
  readonly families: number;
  private counts: Uint32Array;
  constructor(tree: Tree, flow: Flow) {
    const { instruction, header } = tree.model;
    const f = header.families.length;
    this.families = f;
    this.counts = new Uint32Array(tree.stacks * f);
    const control = header.families.findIndex((x) => x.id === "control_flow");
    for (let i = 0; i < tree.instructions; i++) {
      if (flow.hidden[i] === Hidden.No) this.counts[i * f + instruction.family[i]] = 1;
    }
    for (let at = tree.topDown.length - 1; at >= 0; at--) {
      const v = tree.topDown[at];
      const p = tree.parent[v];
      if (p < 0 || (p < tree.instructions && instruction.family[p] !== control)) continue;
      for (let k = 0; k < f; k++) this.counts[p * f + k] += this.counts[v * f + k];
    }
  }
  of(node: number): Uint32Array {
    return this.counts.subarray(node * this.families, (node + 1) * this.families);
  }
  total(node: number): number {
    let sum = 0;
    for (const c of this.of(node)) sum += c;
    return sum;
  }
}

/** "12,345", without the locale functions, whose first use takes longer than the whole layout. */
function thousands(count: number): string {
  return String(count).replace(/\B(?=(\d{3})+$)/g, ",");
}

export function ops(count: number): string {
  return `${thousands(count)} ${count === 1 ? "op" : "ops"}`;
}

/** "38 ops · 6 matmul · 2 collective"; without operations beside what is `named` already. */
export function summary(tree: Tree, counts: FamilyCounts, node: number, named = false): string {
  const { families } = tree.model.header;
  const mine = counts.of(node);
  const landmarks = families
    .map((family, k) => ({ family, count: mine[k] }))
    .filter((x) => x.family.landmark && x.count > 0)
    .filter((x) => !named || x.family.id !== "control_flow")
    .sort((a, b) => b.count - a.count)
    .slice(0, 2)
    .map(({ family, count }) => `${thousands(count)} ${family.label.replace(/, /g, "/")}`);
  if (!named || landmarks.length === 0) landmarks.unshift(ops(counts.total(node)));
  return landmarks.join(" · ");
}

/** The words on a box: the person's code where it is known, and the two shapes of a product. */
export function boxLabel(tree: Tree, node: number): string {
  const code = node < tree.instructions ? tree.model.code(node) : "";
  if (!code) return nodeLabel(tree, node);
  const shapes = /^matmul( \[.*)/.exec(tree.model.label(node));
  return shapes ? `${code}${shapes[1]}` : code;
}

export function nodeLabel(tree: Tree, node: number): string {
  if (node < tree.instructions) return tree.model.label(node) || tree.model.opcode(node);
  if (node < tree.stacks) {
    const g = node - tree.instructions;
    return tree.model.groupLabel(g) || tree.model.groupKind(g);
  }
  return "";
}

/**
 * The text of a chip. A fusion's "parameter 1" is named after what its caller passes, and a
 * broadcast constant after the constant.
 */
export function chipLabel(tree: Tree, i: number, depth = 0): string {
  const { model } = tree;
  const label = nodeLabel(tree, i);
  if (depth > 4) return label;
  const { operands, instruction, computation, group } = model;
  const number = /^parameter (\d+)$/.exec(label);
  if (number) {
    const g = computation.group[instruction.computation[i]];
    const owner = g >= 0 ? group.owner[g] : -1;
    if (owner < 0) return label;
    const e = operands.offsets[owner] + Number(number[1]);
    const kind = model.groupKind(g);
    const passes = kind === "fusion" || kind === "call" || kind === "reducer";
    return passes && e < operands.offsets[owner + 1]
      ? chipLabel(tree, operands.values[e], depth + 1)
      : label;
  }
  const opcode = model.opcode(i);
  if (model.has(i, Flag.Turn) && operands.offsets[i + 1] > operands.offsets[i]) {
    return chipLabel(tree, operands.values[operands.offsets[i]], depth + 1); // of this array
  }
  const bare = label === opcode || (opcode === "fusion" && model.has(i, Flag.Inline));
  if (bare && operands.offsets[i + 1] - operands.offsets[i] === 1) {
    const o = operands.values[operands.offsets[i]];
    if (model.has(o, Flag.Inline) || model.has(o, Flag.Parameter)) {
      return chipLabel(tree, o, depth + 1);
    }
  }
  return label;
}

/** "layer_[1..22]" for a whole fold, "layer_[4..9]" for a part of it. */
export function stackLabel(tree: Tree, first: number, end: number): string {
  const { fold } = tree.model;
  const f = tree.foldAt[first];
  const whole = tree.model.strings.get(fold.label[f]);
  if (first === fold.members.offsets[f] && end === fold.members.offsets[f + 1] && whole) {
    return whole;
  }
  const a = tree.model.groupLabel(fold.members.values[first]);
  const b = tree.model.groupLabel(fold.members.values[end - 1]);
  return joinNames(a, b);
}

/** layer_4 and layer_9 → layer_[4..9]; names without numbers are joined by an ellipsis. */
export function joinNames(a: string, b: string): string {
  if (a === b) return a;
  const at = /^(.*?)(\d+)(\D*)$/.exec(a);
  const bt = /^(.*?)(\d+)(\D*)$/.exec(b);
  if (at && bt && at[1] === bt[1] && at[3] === bt[3]) {
    return `${at[1]}[${at[2]}..${bt[2]}]${at[3]}`;
  }
  return `${a} … ${b}`;
}

function isBody(tree: Tree, node: number): boolean {
  return tree.isGroup(node) && tree.model.groupKind(node - tree.instructions) === "body";
}

/** The title of an open container, including what was merged into it: "main / jit(step)". */
export function title(tree: Tree, p: Projection, item: number): string {
  const node = p.nodes[item];
  const first = node - tree.stacks;
  const names = [
    first >= 0
      ? `${stackLabel(tree, first, p.stackEnd[item])} ×${p.stackEnd[item] - first}`
      : boxLabel(tree, node),
  ];
  for (const v of (p.absorbed.get(item) ?? []).slice(first >= 0 ? 1 : 0)) {
    const name = nodeLabel(tree, v);
    // a loop that has a name is what each turn is, whatever most of the turn is called
    if (isBody(tree, v) && !names[0].startsWith("while ")) continue;
    const before = names[names.length - 1];
    const told = before.startsWith(`${name} ×`) || before.startsWith(`${name} · `);
    if (name === "body" || name === before || told) continue;
    if (name) names.push(name);
  }
  return names.join(" / ");
}

export function itemLabel(tree: Tree, p: Projection, item: number): string {
  switch (p.kind[item]) {
    case ItemKind.Stack:
      return stackLabel(tree, p.nodes[item] - tree.stacks, p.stackEnd[item]);
    case ItemKind.Open:
      return title(tree, p, item);
    default:
      return boxLabel(tree, p.nodes[item]);
  }
}

export function isOutput(tree: Tree, flow: Flow, i: number): boolean {
  return flow.output[i] === 1 || tree.model.has(i, Flag.Output);
}
