"""StableHLO bytecode and portable artifacts (VHLO) → text → Module.

The format has no reader but MLIR's own, so this needs jaxlib's bindings. They run in a
child process with a time limit: native code that reads damaged bytes may crash.
"""

from __future__ import annotations

import sys
from pathlib import Path

from ...hlo import Module
from ..errors import ReadError

NAME = "StableHLO bytecode"
SUFFIXES = (".mlirbc",)
IS_CERTAIN = False
MAGIC = b"ML\xefR"
TIME_LIMIT_SECONDS = 120
# How MLIR says that bytecode is of a newer version than its own.
_NEWER = ("newer than the current version", "is newer", "unsupported version", "bytecode version")
_CHILD = Path(__file__).parents[1] / "stablehlo" / "child.py"


def accepts(data: bytes) -> bool:
    return data[:4] == MAGIC


def read(data: bytes, name: str = "") -> list[Module]:
    """Decodes and reads. Raises ``ReadError``, saying what to install if bindings are missing."""
    from ...processes.child import Start, TimeIsOver, converted, how_it_ended
    from ...processes.environment import child_environment
    from ..stablehlo.text import read_all

    where = name or "the data"
    start = Start(
        [sys.executable, "-P", str(_CHILD)], child_environment() | {"JAX_PLATFORMS": "cpu"}
    )
    try:
        status, text, said = converted(start, data, TIME_LIMIT_SECONDS)
    except TimeIsOver:
        raise ReadError(f"{where}: decoding took over {TIME_LIMIT_SECONDS} s") from None
    except OSError as e:
        raise ReadError(f"{where}: cannot start {sys.executable} to decode it ({e})") from None
    if status == 3:
        raise ReadError(
            f"{where} is StableHLO bytecode, and reading it needs MLIR: pip install jaxlib"
        )
    if status != 0:
        ending = f"exit status {status}" if status > 0 else f"its process {how_it_ended(status)}"
        reason = said[:200] or ending
        newer = any(w in reason for w in _NEWER)
        advice = "; it was made by a newer StableHLO: pip install -U jaxlib" if newer else ""
        raise ReadError(f"{where} is not readable StableHLO bytecode: {reason}{advice}")
    return read_all(text.decode("utf-8", errors="replace"))
