"""API path of a folder → the modules and stages it holds, told by file names alone."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tornado.web import HTTPError

from ..readers import ReadError
from ..readers.dump_directory import choose_entry, list_directory
from .files import checked


def list_folder(contents: Any, path: str) -> dict[str, Any]:
    """What ``hloscope/api/folder`` answers. No file is opened.

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
        {"file": e.path.name, "name": e.name, "index": e.index, "stage": e.stage}
        for e in entries
        if e.path is not None
    ]
    return {"files": files, "chosen": entries.index(chosen)}
