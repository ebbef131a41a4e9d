/**
 * Checks a block against its declaration before anything uses it.
 *
 * A saved output can come from anywhere: one changed number in a tree's parents, in the offsets
 * of a relation or in a count could otherwise mean an endless loop or gigabytes of memory, in a
 * tab that shows somebody else's notebook. So every column is checked once, and the header: their
 * types, lengths and ranges; that no table lacks a column that is read with the others; that offsets
 * never decrease; that trees have no cycles. 100,000 instructions take a few milliseconds.
 *
 * Types, lengths and ranges come from what `npm run schema` makes of the declaration in Python.
 */
import type { AnalysesHeader, Extras, ViewHeader } from "../view.ts";
import { LEADS, SHAPES, TABLES } from "../view-extras.ts";
import { BadBlock, type Block, type Column, lacks } from "./decode.ts";
import { difference } from "./difference.ts";

/**
 * A column's dtype, the rows whose number is its length ("*": any length), and what it holds:
 * "text" for an index into the string table, "amount" for a number ≥ 0 or NaN, "flag" for 0 or 1,
 * "any", or the rows or list of the header that it indexes; a leading "-1:" also allows -1.
 * "offsets" splits column `splits` into one piece per row.
 */
interface Rule {
  dtype: string;
  rows: string;
  holds: string;
  splits: string;
}

const RULES = new Map<string, Rule>();
/** Columns that a block has all of or none, by the table that they come with. */
const TOGETHER: Record<string, string[]> = {};
for (const [prefix, along, byRows] of TABLES) {
  TOGETHER[along] ??= [];
  for (const [rows, rules] of Object.entries(byRows)) {
    for (const [rule, names] of Object.entries(rules)) {
      const [dtype, holds, splits] = rule.split(" ");
      for (const name of names.split(" ")) {
        const column = `${prefix}.${name.replace("?", "")}`;
        RULES.set(column, { dtype, rows, holds, splits });
        if (!name.endsWith("?")) TOGETHER[along].push(column);
      }
    }
  }
}

/** The rule of a column; columns that are numbered have one for all. */
export const ruleOf = (name: string): Rule | undefined => RULES.get(name.replace(/\.\d+$/, ".#"));

const LISTS = ["opcodes", "families", "groupKinds", "callRoles"] as const;
type AnyHeader = { columns: ViewHeader["columns"] };
type Columns = ReadonlyMap<string, Column>;

export const wrong = (what: string): never => {
  throw new BadBlock(`The data is damaged: ${what}. Make it again with hloscope.`);
};

function checkHeader(header: unknown, type: string): void {
  const found = difference(header, type, SHAPES);
  if (found) wrong(found.slice(1));
}

/** Throws BadBlock unless the View conforms to its declaration. */
export function checkView(block: Block<ViewHeader>): void {
  const { header, columns } = block;
  checkHeader(header, "ViewHeader");
  const sizes = checkColumns(header, columns, new Map(), header);
  checkTrees(columns, sizes.get("instruction") as number);
  for (const [name, value] of Object.entries(header.counts)) {
    if (value !== sizes.get(name.slice(0, -1))) wrong(`counts.${name} is not that of its table`);
  }
  checkExtras(header.extras, sizes);
}

/** Throws BadBlock unless the analyses fit the View's columns. */
export function checkAnalyses(block: Block<AnalysesHeader>, view: Block<ViewHeader>): void {
  const { header, columns } = block;
  checkHeader(header, "AnalysesHeader");
  checkExtras(header.extras, checkColumns(header, columns, view.columns, view.header));
}

/** Throws BadBlock unless the text block conforms to its declaration. */
export function checkText(block: Block<AnyHeader>): void {
  const { columns } = block;
  checkColumns(block.header, columns, new Map(), {});
  const bytes = columns.get("text.bytes")?.length ?? 0;
  for (const of of ["instruction", "computation"]) {
    const begin = columns.get(`line.${of}_begin`) as Uint32Array;
    const end = columns.get(`line.${of}_end`) as Uint32Array;
    if (!begin || !end) wrong("it has no lines");
    for (let i = 0; i < begin.length; i++) {
      if (begin[i] === 0xffffffff) continue;
      if (begin[i] > end[i] || end[i] > bytes) wrong(`the line of ${of} ${i} is outside the text`);
    }
  }
}

const DTYPES: Record<string, unknown> = {
  u8: Uint8Array,
  u16: Uint16Array,
  u32: Uint32Array,
  i32: Int32Array,
  f32: Float32Array,
  f64: Float64Array,
};

/** Checks every column by its rule; returns numbers of rows. Columns without a rule pass. */
export function checkColumns(
  own: AnyHeader,
  columns: Columns,
  others: Columns,
  lists: Partial<ViewHeader>,
): Map<string, number> {
  const find = (name: string) => columns.get(name) ?? others.get(name);
  for (const together of Object.values(TOGETHER)) {
    const missing = together.find((name) => !find(name));
    if (missing && together.some(find)) throw lacks(missing);
  }
  const sizes = new Map<string, number>();
  for (const [rows, lead] of Object.entries(LEADS)) {
    const found = find(lead);
    if (found) sizes.set(rows, found.length);
  }
  for (const list of LISTS) if (lists[list]) sizes.set(list, lists[list].length);
  const strings = (of: Columns) => (of.get("strings.offsets")?.length ?? 1) - 1;
  const ownStrings = strings(columns);
  const otherStrings = strings(others);
  for (const [name, column] of columns) {
    const rule = ruleOf(name);
    if (!rule) continue;
    const { dtype, rows, holds, splits } = rule;
    if (column.constructor !== DTYPES[dtype]) wrong(`${name} is not ${dtype}`);
    // rows of values that offsets split are called like the column that has them
    const count = rows === "*" ? undefined : (sizes.get(rows) ?? find(rows)?.length);
    if (holds === "offsets") {
      const pieces = find(splits);
      if (!pieces) wrong(`${name} has nothing to cut`);
      checkOffsets(name, column, count, (pieces as Column).length);
      continue;
    }
    if (rows !== "*" && column.length !== count) wrong(`${name} has not one row for each ${rows}`);
    if (holds === "any") continue;
    if (holds === "amount") {
      checkAmounts(name, column);
      continue;
    }
    const isOwn = others.size === 0 || own.columns[name]?.text === true;
    const [low, into] = holds.startsWith("-1:") ? [-1, holds.slice(3)] : [0, holds];
    const limits: Record<string, number> = { text: isOwn ? ownStrings : otherStrings, flag: 2 };
    checkRange(name, column, low, limits[into] ?? sizes.get(into) ?? 0);
  }
  return sizes;
}

function checkRange(name: string, column: Column, low: number, limit: number): void {
  for (let k = 0; k < column.length; k++) {
    if (column[k] < low || column[k] >= limit) {
      wrong(`row ${k} of ${name} is ${column[k]}, not within ${low} and ${limit - 1}`);
    }
  }
}

function checkAmounts(name: string, column: Column): void {
  for (let k = 0; k < column.length; k++) {
    if (column[k] < 0 || column[k] === Number.POSITIVE_INFINITY) {
      wrong(`row ${k} of ${name} is ${column[k]}`);
    }
  }
}

function checkOffsets(
  name: string,
  offsets: Column,
  rows: number | undefined,
  length: number,
): void {
  if (rows !== undefined && offsets.length !== rows + 1) wrong(`${name} has not one row more`);
  if (offsets.length === 0 || offsets[0] !== 0) wrong(`${name} does not begin at 0`);
  for (let k = 1; k < offsets.length; k++) {
    if (offsets[k] < offsets[k - 1]) wrong(`${name} falls at row ${k}`);
  }
  if (offsets[offsets.length - 1] !== length) wrong(`${name} does not end where its values end`);
}

/** Groups come after their parents; a fold's members share its parent; no cycles through callers. */
function checkTrees(columns: Columns, n: number): void {
  const c = <T extends Column>(name: string): T => columns.get(name) as T;
  const parent = c<Int32Array>("group.parent");
  if (!parent?.length || parent[0] !== -1) wrong("its first group is not the root");
  for (let g = 1; g < parent.length; g++) {
    if (parent[g] < 0 || parent[g] >= g) wrong(`group ${g} is not below its parent`);
  }
  const owner = c<Int32Array>("group.owner");
  const groupOf = c<Uint32Array>("instruction.group");
  const above = owner && groupOf && parent.map((p, g) => (owner[g] < 0 ? p : groupOf[owner[g]]));
  if (above) noCircles("group.owner", above);
  const frame = c<Int32Array>("frame.parent");
  if (frame) noCircles("frame.parent", frame);
  for (const name of ["group.size", "group.order"]) {
    const column = c<Uint32Array>(name);
    if (column) checkRange(name, column, 0, n + 1);
  }
  const [first, size] = [c<Uint32Array>("computation.first"), c<Uint32Array>("computation.size")];
  let rows = 0;
  for (let k = 0; first && size && k < first.length; k++) {
    rows += size[k];
    if (first[k] + size[k] > n || rows > n) wrong(`computation ${k} has more rows than there are`);
  }
  const [offsets, members] = [c<Uint32Array>("fold.offsets"), c<Uint32Array>("fold.members")];
  const [foldOf, foldParent] = [c<Int32Array>("group.fold"), c<Uint32Array>("fold.parent")];
  for (let f = 0; offsets && members && foldParent && f < foldParent.length; f++) {
    if (offsets[f + 1] - offsets[f] < 2) wrong(`fold ${f} has fewer than two members`);
    for (let k = offsets[f]; k < offsets[f + 1]; k++) {
      const g = members[k];
      if (foldOf[g] !== f || parent[g] !== foldParent[f] || owner[g] >= 0) {
        wrong(`group ${g} is not a member of fold ${f}`);
      }
    }
  }
}

/** Throws BadBlock unless every row leads to -1 in the end. Each row is walked once. */
function noCircles(name: string, parent: Int32Array): void {
  const seen = new Int32Array(parent.length); // the walk that visited it, 1-based
  for (let k = 0; k < parent.length; k++) {
    let at = k;
    while (at >= 0 && seen[at] === 0) {
      seen[at] = k + 1;
      at = parent[at];
    }
    if (at >= 0 && seen[at] === k + 1) wrong(`${name} leads from row ${k} back to itself`);
  }
}

/** Checks numbers of extras that code multiplies, sizes allocations by or walks. */
function checkExtras(extras: Extras, sizes: ReadonlyMap<string, number>): void {
  const { devices, cost } = extras;
  if (devices) {
    const { count, mesh } = devices;
    if (count !== sizes.get("device")) wrong("extras.devices.count is not that of its table");
    if (mesh) {
      const areSizes = mesh.sizes.every((size) => Number.isInteger(size) && size > 0);
      const total = areSizes ? mesh.sizes.reduce((a, b) => a * b, 1) : 0;
      if (total < 1 || total > Math.max(count, mesh.partitions.length)) {
        wrong("its mesh does not fit its devices");
      }
    }
  }
  const loops = cost?.unknownLoops ?? [];
  for (const { parent } of loops) {
    if (!Number.isInteger(parent) || parent < -1 || parent >= loops.length) {
      wrong("a loop has no parent");
    }
  }
}
