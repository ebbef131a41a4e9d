/**
 * THE contract between Python and the renderer. Python (`python/hloscope/view/`) writes Views;
 * TypeScript reads them and adds no meaning of its own.
 *
 * A View is one gzip'd block:
 *
 *     "HLOV" | u32 version | u32 header bytes | header (JSON, UTF-8) | pad to 8 | columns
 *
 * All numbers are little-endian. The header gives every column its dtype, byte offset (from the
 * start of the column area, a multiple of 8) and length in elements. Tables are columns with a
 * common prefix and length: `instruction.name`, `instruction.opcode`, …
 *
 * Repeated text (names, shapes, scopes) is stored once, in the string table: `strings.bytes` (u8,
 * UTF-8), split at `strings.offsets` (u32, one more than there are strings). Columns typed
 * `StringId` index into it; id 0 is always "".
 *
 * One-to-many relations are CSR pairs: `X.offsets` (rows + 1) index into `X.values`.
 *
 * Optional tables are absent, never empty, when the analysis did not run.
 */

import type { Counts, Extras, MoreSummary, PassCost, StageText } from "./view-extras.ts";

export const VIEW_VERSION = 2;
export const VIEW_MAGIC = "HLOV";

export type DType = "u8" | "u16" | "u32" | "i32" | "f32" | "f64";

export interface ColumnSpec {
  dtype: DType;
  offset: number;
  length: number;
  /** The values are StringIds of the block's own string table. */
  text?: boolean;
}

/** A family of opcodes: its name, and whether it stays visible when zoomed out. */
export interface Family {
  id: string; // "matmul" | "convolution" | "collective" | "fusion" | "elementwise" | …
  label: string;
  landmark: boolean;
}

/** Bits of `instruction.flags`. */
export const enum Flag {
  Root = 1,
  /** Drawn as text on its users: constants, iotas, scalar broadcasts. */
  Inline = 2,
  Parameter = 4,
  /** Contracted by default: get-tuple-element, bitcast, tuple, reshape, layout-only copy. */
  Plumbing = 8,
  /** Stays visible when zoomed out: matmuls, collectives, loops, large buffers. */
  Landmark = 16,
  /** Its value leaves the module: an operand of ENTRY's root tuple, or the root itself. */
  Output = 32,
  AsyncStart = 64,
  AsyncDone = 128,
  /** Asynchronous copies, and the done ops of asynchronous collectives; also plumbing. */
  Move = 256,
}

/** Values of `group.kind`, in this order in `header.groupKinds`. */
export type GroupKind =
  | "module" // one root group; parent -1
  | "entry" // the ENTRY computation
  | "scope" // one component of op_name
  | "fusion" // a fusion's computation; owner = the fusion instruction
  | "body" // while body; owner = the while
  | "condition" // while condition; owner = the while
  | "branch" // of a conditional; owner = the conditional
  | "call" // called by call, async-start, map, custom-call; owner = the caller
  | "reducer" // to_apply, comparator, select, scatter; owner = the caller
  | "component" // class of equal connected components of a very large flat group
  | "section" // consecutive part of a very large flat group with no better structure
  | "unreachable"; // computation that nothing calls (truncated dumps)

export interface ViewHeader {
  version: number;
  columns: Record<string, ColumnSpec>;
  /** Opcode strings; `instruction.opcode` indexes them. */
  opcodes: string[];
  families: Family[];
  groupKinds: GroupKind[];
  /** Roles of `called.role`: "calls", "to_apply", "body", … */
  callRoles: string[];
  counts: { instructions: number; computations: number; groups: number; folds: number };
  title: string; // "jit_step"
  subtitle: string; // "8 × TPU v5 lite · optimized" or a file name
  dialect: "hlo" | "stablehlo" | "jaxpr";
  isScheduled: boolean;
  /** Once the analyses have arrived, the same object that `hloscope summary --json` prints. */
  summary: Counts & MoreSummary;
  warnings: string[];
  /** Results of optional analyses that are small enough for JSON, by name of the analysis. */
  extras: Extras;
}

/**
 * Columns that every View has (n = instructions, c = computations, g = groups, f = folds).
 *
 * instruction.name        StringId u32 n   without "%"
 * instruction.label       StringId u32 n   short text for its box: "matmul", "fusion add·tanh", "params['w1']"
 * instruction.opcode      u16 n            into header.opcodes
 * instruction.family      u8 n             into header.families
 * instruction.flags       u16 n            Flag bits
 * instruction.shape       StringId u32 n   with layout
 * instruction.dense_shape StringId u32 n   without layout
 * instruction.bytes       f64 n            bytes of its output on one device, dense
 * instruction.element     i32 n            tuple index that a get-tuple-element selects; -1 otherwise
 * instruction.computation u32 n
 * instruction.group       u32 n            innermost group that contains it
 * instruction.op_name     StringId u32 n   0 when there is none
 * instruction.frame       i32 n            innermost frame, into frame.*; -1 unknown
 * operand.offsets/values  u32              operands, as instruction indices, in order
 * control.offsets/values  u32              control predecessors
 * called.offsets/values   u32              computations that it calls
 * called.role             u8               parallel to called.values, into header.callRoles
 *
 * computation.name        StringId u32 c
 * computation.first       u32 c            its instructions are first .. first + size - 1
 * computation.size        u32 c
 * computation.root        i32 c            instruction; -1 when the dump was truncated
 * computation.group       i32 c            its group; -1 if none
 *
 * group.parent            i32 g            -1 for the root group, which is row 0; parents come before children
 * group.kind              u8 g
 * group.label             StringId u32 g
 * group.owner             i32 g            instruction that opens to show it, or -1
 * group.computation       i32 g
 * group.size              u32 g            instructions inside, at any depth
 * group.order             u32 g            schedule key: mean index of its boxes; for a called computation, of its owner
 * group.worth             f32 g            rough share of the program's matmuls, convolutions and kernels inside, 0 .. 1, weighted down in the backward pass: what opens first
 * group.class             u32 g            equal for isomorphic groups
 * group.fold              i32 g            fold that it belongs to, or -1
 *
 * fold.parent             u32 f            group that contains the run
 * fold.label              StringId u32 f   "layer_[1..22]"
 * fold.offsets/members    u32              member groups in order; ≥ 2 each
 *
 * frame.file              StringId u32
 * frame.function          StringId u32     0 unknown
 * frame.line              u32
 * frame.parent            i32              -1 at the outermost
 *
 * A fold shows its members as one box until it is opened; they are isomorphic, or differ by a
 * few instructions (near matches).
 */
export type CoreColumn = string;

/**
 * Optional tables (p = program points, b = buffers, x = transfers, k = collectives, a = arrays,
 * d = devices, s = distinct shardings). Each is absent when its analysis did not run or has
 * nothing to report.
 *
 * cost.flops              f64 n   FLOPs of one execution, including called computations and loops; NaN unknown
 * cost.matmul_flops       f64 n   the part in dots, convolutions, custom-call matmuls, and what kernels declare
 * cost.transcendentals    f64 n
 * cost.bytes              f64 n   bytes accessed; of fusions, at their boundary
 * cost.main_bytes         f64 n   the part in main memory (not VMEM and the like)
 * cost.from_host          f64 n   bytes that a copy reads from host memory
 * cost.to_host            f64 n   bytes that it writes there; both columns absent where there are none
 * cost.runs               f64 n   executions; a loop of unknown trip count is counted once
 * cost.unit               u8 n    1: takes time itself; 2: a collective, whose time is its transfer's;
 *                                 3: a copy that runs beside everything else, to VMEM or over the host link;
 *                                 0: inside a fusion, or a container such as while
 * cost.dtype              u8 n    operand type of its matmuls, into extras.cost.dtypes
 * cost.loop               i32 n   innermost loop of unknown trip count, into extras.cost.unknownLoops; -1 none
 * cost.condition          u8 n    1: in the condition of that loop, which runs once more than its body
 * cost.cycles             f64 n   XLA:TPU's estimated_cycles of one execution; NaN none
 * cost.seconds            f64 n   modelled seconds of one execution on extras.cost.chosen; NaN unknown
 * cost.step               f64 n   what it adds to the modelled step over all executions; sums to the total; NaN unknown
 * cost.bound              u8 n    what bounds it: 1 compute, 2 vector, 3 memory, 4 collective, 5 unknown, 6 copy
 *
 * transfer.start          u32 x   instruction that starts a collective
 * transfer.done           u32 x   instruction that waits for it; the start itself when synchronous
 * transfer.far            u8 x    1: uses the last link only, concurrently with what the first one carries
 * transfer.bytes          f64 x   what one device sends when all devices are behind one switch
 * transfer.runs           f64 x   executions when the branches that send most are taken; when absent, cost.runs
 * transfer.switch_steps   f64 x·r latency steps on the chip's first link if that is a switch, and
 * transfer.switch_bytes   f64 x·r bytes on the busiest link; one row per transfer, one column per
 * transfer.torus_steps    f64 x·r reach of that link (r = extras.cost.reaches; a chip's column is its `reach`)
 * transfer.torus_bytes    f64 x·r the same if it is a torus
 * transfer.far_steps      f64 x·r what is left for the last link, between blocks of that reach
 * transfer.far_bytes      f64 x·r
 *
 * transfer.seconds        f64 x   modelled time on the wire, all executions
 * transfer.waited         f64 x   the part not hidden by other work
 *
 * These, cost.seconds, cost.step and cost.bound are absent where no chip is chosen.
 * state/cost/what-if.ts models another chip, or other trip counts, with the same formulas from the
 * columns above.
 *
 * memory.schedule         u32 p   instruction at each program point; callees before callers
 * memory.live             f64 p   live bytes in main memory, simulated
 *
 * buffer.instruction      u32 b   instruction that defines it
 * buffer.leaf             u32 b   leaf of that instruction's shape
 * buffer.bytes            f64 b   including tile padding
 * buffer.padding          f64 b   the padding alone
 * buffer.space            u8 b    memory space, S(n) of the layout; 0 for everything in main memory
 * buffer.kind             u8 b    into extras.memory.kinds; arguments and outputs are live throughout
 * buffer.category         u8 b    into extras.memory.categories
 * buffer.start            u32 b   program point at which it is defined
 * buffer.end              u32 b   program point of its last use
 * buffer.freed            i32 b   last point at which it counts; another buffer may take its place at `end`
 * buffer.home             i32 b   buffer whose memory it shares, so that it is not counted; -1 has its own
 * buffer.frame            i32 b   innermost frame of the code that needs it, into frame.*; -1 for arguments or unknown
 * buffer.scope            StringId u32 b  "layer_0/mlp"; "" for arguments
 * buffer.name             StringId u32 b  name of the argument, else of the instruction
 * buffer.allocation       i32 b   XLA's allocation, -1 unknown
 * buffer.offset           f64 b   its offset in the allocation, bytes
 *
 * gap.buffer              u32     buffers whose memory is free between two values, like a loop's
 * gap.start, gap.end      u32     carry between its last use in a step and its next value: program points
 *
 * measured.mean           f64 n   measured seconds in one step, mean over devices; NaN not in the trace
 * measured.step           f64 n   what it adds to the step; sums to extras.measured.totalSeconds
 * measured.most           f64 n   measured seconds on the slowest device
 * measured.slowest        u32 n   the slowest device
 * measured.rows           u32     instructions in the trace, slowest first; at most 2,000
 * measured.seconds        f32     rows × devices of extras.measured
 * measured.self           f32     per row: mean without what ran inside it, such as the body of a while
 * measured.flight         f32     per row: mean time from start to done of an asynchronous op, stored at its start
 *
 * timeline.computation    u32 e   the modelled step as events: computation that contains each event
 * timeline.instruction    u32 e   what runs; for a loop or call, the calling instruction
 * timeline.lane           u8 e    into extras.timeline.lanes
 * timeline.start          f64 e   seconds since its computation began
 * timeline.seconds        f64 e   duration
 * timeline.inside         i32 e   computation that runs inside; -1 for an operation
 * timeline.times          f64 e   how many times that computation runs, back to back
 *
 * trace_lane.device       StringId u32 l  lanes of traced devices, ordered by device: "TPU:0"
 * trace_lane.name         StringId u32 l  "XLA Ops"; on CPU, a thread
 * trace_lane.beside       u8 l    1: runs beside the operations, as asynchronous ones do
 * trace_lane.events       u32 l   number of events in the trace
 * trace.lane              u32 t   events of a trace, ordered by lane, then by start
 * trace.start, trace.end  f64 t   seconds since the first event of the trace, on a clock common to all devices
 * trace.seconds           f64 t   duration by the device's own clock
 * trace.instruction       i32 t   -1 for events of other programs
 * trace.text              StringId u32 t  its name in the trace
 * trace_run.device        StringId u32 x  executions of this program, ordered by device, then by start
 * trace_run.start         f64 x   seconds since the first event of the trace
 * trace_run.seconds       f64 x   from start to end
 *
 * own.0, own.1, …         f64 n   numbers that the user gave, named in extras.own; NaN none
 *
 * diff.of                 u8 n    compared with another program: 0 the same there, 1 changed, 2 only here
 * diff.pair               i32 n   its counterpart there; -1 none
 *
 * source.frame            i32 n   frame of its line, its own or inferred from what it serves; -1 unknown
 * source.via              i32 n   instruction from which the line was inferred; -1 if its own or unknown
 * source.why              u8 n    how it was inferred, into extras.source.why; 0 if its own or unknown
 * source.flops            f64 n   FLOPs of all executions; in fusions, on the instructions inside that do the work
 *
 * phase.of                u8 n    into extras.phases: forward, backward, rematerialised, optimiser; 0 unknown
 *
 * collective.kind         StringId u32 k  all-gather, …, collective-matmul or halo-exchange
 * collective.instruction  u32 k   the op itself; of an async pair, its start
 * collective.anchor       u32 k   what executes it: itself, or the fusion around it
 * collective.axes         StringId u32 k  "model", "data+fsdp"; "4 groups of 2" when the axes are not known
 * collective.on_axes      u8 k    1: collective.axes are mesh axes
 * collective.group_size   u32 k   0 for pairs
 * collective.payload      f64 k   bytes of one execution: the larger of operand and result
 * collective.wire         f64 k   bytes that one device sends in one execution, by ring formulas; NaN unknown
 * collective.executions   f64 k   product of the trip counts, assuming that branches around it are always taken; NaN unknown
 * collective_branch.*     u32     branches around it, outermost first: offsets (k + 1), conditional, number, of; absent where there are none
 * collective.network      StringId u32 k  "ici" or "dcn"; only for programs that span several TPU slices
 * collective.phase        u8 k    into extras.phases
 * collective.written      u8 k    into extras.collectives.written
 * collective.moves        StringId u32 k  argument or op whose value is moved
 * collective.moves_argument u8 k  1: it is an argument
 * collective.line         StringId u32 k  "train.py:31"
 * collective.op_name      StringId u32 k
 * collective.shows        StringId u32 k  why it is there, as far as the HLO alone shows; "" if it does not
 * collective.why          i32 k   into extras.collectives.why; -1 none
 * collective.group_set    i32 k   into extras.collectives.groups; -1 unknown
 * collective_member.offsets/values u32  instructions that it consists of
 * collective_part.offsets u32     rows k + 1
 * collective_part.shape   StringId u32    arrays of a combined collective; transfers of a collective matmul or halo exchange
 * collective_part.bytes   f64
 *
 * device.id               u32 d   JAX's id; the row is the partition number
 * device.parameter_bytes  f64 d
 * device.output_bytes     f64 d
 * device.sent_bytes       f64 d   sent by all collectives, with rings in the order of their groups
 * traffic.source          u32     non-zero entries of the device × device matrix
 * traffic.target          u32
 * traffic.bytes           f64
 *
 * array.role              u8 a    0 parameter, 1 output, 2 value
 * array.name              StringId u32 a
 * array.instruction       i32 a   -1 none
 * array.sharding          u32 a   into sharding.*
 * array.type              StringId u32 a  element type
 * array.bytes             f64 a   on one device, including padding
 * array.global_bytes      f64 a
 * array.padded            u8 a    1: the global shape is local × tiles, because the dump does not have the true one
 * array_dims.offsets/values  u32  global dimensions
 * array_local.offsets/values u32  dimensions on one device
 * sharding.text           StringId u32 s  "P('data', None)"
 * sharding.raw            StringId u32 s  as XLA wrote it
 * sharding.kind           StringId u32 s
 * sharding.replicas       u32 s   devices that hold each tile
 * sharding_tiles.offsets/values u32       tiles of each dimension
 * sharding_place.tile     i32     s × d: row-major index of the tile that each device holds; -1 none
 *
 * transition.source       u32     instruction whose value is resharded …
 * transition.target       u32     … at this instruction
 * transition.before       StringId u32   "P('data', None)"
 * transition.after        StringId u32   also "dot with result P('data', None)"
 *
 * move.start              u32     asynchronous copy or collective: its first start …
 * move.end                u32     … what its users read: a done, or the ConcatBitcast of its slices …
 * move.source             u32     … and what is moved; for a collective, the start itself
 * move.pieces             u32     number of starts that it is split into
 * move.kind               StringId u32   prefetch, write-back, to host, from host, copy or a collective
 * move.bytes              f64     of one execution; for a collective, bytes on the wire
 * move.seconds            f64     modelled, of one execution; NaN unknown
 * move.exposed            f64     upper bound on the part that nothing between start and done covers
 */
export type OptionalColumn = string;

/**
 * The analyses block, sent after the first picture: the optional tables, extras, summary keys
 * and warnings that take too long to compute before it. The same container, gzip'd, with magic
 * "HLOA" and a string table of its own, which columns with `text` in their spec index into. The
 * reader adds all of it to the View.
 */
export interface AnalysesHeader {
  version: number;
  columns: Record<string, ColumnSpec>;
  /** Number in the module, to check that both blocks are of the same one. */
  instructions: number;
  summary: MoreSummary;
  warnings: string[];
  extras: Extras;
}
export const ANALYSES_MAGIC = "HLOA";

/**
 * The text block, gzip'd, sent when text or details are first requested. The same container with
 * magic "HLOT"; the header is {version, columns}. Columns:
 *
 * text.bytes               u8   the module as UTF-8
 * line.instruction_begin   u32 n  byte offset of each instruction's line; 0xffffffff if none
 * line.instruction_end     u32 n  its end, without the line break
 * line.computation_begin   u32 c
 * line.computation_end     u32 c
 * attribute.offsets        u32 n+1
 * attribute.key            StringId u32 into strings.*
 * attribute.value          StringId u32 into strings.*
 * strings.bytes, strings.offsets
 */
export interface TextHeader {
  version: number;
  columns: Record<string, ColumnSpec>;
}
export const TEXT_MAGIC = "HLOT";

/**
 * The stages block, gzip'd, sent when the texts of a program's stages are first requested. The
 * same container with magic "HLOC". Lines are linked through strands: a strand is one operation of
 * the StableHLO program, or a source line or op name where operations were not tracked. Columns
 * (p = places, s = strands, r = rows of the source stage):
 *
 * stage_text.bytes         u8   the stages' texts as UTF-8, one after another
 * source_row.number        u32 r  line number of each row in its file; 0: the row names the file
 * place.line               u32 p  line in its stage, from 0; in the View's own stage, an instruction
 * place.told               StringId u32 p  a sentence saying what it became
 * place_strand.offsets/values u32  strands that it is part of, the most important first
 * place_near.offsets/values   u32  strands of calls that led to it, or of what it calls
 * strand.color             i32 s  colour class; -1 none
 * strings.bytes, strings.offsets
 */
export interface StagesHeader {
  version: number;
  columns: Record<string, ColumnSpec>;
  /** Number in the module, to check that both blocks are of the same one. */
  instructions: number;
  /** Every operation was tracked through the compiler; otherwise links are inferred. */
  exact: boolean;
  how: string;
  stages: StageText[];
}
export const STAGES_MAGIC = "HLOC";

/** The headers of the blocks, from which js/view.schema.json is generated. */
export interface Blocks {
  HLOV: ViewHeader;
  HLOA: AnalysesHeader;
  HLOT: TextHeader;
  HLOC: StagesHeader;
}

/**
 * The passes block is a View of its own, of every instruction that was ever in the module (n), laid
 * out once; rows are those of extras.passes (r). It is for drawing only: no figures come from it.
 *
 * pass.first              u32 n   row after which it exists
 * pass.last               u32 n   row after which it is gone; r if it stays to the end
 * pass.final              i32 n   its instruction in the main View; -1 if gone or not known
 * version.offsets         u32 r+1 lines that a row changed, into version.*
 * version.instruction     i32     -1 in a computation that nothing calls
 * version.changed         u8      1 new, 2 opcode, 4 shape, 8 layout, 16 operands, 32 attributes,
 *                                 64 another name
 * version.line            StringId u32  without metadata
 * version_operand.offsets/values u32   instructions of this View
 * pass_link.row           u32     at this row …
 * pass_link.old           u32     … this instruction …
 * pass_link.new           u32     … was replaced by this one
 * pass_link.how           u8      0 its users use the other, 1 the other is the result instead, 2 both
 *                                 have the same op_name, which is a guess
 * diff.offsets            u32 r+1 text of a row's changes, into diff.*
 * diff.kind               u8      0 unchanged, 1 gone, 2 new, 3 moved, 4 a computation, 5 left out
 * diff.value              u32     a version; for 4, a StringId; for 5, the number of lines
 */
export type { PassCost };

/** What the user can choose. Every field has a default; only these go back to Python. */
export interface Options {
  theme: "auto" | "light" | "dark";
  colorBy: string; // "family" | "scope" | "bytes" | more from analyses
  panel: string; // id of the open panel
  /** Texts of the Code panel: stage ids separated by commas; "graph" adds the graph. "": what fits. */
  panes: string;
  height: number; // CSS pixels
  /** Chip on which time is modelled, an id of extras.cost.hardware; null: extras.cost.chosen. */
  hardware: string | null;
}

export interface Selection {
  /** "fold": a run of equal groups shown as one box; index into fold.* */
  kind: "instruction" | "group" | "fold" | "computation" | "none";
  index: number;
}

/** Callbacks to the renderer while passes are computed, and after their block has arrived. */
export interface PassEvents {
  /** `done` of `of` steps; `of` is 0 when the total is not known. */
  progress(done: number, of: number, words: string): void;
  /** Figures of one row of extras.passes. */
  cost(row: number, cost: PassCost): void;
  /** Nothing more follows; `failed` says what went wrong, "" if nothing did. */
  ended(failed: string): void;
}

/** The host's side: where the renderer gets its bytes and reports what happened. */
export interface Host {
  /** The View block, gzip'd. May report progress while it arrives. */
  view(progress: (fraction: number | null) => void, signal: AbortSignal): Promise<Uint8Array>;
  /** The analyses block, gzip'd, requested after the first picture; null or absent: there is none. */
  analyses?(signal: AbortSignal): Promise<Uint8Array | null>;
  /** The text block, gzip'd. */
  text(signal: AbortSignal): Promise<Uint8Array>;
  /** The stages block, gzip'd; absent: there is none. */
  stages?(signal: AbortSignal): Promise<Uint8Array>;
  /** The passes block, gzip'd, made on request; absent: the passes of this View are not known. */
  passes?(events: PassEvents, signal: AbortSignal): Promise<Uint8Array>;
  /** What computing the passes costs, as a sentence; if not empty, the user is asked first. */
  passesPrice?: string;
  /** Opens a source line if the host can (JupyterLab); absent: file:line is shown and copied. */
  openSource?(file: string, line: number): void;
  options?: Partial<Options>;
  onSelect?(selection: Selection & { name: string }): void;
  onOptions?(options: Options): void;
  fileName?: string; // for "save HTML"/"copy" actions
  /** Where to begin, from a link or an earlier session; see state/place.ts. */
  place?: string;
  onPlace?(place: string): void;
  /** Calls `go` when the place is set from outside, for example by another link to the same page. */
  followPlace?(go: (place: string) => void, signal: AbortSignal): void;
  /** URL of a place; absent where the view has none to share. */
  link?(place: string): string;
  bookmarks?: Bookmark[];
  onBookmarks?(all: Bookmark[]): void;
  /** Saves the page with its bookmarks, so that it opens at `place`. */
  savePage?(bookmarks: Bookmark[], place: string): void;
}

/** A place that the user wants to find again. */
export interface Bookmark {
  name: string;
  note: string;
  place: string;
}

export interface Mounted {
  select(selection: Selection): void;
  setOptions(options: Partial<Options>): void;
  dispose(): void;
}
/** `mount(element, host)` in mount.ts is the renderer's only API. */
