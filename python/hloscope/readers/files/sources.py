"""What a user gives to be read: a path, a folder, bytes or the text itself → its content."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

from ..errors import ReadError
from . import archives, dump_directory

Source = str | bytes | bytearray | memoryview | os.PathLike[str]

_LOOKS_LIKE_TEXT = re.compile(r"\n|HloModule|^\s*module @|func\.func|^\s*ENTRY\b")


def load(source: Source) -> tuple[bytes | str, str, Path | None]:
    """(content, name for messages, path). For a folder, or one unpacked from an archive, the
    content is empty."""
    if isinstance(source, (bytes, bytearray, memoryview)):
        data = bytes(source)
        if archives.is_archive(data):
            return b"", "", archives.unpack(data, "")
        return data, "", None
    if isinstance(source, str) and _LOOKS_LIKE_TEXT.search(source):
        return source, "", None
    if not isinstance(source, (str, os.PathLike)):
        raise ReadError(f"cannot read a {type(source).__name__}; give a path, bytes or HLO text")
    try:
        path = Path(source).expanduser()
        if path.is_dir():
            inside = _trace_inside(path)
            return (b"", path.name, path) if inside is None else load(inside)
    except (OSError, ValueError, RuntimeError) as e:
        raise ReadError(f"not a path: {str(source)[:80]!r} ({e})") from None
    data = bytes_of(path)
    if archives.is_archive(data):
        folder = archives.unpack(data, path.name)
        inside = _trace_inside(folder)
        return (b"", path.name, folder) if inside is None else load(inside)
    return data, path.name, path


def _trace_inside(folder: Path) -> Path | None:
    """A trace of the newest run in a folder, such as XProf's; None if there are dumps."""
    try:
        dump_directory.list_directory(folder)
    except ReadError:
        from ..xplane.xplane import find_traces

        with contextlib.suppress(ReadError):
            return find_traces(folder)[0]
    return None


def bytes_of(path: Path) -> bytes:
    """The file's content. Raises ``ReadError`` saying why there is none."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise ReadError(f"there is no file {str(path)[:300]!r}") from None
    except (OSError, ValueError) as e:
        reason = getattr(e, "strerror", None) or e
        raise ReadError(f"cannot read {str(path)[:300]!r}: {reason}") from None
