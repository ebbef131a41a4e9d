"""Regular expressions with possessive groups, on every Python.

Before 3.11.5 a group that is repeated possessively, ``(?:ab|c)*+``, fails to match where its last
try fails halfway (https://github.com/python/cpython/issues/106052); Debian 12 has 3.11.2. There
such groups become greedy ones, which backtrack. They match the same texts: what follows one of
ours never starts like what it repeats. Single characters, ``[^"]*+``, are right everywhere.
"""

from __future__ import annotations

import re
import sys

_RIGHT_SINCE = (3, 11, 5)
_POSSESSIVE_GROUP = re.compile(r"\)([*+?])\+")


def regex(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """``re.compile`` of the form of ``pattern`` that is right on this Python."""
    return re.compile(for_python(pattern), flags)


def regex_bytes(pattern: bytes, flags: int = 0) -> re.Pattern[bytes]:
    """The same for bytes."""
    return re.compile(for_python(pattern.decode("ascii")).encode("ascii"), flags)


def for_python(pattern: str, version: tuple[int, ...] = tuple(sys.version_info[:3])) -> str:
    """The pattern, without possessive groups where ``version`` gets them wrong."""
    return pattern if version >= _RIGHT_SINCE else _POSSESSIVE_GROUP.sub(r")\1", pattern)
