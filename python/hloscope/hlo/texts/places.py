"""Files and lines as text; notebook cells have no file name that a user would recognise.

``js/base/lines.ts`` says the same things in the same words: both are tested against
``tests/golden/lines.json``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..parts import StackFrame

# Where IPython keeps cells: "/tmp/ipykernel_7/25936981.py", "<ipython-input-2-1b2c>", and what
# a capture makes of them: "In [2]".
_CELL = re.compile(r"(?:^|[\\/])ipykernel_\d+[\\/]\d+\.py\Z")
_NUMBERED = re.compile(r"<ipython-input-(\d+)-\w+>\Z|In \[(\d+)\]\Z")

_LIBRARY = re.compile(
    r"[/\\](?:site-packages|dist-packages)[/\\]|[/\\]lib[/\\]python\d|^<frozen |^<string>$"
    r"|[/\\]hloscope[/\\](?:capturing|show)[/\\]"
)


def is_library(file: str) -> bool:
    """Whether a file belongs to an installed package or the standard library."""
    return bool(_LIBRARY.search(file))


def own_line(stack: Sequence[StackFrame]) -> StackFrame | None:
    """The innermost frame outside libraries, else the innermost; None for an empty stack."""
    mine = (f for f in stack if not is_library(f.file))
    return next(mine, stack[0] if stack else None)


def is_cell(file: str) -> bool:
    """Whether a file is a cell of a notebook."""
    return bool(_NUMBERED.match(file) or _CELL.search(file))


def base_name(file: str) -> str:
    """ "train.py" for "dir/train.py"; "In [2]" or "notebook cell" for a cell."""
    numbered = _NUMBERED.match(file)
    if numbered:
        return f"In [{numbered[1] or numbered[2]}]"
    if _CELL.search(file):
        return "notebook cell"
    return file[max(file.rfind("/"), file.rfind("\\")) + 1 :]


def short_place(file: str, line: int | str) -> str:
    """ "train.py:31"; "In [2], line 31"."""
    return f"{base_name(file)}, line {line}" if is_cell(file) else f"{base_name(file)}:{line}"


def short_line(place: str) -> str:
    """The same for "dir/train.py:31"; a place without a line number is a file."""
    file, colon, line = place.rpartition(":")
    return short_place(file, line) if colon and line.isdecimal() else base_name(place)


def whole_place(place: str) -> str:
    """A place unchanged, except for cells."""
    file, _, line = place.rpartition(":")
    return short_place(file, line) if line.isdecimal() and is_cell(file) else place


def parse_place(place: str) -> tuple[str, int]:
    """(file, line) of ``model.py:42``, or of ``42`` with file "": any. Raises ``ValueError``."""
    file, _, line = place.rpartition(":")
    if not line.isdecimal() or not 0 < len(line) < 9:
        raise ValueError(f"{place[:200]!r} is not a line such as model.py:42")
    return file, int(line)


def is_same_file(path: str, asked: str) -> bool:
    """Whether a path is that which was asked for, by its end; "" is any."""
    if not asked:
        return True
    path, asked = path.replace("\\", "/"), asked.replace("\\", "/").removeprefix("./")
    return path == asked or path.endswith("/" + asked)
