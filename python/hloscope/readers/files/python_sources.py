"""The user's own source files that stack frames name and that can be read."""

from __future__ import annotations

import ast
import linecache
import os
import sysconfig
import warnings
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from ...hlo import FrameTable

# The share of a file's frames whose function must be where they say, for it to be the same file.
AGREE = 0.9
MAX_FILE_BYTES = 400_000
MAX_TOTAL_BYTES = 4_000_000


def read_sources(files: Iterable[str], *, libraries: bool = False) -> dict[str, str]:
    """Path → text of the files that can be read, notebook cells included.

    Installed packages and the standard library are left out unless ``libraries``; so is a
    file over 400 kB, and everything past 4 MB in all.
    """
    out: dict[str, str] = {}
    total = 0
    for file in dict.fromkeys(files):
        if not file or (not libraries and is_library(file)):
            continue
        text = read_source(file)
        if text is None or len(text) > MAX_FILE_BYTES or total + len(text) > MAX_TOTAL_BYTES:
            continue
        out[file] = text
        total += len(text)
    return out


def sources_as_dumped(frames: FrameTable) -> dict[str, str]:
    """Path → text of the Python files that a dump names and that are still what it says.

    A dump from another machine, or from before an edit, names lines that are something else here:
    a file is taken if the functions of its frames are where the frames have them.
    """
    lines: dict[str, set[tuple[str, int]]] = defaultdict(set)
    for location in frames.locations:
        file, function, line = location[:3]
        if 0 < file <= len(frames.files) and 0 < function <= len(frames.functions):
            name = frames.functions[function - 1].rpartition(".")[2]
            if name.isidentifier():  # no <lambda>, no <module>
                lines[frames.files[file - 1]].add((name, line))
    found = read_sources(f for f in lines if f.endswith(".py") or f in linecache.cache)
    return {f: text for f, text in found.items() if _agrees(text, lines[f])}


def _agrees(text: str, frames: set[tuple[str, int]]) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    where: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            where[node.name].append((node.lineno, node.end_lineno or node.lineno))
    right = sum(any(a <= line <= b for a, b in where[name]) for name, line in frames)
    return right >= AGREE * len(frames)


def is_library(file: str) -> bool:
    """Whether a file belongs to an installed package, Python itself, or hloscope."""
    parts = Path(file).parts
    if "site-packages" in parts or "dist-packages" in parts:
        return True
    return os.path.realpath(file).startswith(_LIBRARY_ROOTS)


_LIBRARY_ROOTS = tuple(
    os.path.realpath(root) + os.sep
    for root in (sysconfig.get_path("stdlib"), str(Path(__file__).parents[2]))
    if root
)


def read_source(file: str) -> str | None:
    """The text of a file or a cell of a notebook; None if it cannot be read."""
    # linecache knows the cells of a notebook, which are not files
    lines = linecache.cache.get(file)
    if lines is not None and len(lines) == 4 and lines[1] is None:
        return "".join(lines[2])
    try:
        path = Path(file)
        if not path.is_file() or path.stat().st_size > MAX_FILE_BYTES:
            return None
        return path.read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError):
        return None
