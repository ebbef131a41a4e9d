"""What a module was compiled for, as plain data: devices, mesh, arguments, XLA's own figures.

Filled by ``capture`` from a live program, empty defaults when there is only a dump.
Nothing here is derived from HLO; analyses take ``(module, target)``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from .mesh import Mesh
from .module import Module
from .parts import StackFrame


@dataclass(frozen=True, slots=True)
class Device:
    """One device of the partitioned program, in partition order."""

    id: int  # jax's device id
    partition: int  # position in the executable's device assignment: what replica groups name
    kind: str = ""
    coords: tuple[int, ...] | None = None  # on the physical torus (TPU)
    core: int | None = None
    process: int = 0
    slice: int = 0  # TPUs of one slice are linked by ICI; between slices there is DCN


@dataclass(frozen=True, slots=True)
class Argument:
    """One flattened argument or result of the function, with global shape."""

    name: str  # "params['layers'][0]['w1']"; results: "[0]['w1']"
    shape: tuple[int, ...]
    dtype: str
    sharding: str | None = None  # str(PartitionSpec), or GSPMD text
    donated: bool = False
    spec: tuple[tuple[str, ...], ...] | None = None  # mesh axes per dimension, for NamedSharding
    # ENTRY's parameter number; None for a result, and for an argument jax dropped as unused
    parameter: int | None = None


@dataclass(frozen=True, slots=True)
class SlowToCompile:
    """An alarm of XLA's: ``what`` ("Constant folding an instruction") took so many ``seconds``.

    ``instruction`` is its line of HLO up to its attributes; ``frame`` the Python line, None if
    unknown.
    """

    what: str
    instruction: str
    seconds: float
    op_name: str = ""
    frame: StackFrame | None = None


@dataclass(frozen=True, slots=True)
class UnmetName:
    """A name by which a policy of ``jax.checkpoint`` would keep values, and keeps none.

    ``how``: "save" or "offload". ``why``: "unnamed" (nothing in the program has that name),
    "handed on" (a loop's body hands the value on, and a checkpoint keeps what it is given, whatever
    its policy) or "unused" (nothing of that name is kept for the backward pass); only the first
    is looked for where values are saved. ``name`` is "" for a policy that lists no name.
    ``known`` are the names of the program, ``near`` the one that was likely meant;
    ``keeps_nothing``: so is every other name of the policy. ``frame`` is the line that names the
    value, or else that of the checkpoint.
    """

    name: str
    how: str
    why: str
    known: tuple[str, ...] = ()
    near: str = ""
    keeps_nothing: bool = True
    frame: StackFrame | None = None


@dataclass(frozen=True, slots=True)
class Target:
    platform: str = ""  # "cpu", "tpu", "gpu"
    device_kind: str = ""
    devices: tuple[Device, ...] = ()
    mesh: Mesh | None = None
    arguments: tuple[Argument, ...] = ()
    results: tuple[Argument, ...] = ()
    # Compiled.memory_analysis() and CompiledMemoryStats fields, bytes
    memory_stats: Mapping[str, int] = field(default_factory=dict)
    # Compiled.cost_analysis(): XLA's own, loop bodies counted once
    cost_analysis: Mapping[str, float] = field(default_factory=dict)
    # what the compiler wrote to stderr while compiling, one line each
    compiler_messages: tuple[str, ...] = ()
    # what XLA itself reported as slow to compile, slowest first; seconds of the whole compile
    slow_to_compile: tuple[SlowToCompile, ...] = ()
    compile_seconds: float | None = None
    # names by which a policy of jax.checkpoint keeps nothing, though it lists them
    unmet_names: tuple[UnmetName, ...] = ()
    jax_version: str = ""
    # id of the chip the user chose to model time on; "": that of device_kind
    hardware: str = ""
    # readable source files seen in stack frames at capture: path → text
    sources: Mapping[str, str] = field(default_factory=dict)
    # Shardy and pre-partitioning dumps taken at capture: short name → text
    dumps: Mapping[str, str] = field(default_factory=dict)
    # reads the dump of the program just before partitioning; None when it was not taken
    before_partitioning: Callable[[], Module | None] | None = field(
        default=None, repr=False, compare=False
    )
    # the lines that ask for collectives, where they are other than XLA's: by row, () for the others
    asked_lines: Callable[[Module, Target], tuple[tuple[StackFrame, ...], ...]] | None = field(
        default=None, repr=False, compare=False
    )
    # the same for the program just after, where each collective is next to the op it is for
    after_partitioning: Callable[[], Module | None] | None = field(
        default=None, repr=False, compare=False
    )
