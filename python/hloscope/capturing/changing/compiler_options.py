"""Compiler options that XLA does not know, refused with names that are near."""

from __future__ import annotations

import contextlib
import difflib
import mmap
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ...hlo.changes import unknown_name

# Begins with letters, which is looked for twenty times as fast as a word's beginning.
_NAME = re.compile(rb"xla_[a-z][a-z0-9_]{3,80}\b")
_IN_WORD = re.compile(rb"\w")
_SAID = re.compile(r"(?:No such compile option|unknown|Unknown|no such)", re.IGNORECASE)


@contextlib.contextmanager
def explained(options: Mapping[str, Any]) -> Iterator[None]:
    """What XLA says of an option that it does not know, with names that are near.

    Raises ``CannotChange`` in its place.
    """
    try:
        yield
    except Exception as error:
        text = str(error)
        wrong = next((n for n in options if n in text), None)
        if wrong is None or not _SAID.search(text):
            raise
        near = difflib.get_close_matches(wrong, known_names(), n=4, cutoff=0.6)
        hint = f"; did you mean {', '.join(near)}?" if near else ""
        raise unknown_name(f"XLA has no option {wrong}{hint}") from None


@cache
def known_names() -> tuple[str, ...]:
    """Names of options as they stand in XLA's own libraries."""
    found: set[bytes] = set()
    for package in ("jaxlib", "libtpu"):
        spec = find_spec(package)
        for folder in spec.submodule_search_locations or () if spec is not None else ():
            for path in Path(folder).glob("**/*.so"):
                with (
                    contextlib.suppress(ValueError, OSError),
                    path.open("rb") as file,
                    mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
                ):
                    found |= {
                        name[0]
                        for name in _NAME.finditer(data)
                        if not _IN_WORD.match(data, max(name.start() - 1, 0), name.start())
                    }
    return tuple(sorted(n.decode() for n in found))
