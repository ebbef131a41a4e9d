"""Every column of the View and its companion blocks, declared once.

``Builder`` takes dtypes from here and refuses columns that are not here. ``npm run schema`` makes
the table that the renderer checks untrusted Views with from it, and the docs their page on the
format. To add a column, add a row here and write it in the section that computes its figure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

# Values of ``Column.holds``, besides names of rows and of lists in the header, whose index it is.
ANY = "any"
AMOUNT = "amount"  # ≥ 0, or NaN where unknown
FLAG = "flag"  # 0 or 1
TEXT = "text"  # index into the block's string table; 0 is ""
OFFSETS = "offsets"  # one more than rows, never decreasing: each row's piece of ``splits``

# Value of ``Column.rows`` for a column of any length.
UNCOUNTED = "*"

# ``Column.name`` of columns that are numbered from 0.
NUMBERED = "#"


@dataclass(frozen=True)
class Column:
    """One column: ``rows`` of one element each."""

    name: str  # within its table
    dtype: str  # a key of ``builder.DTYPES``
    holds: str = ANY
    about: str = ""
    unit: str = ""  # "B", "s", "FLOP"
    has_none: bool = False  # an index may be -1
    rows: str = ""  # whose rows it has, if not those of its table
    splits: str = ""  # of offsets: the column that they cut into pieces
    may_be_absent: bool = False  # where the other columns of its table are there


@dataclass(frozen=True)
class ColumnTable:
    """Columns that begin with ``name.`` and have ``rows`` in common.

    The first column declared with ``rows`` says how many there are. A block has all of a table's
    columns or none, except for those that may be absent.
    """

    name: str
    columns: tuple[Column, ...]
    about: str = ""
    rows: str = ""  # "" its own
    along: str = ""  # the table that it comes with: there where that is, and only there

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", self.rows or self.name)
        object.__setattr__(self, "along", self.along or self.name)


def number(dtype: str, name: str, about: str = "", unit: str = "") -> Column:
    return Column(name, dtype, ANY, about, unit)


def amount(name: str, about: str = "", unit: str = "", dtype: str = "f64") -> Column:
    return Column(name, dtype, AMOUNT, about, unit)


def flag(name: str, about: str = "") -> Column:
    return Column(name, "u8", FLAG, about)


def text(name: str, about: str = "") -> Column:
    return Column(name, "u32", TEXT, about)


def index(name: str, into: str, about: str = "", dtype: str = "u32") -> Column:
    """A row of ``into``, which is the name of rows or of a list in the View's header."""
    return Column(name, dtype, into, about)


def index_or_none(name: str, into: str, about: str = "") -> Column:
    """The same, or -1."""
    return Column(name, "i32", into, about, has_none=True)


def at_times(*columns: Column) -> Iterator[Column]:
    """Those that may be absent where the other columns of their table are there."""
    return (replace(column, may_be_absent=True) for column in columns)


def relation(
    name: str, rows: str, values: Column, about: str = "", *more: Column, along: str = ""
) -> ColumnTable:
    """Any number of values for each of ``rows``: ``name.offsets`` cuts ``name.values`` into pieces.

    ``more`` columns have one element for each value.
    """
    whole = f"{name}.{values.name}"
    cut = Column("offsets", "u32", OFFSETS, rows=rows, splits=whole)
    return ColumnTable(name, (cut, values, *more), about, whole, along)


VIEW = (
    ColumnTable(
        "instruction",
        (
            text("name", 'without "%"'),
            text("label", 'short text for its box: "matmul", "fusion add·tanh", "params[\'w1\']"'),
            text("code", 'the person\'s code that it is of: "logits = x @ w"; "" when not known'),
            index("opcode", "opcodes", "into header.opcodes", "u16"),
            index("family", "families", "into header.families", "u8"),
            number("u16", "flags", "bits of `Flag` in js/view.ts"),
            text("shape", "with layout"),
            text("dense_shape", "without layout"),
            amount("bytes", "its output on one device, without padding", "B"),
            number("i32", "element", "tuple index that a get-tuple-element selects; -1 otherwise"),
            index("computation", "computation"),
            index("group", "group", "innermost group that contains it"),
            text("op_name", '"" when there is none'),
            index_or_none("frame", "frame", "innermost frame; -1 unknown"),
        ),
        "Instructions, in the order of their computations.",
    ),
    relation(
        "operand", "instruction", index("values", "instruction"), "Operands of each, in order."
    ),
    relation("control", "instruction", index("values", "instruction"), "Control predecessors."),
    relation(
        "called",
        "instruction",
        index("values", "computation"),
        "Computations that each instruction calls.",
        index("role", "callRoles", "role of each value, into header.callRoles", "u8"),
    ),
    ColumnTable(
        "computation",
        (
            text("name"),
            number("u32", "first", "its instructions are first to first + size - 1"),
            number("u32", "size"),
            index_or_none("root", "instruction", "-1 when the dump was cut off before it"),
            index_or_none("group", "group"),
        ),
    ),
    ColumnTable(
        "group",
        (
            index_or_none("parent", "group", "-1 for the root, row 0; parents precede children"),
            index("kind", "groupKinds", "into header.groupKinds", "u8"),
            text("label"),
            index_or_none("owner", "instruction", "instruction that opens to show it"),
            index_or_none("computation", "computation"),
            number("u32", "size", "instructions inside, at any depth"),
            number(
                "u32",
                "order",
                "schedule key: mean index of its boxes; for a called computation, of its owner",
            ),
            amount(
                "worth",
                "what opens first: rough share of the program's matmuls, convolutions and kernels "
                "inside (by the bytes they read where that takes longer), 0 to 1, weighted down in "
                "the backward pass",
                dtype="f32",
            ),
            number("u32", "class", "equal for isomorphic groups"),
            index_or_none("fold", "fold", "fold that it is a member of"),
            *at_times(
                number(
                    "u32",
                    "turn",
                    "its place among the calls beside it in the order in which the program makes "
                    "them, from 1; in a backward pass the other way round; 0 where unknown",
                ),
                number("u8", "direction", "1 forward, 2 back: a pass of what is differentiated"),
                text("function", "of which it is one call of several; empty if it is not"),
            ),
        ),
        "Boxes that hold others: computations, scopes, loops.",
    ),
    ColumnTable(
        "fold",
        (
            index("parent", "group", "group that contains the run"),
            text("label", '"layer_[1..22]"'),
        ),
        "Runs of groups that are isomorphic, or differ by a few instructions, shown as one box.",
    ),
    relation("fold", "fold", index("members", "group"), "The groups of each, in order."),
    ColumnTable(
        "frame",
        (
            text("file"),
            text("function", '"" unknown'),
            number("u32", "line"),
            index_or_none("parent", "frame", "the caller's frame; -1 at the outermost"),
        ),
        "Lines of Python source, each with the line that called it.",
    ),
)

PASSES = (
    ColumnTable(
        "pass",
        (
            number("u32", "first", "row of extras.passes after which it exists"),
            number("u32", "last", "row after which it is gone; the number of rows if it stays"),
            number("i32", "final", "its instruction in the main View; -1 if gone or not known"),
        ),
        "When each instruction of the passes block is there.",
        "instruction",
    ),
    relation(
        "version",
        UNCOUNTED,
        index_or_none("instruction", "instruction", "-1 in a computation that nothing calls"),
        "Lines that each row of extras.passes changed.",
        number(
            "u8",
            "changed",
            "1 new, 2 opcode, 4 shape, 8 layout, 16 operands, 32 attributes, 64 another name",
        ),
        text("line", "without metadata"),
        along="pass",
    ),
    relation(
        "version_operand",
        "version.instruction",
        index("values", "instruction"),
        "Operands of each version.",
        along="pass",
    ),
    ColumnTable(
        "pass_link",
        (
            number("u32", "row", "row of extras.passes that replaced one instruction by another"),
            index("old", "instruction", "the one that was replaced"),
            index("new", "instruction", "the one that replaced it"),
            number(
                "u8",
                "how",
                "0 its users use the other, 1 the other is the result instead, 2 both have the "
                "same op_name, which is a guess",
            ),
        ),
        along="pass",
    ),
    relation(
        "diff",
        UNCOUNTED,
        number("u8", "kind", "0 unchanged, 1 gone, 2 new, 3 moved, 4 a computation, 5 left out"),
        "Text of the changes that each row of extras.passes made.",
        number("u32", "value", "a version; for 4, a string; for 5, the number of lines"),
        along="pass",
    ),
)

ANALYSES = (
    ColumnTable(
        "cost",
        (
            amount(
                "flops",
                "of one execution, including called computations and loops; NaN unknown",
                "FLOP",
            ),
            amount(
                "matmul_flops",
                "the part in dots, convolutions, custom-call matmuls, and what kernels declare",
                "FLOP",
            ),
            amount("transcendentals"),
            amount("bytes", "accessed; of fusions, at their boundary", "B"),
            amount("main_bytes", "the part in main memory, not VMEM and the like", "B"),
            amount("runs", "executions; a loop of unknown trip count is counted once"),
            number(
                "u8",
                "unit",
                "1: takes time itself; 2: a collective, whose time is its transfer's; 3: a copy "
                "that runs beside everything else, to VMEM or over the host link; 0: inside a "
                "fusion, or a container such as while",
            ),
            *at_times(
                amount("from_host", "read from host memory by a copy; absent where none is", "B"),
                amount("to_host", "written there", "B"),
            ),
            number("u8", "dtype", "operand type of its matmuls, into extras.cost.dtypes"),
            *at_times(
                number(
                    "i32",
                    "loop",
                    "innermost loop of unknown trip count, into extras.cost.unknownLoops; -1 none",
                ),
                flag(
                    "condition", "in the condition of that loop, which runs once more than its body"
                ),
                amount("cycles", "XLA:TPU's estimated_cycles of one execution; NaN none"),
                amount(
                    "seconds", "modelled, of one execution on extras.cost.chosen; NaN unknown", "s"
                ),
                amount(
                    "step",
                    "what all executions add to the modelled step, which is the sum; NaN unknown",
                    "s",
                ),
                number(
                    "u8",
                    "bound",
                    "bound by 1 compute, 2 vector, 3 memory, 4 collective, 5 unknown, 6 copy",
                ),
            ),
        ),
        "Cost of each instruction. Where no chip is chosen, seconds, step and bound are absent; "
        "js/state/cost/what-if.ts models other chips and trip counts from the other columns.",
        "instruction",
    ),
    ColumnTable(
        "transfer",
        (
            index("start", "instruction", "starts a collective"),
            index("done", "instruction", "waits for it; the start itself when synchronous"),
            flag("far", "uses the last link only, while the first one carries something else"),
            amount("bytes", "sent by one device when all devices are behind one switch", "B"),
            *at_times(
                amount("runs", "executions on the branches that send most; when absent, cost.runs"),
                amount("seconds", "modelled time on the wire, all executions", "s"),
                amount("waited", "the part not hidden by other work", "s"),
            ),
        ),
        "Collectives on the wire.",
    ),
    ColumnTable(
        "transfer",
        (
            amount("switch_steps", "latency steps on the chip's first link if that is a switch"),
            amount("switch_bytes", "on its busiest link", "B"),
            amount("torus_steps", "the same if it is a torus"),
            amount("torus_bytes", "", "B"),
            amount("far_steps", "left for the last link, between blocks of that reach"),
            amount("far_bytes", "", "B"),
        ),
        "One row for each transfer, one column for each reach of a chip's first link: "
        "extras.cost.reaches of them, of which `reach` of a chip names its own.",
        UNCOUNTED,
    ),
    ColumnTable(
        "filled",
        (index("instruction", "instruction", "a product, or what one is fused into"),),
        "Products with dimensions that do not fill blocks of a systolic matrix unit.",
    ),
    ColumnTable(
        "filled",
        (amount("flops", "what the unit could do in the time that it takes", "FLOP"),),
        "One row for each of them, one column for each of extras.cost.sides, of which `side` of a "
        "chip names its own; where absent, cost.matmul_flops.",
        UNCOUNTED,
    ),
    ColumnTable(
        "timeline",
        (
            index("computation", "computation", "computation that contains the event"),
            index("instruction", "instruction", "what runs; for a loop or call, the caller"),
            number("u8", "lane", "into extras.timeline.lanes"),
            amount("start", "since its computation began", "s"),
            amount("seconds", "duration", "s"),
            index_or_none("inside", "computation", "computation that runs inside"),
            amount("times", "how many times that computation runs, back to back"),
        ),
        "The modelled step as events.",
    ),
    ColumnTable(
        "memory",
        (
            index("schedule", "instruction", "instruction at the point; callees before callers"),
            amount("live", "simulated live bytes in main memory", "B"),
        ),
        "Program points.",
        "point",
    ),
    ColumnTable(
        "buffer",
        (
            index("instruction", "instruction", "instruction that defines it"),
            number("u32", "leaf", "leaf of that instruction's shape"),
            amount("bytes", "including tile padding", "B"),
            number("u8", "space", "memory space, S(n) of the layout; 0 for main memory"),
            number("u8", "kind", "into extras.memory.kinds; arguments and outputs always live"),
            number("u8", "category", "into extras.memory.categories"),
            index("start", "point", "program point that defines it"),
            index("end", "point", "program point of its last use"),
            number("i32", "freed", "last point that counts it; another may take its place at end"),
            index_or_none("home", "buffer", "buffer whose memory it shares, so it is not counted"),
            index_or_none("frame", "frame", "innermost frame of the code that needs it"),
            *at_times(
                text("name", "of the argument, else of the instruction"),
                text("scope", '"layer_0/mlp"; "" for arguments'),
                amount("padding", "the padding alone", "B"),
                number("i32", "allocation", "XLA's allocation; -1 unknown"),
                number("f64", "offset", "in the allocation", "B"),
            ),
        ),
        along="memory",
    ),
    ColumnTable(
        "gap",
        (
            index("buffer", "buffer", "buffer whose memory is free between two values"),
            number("u32", "start", "program point of the last use of one value"),
            number("u32", "end", "program point of the next value"),
        ),
        "Times at which a buffer, like a loop's carry, has no value.",
    ),
    ColumnTable(
        "source",
        (
            index_or_none("frame", "frame", "of its line, its own or inferred from what it serves"),
            amount(
                "flops",
                "of all executions; in fusions, on the instructions inside that do the work",
                "FLOP",
            ),
            index_or_none("via", "instruction", "the line was inferred from it"),
            number("u8", "why", "how the line was inferred, into extras.source.why; 0 its own"),
        ),
        "Source lines.",
        "instruction",
    ),
    ColumnTable(
        "measured",
        (
            amount("mean", "in one step, mean over devices; NaN not in the trace", "s"),
            amount("step", "added to the step; sums to extras.measured.totalSeconds", "s"),
            amount("most", "on the slowest device", "s"),
            number("u32", "slowest", "the slowest device"),
        ),
        "Measured time of each instruction.",
        "instruction",
    ),
    ColumnTable(
        "measured",
        (
            index("rows", "instruction"),
            number("f32", "self", "mean without the body of a while and the like", "s"),
            amount("flight", "mean from start to done of an asynchronous op", "s", "f32"),
        ),
        "Instructions in the trace, the slowest first; at most 2,000.",
    ),
    ColumnTable(
        "measured",
        (amount("seconds", "", "s", "f32"),),
        "One row for each of measured.rows, one column for each of extras.measured.devices.",
        UNCOUNTED,
    ),
    ColumnTable(
        "trace_lane",
        (
            text("device", '"TPU:0"'),
            text("name", '"XLA Ops"; on CPU, a thread'),
            flag("beside", "runs beside the operations, as asynchronous ones do"),
            number("u32", "events", "number of events in the trace"),
        ),
        "Lanes of traced devices, ordered by device.",
        along="trace",
    ),
    ColumnTable(
        "trace",
        (
            index("lane", "trace_lane"),
            amount("start", "since the trace's first event, on a clock common to all devices", "s"),
            amount("end", "", "s"),
            amount("seconds", "duration by the device's own clock", "s"),
            index_or_none("instruction", "instruction", "-1 for events of other programs"),
            text("text", "its name in the trace"),
        ),
        "Events of a trace, ordered by lane, then by start.",
    ),
    ColumnTable(
        "trace_run",
        (
            text("device"),
            amount("start", "since the trace's first event", "s"),
            amount("seconds", "from start to end", "s"),
        ),
        "Executions of this program, ordered by device, then by start.",
    ),
    ColumnTable(
        "own",
        (
            *at_times(
                number("f64", NUMBERED, "named by a row of extras.own; NaN none"),
            ),
        ),
        "Numbers that the user gave: own.0, own.1 and so on.",
        "instruction",
    ),
    ColumnTable(
        "phase",
        (number("u8", "of", "into extras.phases; 0 unknown"),),
        "Forward, backward, rematerialised, optimiser.",
        "instruction",
    ),
    ColumnTable(
        "collective",
        (
            text("kind", "all-gather, …, collective-matmul or halo-exchange"),
            index("instruction", "instruction", "the op itself; of an async pair, its start"),
            index("anchor", "instruction", "what executes it: itself, or the fusion around it"),
            text("axes", '"model", "data+fsdp"; "4 groups of 2" when the axes are not known'),
            flag("on_axes", "collective.axes are mesh axes"),
            text("types", '"bf16"; "f32+bf16" of a combined one; "" if unknown'),
            number("u32", "group_size", "0 for pairs"),
            amount("payload", "of one execution: the larger of operand and result", "B"),
            amount("wire", "sent by one device in one execution, by ring formulas", "B"),
            amount(
                "executions",
                "product of the trip counts, if branches around it are always taken; NaN unknown",
            ),
            *at_times(
                flag(
                    "may_not_run",
                    "a loop of unknown trip count around it may run 0 times; absent where none may",
                ),
            ),
            number("u8", "phase", "into extras.phases"),
            number("u8", "written", "into extras.collectives.written"),
            text("moves", "argument or op whose value is moved"),
            flag("moves_argument", "it is an argument"),
            text("line", '"train.py:31"'),
            text("op_name"),
            text("shows", 'why it is there, as far as the HLO alone shows; "" if it does not'),
            *at_times(
                text("network", '"ici" or "dcn"; only for programs that span several TPU slices'),
            ),
            number("i32", "why", "into extras.collectives.why; -1 none"),
            number("i32", "group_set", "into extras.collectives.groups; -1 unknown"),
        ),
    ),
    relation(
        "collective_branch",
        "collective",
        index("conditional", "instruction"),
        "Branches around a collective, outermost first; absent where there are none.",
        number("u32", "number", "of the branch that it is in"),
        number("u32", "of", "number of branches"),
    ),
    relation(
        "collective_member",
        "collective",
        index("values", "instruction"),
        "Instructions that a collective consists of.",
        along="collective",
    ),
    relation(
        "collective_part",
        "collective",
        text("shape"),
        "Arrays of a combined collective; transfers of a collective matmul or halo exchange.",
        amount("bytes", "", "B"),
        text("moves", "the name of the array; none of a transfer"),
        along="collective",
    ),
    ColumnTable(
        "device",
        (
            number("u32", "id", "JAX's id"),
            amount("parameter_bytes", "", "B"),
            amount("output_bytes", "", "B"),
            amount("sent_bytes", "sent by all collectives, rings in the order of groups", "B"),
        ),
        "Devices by partition number.",
    ),
    ColumnTable(
        "traffic",
        (index("source", "device"), index("target", "device"), amount("bytes", "", "B")),
        "Bytes sent from device to device, where there are any.",
    ),
    ColumnTable(
        "array",
        (
            number("u8", "role", "0 parameter, 1 output, 2 value"),
            text("name"),
            index_or_none("instruction", "instruction"),
            index("sharding", "sharding"),
            text("type", "element type"),
            amount("bytes", "on one device, including padding", "B"),
            amount("global_bytes", "", "B"),
            flag("padded", "global shape is local × tiles: the dump does not have the true one"),
        ),
    ),
    relation(
        "array_dims",
        "array",
        number("u32", "values"),
        "Global dimensions.",
        along="array",
    ),
    relation(
        "array_local",
        "array",
        number("u32", "values"),
        "Dimensions on one device.",
        along="array",
    ),
    ColumnTable(
        "sharding",
        (
            text("text", "\"P('data', None)\""),
            text("raw", "as XLA wrote it"),
            text("kind"),
            number("u32", "replicas", "devices that hold each tile"),
        ),
        "Distinct shardings.",
    ),
    relation(
        "sharding_tiles",
        "sharding",
        number("u32", "values"),
        "Tiles of each dimension.",
        along="sharding",
    ),
    ColumnTable(
        "sharding_place",
        (number("i32", "tile", "row-major index of the tile that the device holds; -1 none"),),
        "One row for each sharding, one column for each device.",
        UNCOUNTED,
        along="sharding",
    ),
    ColumnTable(
        "transition",
        (
            index("source", "instruction", "its value is resharded"),
            index("target", "instruction", "where it is used"),
            text("before", "\"P('data', None)\""),
            text("after", "also \"dot with result P('data', None)\""),
        ),
        "Edges along which a value changes its sharding.",
    ),
    ColumnTable(
        "move",
        (
            index("start", "instruction", "its first start"),
            index(
                "end", "instruction", "what its users read: a done, or a ConcatBitcast of slices"
            ),
            index("source", "instruction", "the value moved; for a collective, the start itself"),
            number("u32", "pieces", "number of starts that it is split into"),
            text("kind", "prefetch, write-back, to host, from host, copy or a collective"),
            amount("bytes", "of one execution; for a collective, bytes on the wire", "B"),
            amount("seconds", "modelled, of one execution; NaN unknown", "s"),
            amount("exposed", "at most what nothing between start and done covers", "s"),
        ),
        "Asynchronous copies and collectives.",
    ),
    ColumnTable(
        "diff",
        (
            number("u8", "of", "0 the same there, 1 changed, 2 only here"),
            number("i32", "pair", "its counterpart there; -1 none"),
        ),
        "Compared with another program.",
        "instruction",
    ),
)

TEXT_BLOCK = (
    ColumnTable("text", (number("u8", "bytes", "UTF-8"),), "The module's text.", UNCOUNTED),
    ColumnTable(
        "line",
        (
            number("u32", "instruction_begin", "byte offset; 0xffffffff if none", "B"),
            number("u32", "instruction_end", "without the line break", "B"),
        ),
        "The line of each instruction.",
        "line of instruction",
    ),
    ColumnTable(
        "line",
        (
            number("u32", "computation_begin", "byte offset; 0xffffffff if none", "B"),
            number("u32", "computation_end", "without the line break", "B"),
        ),
        "The lines of each computation.",
        "line of computation",
    ),
    relation(
        "attribute",
        "instruction",
        text("key"),
        "Attributes of each instruction.",
        text("value"),
    ),
)

STAGES = (
    ColumnTable("stage_text", (number("u8", "bytes", "UTF-8"),), "All stages' texts.", UNCOUNTED),
    ColumnTable(
        "source_row",
        (number("u32", "number", "line number in its file; 0: the row names the file"),),
        "Rows of the source stage.",
    ),
    ColumnTable(
        "place",
        (
            number("u32", "line", "line in its stage; in the View's own stage, an instruction"),
            text("told", "sentence saying what it became"),
        ),
        "Lines that are linked to lines of other stages, by the strands that they share: a strand "
        "is one operation of the StableHLO program, or a source line or op name where operations "
        "were not tracked.",
    ),
    relation(
        "place_strand",
        "place",
        index("values", "strand"),
        "Strands that a place is part of, the most important first.",
    ),
    relation(
        "place_near",
        "place",
        index("values", "strand"),
        "Strands of calls that led to it, or of what it calls.",
    ),
    ColumnTable("strand", (number("i32", "color", "colour class; -1 none"),)),
)

STRINGS = (relation("strings", UNCOUNTED, number("u8", "bytes", "UTF-8"), "Texts, each once."),)

# Tables by the magic of the block that has them. Those of PASSES are in the passes block, a View of
# its own; of ANALYSES, each is absent where its analysis has nothing to report.
BLOCKS = {
    "HLOV": (*VIEW, *PASSES, *STRINGS),
    "HLOA": (*ANALYSES, *STRINGS),
    "HLOT": (*TEXT_BLOCK, *STRINGS),
    "HLOC": (*STAGES, *STRINGS),
}

# For the docs.
CHAPTERS = {
    "Columns of the View": VIEW,
    "Columns of the analyses block": ANALYSES,
    "Columns of the text block": TEXT_BLOCK,
    "Columns of the stages block": STAGES,
    "Columns that the passes block has besides": PASSES,
    "Columns of every block": STRINGS,
}


def columns_of(tables: Iterable[ColumnTable]) -> dict[str, Column]:
    """Columns by their full name, each with its rows."""
    return {
        f"{table.name}.{column.name}": replace(column, rows=column.rows or table.rows)
        for table in tables
        for column in table.columns
    }


TABLES = tuple(dict.fromkeys(table for tables in BLOCKS.values() for table in tables))
COLUMNS = columns_of(TABLES)

# Rows, and the column that has one element for each.
LEADS = {column.rows: name for name, column in reversed(COLUMNS.items())}
del LEADS[UNCOUNTED]


def unnumbered(name: str) -> str:
    """The name that declares a column: "own.#" of "own.0"."""
    return re.sub(r"\.\d+$", f".{NUMBERED}", name)


def declared(name: str) -> Column:
    """The declaration of a column; ``ValueError`` if there is none."""
    found = COLUMNS.get(unnumbered(name))
    if found is None:
        raise ValueError(f"column {name} is not declared in hloscope/view/columns.py")
    return found
