"""The passes in an ``xla_dump_to`` folder: which files they are, and reading them safely."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

from ..readers.files.dump_directory import entry_of
from ..readers.files.pass_dump import pass_of


def state_of(folder: int, name: str) -> tuple[str, int]:
    """A digest of the passes beside the file ``name``, and their bytes in total; 0 without any."""
    asked = entry_of(Path(name))
    if asked is None:
        return "", 0
    passes, total, numbered = [], 0, False
    for file in sorted(os.listdir(folder)):
        entry = entry_of(Path(file))
        if entry is None or (entry.index, entry.name) != (asked.index, asked.name):
            continue
        about = os.stat(file, dir_fd=folder, follow_symlinks=False)
        if pass_of(entry.stage) is None or not stat.S_ISREG(about.st_mode):
            continue
        numbered = numbered or entry.stage[:1].isdigit()
        total += about.st_size
        passes.append((file, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns))
    if not numbered:
        return "", 0
    return hashlib.blake2b(repr(passes).encode(), digest_size=20).hexdigest(), total


def plain_file(path: Path) -> bytes:
    """The bytes of a regular file; ``OSError`` for a link or a pipe."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(fd, "rb") as stream:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError("not a file")
        return stream.read()
