"""Which arrays get the same sharding by default: layers of a model, and what mirrors a parameter.

params/layer_0/Dense_0/kernel ─┐  numbers that only count layers become "*"
params/layer_1/Dense_0/kernel ─┴▶ params/layer_*/Dense_0/kernel ◀─┬─ opt_state/0/mu/layer_0/…
                                  (Dense_1 has another shape)     └─ opt_state/0/nu/layer_0/…
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

_NUMBER = re.compile(r"\d+(?=/|$)")
# Optimizers' names for the part of a state that holds an array for each parameter.
_STATE = frozenset(
    {"mu", "nu", "trace", "ema", "momentum", "velocity", "opt", "opt_state", "optimizer"}
)


def sharded_alike(
    leaves: Sequence[Any], some: Sequence[int], *, fold: bool
) -> dict[str, list[int]]:
    """Pattern → which of ``some`` leaves (with ``path``, ``shape``, ``argument``) are alike.

    Leaves that mirror a parameter, such as an optimizer's moments, are always with it; with
    ``fold``, numbers at the end of a part of a path are "*" where all shapes are the same.
    """
    owners = {n: _owner(leaves, n) for n in some}
    own = [n for n in some if owners[n] not in some]
    patterns = _folded(leaves, own) if fold else {n: leaves[n].path for n in own}
    out: dict[str, list[int]] = {}
    for n in some:
        at = n
        while at not in patterns:
            at = owners[at]
        out.setdefault(patterns[at], []).append(n)
    return out


def _owner(leaves: Sequence[Any], n: int) -> int:
    """The parameter whose shape and end of path a leaf shares; -1 for none."""
    leaf = leaves[n]
    parts = leaf.path.split("/")
    for k, other in enumerate(leaves):
        if k >= n or other.shape != leaf.shape:
            continue
        theirs = other.path.split("/")
        for start in (1, 2):  # after the argument's name; after "params" in a state's field
            end = theirs[start:]
            before = parts[: len(parts) - len(end)]
            if not end or parts[len(before) :] != end or before == theirs[:start]:
                continue
            # a single name, such as that of a parameter "x" and a batch's "x", says little
            apart = start == 1 and len(end) > 1 and other.argument != leaf.argument
            if apart or (_STATE & set(before) and not _STATE & set(theirs[:start])):
                return k
    return -1


def _folded(leaves: Sequence[Any], own: Sequence[int]) -> dict[int, str]:
    """Leaf → its pattern, with as many "*" as possible while all its shapes are the same."""
    out: dict[int, str] = {}
    waiting = [(list(own), 0)]
    while waiting:
        some, kept = waiting.pop()
        found: dict[str, list[int]] = {}
        for n in some:
            found.setdefault(_starred(leaves[n].path, kept), []).append(n)
        for pattern, members in found.items():
            if len({leaves[n].shape for n in members}) == 1 or "*" not in pattern:
                out |= dict.fromkeys(members, pattern if len(members) > 1 else "")
            else:
                waiting.append((members, kept + 1))
    return {n: pattern or leaves[n].path for n, pattern in out.items()}


def _starred(path: str, kept: int) -> str:
    """Numbers at the end of parts as "*", except the last ``kept`` of them."""
    found = list(_NUMBER.finditer(path))
    for m in reversed(found[: len(found) - kept] if kept else found):
        path = f"{path[: m.start()]}*{path[m.end() :]}"
    return path
