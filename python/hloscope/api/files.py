"""Writing a file so that the one before it is there until the new one is whole."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path


def written(path: str | Path, text: str | bytes) -> Path:
    """The path, after the text was written to it. Raises ``OSError``.

    The text is written beside it and moved over it: a full disk, an interrupt or a crash leaves
    what was there. A link stays a link, a file keeps its permissions; what is no file, such as a
    pipe or ``/dev/stdout``, is written to.
    """
    asked = Path(path)
    place = Path(os.path.realpath(asked))
    data = text if isinstance(text, bytes) else text.encode("utf-8")
    try:
        mode: int | None = place.stat().st_mode
    except FileNotFoundError:
        mode = None
    if mode is not None and not stat.S_ISREG(mode):
        with open(asked, "wb", buffering=0) as stream:
            _write_all(stream.fileno(), data)
        return asked
    if mode is not None and not os.access(place, os.W_OK):
        raise PermissionError(13, "Permission denied", str(asked))
    beside = place.with_name(f".hloscope-{os.urandom(8).hex()}.part")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    try:
        descriptor = os.open(beside, flags, 0o666)
        try:
            if mode is not None:
                with contextlib.suppress(OSError):
                    os.chmod(beside, stat.S_IMODE(mode))
            _write_all(descriptor, data)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(beside, place)
    except BaseException as error:
        with contextlib.suppress(OSError):
            beside.unlink()
        if isinstance(error, OSError):  # without the name of a file that nobody asked for
            raise OSError(error.errno, error.strerror, str(asked)) from None
        raise
    return asked


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
