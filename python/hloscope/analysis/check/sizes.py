"""Sizes as users write them."""

from __future__ import annotations

import re

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kKMGTP]?)(i?)B?")
_POWER = {"": 0, "k": 1, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}


def parse_size(size: int | float | str) -> int:
    """Bytes of ``12GiB`` (powers of 1024), ``12GB`` (of 1000) or a number.

    Raises ``ValueError`` with the bad text.
    """
    if isinstance(size, bool):
        raise ValueError(f"not a size: {size!r}; write bytes, or 12GiB, 500MB")
    if isinstance(size, int | float):
        if size < 0 or size != size or size == float("inf"):
            raise ValueError(f"not a size: {size!r}")
        return int(size)
    found = _SIZE.fullmatch(size.strip().replace("_", ""))
    if found is None or (found[3] and not found[2]):
        raise ValueError(f"not a size: {size!r}; write bytes, or 12GiB, 500MB")
    number, prefix, binary = found.groups()
    return int(float(number) * (1024 if binary else 1000) ** _POWER[prefix])
