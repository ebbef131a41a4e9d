"""What the partitioner was given and why: XLA's and Shardy's own dumps, taken while compiling.

The why-analysis needs two things that the optimised module no longer says: the shardings as
propagated, with their origins (``shardy/02.after_propagation.mlir``), and the program just
before partitioning, whose names and stack frames join the two (``after_shardy-xla``).
Dumping changes no optimisation: only the numbers at the end of some names differ.
Measured: a 2-layer step writes 2.5 MB and compiles as fast as without.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
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
    }


def wanted(devices: int, compiler_options: Mapping[str, Any] | None) -> bool:
    """More than one device, and the person is not dumping already."""
    if devices < 2 or "xla_dump_to" in os.environ.get("XLA_FLAGS", ""):
        return False
    return not any(str(k).startswith("xla_dump_") for k in compiler_options or {})


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
