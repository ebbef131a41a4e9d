/**
 * THE contract between Python and the renderer. Python (`python/hloscope/view/`) writes it,
 * TypeScript reads it and adds no meaning of its own.
 *
 * A View is one gzip'd block:
 *
 *     "HLOV" | u32 version | u32 header bytes | header (JSON, UTF-8) | pad to 8 | columns
 *
 * All numbers little-endian. The header names every column with its dtype, byte offset (from the
 * start of the column area, a multiple of 8) and length in elements. Tables are columns with a
 * common prefix and length: `instruction.name`, `instruction.opcode`, …
 *
 * Text that repeats (names, shapes, scopes) lives once in the string table: `strings.bytes` (u8,
 * UTF-8) cut by `strings.offsets` (u32, one more than there are strings). Columns typed
 * `StringId` index it; id 0 is always "".
 *
 * One-to-many relations are CSR pairs: `X.offsets` (rows + 1) into `X.values`.
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
  /** StringIds of the block's own string table. */
  text?: boolean;
}

/** What a family of opcodes is called, and whether it is a landmark when zoomed out. */
export interface Family {
  id: string; // "matmul" | "convolution" | "collective" | "fusion" | "elementwise" | …
  label: string;
  landmark: boolean;
}

/** Bits of `instruction.flags`. */
export const enum Flag {
  Root = 1,
  /** Drawn as text on its user: constants, iotas, scalar broadcasts. */
  Inline = 2,
  Parameter = 4,
  /** Contracted by default: get-tuple-element, bitcast, tuple, reshape, layout-only copy. */
  Plumbing = 8,
  /** Stays visible when zoomed out: matmuls, collectives, loops, big buffers. */
  Landmark = 16,
  /** Value leaves the module (operand of ENTRY's root tuple, or the root itself). */
  Output = 32,
  AsyncStart = 64,
  AsyncDone = 128,
  /** Asynchronous copies, and the ends of asynchronous collectives; plumbing too. */
  Move = 256,
}

/** Values of `group.kind`, in this order in `header.groupKinds`. */
export type GroupKind =
  | "module" // one root group; parent -1
  | "entry" // the ENTRY computation
  | "scope" // one component of op_name
  | "fusion" // computation of a fusion; owner = the fusion instruction
  | "body" // while body; owner = the while
  | "condition" // while condition; owner = the while
  | "branch" // of a conditional; owner = the conditional
  | "call" // called by call, async-start, map, custom-call; owner = the caller
  | "reducer" // to_apply, comparator, select, scatter; owner = the caller
  | "component" // class of equal connected components of a very large flat group
  | "section" // consecutive part of a very large flat group that has no better structure
  | "unreachable"; // computation nobody calls (cut dumps)

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
  /** The same object as `hloscope summary --json` prints, once the analyses have come. */
  summary: Counts & MoreSummary;
  warnings: string[];
  /** Results of optional analyses that are small enough for JSON, by analysis name. */
  extras: Extras;
}

/**
 * Columns every View has (n = instructions, c = computations, g = groups, f = folds).
 *
 * instruction.name        StringId u32 n   without "%"
 * instruction.label       StringId u32 n   short, for the box: "matmul", "fusion add·tanh", "params['w1']"
 * instruction.opcode      u16 n            into header.opcodes
 * instruction.family      u8 n             into header.families
 * instruction.flags       u16 n            Flag bits
 * instruction.shape       StringId u32 n   with layout
 * instruction.dense_shape StringId u32 n   without layout
 * instruction.bytes       f64 n            output bytes, dense, of one device
 * instruction.element     i32 n            tuple index a get-tuple-element takes; -1 otherwise
 * instruction.computation u32 n
 * instruction.group       u32 n            innermost group that holds it
 * instruction.op_name     StringId u32 n   0 when there is none
 * instruction.frame       i32 n            into frame.*, innermost frame; -1 unknown
 * operand.offsets/values  u32              operands, as instruction indices, in order
 * control.offsets/values  u32              control predecessors
 * called.offsets/values   u32              computations it calls
 * called.role             u8               parallel to called.values, into header.callRoles
 *
 * computation.name        StringId u32 c
 * computation.first       u32 c            its instructions are first .. first + size - 1
 * computation.size        u32 c
 * computation.root        i32 c            instruction, -1 when cut off
 * computation.group       i32 c            its group; -1 if none
 *
 * group.parent            i32 g            -1 for the root group, which is row 0; parents come before children
 * group.kind              u8 g
 * group.label             StringId u32 g
 * group.owner             i32 g            instruction that opens into it, or -1
 * group.computation       i32 g
 * group.size              u32 g            instructions inside, at any depth
 * group.order             u32 g            schedule key: mean index of its boxes; owner of a called computation
 * group.worth             f32 g            share of the program's products inside, 0 .. 1, by a rough rule and less in the backward pass: what opens first
 * group.class             u32 g            equal for isomorphic groups
 * group.fold              i32 g            fold it belongs to, or -1
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
 * A fold stands for its members as one box until it is opened; members are isomorphic or
 * differ by a few instructions (near matches).
 */
export type CoreColumn = string;

/**
 * Optional tables (p = program points, b = buffers, x = transfers, k = collectives, a = arrays,
 * d = devices, s = distinct shardings), each absent when its
 * analysis did not run or has nothing to say.
 *
 * cost.flops              f64 n   FLOPs of one execution, called computations and loops included; NaN unknown
 * cost.matmul_flops       f64 n   the part in dots, convolutions and custom-call matmuls, and what kernels declare
 * cost.transcendentals    f64 n
 * cost.bytes              f64 n   bytes accessed, fusions at their boundary
 * cost.main_bytes         f64 n   the part in main memory (not VMEM and the like)
 * cost.from_host          f64 n   bytes of such a copy that come from the host's memory
 * cost.to_host            f64 n   and that go there; both absent where none do
 * cost.runs               f64 n   executions; a loop of unknown trip count counts once
 * cost.unit               u8 n    1: takes time itself; 2: a collective, its time is its transfer's;
 *                                 3: a copy beside everything else, to VMEM or over the host's link;
 *                                 0: inside a fusion, or a container such as while
 * cost.dtype              u8 n    operand type of its matmuls, into extras.cost.dtypes
 * cost.loop               i32 n   innermost loop of unknown trip count, into extras.cost.unknownLoops; -1 none
 * cost.condition          u8 n    1: in the condition of that loop, which runs once more than its body
 * cost.cycles             f64 n   XLA:TPU's estimated_cycles of one execution; NaN none
 * cost.seconds            f64 n   modelled seconds of one execution on extras.cost.chosen; NaN unknown
 * cost.step               f64 n   what it adds to the modelled step, all executions: sums to the total; NaN unknown
 * cost.bound              u8 n    what bounds it: 1 compute, 2 vector, 3 memory, 4 collective, 5 unknown, 6 copy
 *
 * transfer.start          u32 x   instruction that starts a collective
 * transfer.done           u32 x   instruction that waits for it; the start itself when synchronous
 * transfer.far            u8 x    1: on the last link alone, beside what the first one carries
 * transfer.bytes          f64 x   what one device sends when all are behind one switch
 * transfer.runs           f64 x   executions in the branches that send most; absent: cost.runs
 * transfer.switch_steps   f64 x·r latency steps on the chip's first link when that is a switch, and
 * transfer.switch_bytes   f64 x·r bytes on the busiest link; a row a transfer, a column a reach of
 * transfer.torus_steps    f64 x·r that link (r = extras.cost.reaches; a chip's is its `reach`)
 * transfer.torus_bytes    f64 x·r the same when it is a torus
 * transfer.far_steps      f64 x·r what is left to the last link, between blocks of that reach
 * transfer.far_bytes      f64 x·r
 *
 * transfer.seconds        f64 x   modelled on the wire, all executions
 * transfer.waited         f64 x   the part that nothing else hides
 *
 * These, cost.seconds, cost.step and cost.bound are absent where no chip is chosen. state/what-if.ts models another chip, or other trip
 * counts, by the same formulas from the columns above.
 *
 * memory.schedule         u32 p   instruction at each program point; callees before callers
 * memory.live             f64 p   live bytes of the main memory, simulated
 *
 * buffer.instruction      u32 b   what defines it
 * buffer.leaf             u32 b   which leaf of that instruction's shape
 * buffer.bytes            f64 b   with tile padding
 * buffer.padding          f64 b   the padding in it
 * buffer.space            u8 b    memory space, S(n) of the layout; 0 all of the main memory
 * buffer.kind             u8 b    into extras.memory.kinds; arguments and outputs are held throughout
 * buffer.category         u8 b    into extras.memory.categories
 * buffer.start            u32 b   program point of its definition
 * buffer.end              u32 b   of its last use
 * buffer.freed            i32 b   last point at which it counts: another may take its place at end
 * buffer.home             i32 b   buffer in whose memory it lies, not counted itself; -1 its own
 * buffer.frame            i32 b   innermost frame that asked for it, into frame.*; -1 an argument, unknown
 * buffer.scope            StringId u32 b  "layer_0/mlp"; "" for arguments
 * buffer.name             StringId u32 b  an argument's name, else the instruction's
 * buffer.allocation       i32 b   XLA's allocation, -1 unknown
 * buffer.offset           f64 b   in it, bytes
 *
 * gap.buffer              u32     buffers whose place is free between their values, as a loop's
 * gap.start, gap.end      u32     carry between the last use in a step and the next value: points
 *
 * measured.mean           f64 n   measured seconds of one step, mean over devices; NaN not seen
 * measured.step           f64 n   what it adds to the step: sums to extras.measured.totalSeconds
 * measured.most           f64 n   of the slowest device
 * measured.slowest        u32 n   which device that is
 * measured.rows           u32     instructions that were seen, slowest first; 2,000 at most
 * measured.seconds        f32     rows × devices of extras.measured
 * measured.self           f32     a row each: mean without what ran inside, as the body of a while
 * measured.flight         f32     a row each: mean from start to done of an asynchronous op, at its start
 *
 * timeline.computation    u32 e   the modelled step as events: the computation that holds each
 * timeline.instruction    u32 e   what runs; of a loop or call the instruction that calls
 * timeline.lane           u8 e    into extras.timeline.lanes
 * timeline.start          f64 e   seconds since its computation began
 * timeline.seconds        f64 e   how long it takes
 * timeline.inside         i32 e   computation that runs inside, -1 for an operation
 * timeline.times          f64 e   how often that runs, one after another
 *
 * trace_lane.device       StringId u32 l  lines of traced devices, "TPU:0"; by device
 * trace_lane.name         StringId u32 l  "XLA Ops"; on CPU a thread
 * trace_lane.beside       u8 l    1 when it runs beside the operations: asynchronous ones
 * trace_lane.events       u32 l   how many events the trace has there
 * trace.lane              u32 t   events of a trace, by lane and then by start
 * trace.start, trace.end  f64 t   seconds since the first event of all, on the clock of all devices
 * trace.seconds           f64 t   how long it took by the device's own clock
 * trace.instruction       i32 t   -1 for what is not of this program
 * trace.text              StringId u32 t  its name in the trace
 * trace_run.device        StringId u32 x  executions of this program, by device and start
 * trace_run.start         f64 x   seconds since the first event of all
 * trace_run.seconds       f64 x   from start to end
 *
 * own.0, own.1, …         f64 n   numbers a person gave, named in extras.own; NaN none
 *
 * diff.of                 u8 n    beside another program: 0 the same there, 1 changed, 2 only here
 * diff.pair               i32 n   which instruction it is there, -1 none
 *
 * source.frame            i32 n   frame of its line, own or inferred from what it serves; -1 unknown
 * source.via              i32 n   instruction whose line an inferred one is; -1 own, unknown
 * source.why              u8 n    how it was inferred, into extras.source.why; 0 own, unknown
 * source.flops            f64 n   FLOPs of all executions, inside fusions where they are done
 *
 * phase.of                u8 n    into extras.phases: forward, backward, rematerialised, optimiser; 0 unknown
 *
 * collective.kind         StringId u32 k  all-gather, …, collective-matmul or halo-exchange
 * collective.instruction  u32 k   the op itself; the start of an async pair
 * collective.anchor       u32 k   what runs it: itself, or the fusion around it
 * collective.axes         StringId u32 k  "model", "data+fsdp"; "4 groups of 2" when no axes are known
 * collective.on_axes      u8 k    1: collective.axes are mesh axes
 * collective.group_size   u32 k   0 for pairs
 * collective.payload      f64 k   bytes of one execution, the larger of operand and result
 * collective.wire         f64 k   bytes one device sends in one execution, by ring formulas; NaN unknown
 * collective.executions   f64 k   loop trips multiplied, branches around it taken each time; NaN unknown
 * collective_branch.*     u32     offsets k+1: of each the conditional, number, of: branches around it, outermost first; none: absent
 * collective.network      StringId u32 k  "ici" or "dcn"; only of programs over several TPU slices
 * collective.phase        u8 k    into extras.phases
 * collective.written      u8 k    into extras.collectives.written
 * collective.moves        StringId u32 k  argument or op whose value moves
 * collective.moves_argument u8 k  1: it is an argument
 * collective.line         StringId u32 k  "train.py:31"
 * collective.op_name      StringId u32 k
 * collective.shows        StringId u32 k  why it is there as far as the HLO itself shows; "" nothing
 * collective.why          i32 k   into extras.collectives.why; -1 nothing to say
 * collective.group_set    i32 k   into extras.collectives.groups; -1 unknown
 * collective_member.offsets/values u32  instructions that stand for it
 * collective_part.offsets u32     rows k + 1
 * collective_part.shape   StringId u32    arrays of a combined one, transfers of a collective matmul or halo exchange
 * collective_part.bytes   f64
 *
 * device.id               u32 d   jax's id; the row is the partition number
 * device.parameter_bytes  f64 d
 * device.output_bytes     f64 d
 * device.sent_bytes       f64 d   by all collectives, rings in the order of their groups
 * traffic.source          u32     rows of the device × device matrix that are not zero
 * traffic.target          u32
 * traffic.bytes           f64
 *
 * array.role              u8 a    0 parameter, 1 output, 2 value
 * array.name              StringId u32 a
 * array.instruction       i32 a   -1 none
 * array.sharding          u32 a   into sharding.*
 * array.type              StringId u32 a  element type
 * array.bytes             f64 a   on one device, padding included
 * array.global_bytes      f64 a
 * array.padded            u8 a    1: the global shape is local × tiles, the true one is not in the dump
 * array_dims.offsets/values  u32  global dimensions
 * array_local.offsets/values u32  dimensions on one device
 * sharding.text           StringId u32 s  "P('data', None)"
 * sharding.raw            StringId u32 s  as XLA wrote it
 * sharding.kind           StringId u32 s
 * sharding.replicas       u32 s   devices that hold each tile
 * sharding_tiles.offsets/values u32       tiles of each dimension
 * sharding_place.tile     i32     s × d: row-major tile each device holds; -1 none
 *
 * transition.source       u32     instruction whose value changes its sharding …
 * transition.target       u32     … at this one
 * transition.before       StringId u32   "P('data', None)"
 * transition.after        StringId u32   also "dot with result P('data', None)"
 *
 * move.start              u32     asynchronous copy or collective: its (first) start …
 * move.end                u32     … what its users read, a done or the ConcatBitcast of its slices …
 * move.source             u32     … and what is moved; the start itself for a collective
 * move.pieces             u32     starts it is cut into
 * move.kind               StringId u32   prefetch, write-back, to host, from host, copy or a collective
 * move.bytes              f64     of one run; on the wire for a collective
 * move.seconds            f64     modelled, of one run; NaN unknown
 * move.exposed            f64     the part that nothing between start and done covers, at most
 */
export type OptionalColumn = string;

/**
 * The analyses block, sent after the first picture: the optional tables, extras, summary keys
 * and warnings that take longer to compute than a picture may. Same container, gzip'd, with
 * magic "HLOA" and a string table of its own: columns with `text` in their spec index that one.
 * A reader adds all of it to the View.
 */
export interface AnalysesHeader {
  version: number;
  columns: Record<string, ColumnSpec>;
  /** Of the module, to tell that both blocks are of one. */
  instructions: number;
  summary: MoreSummary;
  warnings: string[];
  extras: Extras;
}
export const ANALYSES_MAGIC = "HLOA";

/**
 * The text block, gzip'd, sent when text or details are first asked for, same container with
 * magic "HLOT": header {version, columns}; columns:
 *
 * text.bytes               u8   the module as UTF-8
 * line.instruction_begin   u32 n  byte offset of each instruction's line; 0xffffffff if none
 * line.instruction_end     u32 n  end of it, without the line break
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
 * The stages block, gzip'd, sent when the texts of a program's stages are first asked for, same
 * container with magic "HLOC". Lines are linked through strands: a strand is one operation of the
 * StableHLO program, or a source line or op name where nobody followed the operations. Columns
 * (p = places, s = strands, r = rows of the source stage):
 *
 * stage_text.bytes         u8   the stages' texts as UTF-8, one after another
 * source_row.number        u32 r  number of each row in its file; 0 names the file
 * place.line               u32 p  line of its stage, from 0; in the View's own stage an instruction
 * place.told               StringId u32 p  what became of it, in a sentence
 * place_strand.offsets/values u32  strands that it is part of, the foremost first
 * place_near.offsets/values   u32  strands of calls that led to it, or that it calls
 * strand.color             i32 s  class of colour; -1 none
 * strings.bytes, strings.offsets
 */
export interface StagesHeader {
  version: number;
  columns: Record<string, ColumnSpec>;
  /** Of the module, to tell that both blocks are of one. */
  instructions: number;
  /** Every operation was followed through the compiler; else links are inferred. */
  exact: boolean;
  how: string;
  stages: StageText[];
}
export const STAGES_MAGIC = "HLOC";

/** The headers of the blocks: what js/view.schema.json is made of. */
export interface Blocks {
  HLOV: ViewHeader;
  HLOA: AnalysesHeader;
  HLOT: TextHeader;
  HLOC: StagesHeader;
}

/**
 * The passes block is a View of its own, of every instruction that ever was in the module (n), laid
 * out once; rows are those of extras.passes (r). It is there to draw: nothing is counted on it.
 *
 * pass.first              u32 n   row after which it is there
 * pass.last               u32 n   row after which it is gone; r when it stays to the end
 * pass.final              i32 n   what it is in the main View, -1 gone or not known
 * version.offsets         u32 r+1 lines that changed at a row, into version.*
 * version.instruction     i32     -1 of a computation that nothing calls
 * version.changed         u8      1 new, 2 opcode, 4 shape, 8 layout, 16 operands, 32 attributes,
 *                                 64 another name
 * version.line            StringId u32  without metadata
 * version_operand.offsets/values u32   instructions of this View
 * pass_link.row           u32     at this row
 * pass_link.old           u32     this one's place
 * pass_link.new           u32     was taken by that one
 * pass_link.how           u8      0 its users use the other, 1 it is the result instead, 2 both are
 *                                 of one op_name, which is a guess
 * diff.offsets            u32 r+1 the text of a row's changes, into diff.*
 * diff.kind               u8      0 as before, 1 gone, 2 new, 3 moved, 4 a computation, 5 left out
 * diff.value              u32     a version; of 4 a StringId, of 5 how many lines
 */
export type { PassCost };

/** What a person can choose; every field has a default, only these flow back to Python. */
export interface Options {
  theme: "auto" | "light" | "dark";
  colorBy: string; // "family" | "scope" | "bytes" | more from analyses
  panel: string; // id of the open panel
  /** Texts of the Code panel, ids of stages with commas; with "graph", beside it. "": by the room. */
  panes: string;
  height: number; // CSS pixels
  /** Chip to model time on, an id of extras.cost.hardware; null: extras.cost.chosen. */
  hardware: string | null;
}

export interface Selection {
  /** "fold": a run of equal groups shown as one box; index into fold.* */
  kind: "instruction" | "group" | "fold" | "computation" | "none";
  index: number;
}

/** What is heard while passes are worked out, and after their block has come. */
export interface PassEvents {
  /** How many of how many; `of` 0: nobody knows. */
  progress(done: number, of: number, words: string): void;
  /** Figures of one row of extras.passes. */
  cost(row: number, cost: PassCost): void;
  /** Nothing more comes; with words when it went wrong. */
  ended(failed: string): void;
}

/** The host's side: how the renderer gets bytes and reports what happened. */
export interface Host {
  /** The View block, gzip'd. May report progress while it arrives. */
  view(progress: (fraction: number | null) => void, signal: AbortSignal): Promise<Uint8Array>;
  /** The analyses block, gzip'd, asked for after the first picture; null or absent: there is none. */
  analyses?(signal: AbortSignal): Promise<Uint8Array | null>;
  /** The text block, gzip'd. */
  text(signal: AbortSignal): Promise<Uint8Array>;
  /** The stages block, gzip'd; absent: there is none. */
  stages?(signal: AbortSignal): Promise<Uint8Array>;
  /** The passes block, gzip'd, made when asked for; absent: nothing tells the passes of this View. */
  passes?(events: PassEvents, signal: AbortSignal): Promise<Uint8Array>;
  /** A sentence about what that costs, where it is more than reading: then it is asked for first. */
  passesPrice?: string;
  /** Opens a source line where the host can (JupyterLab); absent: file:line is shown and copied. */
  openSource?(file: string, line: number): void;
  options?: Partial<Options>;
  onSelect?(selection: Selection & { name: string }): void;
  onOptions?(options: Options): void;
  fileName?: string; // for "save HTML"/"copy" actions
  /** Where to begin: what a link or an earlier session says; see state/place.ts. */
  place?: string;
  onPlace?(place: string): void;
  /** Calls back when the place is set from outside, say by another link to the same page. */
  followPlace?(go: (place: string) => void, signal: AbortSignal): void;
  /** Address of a place; absent where a view has none to give away. */
  link?(place: string): string;
  bookmarks?: Bookmark[];
  onBookmarks?(all: Bookmark[]): void;
  /** Saves the page as it is, with its bookmarks, opening at `place`. */
  savePage?(bookmarks: Bookmark[], place: string): void;
}

/** A place a person wants to find again. */
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
