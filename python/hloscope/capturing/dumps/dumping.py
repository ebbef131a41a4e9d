"""A folder that XLA can dump into without taking the process down.

When a dump cannot be written, LLVM's own file writer ends the process: a full disk, a quota or
a limit on the size of files would cost a notebook its kernel and everything in it. So a folder
is handed out only where the most that the program could write fits several times over;
elsewhere the dump is left out, and the reason is a warning of the capture:

    with dumping.dump_folder(dumping.bytes_needed(lowered)) as folder:
        if folder.path is not None:
            lowered.compile(compiler_options={"xla_dump_to": folder.path, ...})
        if folder.why_not:      # none was given, or the disk filled up meanwhile
            ...                 # what was read from the folder may be cut off: say so
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

try:
    import resource
except ImportError:  # Windows has neither these limits nor statvfs
    resource = None  # type: ignore[assignment]

from ...analysis.text.units import size

_MIB = 1 << 20
# Bytes written for each byte of the program's StableHLO without large constants, for each byte
# of its bytecode (which holds the constants whole), and for any program. Twice the worst that
# was measured: 57 and 15 for the passes that explain shardings, 235 and 50 for every pass.
_SOME_PASSES = (120, 30, 32 * _MIB)
_EVERY_PASS = (500, 100, 64 * _MIB)
# Quotas do not show in the free space of a file system: this much is reserved to find them.
_PROBE_BYTES = 32 * _MIB
_UNKNOWN = 2048 * _MIB
_KEPT_FREE = 8 * _MIB
_KEPT_FILES = 2_000


class DumpFolder:
    """``path`` of an empty folder, or None and ``why_not`` in one sentence."""

    def __init__(self, path: str | None, why_not: str = "") -> None:
        self.path = path
        self._why_not = why_not

    @property
    def why_not(self) -> str:
        """Why there is no dump, or why it may be cut off; "" when all is well."""
        if self._why_not or self.path is None:
            return self._why_not
        free, _ = free_space(self.path)
        if free < _KEPT_FREE:
            return f"the dump was left out: {self.path} filled up while it was written"
        return ""


def bytes_needed(lowered: Any, *, every_pass: bool = False) -> int:
    """An upper bound on what a dump of this program writes, in bytes; generous on purpose."""
    per_text, per_bytecode, floor = _EVERY_PASS if every_pass else _SOME_PASSES
    try:
        operation = lowered.compiler_ir("stablehlo").operation
        text = text_of(lowered)
        bytecode = _CountedFile()
        operation.write_bytecode(bytecode)
    except Exception:  # MLIR's Python interface moves with jaxlib
        return _UNKNOWN
    return max(per_text * len(text), per_bytecode * bytecode.count) + floor


def text_of(lowered: Any) -> str:
    """The program's StableHLO without large constants and source locations."""
    operation = lowered.compiler_ir("stablehlo").operation
    return str(operation.get_asm(large_elements_limit=16, enable_debug_info=False))


class _CountedFile:
    """A file that only counts what is written to it."""

    count = 0

    def write(self, data: bytes) -> int:
        self.count += len(data)
        return len(data)


@contextlib.contextmanager
def dump_folder(need: int) -> Iterator[DumpFolder]:
    """Yields a new folder with room for ``need`` bytes, removed afterwards; see ``DumpFolder``.

    It is in the first of the usual places for temporary files that has the room.
    """
    path, why_not = _make(need)
    try:
        yield DumpFolder(path, why_not)
    finally:
        if path is not None:
            shutil.rmtree(path, ignore_errors=True)


def _make(need: int) -> tuple[str | None, str]:
    limit = file_size_limit()
    if limit is not None and limit < need:
        return None, (
            f"the dump was left out: this process may not write files over {limit:,} bytes "
            f"(ulimit -f) and XLA's dump could take {size(need)}"
        )
    reasons = []
    for place in _places():
        path = None
        try:
            free, files = free_space(place)
            if free < need + _KEPT_FREE or files < _KEPT_FILES:
                reasons.append(f"{place} has {size(free)} free")
                continue
            path = tempfile.mkdtemp(prefix="hloscope-", dir=place)
            _reserve(Path(path) / "room", min(need, _PROBE_BYTES))
            return path, ""
        except OSError as error:
            reasons.append(f"{place}: {error.strerror or error}")
            if path is not None:
                shutil.rmtree(path, ignore_errors=True)
    found = "; ".join(reasons) or "no folder for temporary files can be written to"
    return None, (
        f"the dump was left out: XLA could write {size(need)}, and {found}. "
        "Set TMPDIR to a folder with more room"
    )


def _places() -> list[str]:
    with contextlib.suppress(OSError):
        chosen = [tempfile.gettempdir()]
        if any(os.environ.get(name) == chosen[0] for name in ("TMPDIR", "TEMP", "TMP")):
            return chosen  # the user's choice: nothing is written anywhere else
        more = ["/var/tmp"] if Path("/var/tmp").is_dir() else []
        return list(dict.fromkeys([*chosen, *more]))
    return []


def free_space(folder: str | Path) -> tuple[int, int]:
    """Bytes and files that this user can still make in the folder's file system."""
    if not hasattr(os, "statvfs"):
        return shutil.disk_usage(folder).free, _KEPT_FILES
    found = os.statvfs(folder)
    # some file systems (btrfs) count no files at all
    files = found.f_favail if found.f_files else _KEPT_FILES
    return found.f_bavail * found.f_frsize, files


def file_size_limit() -> int | None:
    """Bytes one file of this process may have (RLIMIT_FSIZE); None when there is no limit."""
    if resource is None:
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    return None if soft == resource.RLIM_INFINITY else soft


def _reserve(path: Path, size: int) -> None:
    """Raises ``OSError`` when the file cannot get its size: a quota, a read-only folder."""
    with path.open("wb") as file:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)
    path.unlink()
