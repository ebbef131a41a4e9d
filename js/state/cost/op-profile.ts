/**
 * The program as a tree of sums, by scope, source line or kind of operation.
 *
 * Repeats are one row: the members of a fold are counted together. Sums are of amounts that are
 * counted once (an operation inside a fusion counts as part of the fusion), so a row is never
 * less than the rows inside it.
 */
import type { ViewModel } from "../../base/model.ts";
import type { Selection } from "../../view.ts";
import { childGroups, directMembers, foldMembers, nameOf, perModel } from "../members.ts";
import { frameOf } from "../source/lines.ts";
import { lineOfFrame, shortLine } from "../source/places.ts";

export const GROUPINGS = ["scope", "line", "kind"] as const;
export type Grouping = (typeof GROUPINGS)[number];

/** An amount per instruction that adds up; NaN means unknown and adds nothing. */
export interface Metric {
  id: string;
  label: string;
  unit: string;
  values: ArrayLike<number>;
}

export interface ProfileRow {
  key: string; // "g12", "f3", "i7", "kind matmul"
  label: string;
  tag: string;
  /** What a click selects; if null, it highlights `instructions` instead. */
  selection: Selection | null;
  instructions(): number[];
  count: number; // operations inside
  sums: readonly number[]; // parallel to the metrics
  inside: (() => ProfileRow[]) | null;
}

/** Most operations listed in one row. */
const MOST = 1000;
/** NaN is unknown and adds nothing. */
const known = (value: number) => (Number.isNaN(value) ? 0 : value);
const keyOf = (s: Selection) => `${s.kind[0]}${s.index}`;

export function profileRows(
  model: ViewModel,
  metrics: readonly Metric[],
  grouping: Grouping,
  detail: boolean,
): ProfileRow[] {
  if (grouping === "scope") return byScope(model, metrics, detail);
  return grouping === "line" ? byLine(model, metrics) : byKind(model, metrics);
}

const sumOf = (metrics: readonly Metric[], members: readonly number[]) =>
  metrics.map(({ values }) => members.reduce((sum, i) => sum + known(values[i]), 0));

function leaf(model: ViewModel, metrics: readonly Metric[], i: number): ProfileRow {
  return {
    key: `i${i}`,
    label: model.label(i) || `%${model.name(i)}`,
    tag: model.opcode(i),
    selection: { kind: "instruction", index: i },
    instructions: () => [i],
    count: 1,
    sums: sumOf(metrics, [i]),
    inside: null,
  };
}

/** Operations that cost something; those with the same text are one row with their count. */
function leaves(
  model: ViewModel,
  metrics: readonly Metric[],
  members: readonly number[],
): ProfileRow[] {
  const alike = new Map<string, number[]>();
  for (const i of members) {
    if (!metrics.some((m) => m.values[i] > 0)) continue;
    const key = `${model.opcode(i)} ${model.label(i) || i}`;
    const list = alike.get(key);
    if (list) list.push(i);
    else alike.set(key, [i]);
  }
  const rows = [...alike.values()].map((list): ProfileRow => {
    const one = leaf(model, metrics, list[0]);
    if (list.length === 1) return one;
    return {
      ...one,
      key: `${one.key} alike`,
      label: `${one.label} ×${list.length}`,
      selection: null,
      instructions: () => list,
      count: list.length,
      sums: sumOf(metrics, list),
      inside: () => {
        const each = list.slice(0, MOST).map((i) => leaf(model, metrics, i));
        return list.length > MOST ? [...each, rest(metrics, one.key, list.slice(MOST))] : each;
      },
    };
  });
  if (rows.length <= MOST) return rows;
  const others = rows.slice(MOST).flatMap((row) => [...row.instructions()]);
  return [...rows.slice(0, MOST), rest(metrics, rows[MOST].key, others)];
}

/** One row for operations that are not listed: with it the rows still add up. */
function rest(metrics: readonly Metric[], key: string, members: number[]): ProfileRow {
  return {
    key: `${key} and more`,
    label: `${members.length.toLocaleString("en-US")} more`,
    tag: "",
    selection: null,
    instructions: () => members,
    count: members.length,
    sums: sumOf(metrics, members),
    inside: null,
  };
}

function byScope(model: ViewModel, metrics: readonly Metric[], detail: boolean): ProfileRow[] {
  const { count, parent, fold, size } = model.group;
  const { group, count: instructions } = model.instruction;
  const children = childGroups(model);
  const direct = directMembers(model);
  const sums = metrics.map(({ values }) => {
    const out = new Float64Array(count);
    for (let i = 0; i < instructions; i++) out[group[i]] += known(values[i]);
    // Parents come before their children.
    for (let g = count - 1; g > 0; g--) out[parent[g]] += out[g];
    return out;
  });
  // Hundreds of fusions and reducers would hide the few groups that explain the program.
  const small = (g: number) => ["fusion", "reducer"].includes(model.groupKind(g));
  const row = (selection: Selection, groups: readonly number[]): ProfileRow => {
    const kind = selection.kind === "group" ? model.groupKind(selection.index) : "fold";
    const total = (of: ArrayLike<number>) => groups.reduce((sum, g) => sum + of[g], 0);
    const inner = groups.some(
      (g) => children[g].some((c) => detail || !small(c)) || direct[g].length,
    );
    return {
      key: keyOf(selection),
      label: nameOf(model, selection) || "(unnamed)",
      tag: kind === "scope" || kind === "fold" ? "" : kind,
      selection,
      instructions: () => [],
      count: total(size),
      sums: sums.map(total),
      inside: inner ? () => inside(selection) : null,
    };
  };
  /** Child groups with runs of equal ones replaced by their fold, then the group's own operations. */
  const inside = (s: Selection): ProfileRow[] => {
    if (s.kind === "fold") {
      return foldMembers(model, s.index).map((g) => row({ kind: "group", index: g }, [g]));
    }
    const out: ProfileRow[] = [];
    const seen = new Set<number>();
    for (const g of children[s.index]) {
      if (small(g) && !detail) continue;
      if (fold[g] < 0) out.push(row({ kind: "group", index: g }, [g]));
      else if (!seen.has(fold[g])) {
        seen.add(fold[g]);
        const members = foldMembers(model, fold[g]);
        out.push(row({ kind: "fold", index: fold[g] }, members));
      }
    }
    return out.concat(leaves(model, metrics, direct[s.index]));
  };
  return inside({ kind: "group", index: 0 });
}

/** Instructions by their source line: the innermost outside libraries. */
const linesOf = perModel((model) => {
  const out = new Map<string, number[]>();
  for (let i = 0; i < model.instruction.count; i++) {
    const line = lineOfFrame(model, frameOf(model, i));
    const list = out.get(line);
    if (list) list.push(i);
    else out.set(line, [i]);
  }
  return out;
});

function byLine(model: ViewModel, metrics: readonly Metric[]): ProfileRow[] {
  return [...linesOf(model)].map(([line, members]) => ({
    key: `line ${line}`,
    label: shortLine(line) || "no line",
    tag: "",
    selection: null,
    instructions: () => members,
    count: members.length,
    sums: sumOf(metrics, members),
    inside: () => leaves(model, metrics, members),
  }));
}

function byKind(model: ViewModel, metrics: readonly Metric[]): ProfileRow[] {
  const families = new Map<number, Map<string, number[]>>();
  const { family, count } = model.instruction;
  for (let i = 0; i < count; i++) {
    const opcodes = families.get(family[i]) ?? new Map<string, number[]>();
    families.set(family[i], opcodes);
    const opcode = model.opcode(i);
    const list = opcodes.get(opcode);
    if (list) list.push(i);
    else opcodes.set(opcode, [i]);
  }
  return [...families].map(([f, opcodes]) => {
    const all = [...opcodes.values()].flat();
    const rows = [...opcodes].map(([opcode, members]) => ({
      key: `opcode ${f} ${opcode}`,
      label: opcode,
      tag: "",
      selection: null,
      instructions: () => members,
      count: members.length,
      sums: sumOf(metrics, members),
      inside: () => leaves(model, metrics, members),
    }));
    return {
      key: `kind ${f}`,
      label: model.header.families[f].label,
      tag: "",
      selection: null,
      instructions: () => all,
      count: all.length,
      sums: sumOf(metrics, all),
      inside: rows.length > 1 ? () => rows : rows[0].inside,
    };
  });
}
