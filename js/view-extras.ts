/** Made by `npm run schema` from columns.py and header.py of python/hloscope/view. */

export const VIEW_VERSION = 3;
export const VIEW_MAGIC = "HLOV";
export const ANALYSES_MAGIC = "HLOA";
export const TEXT_MAGIC = "HLOT";
export const STAGES_MAGIC = "HLOC";

export type Dialect = "hlo" | "stablehlo" | "jaxpr";
export type DType = "u8" | "u16" | "u32" | "i32" | "f32" | "f64";
export type GroupKind = "module" | "entry" | "scope" | "fusion" | "body" | "condition" | "branch" | "call" | "reducer" | "component" | "section" | "unreachable";
export type OriginKind = "argument" | "constraint" | "output" | "unknown";
/** Where a column is in its block. */
export interface ColumnSpec {
  dtype: DType;
  /** Bytes from the start of the column area, a multiple of 8. */
  offset: number;
  /** Elements. */
  length: number;
  /** The values are indices of the block's own string table. */
  text?: boolean;
}
/** A family of opcodes. */
export interface Family {
  /** "matmul", "convolution", "collective", "fusion", "elementwise" and so on. */
  id: string;
  label: string;
  /** It stays visible when zoomed out. */
  landmark: boolean;
}
/** Rows of the View's tables. */
export interface TableCounts {
  instructions: number;
  computations: number;
  groups: number;
  folds: number;
}
/** `hloscope summary --json`: the part that the View has from the start. */
export interface Counts {
  module: string;
  computations: number;
  instructions: number;
  entry_instructions: number;
  fusions: Record<string, number>;
  opcodes: Record<string, number>;
  /** null, like the bytes, when unknown: the dump was truncated before its program. */
  parameters: number | null;
  parameter_bytes: number | null;
  output_bytes: number | null;
  /** "global": for several devices and not partitioned yet; bytes are then of whole arrays. */
  shapes: "local" | "global";
  partitions: number;
  replicas: number;
  warnings: string[];
}
/** Sums over executions; `wire_bytes` is what one device sends. */
export interface CollectiveSummary {
  kind: string;
  axes: string | null;
  count: number;
  executions: number;
  payload_bytes: number;
  /** null where nothing is known of it. */
  wire_bytes: number | null;
  /** Present where branches of conditionals matter; the plain figures are then the most. */
  executions_least?: number;
  payload_bytes_least?: number;
  wire_bytes_least?: number;
  /** A formula is unknown for some of them, or the trips of a loop that runs at least once. */
  lower_bound?: boolean;
  /** Some are in a loop that may run 0 times and counts once: the figures are no bound. */
  one_trip?: boolean;
  /** For programs on several TPU slices: "dcn" between them, "ici" within one. */
  network?: string;
}
export interface DeviceSummary {
  partition: number;
  parameter_bytes: number | null;
  id?: number;
  kind?: string;
  coords?: number[];
}
export interface ModelledSeconds {
  compute: number;
  memory: number;
  collective: number | null;
  exposed: number | null;
  copies: number;
  total: number | null;
  total_least?: number;
  total_most?: number;
  /** The time of some collectives is unknown. */
  communication_is_least?: boolean;
  /** The time of some operations or collectives is unknown. */
  total_is_least?: boolean;
  of_unknown_at_least?: number;
}
export interface FindingSummary {
  rule: string;
  title: string;
  line: string | null;
  share: number;
}
/** A message from the compiler, with the instructions that pay for it. */
export interface CompilerMessage {
  message: string;
  /** "involuntary full rematerialization" */
  kind: string | null;
  /** Before partitioning; "" if not given. */
  operation: string;
  /** Per device, as XLA wrote it. */
  shape: string;
  had: string;
  needs: string;
  op_name: string;
  /** "dir/train.py:31" */
  line: string;
  instructions: number[];
  /** As XLA wrote it. */
  text: string;
}
/** The rest of it, which comes with the analyses; without what has nothing to report. */
export interface MoreSummary {
  collectives?: CollectiveSummary[];
  /** What one device sends in all; of mutually exclusive branches only one counts. */
  wire_bytes?: number | null;
  wire_bytes_least?: number;
  /** Sharding → number of parameters with it. */
  shardings?: Record<string, number>;
  devices?: DeviceSummary[];
  flops?: number;
  bytes_accessed?: number;
  flops_least?: number;
  flops_most?: number;
  bytes_accessed_least?: number;
  bytes_accessed_most?: number;
  transcendentals_least?: number;
  transcendentals_most?: number;
  trip_counts_unknown?: string[];
  trip_counts_may_be_zero?: string[];
  estimated_cycles?: number | null;
  hardware?: string | null;
  modelled_seconds?: ModelledSeconds | null;
  peak_live_bytes?: number;
  peak_source?: string;
  peak_by_memory?: Record<string, number>;
  findings?: FindingSummary[];
  compiler_messages?: CompilerMessage[];
}
/** The same object that `hloscope summary --json` prints, once the analyses have arrived. */
export interface Summary extends Counts, MoreSummary {
}
/** A link of a chip to others. */
export interface Link {
  name: string;
  kind: "torus" | "switch";
  bytesPerSecond: number;
  latency: number;
  group: number;
}
/** Peak figures of a chip. */
export interface Chip {
  id: string;
  label: string;
  memoryBytes: number;
  memoryBandwidth: number;
  /** Of the link to host memory, one way. */
  hostBandwidth: number;
  /** FLOP/s for each of `dtypes`; null where no source gives it. */
  matmul: (number | null)[];
  peak: number;
  vector: number | null;
  clock: number | null;
  links: Link[];
  /** Column of the transfer tables for the reach of its first link. */
  reach: number;
  /** Column of `filled.flops` for its matrix unit; null where any product fills it. */
  side?: number | null;
  source: string[];
}
/** Sums over units times their executions; times only where a chip is chosen, else 0. */
export interface Totals {
  flops: number;
  bytes: number;
  compute: number;
  memory: number;
  collective: number;
  exposed: number;
  /** Time waited for copies to VMEM and the host, for which nothing else left bandwidth. */
  copies: number;
  /** The least that instructions take whose time is unknown: part of the total. */
  least?: number;
  total: number;
  /** Number of executed instructions whose time is unknown. */
  unknown: number;
}
export interface UnknownLoop {
  instruction: number;
  /** The loop around it, in the same list; -1 none. */
  parent: number;
}
/** One of XLA's own totals beside ours, and the parts of the difference. */
export interface XlaFigure {
  quantity: string;
  xla: number;
  ours: number;
  loops: number;
  customCalls: number;
  other: number | null;
}
/** For columns cost.* and transfer.*. */
export interface CostExtras {
  dtypes: string[];
  /** Number of distinct reaches of the chips' first links: columns of the transfer tables. */
  reaches: number;
  /** Number of distinct sides of the chips' matrix units: columns of `filled.flops`. */
  sides?: number;
  hardware: Chip[];
  /** The chip on which cost.seconds is modelled: the user's, else the program's own. */
  chosen: string | null;
  /** The chip that the program's devices are. */
  own: string | null;
  /** Chips that the program may be for, the most likely first. */
  likely?: string[];
  /** The modelled step as text; null where no chip is known or no single chip runs the program. */
  step?: string | null;
  totals: Totals;
  torusIsKnown: boolean;
  /** The slice that is assumed where device coordinates are not known: "4×4". */
  assumedSlice: string;
  unknownLoops: UnknownLoop[];
  branchesLeftOut: number[];
  /** Least and most of figures that depend on branches: flops, seconds and the like. */
  ranges: Record<string, number[]>;
  xla: XlaFigure[];
}
export interface MemorySpace {
  space: number;
  name: string;
  peak: number;
  source: string;
}
export interface Donation {
  argument: string;
  parameter: number;
  bytes: number;
  outcome: string;
  output: string;
  /** Why no output took its memory, for a donation that was not used. */
  why: string;
}
export interface ParameterCopy {
  instruction: number;
  argument: string;
  bytes: number;
  changes: string;
}
export interface Carry {
  index: number;
  shape: string;
  bytes: number;
  role: string;
  /** Instruction. */
  stored: number;
}
/** Rows and bytes of one audit as a whole; its list may be cut. */
export interface AuditTotal {
  /** "donations", "copies", "residuals", "loops" */
  audit: string;
  /** Of donations; "" of the others. */
  outcome: string;
  count: number;
  bytes: number;
}
export interface Loop {
  instruction: number;
  trips: number | null;
  phase: string;
  bytes: number;
  /** Of all that it carries; `carries` is the first of it. */
  count?: number;
  carries: Carry[];
}
export interface Residual {
  instruction: number;
  writer: number;
  readers: number[];
  shape: string;
  slice: string;
  bytes: number;
}
/** What rematerialising a value would save and cost. */
export interface Remat {
  instruction: number;
  bytes: number;
  flops: number;
  bytesAccessed: number;
  wireBytes: number;
  instructions: number[];
  reason: string;
}
/** For columns memory.*, buffer.* and gap.*. */
export interface MemoryExtras {
  kinds: string[];
  categories: string[];
  peakBytes: number;
  peakSource: string;
  simulatedBytes: number;
  assignedBytes: number | null;
  xlaPeakBytes: number | null;
  /** What `xlaPeakBytes` leaves out or adds, as text after a comma; "" if nothing. */
  xlaPeakNote: string;
  tableBytes: number;
  peakPoint: number;
  platform: string;
  /** Main memory first; each with its own peak and the source of that figure. */
  spaces: MemorySpace[];
  donations: Donation[];
  copies: ParameterCopy[];
  totals?: AuditTotal[];
  loops: Loop[];
  residuals: Residual[];
  remat: Remat[];
}
export interface SourceFile {
  file: string;
  library: boolean;
  text: string | null;
}
/** For columns source.*. */
export interface SourceExtras {
  files: SourceFile[];
  /** Texts of source.why, followed by the name of source.via: "layout for"; the first is "". */
  why: string[];
}
/** For columns measured.*. */
export interface MeasuredExtras {
  devices: number[];
  steps: number;
  /** Fraction of the trace's time in this module that was matched to an instruction. */
  coverage: number;
  deviceSeconds: number[];
  /** Of one step, mean over devices. */
  totalSeconds: number;
  /** Asynchronous operations from start to done, in one step. */
  flightSeconds: number;
  /** What may be wrong with the match, and which part of the trace is not in the figures. */
  notes: string[];
  /** Names of `devices`, where several hosts were traced. */
  names: string[] | null;
}
/** Where a sharding came from. */
export interface Origin {
  axis: string;
  of: string;
  kind: OriginKind;
  name: string;
  line: string;
  stack: string[];
  /** Ops along which it was propagated, from the value backwards. */
  via: string[];
}
/** Why an inserted collective is there; `unknown` says what could not be determined. */
export interface WhyCard {
  unknown: string;
  opName: string;
  opcode: string;
  shape: string;
  line: string;
  /** The line that tables give for it, where it differs, and why: "train.py:8, inferred". */
  listed: string;
  operand: string;
  had: string;
  needs: string;
  /** Lines of the callers, the nearest first. */
  callers: string[];
  /** Other ops that it serves, or lines that ask for it explicitly. */
  others: string[];
  origins: Origin[];
}
/** Devices that communicate: groups of them, or (source, target) pairs. */
export interface GroupSet {
  pairs: boolean;
  rows: number[][];
}
/** For columns collective.*. */
export interface CollectiveExtras {
  written: string[];
  why: WhyCard[];
  groups: GroupSet[];
  /** Kind → what its wire bytes and time assume, as a clause. */
  assumes: Record<string, string>;
  /** Kinds that consist of several permutes: their parts are transfers, not arrays. */
  ofPermutes: string[];
}
/** A way to follow a finding's advice, compiled. */
export interface Proof {
  /** "proved: params donated: peak 116 MiB → 62 MiB" */
  words: string;
  isProved: boolean;
  /** For the source, one for each change. */
  code: string[];
  /** "model.py:37", one for each change; "" unknown. */
  lines: string[];
  /** Whether there is a changed program to open. */
  compiled?: boolean;
  /** Name, before, after, and the change in percent or ""; of those that differ. */
  figures?: string[][];
  /** The program beside the changed one, as text. */
  diff?: string;
}
export interface Finding {
  /** "gathered-twice" */
  rule: string;
  title: string;
  evidence: string;
  advice: string;
  /** Of the step or the peak, 0 to 1. */
  share: number;
  /** "1.2 ms modelled, 12.5 MiB on the wire" */
  atStake: string;
  /** "dir/train.py:31"; "" unknown. */
  line: string;
  /** The line belongs to what the evidence serves. */
  inferred: boolean;
  /** That line's text; "" unknown. */
  code: string;
  /** "decoder/embed" where the line is unknown or in a library; else "". */
  scope: string;
  /** Of all evidence; `instructions` is the first of it. */
  count: number;
  instructions: number[];
  /** Changes that follow the advice, in words; absent: hloscope can carry out none. */
  ways?: string[];
  /** Ways that were tried, the best first. */
  proofs?: Proof[];
}
export interface Findings {
  headline: string[];
  /** That were applied. */
  rules: number;
  /** Sentences about rules that were not applied, and why. */
  leftOut?: string[];
  failed: string[];
  rows: Finding[];
}
/** For columns timeline.*. */
export interface TimelineExtras {
  /** "compute", "waiting" (for a transfer), then "over data" and so on. */
  lanes: string[];
  /** Of one step. */
  seconds: number;
  /** Computation. */
  entry: number;
  /** The chip's label. */
  hardware: string;
}
export interface Elsewhere {
  where: string;
  events: number;
}
/** For columns trace.*. */
export interface TraceExtras {
  /** In all lanes, drawn or not. */
  events: number;
  /** Events shorter than this many seconds are left out; null when none are. */
  shortest: number | null;
  /** Events in the file that are in no lane: "on the host's threads". */
  elsewhere: Elsewhere[];
  /** Executions of this program on all devices. */
  runs: number;
}
/** For columns move.*. */
export interface MovesExtras {
  /** The chip for which their seconds are modelled; null where none is known. */
  hardware: string | null;
}
export interface MeshInfo {
  names: string[];
  sizes: number[];
  partitions: number[];
  /** False: inferred from the module. */
  given: boolean;
}
/** For columns device.*. */
export interface DeviceExtras {
  count: number;
  kind: string;
  /** Empty when not known. */
  coords: number[][];
  /** The TPU slice of each device; empty where there is only one. */
  slices: number[];
  mesh: MeshInfo | null;
}
/** Figures of a module after a pass; null: not known. */
export interface PassCost {
  /** "global": not partitioned yet, so figures are for all devices together. */
  shapes?: "local" | "global";
  flops?: number | null;
  bytes_accessed?: number | null;
  /** Once there is a schedule. */
  peak_bytes?: number | null;
  failed?: string;
}
/** A pass that changed the module; the first row is the initial module. */
export interface PassRow {
  pipeline: string;
  /** The pass's name, and which time it ran if it ran again. */
  title: string;
  /** What the pass is for; "" if not described. */
  about: string;
  /** Instructions, fusions, copies, transposes, collectives. */
  counts: Record<string, number>;
  /** Compared with the previous row. */
  change: Record<string, number>;
  added: number;
  removed: number;
  changed: number;
  renamed: number;
  onlyMetadata: boolean;
  /** null: not computed. */
  cost: PassCost | null;
}
/** A part of the compile that was measured; the parts add up to it. */
export interface PassPart {
  name: string;
  seconds: number;
}
/** A pass with all its runs in one pipeline. */
export interface SlowPass {
  pipeline: string;
  name: string;
  seconds: number;
  times: number;
  /** Its row that took longest; -1: it has none whose time is known. */
  row: number;
}
/** A compile that was measured. */
export interface PassTimesExtras {
  /** Seconds; null: only passes were timed. */
  total: number | null;
  parts: PassPart[];
  slowest: SlowPass[];
  /** Of the pass of each row itself; null: unknown. */
  seconds: (number | null)[];
  /** Of passes of the same pipeline, near each row, that have no row. */
  others: number[];
  /** What makes the times larger than usual; "" if nothing. */
  note: string;
}
/** Passes that changed the module, in order. */
export interface PassesExtras {
  rows: PassRow[];
  /** The row to show first: the main View's, else that of the pass that made the most fusions. */
  begin: number;
  /** What is missing; "" if nothing. */
  note: string;
  /** null: no compile was measured. */
  times?: PassTimesExtras | null;
}
export interface OwnColumn {
  label: string;
  unit: string;
}
/** Results of analyses that are small enough for JSON; each is absent when it has nothing. */
export interface Extras {
  cost?: CostExtras;
  memory?: MemoryExtras;
  source?: SourceExtras;
  measured?: MeasuredExtras;
  collectives?: CollectiveExtras;
  /** Names of the values of phase.of and collective.phase; the first is "". */
  phases?: string[];
  compiler?: CompilerMessage[];
  findings?: Findings;
  timeline?: TimelineExtras;
  trace?: TraceExtras;
  moves?: MovesExtras;
  devices?: DeviceExtras;
  /** Only in the passes block. */
  passes?: PassesExtras;
  /** For columns own.0, own.1, …: numbers that the user gave. */
  own?: OwnColumn[];
}
/** Of every block. */
export interface Block {
  version: number;
  columns: Record<string, ColumnSpec>;
}
/** What belongs to the columns that a picture is made of. */
export interface PictureContent {
  /** Indexed by instruction.opcode. */
  opcodes: string[];
  families: Family[];
  /** Indexed by group.kind. */
  groupKinds: GroupKind[];
  /** Roles of called.role: "calls", "to_apply", "body" and so on. */
  callRoles: string[];
  counts: TableCounts;
  dialect: Dialect;
}
export interface ViewContent extends PictureContent {
  /** "jit_step" */
  title: string;
  /** "8 × TPU v5 lite · optimized" or a file name. */
  subtitle: string;
  isScheduled: boolean;
  summary: Summary;
  warnings: string[];
  extras: Extras;
}
/** The View: what the first picture needs; and the passes block. */
export interface ViewHeader extends Block, ViewContent {
}
export interface AnalysesContent {
  /** Number in the module, to check that both blocks are of the same one. */
  instructions: number;
  summary: MoreSummary;
  warnings: string[];
  extras: Extras;
  /** In a block for another chip: columns and extras of the analyses that it has not. */
  without?: string[];
}
/** The analyses block: what the reader adds to the View once it has been computed. */
export interface AnalysesHeader extends Block, AnalysesContent {
}
/** The text block, made when text or details are first requested. */
export interface TextHeader extends Block {
}
export interface StageFile {
  file: string;
  row: number;
  /** Its text is known. */
  known: boolean;
}
/** One text of the stages block. */
export interface StageText {
  /** "source", "jaxpr", "stablehlo", "optimized" */
  id: string;
  title: string;
  /** It is the View's own stage: its text is the text block, its places are instructions. */
  own: boolean;
  /** Byte range in stage_text. */
  begin: number;
  end: number;
  /** Its places: first to first + count - 1, in ascending order of their lines. */
  first: number;
  count: number;
  /** What was left out, as sentences. */
  notes: string[];
  /** For Python source: the files, and the row that names each. */
  files: StageFile[];
}
export interface StagesContent {
  /** Number in the module, to check that both blocks are of the same one. */
  instructions: number;
  /** Every operation was tracked through the compiler; otherwise links are inferred. */
  exact: boolean;
  how: string;
  stages: StageText[];
}
/** The stages block, made when the texts of a program's stages are first requested. */
export interface StagesHeader extends Block, StagesContent {
}
/** The headers by the magic of their block. */
export interface Blocks {
  HLOV: ViewHeader;
  HLOA: AnalysesHeader;
  HLOT: TextHeader;
  HLOC: StagesHeader;
}

/**
 * Prefix of a table's columns, the table that it comes with, and for each kind of rows
 * names by rule; those with ? may be absent where others are. See base/validate.ts.
 */
export type Rules = Record<string, Record<string, string>>;
export const TABLES: readonly [string, string, Rules][] = [
  ["instruction", "instruction", { "instruction": { "u32 text": "name label code shape dense_shape op_name", "u16 opcodes": "opcode", "u8 families": "family", "u16 any": "flags", "f64 amount": "bytes", "i32 any": "element", "u32 computation": "computation", "u32 group": "group", "i32 -1:frame": "frame" } }],
  ["operand", "operand", { "instruction": { "u32 offsets operand.values": "offsets" }, "operand.values": { "u32 instruction": "values" } }],
  ["control", "control", { "instruction": { "u32 offsets control.values": "offsets" }, "control.values": { "u32 instruction": "values" } }],
  ["called", "called", { "instruction": { "u32 offsets called.values": "offsets" }, "called.values": { "u32 computation": "values", "u8 callRoles": "role" } }],
  ["computation", "computation", { "computation": { "u32 text": "name", "u32 any": "first size", "i32 -1:instruction": "root", "i32 -1:group": "group" } }],
  ["group", "group", { "group": { "i32 -1:group": "parent", "u8 groupKinds": "kind", "u32 text": "label function?", "i32 -1:instruction": "owner", "i32 -1:computation": "computation", "u32 any": "size order class turn?", "f32 amount": "worth", "i32 -1:fold": "fold", "u8 any": "direction?" } }],
  ["fold", "fold", { "fold": { "u32 group": "parent", "u32 text": "label" } }],
  ["fold", "fold", { "fold": { "u32 offsets fold.members": "offsets" }, "fold.members": { "u32 group": "members" } }],
  ["frame", "frame", { "frame": { "u32 text": "file function", "u32 any": "line", "i32 -1:frame": "parent" } }],
  ["pass", "pass", { "instruction": { "u32 any": "first last", "i32 any": "final" } }],
  ["version", "pass", { "*": { "u32 offsets version.instruction": "offsets" }, "version.instruction": { "i32 -1:instruction": "instruction", "u8 any": "changed", "u32 text": "line" } }],
  ["version_operand", "pass", { "version.instruction": { "u32 offsets version_operand.values": "offsets" }, "version_operand.values": { "u32 instruction": "values" } }],
  ["pass_link", "pass", { "pass_link": { "u32 any": "row", "u32 instruction": "old new", "u8 any": "how" } }],
  ["diff", "pass", { "*": { "u32 offsets diff.kind": "offsets" }, "diff.kind": { "u8 any": "kind", "u32 any": "value" } }],
  ["strings", "strings", { "*": { "u32 offsets strings.bytes": "offsets" }, "strings.bytes": { "u8 any": "bytes" } }],
  ["cost", "cost", { "instruction": { "f64 amount": "flops matmul_flops transcendentals bytes main_bytes runs from_host? to_host? cycles? seconds? step?", "u8 any": "unit dtype bound?", "i32 any": "loop?", "u8 flag": "condition?" } }],
  ["transfer", "transfer", { "transfer": { "u32 instruction": "start done", "u8 flag": "far", "f64 amount": "bytes runs? seconds? waited?" } }],
  ["transfer", "transfer", { "*": { "f64 amount": "switch_steps switch_bytes torus_steps torus_bytes far_steps far_bytes" } }],
  ["filled", "filled", { "filled": { "u32 instruction": "instruction" } }],
  ["filled", "filled", { "*": { "f64 amount": "flops" } }],
  ["timeline", "timeline", { "timeline": { "u32 computation": "computation", "u32 instruction": "instruction", "u8 any": "lane", "f64 amount": "start seconds times", "i32 -1:computation": "inside" } }],
  ["memory", "memory", { "point": { "u32 instruction": "schedule", "f64 amount": "live" } }],
  ["buffer", "memory", { "buffer": { "u32 instruction": "instruction", "u32 any": "leaf", "f64 amount": "bytes padding?", "u8 any": "space kind category", "u32 point": "start end", "i32 any": "freed allocation?", "i32 -1:buffer": "home", "i32 -1:frame": "frame", "u32 text": "name? scope?", "f64 any": "offset?" } }],
  ["gap", "gap", { "gap": { "u32 buffer": "buffer", "u32 any": "start end" } }],
  ["source", "source", { "instruction": { "i32 -1:frame": "frame", "f64 amount": "flops", "i32 -1:instruction": "via", "u8 any": "why" } }],
  ["measured", "measured", { "instruction": { "f64 amount": "mean step most", "u32 any": "slowest" } }],
  ["measured", "measured", { "measured": { "u32 instruction": "rows", "f32 any": "self", "f32 amount": "flight" } }],
  ["measured", "measured", { "*": { "f32 amount": "seconds" } }],
  ["trace_lane", "trace", { "trace_lane": { "u32 text": "device name", "u8 flag": "beside", "u32 any": "events" } }],
  ["trace", "trace", { "trace": { "u32 trace_lane": "lane", "f64 amount": "start end seconds", "i32 -1:instruction": "instruction", "u32 text": "text" } }],
  ["trace_run", "trace_run", { "trace_run": { "u32 text": "device", "f64 amount": "start seconds" } }],
  ["own", "own", { "instruction": { "f64 any": "#?" } }],
  ["phase", "phase", { "instruction": { "u8 any": "of" } }],
  ["collective", "collective", { "collective": { "u32 text": "kind axes types moves line op_name shows network?", "u32 instruction": "instruction anchor", "u8 flag": "on_axes may_not_run? moves_argument", "u32 any": "group_size", "f64 amount": "payload wire executions", "u8 any": "phase written", "i32 any": "why group_set" } }],
  ["collective_branch", "collective_branch", { "collective": { "u32 offsets collective_branch.conditional": "offsets" }, "collective_branch.conditional": { "u32 instruction": "conditional", "u32 any": "number of" } }],
  ["collective_member", "collective", { "collective": { "u32 offsets collective_member.values": "offsets" }, "collective_member.values": { "u32 instruction": "values" } }],
  ["collective_part", "collective", { "collective": { "u32 offsets collective_part.shape": "offsets" }, "collective_part.shape": { "u32 text": "shape moves", "f64 amount": "bytes" } }],
  ["device", "device", { "device": { "u32 any": "id", "f64 amount": "parameter_bytes output_bytes sent_bytes" } }],
  ["traffic", "traffic", { "traffic": { "u32 device": "source target", "f64 amount": "bytes" } }],
  ["array", "array", { "array": { "u8 any": "role", "u32 text": "name type", "i32 -1:instruction": "instruction", "u32 sharding": "sharding", "f64 amount": "bytes global_bytes", "u8 flag": "padded" } }],
  ["array_dims", "array", { "array": { "u32 offsets array_dims.values": "offsets" }, "array_dims.values": { "u32 any": "values" } }],
  ["array_local", "array", { "array": { "u32 offsets array_local.values": "offsets" }, "array_local.values": { "u32 any": "values" } }],
  ["sharding", "sharding", { "sharding": { "u32 text": "text raw kind", "u32 any": "replicas" } }],
  ["sharding_tiles", "sharding", { "sharding": { "u32 offsets sharding_tiles.values": "offsets" }, "sharding_tiles.values": { "u32 any": "values" } }],
  ["sharding_place", "sharding", { "*": { "i32 any": "tile" } }],
  ["transition", "transition", { "transition": { "u32 instruction": "source target", "u32 text": "before after" } }],
  ["move", "move", { "move": { "u32 instruction": "start end source", "u32 any": "pieces", "u32 text": "kind", "f64 amount": "bytes seconds exposed" } }],
  ["diff", "diff", { "instruction": { "u8 any": "of", "i32 any": "pair" } }],
  ["text", "text", { "*": { "u8 any": "bytes" } }],
  ["line", "line", { "line of instruction": { "u32 any": "instruction_begin instruction_end" } }],
  ["line", "line", { "line of computation": { "u32 any": "computation_begin computation_end" } }],
  ["attribute", "attribute", { "instruction": { "u32 offsets attribute.key": "offsets" }, "attribute.key": { "u32 text": "key value" } }],
  ["stage_text", "stage_text", { "*": { "u8 any": "bytes" } }],
  ["source_row", "source_row", { "source_row": { "u32 any": "number" } }],
  ["place", "place", { "place": { "u32 any": "line", "u32 text": "told" } }],
  ["place_strand", "place_strand", { "place": { "u32 offsets place_strand.values": "offsets" }, "place_strand.values": { "u32 strand": "values" } }],
  ["place_near", "place_near", { "place": { "u32 offsets place_near.values": "offsets" }, "place_near.values": { "u32 strand": "values" } }],
  ["strand", "strand", { "strand": { "i32 any": "color" } }],
];
/** Rows, and the column that has one element for each; others are named by theirs. */
export const LEADS: Record<string, string> = {
  "strand": "strand.color",
  "place": "place.line",
  "source_row": "source_row.number",
  "instruction": "instruction.name",
  "line of computation": "line.computation_begin",
  "line of instruction": "line.instruction_begin",
  "move": "move.start",
  "transition": "transition.source",
  "sharding": "sharding.text",
  "array": "array.role",
  "traffic": "traffic.source",
  "device": "device.id",
  "collective": "collective.kind",
  "trace_run": "trace_run.device",
  "trace": "trace.lane",
  "trace_lane": "trace_lane.device",
  "measured": "measured.rows",
  "gap": "gap.buffer",
  "buffer": "buffer.instruction",
  "point": "memory.schedule",
  "timeline": "timeline.computation",
  "filled": "filled.instruction",
  "transfer": "transfer.start",
  "pass_link": "pass_link.row",
  "frame": "frame.file",
  "fold": "fold.parent",
  "group": "group.parent",
  "computation": "computation.name",
};
/** Fields of each object of the headers, by their type; those with ? may be absent. */
export const SHAPES: Record<string, Record<string, string>> = {
  ColumnSpec: { "u8|u16|u32|i32|f32|f64|": "dtype", "number": "offset length", "boolean": "text?" },
  Family: { "string": "id label", "boolean": "landmark" },
  TableCounts: { "number": "instructions computations groups folds" },
  Counts: { "string": "module", "number": "computations instructions entry_instructions partitions replicas", "{number}": "fusions opcodes", "?number": "parameters parameter_bytes output_bytes", "local|global|": "shapes", "[string]": "warnings" },
  CollectiveSummary: { "string": "kind network?", "?string": "axes", "number": "count executions payload_bytes executions_least? payload_bytes_least? wire_bytes_least?", "?number": "wire_bytes", "boolean": "lower_bound? one_trip?" },
  DeviceSummary: { "number": "partition id?", "?number": "parameter_bytes", "string": "kind?", "[number]": "coords?" },
  ModelledSeconds: { "number": "compute memory copies total_least? total_most? of_unknown_at_least?", "?number": "collective exposed total", "boolean": "communication_is_least? total_is_least?" },
  FindingSummary: { "string": "rule title", "?string": "line", "number": "share" },
  CompilerMessage: { "string": "message operation shape had needs op_name line text", "?string": "kind", "[number]": "instructions" },
  MoreSummary: { "[CollectiveSummary]": "collectives?", "?number": "wire_bytes? estimated_cycles?", "number": "wire_bytes_least? flops? bytes_accessed? flops_least? flops_most? bytes_accessed_least? bytes_accessed_most? transcendentals_least? transcendentals_most? peak_live_bytes?", "{number}": "shardings? peak_by_memory?", "[DeviceSummary]": "devices?", "[string]": "trip_counts_unknown? trip_counts_may_be_zero?", "?string": "hardware?", "?ModelledSeconds": "modelled_seconds?", "string": "peak_source?", "[FindingSummary]": "findings?", "[CompilerMessage]": "compiler_messages?" },
  Summary: { "string": "module peak_source?", "number": "computations instructions entry_instructions partitions replicas wire_bytes_least? flops? bytes_accessed? flops_least? flops_most? bytes_accessed_least? bytes_accessed_most? transcendentals_least? transcendentals_most? peak_live_bytes?", "{number}": "fusions opcodes shardings? peak_by_memory?", "?number": "parameters parameter_bytes output_bytes wire_bytes? estimated_cycles?", "local|global|": "shapes", "[string]": "warnings trip_counts_unknown? trip_counts_may_be_zero?", "[CollectiveSummary]": "collectives?", "[DeviceSummary]": "devices?", "?string": "hardware?", "?ModelledSeconds": "modelled_seconds?", "[FindingSummary]": "findings?", "[CompilerMessage]": "compiler_messages?" },
  Link: { "string": "name", "torus|switch|": "kind", "number": "bytesPerSecond latency group" },
  Chip: { "string": "id label", "number": "memoryBytes memoryBandwidth hostBandwidth peak reach", "[?number]": "matmul", "?number": "vector clock side?", "[Link]": "links", "[string]": "source" },
  Totals: { "number": "flops bytes compute memory collective exposed copies least? total unknown" },
  UnknownLoop: { "number": "instruction parent" },
  XlaFigure: { "string": "quantity", "number": "xla ours loops customCalls", "?number": "other" },
  CostExtras: { "[string]": "dtypes likely?", "number": "reaches sides?", "[Chip]": "hardware", "?string": "chosen own step?", "Totals": "totals", "boolean": "torusIsKnown", "string": "assumedSlice", "[UnknownLoop]": "unknownLoops", "[number]": "branchesLeftOut", "{[number]}": "ranges", "[XlaFigure]": "xla" },
  MemorySpace: { "number": "space peak", "string": "name source" },
  Donation: { "string": "argument outcome output why", "number": "parameter bytes" },
  ParameterCopy: { "number": "instruction bytes", "string": "argument changes" },
  Carry: { "number": "index bytes stored", "string": "shape role" },
  AuditTotal: { "string": "audit outcome", "number": "count bytes" },
  Loop: { "number": "instruction bytes count?", "?number": "trips", "string": "phase", "[Carry]": "carries" },
  Residual: { "number": "instruction writer bytes", "[number]": "readers", "string": "shape slice" },
  Remat: { "number": "instruction bytes flops bytesAccessed wireBytes", "[number]": "instructions", "string": "reason" },
  MemoryExtras: { "[string]": "kinds categories", "number": "peakBytes simulatedBytes tableBytes peakPoint", "string": "peakSource xlaPeakNote platform", "?number": "assignedBytes xlaPeakBytes", "[MemorySpace]": "spaces", "[Donation]": "donations", "[ParameterCopy]": "copies", "[AuditTotal]": "totals?", "[Loop]": "loops", "[Residual]": "residuals", "[Remat]": "remat" },
  SourceFile: { "string": "file", "boolean": "library", "?string": "text" },
  SourceExtras: { "[SourceFile]": "files", "[string]": "why" },
  MeasuredExtras: { "[number]": "devices deviceSeconds", "number": "steps coverage totalSeconds flightSeconds", "[string]": "notes", "?[string]": "names" },
  Origin: { "string": "axis of name line", "argument|constraint|output|unknown|": "kind", "[string]": "stack via" },
  WhyCard: { "string": "unknown opName opcode shape line listed operand had needs", "[string]": "callers others", "[Origin]": "origins" },
  GroupSet: { "boolean": "pairs", "[[number]]": "rows" },
  CollectiveExtras: { "[string]": "written ofPermutes", "[WhyCard]": "why", "[GroupSet]": "groups", "{string}": "assumes" },
  Proof: { "string": "words diff?", "boolean": "isProved compiled?", "[string]": "code lines", "[[string]]": "figures?" },
  Finding: { "string": "rule title evidence advice atStake line code scope", "number": "share count", "boolean": "inferred", "[number]": "instructions", "[string]": "ways?", "[Proof]": "proofs?" },
  Findings: { "[string]": "headline leftOut? failed", "number": "rules", "[Finding]": "rows" },
  TimelineExtras: { "[string]": "lanes", "number": "seconds entry", "string": "hardware" },
  Elsewhere: { "string": "where", "number": "events" },
  TraceExtras: { "number": "events runs", "?number": "shortest", "[Elsewhere]": "elsewhere" },
  MovesExtras: { "?string": "hardware" },
  MeshInfo: { "[string]": "names", "[number]": "sizes partitions", "boolean": "given" },
  DeviceExtras: { "number": "count", "string": "kind", "[[number]]": "coords", "[number]": "slices", "?MeshInfo": "mesh" },
  PassCost: { "local|global|": "shapes?", "?number": "flops? bytes_accessed? peak_bytes?", "string": "failed?" },
  PassRow: { "string": "pipeline title about", "{number}": "counts change", "number": "added removed changed renamed", "boolean": "onlyMetadata", "?PassCost": "cost" },
  PassPart: { "string": "name", "number": "seconds" },
  SlowPass: { "string": "pipeline name", "number": "seconds times row" },
  PassTimesExtras: { "?number": "total", "[PassPart]": "parts", "[SlowPass]": "slowest", "[?number]": "seconds", "[number]": "others", "string": "note" },
  PassesExtras: { "[PassRow]": "rows", "number": "begin", "string": "note", "?PassTimesExtras": "times?" },
  OwnColumn: { "string": "label unit" },
  Extras: { "CostExtras": "cost?", "MemoryExtras": "memory?", "SourceExtras": "source?", "MeasuredExtras": "measured?", "CollectiveExtras": "collectives?", "[string]": "phases?", "[CompilerMessage]": "compiler?", "Findings": "findings?", "TimelineExtras": "timeline?", "TraceExtras": "trace?", "MovesExtras": "moves?", "DeviceExtras": "devices?", "PassesExtras": "passes?", "[OwnColumn]": "own?" },
  Block: { "number": "version", "{ColumnSpec}": "columns" },
  PictureContent: { "[string]": "opcodes callRoles", "[Family]": "families", "[module|entry|scope|fusion|body|condition|branch|call|reducer|component|section|unreachable|]": "groupKinds", "TableCounts": "counts", "hlo|stablehlo|jaxpr|": "dialect" },
  ViewContent: { "[string]": "opcodes callRoles warnings", "[Family]": "families", "[module|entry|scope|fusion|body|condition|branch|call|reducer|component|section|unreachable|]": "groupKinds", "TableCounts": "counts", "hlo|stablehlo|jaxpr|": "dialect", "string": "title subtitle", "boolean": "isScheduled", "Summary": "summary", "Extras": "extras" },
  ViewHeader: { "number": "version", "{ColumnSpec}": "columns", "[string]": "opcodes callRoles warnings", "[Family]": "families", "[module|entry|scope|fusion|body|condition|branch|call|reducer|component|section|unreachable|]": "groupKinds", "TableCounts": "counts", "hlo|stablehlo|jaxpr|": "dialect", "string": "title subtitle", "boolean": "isScheduled", "Summary": "summary", "Extras": "extras" },
  AnalysesContent: { "number": "instructions", "MoreSummary": "summary", "[string]": "warnings without?", "Extras": "extras" },
  AnalysesHeader: { "number": "version instructions", "{ColumnSpec}": "columns", "MoreSummary": "summary", "[string]": "warnings without?", "Extras": "extras" },
  TextHeader: { "number": "version", "{ColumnSpec}": "columns" },
  StageFile: { "string": "file", "number": "row", "boolean": "known" },
  StageText: { "string": "id title", "boolean": "own", "number": "begin end first count", "[string]": "notes", "[StageFile]": "files" },
  StagesContent: { "number": "instructions", "boolean": "exact", "string": "how", "[StageText]": "stages" },
  StagesHeader: { "number": "version instructions", "{ColumnSpec}": "columns", "boolean": "exact", "string": "how", "[StageText]": "stages" },
  Blocks: { "ViewHeader": "HLOV", "AnalysesHeader": "HLOA", "TextHeader": "HLOT", "StagesHeader": "HLOC" },
};
