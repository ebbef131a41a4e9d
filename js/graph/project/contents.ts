/** What a closed box holds, in the names that its parts would have: "embed, layer ×6, logits". */
import { Flag } from "../../view.ts";
import { type Flow, Hidden } from "./flow.ts";
import { worthOf } from "./openness.ts";
import type { Tree } from "./tree.ts";
import { boxLabel, stackLabel } from "./words.ts";

interface Part {
  name: string;
  /** Calls of that name that are told apart: by numbers, lines or arguments. */
  calls: Set<string>;
  /** Members of stacks of that name. */
  members: number;
  /** Share of the program's work. */
  work: number;
  parts: Part[];
}

/** A part with so much of the work around it has its own parts named. */
const MOST_OF_IT = 0.5;
const DEEPEST = 3;
/** A statement is a part beside calls if it has this share of the work around it. */
const WORKS = 0.05;
/** Names are no longer than this, in letters. */
const LONGEST = 22;
/** The same where they are the name of small operations. */
const LONGEST_ALONE = 26;
/** A variable's name says something from more letters than this. */
const SHORTEST = 2;

/**
 * The parts of a container as lines of text, each of which `fits`; at most so many of them. Parts
 * with the least work are left out first, but of small operations one is kept, whether it fits or
 * not. Empty where no part has a name of its own, and for a statement, whose name is its text.
 */
export function contentLines(
  tree: Tree,
  flow: Flow,
  node: number,
  most: number,
  fits: (line: string) => boolean,
): string[] {
  const group = tree.groupOf(node);
  const kind = group >= 0 ? tree.model.groupKind(group) : "";
  if (kind === "component") return [];
  const isSection = kind === "section";
  const parts = partsOf(tree, flow, bodyOf(tree, node), 0);
  for (let left = false; parts.length > 0; left = true) {
    const lines = wrapped(words(parts) + (left ? " …" : ""), fits);
    if (lines.length <= most && lines.every(fits)) return lines;
    if (isSection && parts.length === 1) return [parts[0].name]; // the caller shortens it
    dropLightest(parts);
  }
  return [];
}

function partsOf(tree: Tree, flow: Flow, node: number, depth: number): Part[] {
  const { model } = tree;
  const { offsets, values } = model.fold.members;
  const out: Part[] = [];
  const stacks = new Map<number, Part>();
  const whole = worthOf(tree, node);
  const group = tree.groupOf(node);
  const kind = group >= 0 ? model.groupKind(group) : "";
  const add = (part: Part): void => {
    const before = out.find((p) => p.name === part.name);
    if (!before) out.push(part);
    else if (node < tree.instructions && model.opcode(node) === "conditional") {
      if (timesOf(part) > timesOf(before))
        [before.calls, before.members] = [part.calls, part.members];
      before.work = Math.max(before.work, part.work); // one of the branches runs
    } else {
      for (const call of part.calls) before.calls.add(call);
      before.members += part.members;
      before.work += part.work;
    }
  };
  for (let e = tree.childOffsets[node]; e < tree.childOffsets[node + 1]; e++) {
    const v = tree.children[e];
    if (v < tree.instructions && flow.hidden[v] !== Hidden.No) continue;
    const at = tree.isGroup(v) ? tree.memberAt[v - tree.instructions] : -1;
    const fold = at >= 0 ? tree.foldAt[at] : -1;
    const work = worthOf(tree, v);
    const known = fold >= 0 ? stacks.get(fold) : undefined;
    if (known) {
      known.work += work;
      continue;
    }
    if (isBranching(tree, v)) {
      for (const part of partsOf(tree, flow, v, depth)) add(part);
      continue;
    }
    const label =
      fold >= 0
        ? stackLabel(tree, offsets[fold], offsets[fold + 1]).replace(/[\W_]*\[.*/, "")
        : boxLabel(tree, v);
    const of = fold < 0 && tree.isGroup(v) ? model.groupFunction(v - tree.instructions) : "";
    const name = nameOf(tree, v, of || label, kind);
    if (!name || (!callOrLoop(tree, v) && kind !== "section" && work < WORKS * whole)) continue;
    const inner = fold >= 0 ? tree.node(values[offsets[fold]]) : bodyOf(tree, v);
    const call = label.replace(/\/.*/, ""); // "layer/attention" may be a piece of any layer
    const calls = new Set(fold < 0 && call !== name ? [call] : []);
    const members = fold >= 0 ? offsets[fold + 1] - offsets[fold] : 0;
    const deep = depth + 1 < DEEPEST && tree.canOpen(v) && whole > 0;
    const parts = deep ? partsOf(tree, flow, inner, depth + 1) : [];
    const part = { name, calls, members, work, parts };
    if (fold >= 0) stacks.set(fold, part);
    add(part);
  }
  for (const part of out) if (part.work < MOST_OF_IT * whole) part.parts = [];
  return out;
}

/** A conditional, or a branch of one: what is in it is said as if it stood beside it. */
function isBranching(tree: Tree, node: number): boolean {
  if (node < tree.instructions) return tree.model.opcode(node) === "conditional";
  return tree.isGroup(node) && tree.model.groupKind(node - tree.instructions) === "branch";
}

function callOrLoop(tree: Tree, node: number): boolean {
  if (node < tree.instructions) return tree.model.opcode(node) === "while";
  return tree.model.groupKind(node - tree.instructions) !== "component";
}

/** The body of a loop that has a condition beside it; else the node itself. */
function bodyOf(tree: Tree, node: number): number {
  if (node >= tree.instructions) return node;
  for (let e = tree.childOffsets[node]; e < tree.childOffsets[node + 1]; e++) {
    const v = tree.children[e];
    if (tree.isGroup(v) && tree.model.groupKind(v - tree.instructions) === "body") return v;
  }
  return node;
}

/**
 * The part's name; "" for what has none but those of operations. Single statements are named where
 * they are all there is, in a section of small operations, and where they are products.
 */
function nameOf(tree: Tree, node: number, label: string, among: string): string {
  const { model } = tree;
  const opcode = node < tree.instructions ? model.opcode(node) : "";
  const group = tree.groupOf(node);
  const kind = group >= 0 ? model.groupKind(group) : "";
  if (kind === "section" || kind === "reducer" || kind === "condition") return "";
  if (label.endsWith(", outside its loop")) return ""; // a piece of what is named elsewhere
  const works = !opcode || opcode === "while" || model.has(node, Flag.Landmark);
  if (!works && !(among === "section" && model.code(node))) return "";
  if (opcode === "while" && label.startsWith("while ×")) return label.replace("while", "loop");
  if (OF_OPERATIONS.test(label) || opcodesOf(tree).has(label.split(" ")[0])) return "";
  const plain = label
    .replace(/[\W_]*\[\d[^\]]*\]/, "")
    .replace(/(, line \d+:\d+|(, line)? \d+)(?=\/|$)/g, "")
    .replace(/\/.*/, "");
  const [, target, value] = /^([\w., ]+) = (.*)/.exec(plain) ?? ["", plain, plain];
  const says = target.length > SHORTEST && !target.includes(", ");
  const name = says ? target : value;
  const most = among === "section" ? LONGEST_ALONE : LONGEST;
  if (name.length <= most) return name;
  return says || among === "section" ? `${name.slice(0, most - 1)}…` : "";
}

/** "sqrt·divide·maximum f32[8]" and "fusion add": what operations do, not what they are for. */
const OF_OPERATIONS = /^[a-z-]+(·[a-z-]+)+( |$)/;
const opcodes = new WeakMap<Tree, Set<string>>();
function opcodesOf(tree: Tree): Set<string> {
  let found = opcodes.get(tree);
  if (!found) {
    found = new Set<string>();
    for (let i = 0; i < tree.instructions; i++) found.add(tree.model.opcode(i));
    found.delete("call");
    opcodes.set(tree, found);
  }
  return found;
}

function words(parts: Part[]): string {
  return parts
    .map((part) => {
      const often = timesOf(part) > 1 ? `${part.name} ×${timesOf(part)}` : part.name;
      return part.parts.length > 0 ? `${often} (${words(part.parts)})` : often;
    })
    .join(", ");
}

function timesOf(part: Part): number {
  return part.calls.size + part.members;
}

/** Whether it says how often something runs. */
function isCounted(part: Part): boolean {
  return timesOf(part) > 1 || part.name.includes("×");
}

/**
 * Takes away the part with the least work that has no parts of its own. Where that is all that a
 * part holds, and counted, it takes the part's place: "solve (iteration ×300)" is "iteration ×300".
 */
function dropLightest(parts: Part[]): void {
  let least: Part | null = null;
  let path: Part[][] = [];
  const visit = (lists: Part[][]): void => {
    for (const part of lists[lists.length - 1]) {
      if (part.parts.length > 0) visit([...lists, part.parts]);
      else if (!least || part.work < least.work) [least, path] = [part, lists];
    }
  };
  visit([parts]);
  if (!least) return;
  const alone = path.findIndex((list, k) => k > 0 && list.length === 1);
  const above = alone > 0 ? path[alone - 1].find((p) => p.parts === path[alone]) : undefined;
  if (above && isCounted(least) && !isCounted(above)) {
    path[alone - 1].splice(path[alone - 1].indexOf(above), 1, path[alone][0]);
  } else {
    const from = path[path.length - 1];
    from.splice(from.indexOf(least), 1);
  }
}

function wrapped(text: string, fits: (line: string) => boolean): string[] {
  const out: string[] = [];
  for (const piece of text.split(/(?<=, )/)) {
    const last = out.at(-1);
    if (last !== undefined && fits((last + piece).trimEnd())) out[out.length - 1] = last + piece;
    else out.push(piece);
  }
  return out.map((line) => line.trimEnd());
}
