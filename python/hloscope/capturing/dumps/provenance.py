"""XLA's and Shardy's own dumps, taken while compiling: what the partitioner was given and why.

The why-analysis needs two things that the optimised module no longer has: the shardings as
propagated, with their origins (``shardy/02.after_propagation.mlir``), and the program just
before partitioning, whose names and stack frames join the two (``after_shardy-xla``).
On TPU the dump is also the only source of XLA's buffer assignment, and the fallback
where ``as_text()`` fails. Dumping changes no optimisation: only the numbers at the end of
some names differ. Measured: a 2-layer step writes 3 MB and compiles as fast as without.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from . import dumping

PASSES = "shardy-xla|spmd-partitioning"
ORIGINS = "shardy-verbose"
CRASHES = (
    "Shardy was not asked for the origins of shardings, as it crashes on shard_map in a loop, a "
    "branch or remat: why a collective is there rests on names and lines alone"
)
MAX_FILE_BYTES = 24 << 20
MAX_TOTAL_BYTES = 64 << 20


def options(folder: str, *, origins: bool = True) -> dict[str, Any]:
    """Compiler options that dump into ``folder``; ``origins``: also where shardings come from."""
    return {
        "xla_dump_to": folder,
        "xla_dump_hlo_pass_re": f"{ORIGINS}|{PASSES}" if origins else PASSES,
        "xla_dump_hlo_as_text": True,
        "xla_dump_hlo_as_proto": True,
    }


def wanted(devices: Sequence[Any], compiler_options: Mapping[str, Any] | None) -> bool:
    """More than one device, or a TPU; and the user is not dumping already."""
    if not devices or "xla_dump_to" in os.environ.get("XLA_FLAGS", ""):
        return False
    if len(devices) == 1 and getattr(devices[0], "platform", "") != "tpu":
        return False
    return not any(str(k).startswith("xla_dump_") for k in compiler_options or {})


_FLOWS = re.compile(  # branches are printed in the generic form, in quotes
    r"[ \"](?:stablehlo\.(?:while|case|if|optimization_barrier)|sdy\.data_flow_edge)\b"
)
_CALLS = re.compile(r"\bcall @([\w$.\-]+)\(|\bcall @\"([^\"]+)\"")
_FUNCTION = re.compile(r"  func\.func (?:public |private |nested )?@(?:([\w$.\-]+)|\"([^\"]+)\")\(")


def origins_are_safe(lowered: Any) -> bool:
    """Whether Shardy may be asked for origins; False where the program cannot be inspected."""
    try:
        return not crashes_shardy(dumping.text_of(lowered))
    except Exception:  # MLIR's Python interface moves with jaxlib
        return False


def crashes_shardy(stablehlo: str) -> bool:
    """Whether Shardy takes the process down when it is asked for the origins of shardings.

    It ends with a segmentation fault (seen with jax 0.10 on CPU and TPU) where a manual computation
    reads what a loop, a branch or a barrier around it passes on. What is inside the manual
    computation does no harm.
    """
    if "sdy.manual_computation" not in stablehlo:
        return False
    flows: set[str] = set()  # functions with such an operation outside of manual computations
    calls: dict[str, set[str]] = {}
    function, manual = "", 0
    for line in stablehlo.splitlines():
        indent = len(line) - len(line.lstrip(" "))
        if found := _FUNCTION.match(line):
            function, manual = found[1] or found[2], 0
            calls[function] = set()
        elif manual and indent > manual:
            continue
        else:
            manual = indent if "sdy.manual_computation" in line else 0
            calls.setdefault(function, set()).update(a or b for a, b in _CALLS.findall(line))
            if _FLOWS.search(line):
                flows.add(function)
    reached, waiting = set[str](), ["main"]
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += calls.get(name, ())
    return bool(reached & flows)


_FINAL = ("after_codegen", "after_optimizations")


def optimized_text(folder: str | Path) -> str | None:
    """The final module as dumped; None when there is none or it is too large."""
    for end in _FINAL:
        # XLA numbers modules as it meets them: the first is the program, others are its parts
        for path in sorted(Path(folder).glob(f"module_*{end}.txt")):
            if path.stat().st_size <= 8 * MAX_FILE_BYTES:
                return path.read_text(encoding="utf-8", errors="replace")
    return None


def buffer_assignment(folder: str | Path) -> bytes | None:
    """HloProto with the program's buffer assignment, where the backend dumps one (TPU)."""
    for path in sorted(Path(folder).glob("module_*.after_optimizations.hlo.pb")):
        return path.read_bytes() if path.stat().st_size <= 2 * MAX_TOTAL_BYTES else None
    return None


def collect(folder: str | Path) -> dict[str, str]:
    """Short name → text: ``shardy/00.input_module``, …, ``after_shardy-xla``, ``after_spmd``.

    A Shardy stage with the same text as the one before it is left out; so is a file over
    24 MiB, and everything past 64 MiB in all.
    """
    root = Path(folder)
    named: list[tuple[str, Path]] = []
    for path in sorted(root.glob("shardy/*/*.mlir")):
        named.append((f"shardy/{path.stem}", path))
    for path in sorted(root.glob("*.txt")):
        _, _, passes = path.name.partition(".after_")
        after = passes.split(".before_")[0]
        if "shardy-xla" in after:
            named.append(("after_shardy-xla", path))
        elif "spmd-partitioning" in after:
            named.append(("after_spmd-partitioning", path))
    dumps: dict[str, str] = {}
    total = 0
    for name, path in named:
        size = path.stat().st_size
        if size > MAX_FILE_BYTES or total + size > MAX_TOTAL_BYTES:
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        if text not in dumps.values():
            dumps.setdefault(name, text)
            total += size
    return dumps
