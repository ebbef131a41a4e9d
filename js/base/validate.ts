/**
 * Checks a block against its description in js/view.ts before anything uses it.
 *
 * A saved output can come from anywhere: one changed number in a tree's parents, in the offsets
 * of a relation or in a count could otherwise mean an endless loop or gigabytes of memory, in a
 * tab that shows somebody else's notebook. So every column is checked once: its dtype, length and
 * range; that offsets never decrease; that trees have no cycles. 100,000 instructions take a few
 * milliseconds.
 */
import type { AnalysesHeader, ViewHeader } from "../view.ts";
import { BadBlock, type Block, type Column } from "./decode.ts";

/** The column whose length is the number of rows of each table. */
const LEAD = {
  instruction: "instruction.name",
  computation: "computation.name",
  group: "group.parent",
  fold: "fold.parent",
  frame: "frame.file",
  called: "called.values",
  point: "memory.schedule",
  buffer: "buffer.instruction",
  gap: "gap.buffer",
  measured: "measured.rows",
  transfer: "transfer.start",
  collective: "collective.kind",
  part: "collective_part.shape",
  branch: "collective_branch.of",
  device: "device.id",
  traffic: "traffic.source",
  array: "array.role",
  sharding: "sharding.text",
  transition: "transition.source",
  move: "move.start",
  event: "timeline.computation",
  trace: "trace.lane",
  trace_lane: "trace_lane.device",
  trace_run: "trace_run.device",
  attribute: "attribute.key",
  place: "place.line",
  strand: "strand.color",
  version: "version.instruction",
  link: "pass_link.row",
  diff: "diff.kind",
} as const;

/**
 * "dtype rows what". Rows: a table of `LEAD`, or "*" for any number. What: "text" for a StringId,
 * "amount" for a number ≥ 0 or NaN, "flag" for 0 or 1, "any", or the table or header list that the
 * values index; a leading "-1:" also allows -1. "offsets X" splits column X into one piece per row.
 */
const RULES: Record<string, string> = Object.assign(
  {},
  table("instruction", {
    "u32 text": "name label shape dense_shape op_name",
    "u16 opcodes": "opcode",
    "u8 families": "family",
    "u16 any": "flags",
    "f64 amount": "bytes",
    "i32 any": "element",
    "u32 computation": "computation",
    "u32 group": "group",
    "i32 -1:frame": "frame",
  }),
  table("computation", {
    "u32 text": "name",
    "u32 any": "first size",
    "i32 -1:instruction": "root",
    "i32 -1:group": "group",
  }),
  table("group", {
    "i32 -1:group": "parent",
    "u8 groupKinds": "kind",
    "u32 text": "label",
    "i32 -1:instruction": "owner",
    "i32 -1:computation": "computation",
    "u32 any": "size order class",
    "f32 amount": "worth",
    "i32 -1:fold": "fold",
  }),
  table("fold", { "u32 group": "parent", "u32 text": "label" }),
  table("frame", { "u32 text": "file function", "u32 any": "line", "i32 -1:frame": "parent" }),
  {
    ...relation("operand", "instruction", "u32 instruction"),
    ...relation("version_operand", "version", "u32 instruction"),
    ...relation("control", "instruction", "u32 instruction"),
    ...relation("called", "instruction", "u32 computation"),
    ...relation("fold", "fold", "u32 group", "members"),
    ...relation("collective_member", "collective", "u32 instruction"),
    ...relation("array_dims", "array", "u32 any"),
    ...relation("array_local", "array", "u32 any"),
    ...relation("sharding_tiles", "sharding", "u32 any"),
    "called.role": "u8 called callRoles",
    "collective_part.offsets": "u32 collective offsets collective_part.shape",
    "collective_part.shape": "u32 part text",
    "collective_part.bytes": "f64 part amount",
    "collective_branch.offsets": "u32 collective offsets collective_branch.of",
    "collective_branch.conditional": "u32 branch instruction",
    "collective_branch.number": "u32 branch any",
    "collective_branch.of": "u32 branch any",
    "cost.unit": "u8 instruction any",
    "cost.bound": "u8 instruction any",
    "cost.dtype": "u8 instruction any",
    "cost.loop": "i32 instruction any",
    "cost.condition": "u8 instruction flag",
    "memory.schedule": "u32 point instruction",
    "memory.live": "f64 point amount",
    "sharding_place.tile": "i32 * any",
    "measured.rows": "u32 measured instruction",
    "measured.seconds": "f32 * amount",
    "measured.self": "f32 measured any",
    "measured.flight": "f32 measured amount",
    "measured.mean": "f64 instruction amount",
    "measured.step": "f64 instruction amount",
    "measured.most": "f64 instruction amount",
    "measured.slowest": "u32 instruction any",
    "source.frame": "i32 instruction -1:frame",
    "diff.of": "u8 instruction any",
    "diff.pair": "i32 instruction any",
    "source.flops": "f64 instruction amount",
    "source.via": "i32 instruction -1:instruction",
    "source.why": "u8 instruction any",
    "phase.of": "u8 instruction any",
    "text.bytes": "u8 * any",
    "line.instruction_begin": "u32 * any",
    "line.instruction_end": "u32 * any",
    "line.computation_begin": "u32 * any",
    "line.computation_end": "u32 * any",
    "attribute.offsets": "u32 * offsets attribute.key",
    "attribute.value": "u32 attribute text",
    "attribute.key": "u32 attribute text",
    "stage_text.bytes": "u8 * any",
    "source_row.number": "u32 * any",
    "place.line": "u32 place any",
    "place.told": "u32 place text",
    ...relation("place_strand", "place", "u32 strand"),
    ...relation("place_near", "place", "u32 strand"),
    "strand.color": "i32 strand any",
    "pass.first": "u32 instruction any",
    "pass.last": "u32 instruction any",
    "pass.final": "i32 instruction any",
    "version.offsets": "u32 * offsets version.instruction",
    "version.instruction": "i32 version -1:instruction",
    "version.changed": "u8 version any",
    "version.line": "u32 version text",
    "diff.offsets": "u32 * offsets diff.kind",
    "diff.kind": "u8 diff any",
    "diff.value": "u32 diff any",
    "strings.bytes": "u8 * any",
    "strings.offsets": "u32 * offsets strings.bytes",
  },
  table(
    "cost",
    {
      "f64 amount": "flops matmul_flops transcendentals bytes main_bytes runs cycles seconds step",
    },
    "instruction",
  ),
  table("transfer", {
    "u32 instruction": "start done",
    "u8 flag": "far",
    "f64 amount": "bytes runs seconds waited",
  }),
  table(
    "transfer",
    { "f64 amount": "switch_steps switch_bytes torus_steps torus_bytes far_steps far_bytes" },
    "*",
  ),
  table("buffer", {
    "u32 instruction": "instruction",
    "u32 any": "leaf",
    "f64 amount": "bytes padding",
    "u8 any": "space kind category",
    "u32 point": "start end",
    "i32 any": "freed allocation",
    "i32 -1:buffer": "home",
    "i32 -1:frame": "frame",
    "u32 text": "scope name",
    "f64 any": "offset",
  }),
  table("gap", { "u32 buffer": "buffer", "u32 any": "start end" }),
  table("collective", {
    "u32 text": "kind axes moves line op_name network shows",
    "u32 instruction": "instruction anchor",
    "u8 flag": "on_axes moves_argument",
    "u32 any": "group_size",
    "f64 amount": "payload wire executions",
    "u8 any": "phase written",
    "i32 any": "why group_set",
  }),
  table("device", { "u32 any": "id", "f64 amount": "parameter_bytes output_bytes sent_bytes" }),
  table("traffic", { "u32 device": "source target", "f64 amount": "bytes" }),
  table("array", {
    "u8 any": "role",
    "u32 text": "name type",
    "i32 -1:instruction": "instruction",
    "u32 sharding": "sharding",
    "f64 amount": "bytes global_bytes",
    "u8 flag": "padded",
  }),
  table("pass_link", { "u32 any": "row", "u32 instruction": "old new", "u8 any": "how" }, "link"),
  table("sharding", { "u32 text": "text raw kind", "u32 any": "replicas" }),
  table("transition", { "u32 instruction": "source target", "u32 text": "before after" }),
  table(
    "timeline",
    {
      "u32 computation": "computation",
      "u32 instruction": "instruction",
      "u8 any": "lane",
      "f64 amount": "start seconds times",
      "i32 -1:computation": "inside",
    },
    "event",
  ),
  table("trace_lane", { "u32 text": "device name", "u8 flag": "beside", "u32 any": "events" }),
  table("trace", {
    "u32 trace_lane": "lane",
    "u32 text": "text",
    "i32 -1:instruction": "instruction",
    "f64 amount": "start end seconds",
  }),
  table("trace_run", { "u32 text": "device", "f64 amount": "start seconds" }),
  table("move", {
    "u32 instruction": "start end source",
    "u32 any": "pieces",
    "u32 text": "kind",
    "f64 amount": "bytes seconds exposed",
  }),
);

function table(prefix: string, columns: Record<string, string>, rows = prefix) {
  const out: Record<string, string> = {};
  for (const [rule, names] of Object.entries(columns)) {
    const [dtype, what] = rule.split(" ");
    for (const name of names.split(" ")) out[`${prefix}.${name}`] = `${dtype} ${rows} ${what}`;
  }
  return out;
}

function relation(name: string, rows: string, rule: string, values = "values") {
  const [dtype, what] = rule.split(" ");
  return {
    [`${name}.offsets`]: `u32 ${rows} offsets ${name}.${values}`,
    [`${name}.${values}`]: `${dtype} * ${what}`,
  };
}

const LISTS = ["opcodes", "families", "groupKinds", "callRoles"] as const;
type AnyHeader = { columns: ViewHeader["columns"] };
type Columns = ReadonlyMap<string, Column>;

export const wrong = (what: string): never => {
  throw new BadBlock(`The data is damaged: ${what}. Make it again with hloscope.`);
};

/** Throws BadBlock unless the View conforms to js/view.ts. */
export function checkView(block: Block<ViewHeader>): void {
  const { header, columns } = block;
  const isText = (v: unknown): boolean => typeof v === "string";
  for (const name of ["opcodes", "groupKinds", "callRoles", "warnings"] as const) {
    if (!Array.isArray(header[name]) || !header[name].every(isText)) wrong(`${name} is not a list`);
  }
  const named = (f: unknown) => isObject(f) && isText(f.id) && isText(f.label);
  if (!Array.isArray(header.families) || !header.families.every(named)) {
    wrong("families is not a list");
  }
  for (const name of ["title", "subtitle", "dialect"] as const) {
    if (!isText(header[name])) wrong(`its ${name} is not text`);
  }
  for (const name of ["summary", "extras", "counts"] as const) {
    if (!isObject(header[name])) wrong(`${name} is missing`);
  }
  const sizes = checkColumns(header, columns, new Map(), header);
  const n = sizes.get("instruction") as number;
  checkTrees(columns, n);
  for (const [name, value] of Object.entries(header.counts)) {
    if (value !== sizes.get(name.slice(0, -1))) wrong(`counts.${name} is not that of its table`);
  }
  checkExtras(header.extras, sizes);
}

/** Throws BadBlock unless the analyses fit the View's columns. */
export function checkAnalyses(block: Block<AnalysesHeader>, view: Block<ViewHeader>): void {
  const { header, columns } = block;
  for (const name of ["summary", "extras"] as const) {
    if (!isObject(header[name])) wrong(`${name} is missing`);
  }
  if (!Array.isArray(header.warnings)) wrong("warnings is not a list");
  const sizes = checkColumns(header, columns, view.columns, view.header);
  checkExtras(header.extras, sizes);
}

/** Throws BadBlock unless the text block conforms to js/view.ts. */
export function checkText(block: Block<AnyHeader>): void {
  const { columns } = block;
  checkColumns(block.header, columns, new Map(), {});
  const bytes = columns.get("text.bytes")?.length ?? 0;
  for (const of of ["instruction", "computation"]) {
    const begin = columns.get(`line.${of}_begin`) as Uint32Array;
    const end = columns.get(`line.${of}_end`) as Uint32Array;
    if (!(begin instanceof Uint32Array && end instanceof Uint32Array)) wrong("it has no lines");
    if (begin.length !== end.length) wrong("its lines have no ends");
    for (let i = 0; i < begin.length; i++) {
      if (begin[i] === 0xffffffff) continue;
      if (begin[i] > end[i] || end[i] > bytes) wrong(`the line of ${of} ${i} is outside the text`);
    }
  }
}

const isObject = (v: unknown): v is Record<string, unknown> =>
  typeof v === "object" && v !== null && !Array.isArray(v);

const DTYPES: Record<string, unknown> = {
  u8: Uint8Array,
  u16: Uint16Array,
  u32: Uint32Array,
  i32: Int32Array,
  f32: Float32Array,
  f64: Float64Array,
};

/** Checks every column by its rule; returns the row count of each table. Columns without a rule pass. */
export function checkColumns(
  own: AnyHeader,
  columns: Columns,
  others: Columns,
  lists: Partial<ViewHeader>,
): Map<string, number> {
  const find = (name: string) => columns.get(name) ?? others.get(name);
  const sizes = new Map<string, number>();
  for (const [table, lead] of Object.entries(LEAD)) {
    const found = find(lead);
    if (found) sizes.set(table, found.length);
  }
  for (const list of LISTS) if (lists[list]) sizes.set(list, lists[list].length);
  const strings = (of: Columns) => (of.get("strings.offsets")?.length ?? 1) - 1;
  const ownStrings = strings(columns);
  const otherStrings = strings(others);
  for (const [name, column] of columns) {
    const rule = RULES[name];
    if (!rule) continue;
    const [dtype, rows, what, cut] = rule.split(" ");
    if (column.constructor !== DTYPES[dtype]) wrong(`${name} is not ${dtype}`);
    const count = rows === "*" ? undefined : sizes.get(rows);
    if (what === "offsets") {
      const pieces = find(cut);
      if (!pieces) wrong(`${name} has nothing to cut`);
      checkOffsets(name, column, count, (pieces as Column).length);
      continue;
    }
    if (rows !== "*" && column.length !== count) wrong(`${name} has not one row for each ${rows}`);
    const low = what.startsWith("-1:") ? -1 : 0;
    const of = low ? what.slice(3) : what;
    if (of === "any") continue;
    if (of === "amount") checkAmounts(name, column);
    else {
      const isOwn = others.size === 0 || own.columns[name]?.text === true;
      const limit =
        of === "text"
          ? isOwn
            ? ownStrings
            : otherStrings
          : of === "flag"
            ? 2
            : (sizes.get(of) ?? 0);
      checkRange(name, column, low, limit);
    }
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

/** Checks what code multiplies, sizes allocations by or walks; the rest of extras is only shown. */
function checkExtras(extras: object, sizes: ReadonlyMap<string, number>): void {
  const { devices, cost } = extras as Record<string, unknown>;
  if (isObject(devices)) {
    const count = devices.count as number;
    if (count !== sizes.get("device")) wrong("extras.devices.count is not that of its table");
    const mesh = devices.mesh;
    if (isObject(mesh)) {
      const axes = Array.isArray(mesh.sizes)
        ? (mesh.sizes as unknown[])
        : wrong("its mesh is malformed");
      const isSize = (s: unknown) => Number.isInteger(s) && (s as number) > 0;
      const total = axes.every(isSize) ? (axes as number[]).reduce((a, b) => a * b, 1) : 0;
      if (total < 1 || total > Math.max(count, (mesh.partitions as unknown[])?.length ?? 0)) {
        wrong("its mesh does not fit its devices");
      }
    }
  }
  if (isObject(cost) && Array.isArray(cost.unknownLoops)) {
    const rows = cost.unknownLoops as { parent?: unknown }[];
    for (const row of rows) {
      const at = isObject(row) ? (row.parent as number) : Number.NaN;
      if (!Number.isInteger(at) || at < -1 || at >= rows.length) wrong("a loop has no parent");
    }
  }
}

/** Columns that have a rule, for the test that every column is checked. */
export const CHECKED: readonly string[] = Object.keys(RULES);
