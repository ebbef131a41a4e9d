"""API path → open file, confined to the contents root.

The file is opened here, once, and the child gets the descriptor: what was checked is what is
read, whatever happens to the path in between.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import stat
import tempfile
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from jupyter_core.utils import ensure_async
from tornado.web import HTTPError

_CHUNK = 1 << 20


@dataclass(eq=False)
class OpenFile:
    """A regular file under the contents root, opened for reading. Close ``stream``."""

    name: str
    stream: BinaryIO
    size: int
    digest: str  # of the content


async def open_file(contents: Any, path: str, max_bytes: int) -> OpenFile:
    """Opens what the contents manager calls ``path``.

    Raises ``HTTPError``: 404 outside the root, hidden, absent or not a regular file;
    413 when larger than ``max_bytes``.
    """
    path = checked(contents, path)
    if not path:
        raise HTTPError(404, "no such file: ''")
    if hasattr(contents, "_get_os_path"):
        stream = _open_local(contents, path)
    else:
        stream = await _open_remote(contents, path, max_bytes)
    try:
        size = os.fstat(stream.fileno()).st_size
        if size > max_bytes:
            raise HTTPError(413, f"{path} has {size:,} bytes; the limit is {max_bytes:,}")
        # half a GiB takes a second, and all requests share the loop
        digest = await asyncio.to_thread(_digest, stream)
        return OpenFile(path.rpartition("/")[2], stream, size, digest)
    except BaseException:
        stream.close()
        raise


def checked(contents: Any, path: str) -> str:
    """The API path without slashes around it. Raises ``HTTPError`` 404 if hidden or escaping."""
    path = path.strip("/")
    if "\0" in path or "\\" in path or any(p == ".." for p in path.split("/")):
        raise HTTPError(404, f"no such file: {path[:200]!r}")
    if not contents.allow_hidden and any(p.startswith(".") for p in path.split("/")):
        raise HTTPError(404, f"no such file: {path[:200]!r}")
    return path


def _open_local(contents: Any, path: str) -> BinaryIO:
    root = os.path.realpath(contents.root_dir)
    try:
        real = os.path.realpath(contents._get_os_path(path))
    except (OSError, ValueError):
        raise HTTPError(404, f"no such file: {path[:200]!r}") from None
    if not _inside(real, root):
        raise HTTPError(404, f"no such file: {path[:200]!r}")
    # O_NONBLOCK: opening a named pipe must not wait for a writer
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        fd = os.open(real, flags | getattr(os, "O_NOFOLLOW", 0))
    except OSError:
        raise HTTPError(404, f"no such file: {path[:200]!r}") from None
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise HTTPError(404, f"not a file: {path[:200]!r}")
        # a folder of the path may have become a link since realpath: ask what was opened
        link = f"/proc/self/fd/{fd}"
        if os.path.exists(link) and not _inside(os.path.realpath(link), root):
            raise HTTPError(404, f"no such file: {path[:200]!r}")
        return os.fdopen(fd, "rb")
    except BaseException:
        os.close(fd)
        raise


def _inside(real: str, root: str) -> bool:
    return Path(real) != Path(root) and Path(real).is_relative_to(root)


async def _open_remote(contents: Any, path: str, max_bytes: int) -> BinaryIO:
    """For contents managers that are not a folder: through their own ``get``."""
    about = await ensure_async(contents.get(path, content=False))
    if about["type"] not in ("file", "notebook"):
        raise HTTPError(404, f"not a file: {path[:200]!r}")
    if (about.get("size") or 0) > max_bytes:
        raise HTTPError(413, f"{path} has {about['size']:,} bytes; the limit is {max_bytes:,}")
    model = await ensure_async(contents.get(path, content=True, type="file", format="base64"))
    return await asyncio.to_thread(_temporary, model["content"])


def _temporary(content: str) -> BinaryIO:
    stream = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
    stream.write(base64.b64decode(content))
    stream.seek(0)
    return stream


# State of a file → digest, so that a poll of an unchanged file reads nothing.
_digests: OrderedDict[tuple[int, ...], str] = OrderedDict()
_lock = threading.Lock()
# Clocks of file systems are coarse: a file as young as this can change without its times changing.
_SETTLED_SECONDS = 3.0


def _state(stream: BinaryIO) -> tuple[int, ...]:
    """Figures that distinguish contents of a file. The last is a time that cannot be set back."""
    a = os.fstat(stream.fileno())
    return a.st_dev, a.st_ino, a.st_size, a.st_mtime_ns, a.st_ctime_ns


def _digest(stream: BinaryIO) -> str:
    key = _state(stream)
    with _lock:
        if key in _digests:
            _digests.move_to_end(key)
            return _digests[key]
    hashed = hashlib.blake2b(digest_size=20)
    while chunk := stream.read(_CHUNK):
        hashed.update(chunk)
    stream.seek(0)
    found = hashed.hexdigest()
    settled = time.time() - max(key[-2:]) / 1e9 > _SETTLED_SECONDS
    with _lock:
        if settled and _state(stream) == key:
            _digests[key] = found
        while len(_digests) > 512:
            _digests.popitem(last=False)
    return found
