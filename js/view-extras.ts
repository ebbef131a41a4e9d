/**
 * The part of the contract that is JSON: what `ViewHeader.extras` and `summary` hold. `npm run
 * schema` makes js/view.schema.json of it, and Python's tests hold every block they write to that.
 *
 * Numbers that are instruction indices say so; -1 is none. Bytes are per device, times are in
 * seconds; null is unknown.
 */

/** Results of analyses that are small enough for JSON; each is absent when it has nothing. */
export interface Extras {
  cost?: CostExtras;
  memory?: MemoryExtras;
  source?: SourceExtras;
  measured?: MeasuredExtras;
  collectives?: CollectiveExtras;
  /** Names of the values of `phase.of` and `collective.phase`; the first is "". */
  phases?: string[];
  compiler?: CompilerMessage[];
  findings?: Findings;
  timeline?: TimelineExtras;
  trace?: TraceExtras;
  /** For columns move.*: the chip for which their seconds are modelled; null where none is known. */
  moves?: { hardware: string | null };
  devices?: DeviceExtras;
  /** Only in the passes block. */
  passes?: PassesExtras;
  /** For columns own.0, own.1, …: numbers that the user gave. */
  own?: { label: string; unit: string }[];
}

/** Passes that changed the module, in order; the first row is the initial module. */
export interface PassesExtras {
  rows: PassRow[];
  /** The row to show first: that of the main View, else of the pass that made the most fusions. */
  begin: number;
  note: string; // what is missing; "" if nothing
}
export interface PassRow {
  pipeline: string;
  pass: string;
  about: string; // what the pass is for; "" if not described
  counts: Record<string, number>; // instructions, fusions, copies, transposes, collectives
  change: Record<string, number>; // compared with the previous row
  added: number;
  removed: number;
  changed: number;
  renamed: number;
  onlyMetadata: boolean;
  cost: PassCost | null; // null: not computed
}
/** null: not known. */
export interface PassCost {
  /** "global": not partitioned yet, so figures are for all devices together. */
  shapes?: "local" | "global";
  flops?: number | null;
  bytes_accessed?: number | null;
  peak_bytes?: number | null; // once there is a schedule
  failed?: string;
}

/** What columns timeline.* refer to. */
export interface TimelineExtras {
  /** "compute", "waiting" (for a transfer), then "over data" and so on. */
  lanes: string[];
  seconds: number; // of one step
  entry: number; // computation
  hardware: string; // the chip's label
}

/** What columns trace.* leave out. */
export interface TraceExtras {
  events: number; // in all lanes, drawn or not
  /** Events shorter than this many seconds are left out; null when none are. */
  shortest: number | null;
  /** Events in the file that are in no lane: "on the host's threads". */
  elsewhere: { where: string; events: number }[];
  runs: number; // executions of this program on all devices
}

export interface CostExtras {
  dtypes: string[];
  /** Number of distinct reaches of the chips' first links: columns of the `transfer` tables. */
  reaches: number;
  hardware: Chip[];
  /** The chip on which `cost.seconds` is modelled: the one the user chose, else the program's own. */
  chosen: string | null;
  /** The chip that the program's devices are. */
  own: string | null;
  totals: Totals;
  torusIsKnown: boolean;
  /** The slice that is assumed where device coordinates are not known: "4×4". */
  assumedSlice: string;
  unknownLoops: { instruction: number; parent: number }[];
  branchesLeftOut: number[];
  /** [least, most] of flops, bytes_accessed, transcendentals and seconds that depend on branches. */
  ranges: Record<string, number[]>;
  xla: XlaFigure[];
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
  total: number;
  /** Number of executed instructions whose time is unknown. */
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
  /** Of the link to host memory, one way. */
  hostBandwidth: number;
  /** FLOP/s per entry of `dtypes`; null where no source gives it. */
  matmul: (number | null)[];
  peak: number;
  vector: number | null;
  clock: number | null;
  links: Link[];
  /** Column of the `transfer` tables for the reach of its first link. */
  reach: number;
  source: string[];
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
  why: string; // for a donation that was not used: why no output took its memory
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
  /** Texts of `source.why`, followed by the name of `source.via`: "layout for"; the first is "". */
  why: string[];
}

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

export interface CollectiveExtras {
  written: string[];
  why: WhyCard[];
  groups: GroupSet[];
  /** Kind → what its wire bytes and time assume, as a clause. */
  assumes: Record<string, string>;
  /** Kinds that consist of several permutes: their parts are transfers, not arrays. */
  ofPermutes: string[];
}
export interface Origin {
  axis: string;
  of: string;
  kind: "argument" | "constraint" | "output" | "unknown";
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

/** A message from the compiler, with the instructions that pay for it. */
export interface CompilerMessage {
  message: string;
  kind: string | null; // "involuntary full rematerialization"
  operation: string; // before partitioning; "" if not given
  shape: string; // per device, as XLA wrote it
  had: string;
  needs: string;
  op_name: string;
  line: string; // "dir/train.py:31"
  instructions: number[];
  text: string; // as XLA wrote it
}

export interface Findings {
  headline: string[];
  rules: number; // that were applied
  unasked: number; // not applied, as they need an optimised program and this one is not
  failed: string[];
  rows: Finding[];
}
export interface Finding {
  rule: string; // "gathered-twice"
  title: string;
  evidence: string;
  advice: string;
  share: number; // of the step or the peak, 0 to 1
  atStake: string; // "1.2 ms modelled, 12.5 MiB on the wire"
  line: string; // "dir/train.py:31"; "" unknown
  inferred: boolean; // the line belongs to what the evidence serves
  code: string; // that line's text; "" unknown
  scope: string; // "decoder/embed" where the line is unknown or in a library; else ""
  count: number; // of all evidence; `instructions` is the first of it
  instructions: number[];
}

export interface DeviceExtras {
  count: number;
  kind: string;
  coords: number[][]; // [] when not known
  slices: number[]; // the TPU slice of each device; [] where there is only one
  mesh: MeshInfo | null;
}
export interface MeshInfo {
  names: string[];
  sizes: number[];
  partitions: number[];
  given: boolean; // false: inferred from the module
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
    /** Present where branches of conditionals matter; the plain figures are then the most. */
    executions_least?: number;
    payload_bytes_least?: number;
    wire_bytes_least?: number;
    /** A trip count or a formula is unknown for some of them. */
    lower_bound?: boolean;
    /** For programs on several TPU slices: "dcn" between them, "ici" within one. */
    network?: string;
  }[];
  /** What one device sends in all; of mutually exclusive branches only one counts. */
  wire_bytes?: number | null;
  wire_bytes_least?: number;
  /** Sharding → number of parameters with it. */
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
  /** It is the View's own stage: its text is the text block, its places are instructions. */
  own: boolean;
  /** Byte range in stage_text. */
  begin: number;
  end: number;
  /** Its places: first .. first + count - 1, in ascending order of their lines. */
  first: number;
  count: number;
  /** What was left out, as sentences. */
  notes: string[];
  /** For Python source: the files, the row that names each, and whether its text is known. */
  files: { file: string; row: number; known: boolean }[];
}
