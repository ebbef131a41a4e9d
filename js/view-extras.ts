/**
 * The part of the contract that is JSON: what `ViewHeader.extras` and `summary` hold. `npm run
 * schema` makes js/view.schema.json of it, and Python's tests hold every block they write to that.
 *
 * Numbers that are indices of instructions say so; -1 is none. Bytes are of one device, times
 * seconds; null is unknown.
 */

/** Results of the analyses that are small enough for JSON; each absent when it has nothing. */
export interface Extras {
  cost?: CostExtras;
  memory?: MemoryExtras;
  source?: SourceExtras;
  measured?: MeasuredExtras;
  collectives?: CollectiveExtras;
  /** Names of `phase.of` and `collective.phase`; the first is "". */
  phases?: string[];
  compiler?: CompilerMessage[];
  findings?: Findings;
  timeline?: TimelineExtras;
  trace?: TraceExtras;
  /** Of columns move.*: the chip their seconds are of; null where none is known. */
  moves?: { hardware: string | null };
  devices?: DeviceExtras;
  /** Only in the passes block. */
  passes?: PassesExtras;
  /** Of columns own.0, own.1, …: numbers that a person gave. */
  own?: { label: string; unit: string }[];
}

/** Passes that changed the module, in order; the first is where it began. */
export interface PassesExtras {
  rows: PassRow[];
  /** The row to begin at: where the main View stands, else the pass that made most. */
  begin: number;
  note: string; // what is missing; "" nothing
}
export interface PassRow {
  pipeline: string;
  pass: string;
  about: string; // what such a pass is for; "" not described
  counts: Record<string, number>; // instructions, fusions, copies, transposes, collectives
  change: Record<string, number>; // against the row before
  added: number;
  removed: number;
  changed: number;
  renamed: number;
  onlyMetadata: boolean;
  cost: PassCost | null; // null: not worked out
}
/** null: not known. */
export interface PassCost {
  /** "global": not cut over the devices yet, so of all of them together. */
  shapes?: "local" | "global";
  flops?: number | null;
  bytes_accessed?: number | null;
  peak_bytes?: number | null; // once there is a schedule
  failed?: string;
}

/** What columns timeline.* are of. */
export interface TimelineExtras {
  /** "compute", "waiting" (for a transfer), then "over data" and the like. */
  lanes: string[];
  seconds: number; // of one step
  entry: number; // computation
  hardware: string; // the chip's label
}

/** What columns trace.* leave out. */
export interface TraceExtras {
  events: number; // of all lanes, drawn or not
  /** Events that took less than these seconds are left out; null when none is. */
  shortest: number | null;
  /** Events of the file that no lane has: "on the host's threads". */
  elsewhere: { where: string; events: number }[];
  runs: number; // executions of this program, all devices
}

export interface CostExtras {
  dtypes: string[];
  /** Distinct reaches of the chips' first links: columns of the `transfer` tables. */
  reaches: number;
  hardware: Chip[];
  /** What `cost.seconds` is modelled on: the chip a person chose, else the program's own. */
  chosen: string | null;
  /** The chip of the program's devices. */
  own: string | null;
  totals: Totals;
  torusIsKnown: boolean;
  /** "4×4": where the devices' places are not known. */
  assumedSlice: string;
  unknownLoops: { instruction: number; parent: number }[];
  branchesLeftOut: number[];
  /** [least, most] of flops, bytes_accessed, transcendentals, seconds that branches decide. */
  ranges: Record<string, number[]>;
  xla: XlaFigure[];
}

/** Sums over units that run, times their executions; of times only with a chip, else 0. */
export interface Totals {
  flops: number;
  bytes: number;
  compute: number;
  memory: number;
  collective: number;
  exposed: number;
  /** Copies to VMEM and the host that nothing else leaves bandwidth for. */
  copies: number;
  total: number;
  /** Executed instructions whose time is unknown. */
  unknown: number;
}

export interface Link {
  name: string;
  kind: "torus" | "switch";
  bytesPerSecond: number;
  latency: number;
  group: number;
}

export interface Chip {
  id: string;
  label: string;
  memoryBytes: number;
  memoryBandwidth: number;
  /** Of the link to the host's memory, one way. */
  hostBandwidth: number;
  /** FLOP/s per entry of `dtypes`; null where no source says. */
  matmul: (number | null)[];
  peak: number;
  vector: number | null;
  clock: number | null;
  links: Link[];
  /** Column of the `transfer` tables that its first link's reach has. */
  reach: number;
  source: string[];
}

/** One of XLA's own totals beside ours, and what the difference is made of. */
export interface XlaFigure {
  quantity: string;
  xla: number;
  ours: number;
  loops: number;
  customCalls: number;
  other: number | null;
}

export interface MemoryExtras {
  kinds: string[];
  categories: string[];
  peakBytes: number;
  peakSource: string;
  simulatedBytes: number;
  assignedBytes: number | null;
  xlaPeakBytes: number | null;
  /** What `xlaPeakBytes` leaves out or adds, after a comma; "" nothing. */
  xlaPeakNote: string;
  tableBytes: number;
  peakPoint: number;
  platform: string;
  /** The main memory first; each with its own peak and who says so. */
  spaces: { space: number; name: string; peak: number; source: string }[];
  donations: Donation[];
  copies: ParameterCopy[];
  loops: Loop[];
  residuals: Residual[];
  remat: Remat[];
}
export interface Donation {
  argument: string;
  parameter: number;
  bytes: number;
  outcome: string;
  output: string;
  why: string; // of one donated in vain: why no output took its memory
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
  stored: number;
}
export interface Loop {
  instruction: number;
  trips: number | null;
  phase: string;
  bytes: number;
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
export interface Remat {
  instruction: number;
  bytes: number;
  flops: number;
  bytesAccessed: number;
  wireBytes: number;
  instructions: number[];
  reason: string;
}

export interface SourceExtras {
  files: { file: string; library: boolean; text: string | null }[];
  /** Of `source.why`, before the name of `source.via`: "layout for"; the first is "". */
  why: string[];
}

export interface MeasuredExtras {
  devices: number[];
  steps: number;
  /** Part of the trace's time in this module that landed on an instruction. */
  coverage: number;
  deviceSeconds: number[];
  /** Mean over devices, of one step. */
  totalSeconds: number;
  /** Asynchronous operations from start to done, of one step. */
  flightSeconds: number;
  /** What may be wrong with the join, and what of the trace is not in the figures. */
  notes: string[];
  /** Names of `devices` where several hosts were traced. */
  names: string[] | null;
}

export interface CollectiveExtras {
  written: string[];
  why: WhyCard[];
  groups: GroupSet[];
  /** Kind → what its wire bytes and time take for granted, as a clause. */
  assumes: Record<string, string>;
  /** Kinds that stand for several permutes: their parts are transfers, not arrays. */
  ofPermutes: string[];
}
export interface Origin {
  axis: string;
  of: string;
  kind: "argument" | "constraint" | "output" | "unknown";
  name: string;
  line: string;
  stack: string[];
  /** Ops it was propagated along, from the value back. */
  via: string[];
}
/** Why an inserted collective is there; `unknown` says what could not be found. */
export interface WhyCard {
  unknown: string;
  opName: string;
  opcode: string;
  shape: string;
  line: string;
  /** The line that tables have for it, where that is another, and why: "train.py:8, inferred". */
  listed: string;
  operand: string;
  had: string;
  needs: string;
  /** Lines that called the line, the nearest first. */
  callers: string[];
  /** The other ops that it serves, or lines that ask for it by name. */
  others: string[];
  origins: Origin[];
}
/** Devices that talk: groups of them, or (source, target) pairs. */
export interface GroupSet {
  pairs: boolean;
  rows: number[][];
}

/** What the compiler said, with the instructions that pay for it. */
export interface CompilerMessage {
  message: string;
  kind: string | null; // "involuntary full rematerialization"
  operation: string; // before partitioning; "" not said
  shape: string; // of one device, as XLA wrote it
  had: string;
  needs: string;
  op_name: string;
  line: string; // "dir/train.py:31"
  instructions: number[];
  text: string; // as XLA wrote it
}

export interface Findings {
  headline: string[];
  rules: number; // that were asked
  unasked: number; // that need the optimised program, of one that is not
  failed: string[];
  rows: Finding[];
}
export interface Finding {
  rule: string; // "gathered-twice"
  title: string;
  evidence: string;
  advice: string;
  share: number; // of the step or of the peak, 0 to 1
  atStake: string; // "1.2 ms modelled, 12.5 MiB on the wire"
  line: string; // "dir/train.py:31"; "" unknown
  inferred: boolean; // the line is that of what the evidence serves
  code: string; // that line's text; "" unknown
  scope: string; // "decoder/embed" where the line is unknown or a library's; else ""
  count: number; // of the evidence; `instructions` are its first
  instructions: number[];
}

export interface DeviceExtras {
  count: number;
  kind: string;
  coords: number[][]; // [] when not known
  slices: number[]; // the TPU slice of each device; [] where there is one
  mesh: MeshInfo | null;
}
export interface MeshInfo {
  names: string[];
  sizes: number[];
  partitions: number[];
  given: boolean; // false: inferred from the module
}

/** `hloscope summary --json`: what the View has at once. */
export interface Counts {
  module: string;
  computations: number;
  instructions: number;
  entry_instructions: number;
  fusions: Record<string, number>;
  opcodes: Record<string, number>;
  /** null, as the bytes are: unknown, of a dump that was cut off before its program. */
  parameters: number | null;
  parameter_bytes: number | null;
  output_bytes: number | null;
  /** "global": of several devices and not partitioned yet; then bytes are of whole arrays. */
  shapes: "local" | "global";
  partitions: number;
  replicas: number;
  warnings: string[];
}

/** The rest of it, which comes with the analyses; a key is absent when its analysis has nothing. */
export interface MoreSummary {
  /** Sums over executions; `wire_bytes` is what one device sends. */
  collectives?: {
    kind: string;
    axes: string | null;
    count: number;
    executions: number;
    payload_bytes: number;
    wire_bytes: number;
    /** Where branches of conditionals decide: the plain figures are the most. */
    executions_least?: number;
    payload_bytes_least?: number;
    wire_bytes_least?: number;
    /** A trip count or a formula is unknown in some of them. */
    lower_bound?: boolean;
    /** Of programs on several TPU slices: "dcn" between them, "ici" within one. */
    network?: string;
  }[];
  /** What one device sends in all: of branches that exclude one another only one counts. */
  wire_bytes?: number | null;
  wire_bytes_least?: number;
  /** Sharding → parameters with it. */
  shardings?: Record<string, number>;
  devices?: {
    partition: number;
    parameter_bytes: number | null;
    id?: number;
    kind?: string;
    coords?: number[];
  }[];
  flops?: number;
  bytes_accessed?: number;
  flops_least?: number;
  flops_most?: number;
  bytes_accessed_least?: number;
  bytes_accessed_most?: number;
  transcendentals_least?: number;
  transcendentals_most?: number;
  trip_counts_unknown?: string[];
  estimated_cycles?: number | null;
  hardware?: string | null;
  modelled_seconds?: {
    compute: number;
    memory: number;
    collective: number;
    exposed: number;
    copies: number;
    total: number;
    total_least?: number;
    total_most?: number;
  } | null;
  peak_live_bytes?: number;
  peak_source?: string;
  peak_by_memory?: Record<string, number>;
  findings?: { rule: string; title: string; line: string | null; share: number }[];
  compiler_messages?: CompilerMessage[];
}
export type Summary = Counts & MoreSummary;

/** One text of the stages block. */
export interface StageText {
  id: string; // "source", "jaxpr", "stablehlo", "optimized"
  title: string;
  /** The View's own: its text is the text block, its places are instructions. */
  own: boolean;
  /** Bytes of stage_text. */
  begin: number;
  end: number;
  /** Its places: first .. first + count - 1, their lines ascending. */
  first: number;
  count: number;
  /** What was left out, in sentences. */
  notes: string[];
  /** Of Python source: files, the row that names each, and whether their text is there. */
  files: { file: string; row: number; known: boolean }[];
}
