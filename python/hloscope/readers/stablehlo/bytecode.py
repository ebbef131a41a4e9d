"""StableHLO bytecode and portable artifacts (VHLO) → text → Module.

The format has no reader but MLIR's own, so this needs jaxlib's bindings. They run in a
child process with a time limit: native code that reads damaged bytes may crash.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from ...hlo import Module
from ...processes.environment import child_environment
from ..errors import ReadError
from .text import read_all

TIME_LIMIT_SECONDS = 120
# How MLIR says that bytecode is of a newer version than its own.
_NEWER = ("newer than the current version", "is newer", "unsupported version", "bytecode version")
_CHILD = Path(__file__).with_name("child.py")


def is_bytecode(data: bytes) -> bool:
    return data[:4] == b"ML\xefR"


def _exported(data: bytes) -> tuple[int, int] | None:
    """Where a file of ``jax.export`` (a flatbuffer) keeps its bytecode: after its length."""
    at = data.find(b"ML\xefR", 4, 1 << 20)
    if at < 8:
        return None
    size = int.from_bytes(data[at - 4 : at], "little")
    return (at, at + size) if 4 < size <= len(data) - at else None


def is_exported(data: bytes) -> bool:
    return _exported(data) is not None


def read_exported(data: bytes, name: str = "") -> list[Module]:
    """The program in what ``jax.export.Exported.serialize`` wrote. Raises ``ReadError``."""
    place = _exported(data)
    assert place is not None
    return read_bytecode(data[slice(*place)], name)


def read_bytecode(data: bytes, name: str = "") -> list[Module]:
    """Decodes and reads. Raises ``ReadError``, saying what to install if bindings are missing."""
    where = name or "the data"
    environment = child_environment() | {"JAX_PLATFORMS": "cpu"}
    try:
        child = subprocess.run(
            [sys.executable, "-P", str(_CHILD)],
            input=data,
            capture_output=True,
            timeout=TIME_LIMIT_SECONDS,
            env=environment,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ReadError(f"{where}: decoding took over {TIME_LIMIT_SECONDS} s") from None
    except OSError as e:
        raise ReadError(f"{where}: cannot start {sys.executable} to decode it ({e})") from None
    if child.returncode == 3:
        raise ReadError(
            f"{where} is StableHLO bytecode, and reading it needs MLIR: pip install jaxlib"
        )
    if child.returncode != 0:
        lines = child.stderr.decode("utf-8", errors="replace").strip().splitlines()
        reason = lines[-1][:200] if lines else f"exit status {child.returncode}"
        newer = any(w in reason for w in _NEWER)
        advice = "; it was made by a newer StableHLO: pip install -U jaxlib" if newer else ""
        raise ReadError(f"{where} is not readable StableHLO bytecode: {reason}{advice}")
    return read_all(child.stdout.decode("utf-8", errors="replace"))
