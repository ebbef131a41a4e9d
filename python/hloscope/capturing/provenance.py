"""XLA's and Shardy's own dumps, taken while compiling: what the partitioner was given and why.

The why-analysis needs two things that the optimised module no longer says: the shardings as
propagated, with their origins (``shardy/02.after_propagation.mlir``), and the program just
before partitioning, whose names and stack frames join the two (``after_shardy-xla``).
On TPU the dump is also the only place that tells XLA's buffer assignment, and the way out
where ``as_text()`` fails. Dumping changes no optimisation: only the numbers at the end of
some names differ. Measured: a 2-layer step writes 3 MB and compiles as fast as without.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

PASSES = "shardy-verbose|shardy-xla|spmd-partitioning"
MAX_FILE_BYTES = 24 << 20
MAX_TOTAL_BYTES = 64 << 20


def options(folder: str) -> dict[str, Any]:
    """Compiler options that write the dumps into ``folder``."""
    return {
        "xla_dump_to": folder,
        "xla_dump_hlo_pass_re": PASSES,
        "xla_dump_hlo_as_text": True,
        "xla_dump_hlo_as_proto": True,
    }


def wanted(devices: Sequence[Any], compiler_options: Mapping[str, Any] | None) -> bool:
    """More than one device, or a TPU; and the person is not dumping already."""
    if not devices or "xla_dump_to" in os.environ.get("XLA_FLAGS", ""):
        return False
    if len(devices) == 1 and getattr(devices[0], "platform", "") != "tpu":
        return False
    return not any(str(k).startswith("xla_dump_") for k in compiler_options or {})


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
