"""The JSON header of each block, declared once.

Sections make these dictionaries, which mypy checks; ``npm run schema`` makes the renderer's types
and the table that it checks untrusted headers with from this file, whose text it reads: fields
are annotated with the types below, ``int``, ``float``, ``str``, ``bool``, ``list``, ``dict``,
``Literal``, ``NotRequired`` and ``| None``, and described by a string after them.

Numbers that are instruction indices say so; -1 is none. Bytes are per device, times are in
seconds; None is unknown. A key that is NotRequired, or in a class with total=False, may be absent.
"""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

Dialect = Literal["hlo", "stablehlo", "jaxpr"]
DType = Literal["u8", "u16", "u32", "i32", "f32", "f64"]


class ColumnSpec(TypedDict):
    """Where a column is in its block."""

    dtype: DType
    offset: int
    """Bytes from the start of the column area, a multiple of 8."""
    length: int
    """Elements."""
    text: NotRequired[bool]
    """The values are indices of the block's own string table."""


class Family(TypedDict):
    """A family of opcodes."""

    id: str
    """ "matmul", "convolution", "collective", "fusion", "elementwise" and so on."""
    label: str
    landmark: bool
    """It stays visible when zoomed out."""


GroupKind = Literal[
    "module",  # one root group; parent -1
    "entry",  # the ENTRY computation
    "scope",  # one component of op_name
    "fusion",  # a fusion's computation; owner = the fusion instruction
    "body",  # while body; owner = the while
    "condition",  # while condition; owner = the while
    "branch",  # of a conditional; owner = the conditional
    "call",  # called by call, async-start, map, custom-call; owner = the caller
    "reducer",  # to_apply, comparator, select, scatter; owner = the caller
    "component",  # class of equal connected components of a very large flat group
    "section",  # part of a large flat group by schedule; small operations in one place
    "unreachable",  # computation that nothing calls (truncated dumps)
]


class TableCounts(TypedDict):
    """Rows of the View's tables."""

    instructions: int
    computations: int
    groups: int
    folds: int


class Counts(TypedDict):
    """`hloscope summary --json`: the part that the View has from the start."""

    module: str
    computations: int
    instructions: int
    entry_instructions: int
    fusions: dict[str, int]
    opcodes: dict[str, int]
    parameters: int | None
    """None, like the bytes, when unknown: the dump was truncated before its program."""
    parameter_bytes: int | None
    output_bytes: int | None
    shapes: Literal["local", "global"]
    """ "global": for several devices and not partitioned yet; bytes are then of whole arrays."""
    partitions: int
    replicas: int
    warnings: list[str]


class CollectiveSummary(TypedDict):
    """Sums over executions; `wire_bytes` is what one device sends."""

    kind: str
    axes: str | None
    count: int
    executions: float
    payload_bytes: float
    wire_bytes: float | None
    """None where nothing is known of it."""
    executions_least: NotRequired[float]
    """Present where branches of conditionals matter; the plain figures are then the most."""
    payload_bytes_least: NotRequired[float]
    wire_bytes_least: NotRequired[float]
    lower_bound: NotRequired[bool]
    """A formula is unknown for some of them, or the trips of a loop that runs at least once."""
    one_trip: NotRequired[bool]
    """Some are in a loop that may run 0 times and counts once: the figures are no bound."""
    network: NotRequired[str]
    """For programs on several TPU slices: "dcn" between them, "ici" within one."""


class DeviceSummary(TypedDict):
    partition: int
    parameter_bytes: float | None
    id: NotRequired[int]
    kind: NotRequired[str]
    coords: NotRequired[list[int]]


class ModelledSeconds(TypedDict):
    compute: float
    memory: float
    collective: float | None
    exposed: float | None
    copies: float
    total: float | None
    total_least: NotRequired[float]
    total_most: NotRequired[float]
    communication_is_least: NotRequired[bool]
    """The time of some collectives is unknown."""
    total_is_least: NotRequired[bool]
    """The time of some operations or collectives is unknown."""
    of_unknown_at_least: NotRequired[float]


class FindingSummary(TypedDict):
    rule: str
    title: str
    line: str | None
    share: float


class CompilerMessage(TypedDict):
    """A message from the compiler, with the instructions that pay for it."""

    message: str
    kind: str | None
    """ "involuntary full rematerialization" """
    operation: str
    """Before partitioning; "" if not given."""
    shape: str
    """Per device, as XLA wrote it."""
    had: str
    needs: str
    op_name: str
    line: str
    """ "dir/train.py:31" """
    instructions: list[int]
    text: str
    """As XLA wrote it."""


class MoreSummary(TypedDict, total=False):
    """The rest of it, which comes with the analyses; without what has nothing to report."""

    collectives: list[CollectiveSummary]
    wire_bytes: float | None
    """What one device sends in all; of mutually exclusive branches only one counts."""
    wire_bytes_least: float
    shardings: dict[str, int]
    """Sharding → number of parameters with it."""
    devices: list[DeviceSummary]
    flops: float
    bytes_accessed: float
    flops_least: float
    flops_most: float
    bytes_accessed_least: float
    bytes_accessed_most: float
    transcendentals_least: float
    transcendentals_most: float
    trip_counts_unknown: list[str]
    trip_counts_may_be_zero: list[str]
    estimated_cycles: float | None
    hardware: str | None
    modelled_seconds: ModelledSeconds | None
    peak_live_bytes: float
    peak_source: str
    peak_by_memory: dict[str, float]
    findings: list[FindingSummary]
    compiler_messages: list[CompilerMessage]


class Summary(Counts, MoreSummary):
    """The same object that `hloscope summary --json` prints, once the analyses have arrived."""


class Link(TypedDict):
    """A link of a chip to others."""

    name: str
    kind: Literal["torus", "switch"]
    bytesPerSecond: float
    latency: float
    group: float


class Chip(TypedDict):
    """Peak figures of a chip."""

    id: str
    label: str
    memoryBytes: float
    memoryBandwidth: float
    hostBandwidth: float
    """Of the link to host memory, one way."""
    matmul: list[float | None]
    """FLOP/s for each of `dtypes`; None where no source gives it."""
    peak: float
    vector: float | None
    clock: float | None
    links: list[Link]
    reach: int
    """Column of the transfer tables for the reach of its first link."""
    side: NotRequired[int | None]
    """Column of `filled.flops` for its matrix unit; None where any product fills it."""
    source: list[str]


class Totals(TypedDict):
    """Sums over units times their executions; times only where a chip is chosen, else 0."""

    flops: float
    bytes: float
    compute: float
    memory: float
    collective: float
    exposed: float
    copies: float
    """Time waited for copies to VMEM and the host, for which nothing else left bandwidth."""
    least: NotRequired[float]
    """The least that instructions take whose time is unknown: part of the total."""
    total: float
    unknown: int
    """Number of executed instructions whose time is unknown."""


class UnknownLoop(TypedDict):
    instruction: int
    parent: int
    """The loop around it, in the same list; -1 none."""


class XlaFigure(TypedDict):
    """One of XLA's own totals beside ours, and the parts of the difference."""

    quantity: str
    xla: float
    ours: float
    loops: float
    customCalls: float
    other: float | None


class CostExtras(TypedDict):
    """For columns cost.* and transfer.*."""

    dtypes: list[str]
    reaches: int
    """Number of distinct reaches of the chips' first links: columns of the transfer tables."""
    sides: NotRequired[int]
    """Number of distinct sides of the chips' matrix units: columns of `filled.flops`."""
    hardware: list[Chip]
    chosen: str | None
    """The chip on which cost.seconds is modelled: the user's, else the program's own."""
    own: str | None
    """The chip that the program's devices are."""
    likely: NotRequired[list[str]]
    """Chips that the program may be for, the most likely first."""
    step: NotRequired[str | None]
    """The modelled step as text; None where no chip is known or no single chip runs the program."""
    totals: Totals
    torusIsKnown: bool
    assumedSlice: str
    """The slice that is assumed where device coordinates are not known: "4×4"."""
    unknownLoops: list[UnknownLoop]
    branchesLeftOut: list[int]
    ranges: dict[str, list[float]]
    """Least and most of figures that depend on branches: flops, seconds and the like."""
    xla: list[XlaFigure]


class MemorySpace(TypedDict):
    space: int
    name: str
    peak: float
    source: str


class Donation(TypedDict):
    argument: str
    parameter: int
    bytes: float
    outcome: str
    output: str
    why: str
    """Why no output took its memory, for a donation that was not used."""


class ParameterCopy(TypedDict):
    instruction: int
    argument: str
    bytes: float
    changes: str


class Carry(TypedDict):
    index: int
    shape: str
    bytes: float
    role: str
    stored: int
    """Instruction."""


class AuditTotal(TypedDict):
    """Rows and bytes of one audit as a whole; its list may be cut."""

    audit: str
    """ "donations", "copies", "residuals", "loops" """
    outcome: str
    """Of donations; "" of the others."""
    count: int
    bytes: float


class Loop(TypedDict):
    instruction: int
    trips: int | None
    phase: str
    bytes: float
    count: NotRequired[int]
    """Of all that it carries; `carries` is the first of it."""
    carries: list[Carry]


class Residual(TypedDict):
    instruction: int
    writer: int
    readers: list[int]
    shape: str
    slice: str
    bytes: float


class Remat(TypedDict):
    """What rematerialising a value would save and cost."""

    instruction: int
    bytes: float
    flops: float
    bytesAccessed: float
    wireBytes: float
    instructions: list[int]
    reason: str


class MemoryExtras(TypedDict):
    """For columns memory.*, buffer.* and gap.*."""

    kinds: list[str]
    categories: list[str]
    peakBytes: float
    peakSource: str
    simulatedBytes: float
    assignedBytes: float | None
    xlaPeakBytes: float | None
    xlaPeakNote: str
    """What `xlaPeakBytes` leaves out or adds, as text after a comma; "" if nothing."""
    tableBytes: float
    peakPoint: int
    platform: str
    spaces: list[MemorySpace]
    """Main memory first; each with its own peak and the source of that figure."""
    donations: list[Donation]
    copies: list[ParameterCopy]
    totals: NotRequired[list[AuditTotal]]
    loops: list[Loop]
    residuals: list[Residual]
    remat: list[Remat]


class SourceFile(TypedDict):
    file: str
    library: bool
    text: str | None


class SourceExtras(TypedDict):
    """For columns source.*."""

    files: list[SourceFile]
    why: list[str]
    """Texts of source.why, followed by the name of source.via: "layout for"; the first is ""."""


class MeasuredExtras(TypedDict):
    """For columns measured.*."""

    devices: list[int]
    steps: int
    coverage: float
    """Fraction of the trace's time in this module that was matched to an instruction."""
    deviceSeconds: list[float]
    totalSeconds: float
    """Of one step, mean over devices."""
    flightSeconds: float
    """Asynchronous operations from start to done, in one step."""
    notes: list[str]
    """What may be wrong with the match, and which part of the trace is not in the figures."""
    names: list[str] | None
    """Names of `devices`, where several hosts were traced."""


OriginKind = Literal["argument", "constraint", "output", "unknown"]


class Origin(TypedDict):
    """Where a sharding came from."""

    axis: str
    of: str
    kind: OriginKind
    name: str
    line: str
    stack: list[str]
    via: list[str]
    """Ops along which it was propagated, from the value backwards."""


class WhyCard(TypedDict):
    """Why an inserted collective is there; `unknown` says what could not be determined."""

    unknown: str
    opName: str
    opcode: str
    shape: str
    line: str
    listed: str
    """The line that tables give for it, where it differs, and why: "train.py:8, inferred"."""
    operand: str
    had: str
    needs: str
    callers: list[str]
    """Lines of the callers, the nearest first."""
    others: list[str]
    """Other ops that it serves, or lines that ask for it explicitly."""
    origins: list[Origin]


class GroupSet(TypedDict):
    """Devices that communicate: groups of them, or (source, target) pairs."""

    pairs: bool
    rows: list[list[int]]


class CollectiveExtras(TypedDict):
    """For columns collective.*."""

    written: list[str]
    why: list[WhyCard]
    groups: list[GroupSet]
    assumes: dict[str, str]
    """Kind → what its wire bytes and time assume, as a clause."""
    ofPermutes: list[str]
    """Kinds that consist of several permutes: their parts are transfers, not arrays."""


class Proof(TypedDict):
    """A way to follow a finding's advice, compiled."""

    words: str
    """ "proved: params donated: peak 116 MiB → 62 MiB" """
    isProved: bool
    code: list[str]
    """For the source, one for each change."""
    lines: list[str]
    """ "model.py:37", one for each change; "" unknown."""
    compiled: NotRequired[bool]
    """Whether there is a changed program to open."""
    figures: NotRequired[list[list[str]]]
    """Name, before, after, and the change in percent or ""; of those that differ."""
    diff: NotRequired[str]
    """The program beside the changed one, as text."""


class Finding(TypedDict):
    rule: str
    """ "gathered-twice" """
    title: str
    evidence: str
    advice: str
    share: float
    """Of the step or the peak, 0 to 1."""
    atStake: str
    """ "1.2 ms modelled, 12.5 MiB on the wire" """
    line: str
    """ "dir/train.py:31"; "" unknown."""
    inferred: bool
    """The line belongs to what the evidence serves."""
    code: str
    """That line's text; "" unknown."""
    scope: str
    """ "decoder/embed" where the line is unknown or in a library; else ""."""
    count: int
    """Of all evidence; `instructions` is the first of it."""
    instructions: list[int]
    ways: NotRequired[list[str]]
    """Changes that follow the advice, in words; absent: hloscope can carry out none."""
    proofs: NotRequired[list[Proof]]
    """Ways that were tried, the best first."""


class Findings(TypedDict):
    headline: list[str]
    rules: int
    """That were applied."""
    leftOut: NotRequired[list[str]]
    """Sentences about rules that were not applied, and why."""
    failed: list[str]
    rows: list[Finding]


class TimelineExtras(TypedDict):
    """For columns timeline.*."""

    lanes: list[str]
    """ "compute", "waiting" (for a transfer), then "over data" and so on."""
    seconds: float
    """Of one step."""
    entry: int
    """Computation."""
    hardware: str
    """The chip's label."""


class Elsewhere(TypedDict):
    where: str
    events: int


class TraceExtras(TypedDict):
    """For columns trace.*."""

    events: int
    """In all lanes, drawn or not."""
    shortest: float | None
    """Events shorter than this many seconds are left out; None when none are."""
    elsewhere: list[Elsewhere]
    """Events in the file that are in no lane: "on the host's threads"."""
    runs: int
    """Executions of this program on all devices."""


class MovesExtras(TypedDict):
    """For columns move.*."""

    hardware: str | None
    """The chip for which their seconds are modelled; None where none is known."""


class MeshInfo(TypedDict):
    names: list[str]
    sizes: list[int]
    partitions: list[int]
    given: bool
    """False: inferred from the module."""


class DeviceExtras(TypedDict):
    """For columns device.*."""

    count: int
    kind: str
    coords: list[list[int]]
    """Empty when not known."""
    slices: list[int]
    """The TPU slice of each device; empty where there is only one."""
    mesh: MeshInfo | None


class PassCost(TypedDict, total=False):
    """Figures of a module after a pass; None: not known."""

    shapes: Literal["local", "global"]
    """ "global": not partitioned yet, so figures are for all devices together."""
    flops: float | None
    bytes_accessed: float | None
    peak_bytes: float | None
    """Once there is a schedule."""
    failed: str


class PassRow(TypedDict):
    """A pass that changed the module; the first row is the initial module."""

    pipeline: str
    title: str
    """The pass's name, and which time it ran if it ran again."""
    about: str
    """What the pass is for; "" if not described."""
    counts: dict[str, int]
    """Instructions, fusions, copies, transposes, collectives."""
    change: dict[str, int]
    """Compared with the previous row."""
    added: int
    removed: int
    changed: int
    renamed: int
    onlyMetadata: bool
    cost: PassCost | None
    """None: not computed."""


class PassPart(TypedDict):
    """A part of the compile that was measured; the parts add up to it."""

    name: str
    seconds: float


class SlowPass(TypedDict):
    """A pass with all its runs in one pipeline."""

    pipeline: str
    name: str
    seconds: float
    times: int
    row: int
    """Its row that took longest; -1: it has none whose time is known."""


class PassTimesExtras(TypedDict):
    """A compile that was measured."""

    total: float | None
    """Seconds; None: only passes were timed."""
    parts: list[PassPart]
    slowest: list[SlowPass]
    seconds: list[float | None]
    """Of the pass of each row itself; None: unknown."""
    others: list[float]
    """Of passes of the same pipeline, near each row, that have no row."""
    note: str
    """What makes the times larger than usual; "" if nothing."""


class PassesExtras(TypedDict):
    """Passes that changed the module, in order."""

    rows: list[PassRow]
    begin: int
    """The row to show first: the main View's, else that of the pass that made the most fusions."""
    note: str
    """What is missing; "" if nothing."""
    times: NotRequired[PassTimesExtras | None]
    """None: no compile was measured."""


class OwnColumn(TypedDict):
    label: str
    unit: str


class Extras(TypedDict, total=False):
    """Results of analyses that are small enough for JSON; each is absent when it has nothing."""

    cost: CostExtras
    memory: MemoryExtras
    source: SourceExtras
    measured: MeasuredExtras
    collectives: CollectiveExtras
    phases: list[str]
    """Names of the values of phase.of and collective.phase; the first is ""."""
    compiler: list[CompilerMessage]
    findings: Findings
    timeline: TimelineExtras
    trace: TraceExtras
    moves: MovesExtras
    devices: DeviceExtras
    passes: PassesExtras
    """Only in the passes block."""
    own: list[OwnColumn]
    """For columns own.0, own.1, …: numbers that the user gave."""


class Block(TypedDict):
    """Of every block."""

    version: int
    columns: dict[str, ColumnSpec]


class PictureContent(TypedDict):
    """What belongs to the columns that a picture is made of."""

    opcodes: list[str]
    """Indexed by instruction.opcode."""
    families: list[Family]
    groupKinds: list[GroupKind]
    """Indexed by group.kind."""
    callRoles: list[str]
    """Roles of called.role: "calls", "to_apply", "body" and so on."""
    counts: TableCounts
    dialect: Dialect


class ViewContent(PictureContent):
    title: str
    """ "jit_step" """
    subtitle: str
    """ "8 × TPU v5 lite · optimized" or a file name."""
    isScheduled: bool
    summary: Summary
    warnings: list[str]
    extras: Extras


class ViewHeader(Block, ViewContent):
    """The View: what the first picture needs; and the passes block."""


class AnalysesContent(TypedDict):
    instructions: int
    """Number in the module, to check that both blocks are of the same one."""
    summary: MoreSummary
    warnings: list[str]
    extras: Extras
    without: NotRequired[list[str]]
    """In a block for another chip: columns and extras of the analyses that it has not."""


class AnalysesHeader(Block, AnalysesContent):
    """The analyses block: what the reader adds to the View once it has been computed."""


class TextHeader(Block):
    """The text block, made when text or details are first requested."""


class StageFile(TypedDict):
    file: str
    row: int
    known: bool
    """Its text is known."""


class StageText(TypedDict):
    """One text of the stages block."""

    id: str
    """ "source", "jaxpr", "stablehlo", "optimized" """
    title: str
    own: bool
    """It is the View's own stage: its text is the text block, its places are instructions."""
    begin: int
    """Byte range in stage_text."""
    end: int
    first: int
    """Its places: first to first + count - 1, in ascending order of their lines."""
    count: int
    notes: list[str]
    """What was left out, as sentences."""
    files: list[StageFile]
    """For Python source: the files, and the row that names each."""


class StagesContent(TypedDict):
    instructions: int
    """Number in the module, to check that both blocks are of the same one."""
    exact: bool
    """Every operation was tracked through the compiler; otherwise links are inferred."""
    how: str
    stages: list[StageText]


class StagesHeader(Block, StagesContent):
    """The stages block, made when the texts of a program's stages are first requested."""


class Blocks(TypedDict):
    """The headers by the magic of their block."""

    HLOV: ViewHeader
    HLOA: AnalysesHeader
    HLOT: TextHeader
    HLOC: StagesHeader
