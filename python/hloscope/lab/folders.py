"""API path of a folder → the modules and stages it holds, by file names alone.

For passes the folder is opened here, once, and the child gets the descriptor; there it reads plain
files of that folder and follows no link. So nothing outside the contents root is read, whatever
happens to the path in between.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tornado.web import HTTPError

from ..analysis.text.units import size
from ..readers import ReadError
from ..readers.files.dump_directory import choose_entry, list_directory
from .dumps import state_of
from .files import checked


def list_folder(contents: Any, path: str) -> dict[str, Any]:
    """The answer of ``hloscope/api/folder``. No file is opened.

    Raises ``HTTPError``: 404 outside the root, hidden or not a folder; 422 without HLO;
    501 when the contents are not a folder of this machine.
    """
    path = checked(contents, path)
    if not hasattr(contents, "_get_os_path"):
        raise HTTPError(501, "folders are listed only where the contents are files on disk")
    root = Path(os.path.realpath(contents.root_dir))
    try:
        real = Path(os.path.realpath(contents._get_os_path(path)))
    except (OSError, ValueError):
        raise HTTPError(404, f"no such folder: {path[:200]!r}") from None
    if not real.is_relative_to(root) or not real.is_dir():
        raise HTTPError(404, f"no such folder: {path[:200]!r}")
    try:
        entries = tuple(
            e
            for e in list_directory(real)
            if e.path is not None
            and (contents.allow_hidden or not e.path.name.startswith("."))
            and Path(os.path.realpath(e.path)).is_relative_to(root)
        )
        if not entries:
            raise ReadError("")
        chosen, _ = choose_entry(entries, None, None, path)
    except ReadError:
        where = path or "this folder"
        raise HTTPError(422, f"{where} holds no HLO dump (see xla_dump_to)") from None
    files = [
        {
            "file": e.path.name,
            "name": e.name,
            "index": e.index,
            "stage": e.stage,
            "bytes": e.path.stat().st_size,
        }
        for e in entries
        if e.path is not None
    ]
    return {"files": files, "chosen": entries.index(chosen)}


@dataclass(eq=False)
class OpenDump:
    """A folder under the contents root, opened for the passes of one module. Close it."""

    fd: int
    state: str  # digest of names, sizes and times of the module's passes

    def close(self) -> None:
        os.close(self.fd)


def open_dump(contents: Any, path: str, max_bytes: int) -> OpenDump:
    """The folder of the file that the contents manager calls ``path``.

    Raises ``HTTPError``: 404 outside the root; 422 where no passes of its module are beside it;
    413 where they have more than ``max_bytes``; 501 where folders cannot be passed on.
    """
    folder, _, name = checked(contents, path).rpartition("/")
    if not hasattr(contents, "_get_os_path") or not hasattr(os, "O_DIRECTORY"):
        raise HTTPError(501, "passes are read only where the contents are a folder of this machine")
    missing = HTTPError(404, f"no such folder: {folder[:200]!r}")
    root = Path(os.path.realpath(contents.root_dir))
    try:
        real = os.path.realpath(contents._get_os_path(folder))
        if not Path(real).is_relative_to(root):
            raise missing
        fd = os.open(real, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except (OSError, ValueError):
        raise missing from None
    try:
        link = f"/proc/self/fd/{fd}"
        if os.path.exists(link) and not Path(os.path.realpath(link)).is_relative_to(root):
            raise missing
        state, total = state_of(fd, name)
        if not total:
            raise HTTPError(
                422,
                f"no passes of this module lie beside {name}: dump them with "
                "XLA_FLAGS='--xla_dump_to=DIR --xla_dump_hlo_as_text --xla_dump_hlo_pass_re=.*'",
            )
        if total > max_bytes:
            raise HTTPError(
                413,
                f"the passes of this module have {size(total)}; the limit is {size(max_bytes)} "
                "(c.HloscopeLimits.max_passes_bytes)",
            )
        return OpenDump(fd, state)
    except BaseException:
        os.close(fd)
        raise
