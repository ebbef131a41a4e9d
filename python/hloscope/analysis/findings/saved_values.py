"""Values that are saved for the backward pass: what keeps them, and what a checkpoint would free.

    step ─ loss ─┬─ block ─ attention   scores  ▇▇▇▇   saved by every call, until the backward pass
                 ├─ block ─ attention   scores  ▇▇▇▇   reaches it: with jax.checkpoint around
                 └─ block ─ attention   scores  ▇▇▇▇   it only those of one call are there

Stacks of a loop, which its body saves, have a rule of their own (``residual_rules.py``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...hlo import StackFrame
from ...hlo.changes import Changes
from ..base.lines.frames import own_line
from ..memory.categories import SAVED
from ..memory.memory import LiveValue
from ..text.units import size
from . import limits
from .facts import Facts, own_function
from .finding import Finding, percent

if TYPE_CHECKING:
    from ..grouping.groups import GroupTree


@dataclass(frozen=True)
class Saved:
    """What is saved at the peak: ``rows`` outside loops, the largest first, ``bytes`` in all.

    ``function`` is the person's whose calls save most that a checkpoint around it would free: ""
    if there is none. ``calls`` save alike, and ``gain`` is without what one of them saves.
    """

    rows: tuple[LiveValue, ...]
    bytes: int
    function: str
    held: int  # what the calls of the function save
    calls: int
    gain: int


def saved(facts: Facts) -> Saved:
    """What is saved at the peak. XLA:CPU merges what an unrolled checkpoint computes again with the
    forward pass, so that there no function's calls can be freed so."""
    memory = facts.memory
    stacks = {r.buffer for r in memory.residuals}
    rows: list[tuple[int, LiveValue]] = []
    for b in memory.liveness.live_at(memory.peak_point, memory.main_spaces).tolist():
        if memory.category[b] == SAVED and b not in stacks:
            rows.append((b, memory.value(b)))
    rows.sort(key=lambda x: (-x[1].bytes, x[0]))
    total = sum(v.bytes for _, v in rows)
    none = Saved(tuple(v for _, v in rows), total, "", 0, 1, 0)
    is_looked_at = rows and not facts.made_for_cpu
    for function, calls in _by_call(facts, rows).items() if is_looked_at else ():
        each = sorted(calls.values(), key=lambda inside: -sum(v.bytes for _, v in inside))
        gain = memory.gain_if_smaller({b: v.bytes for inside in each[1:] for b, v in inside})
        # the innermost: the less is around it, the less is computed again at once
        if gain >= limits.RESIDUALS_SHARE * memory.peak_bytes:
            held = sum(v.bytes for inside in each for _, v in inside)
            return Saved(none.rows, total, function, held, len(each), gain)
    return none


_Rows = list[tuple[int, LiveValue]]  # buffers and their values


def _by_call(facts: Facts, rows: _Rows) -> dict[str, dict[int, _Rows]]:
    """Values by each of the person's functions that was being called, innermost first, and by its
    calls: the outermost groups of which all values are the function's."""
    from ..grouping.groups import group_tree  # which few programs need

    tree = group_tree(facts.module, facts.target)
    chains = [_chain(tree, value) for _, value in rows]
    functions = [dict.fromkeys(n for f in v.frames for n in own_function(f)) for _, v in rows]
    shared: dict[int, set[str]] = {}  # by group, what all of its values are in
    depth: dict[str, int] = defaultdict(int)
    for chain, names in zip(chains, functions, strict=True):
        for group in chain:
            shared[group] = shared[group] & names.keys() if group in shared else set(names)
        for up, name in enumerate(names):
            depth[name] = max(depth[name], up)
    found: dict[str, dict[int, _Rows]] = {}
    for row, chain, names in zip(rows, chains, functions, strict=True):
        for name in names:
            call = next((g for g in reversed(chain) if name in shared[g]), None)
            if call is not None:
                found.setdefault(name, {}).setdefault(call, []).append(row)
    return dict(sorted(found.items(), key=lambda x: depth[x[0]]))


def _chain(tree: GroupTree, value: LiveValue) -> list[int]:
    """The groups that hold a value, innermost first."""
    out = [int(tree.group[value.instruction.index])]
    while out[-1] > 0:
        out.append(int(tree.parent[out[-1]]))
    return out


AGAIN = (
    "jax.checkpoint around that function (nn.remat around a Flax module): the backward pass then"
    " computes again what one call saves, when it gets there"
)


def changes_of(found: Saved) -> tuple[Changes, ...]:
    return ({"remat": {found.function: None}},) if found.function else ()


def saved_values(facts: Facts) -> Iterator[Finding]:
    """What calls of one function save for the backward pass, where memory is scarce."""
    memory, chip = facts.memory, facts.cost.hardware
    peak = memory.peak_bytes
    if chip is None or not limits.FULL_SHARE * chip.memory_bytes <= peak <= chip.memory_bytes:
        return  # there is room, or it does not fit at all, which another rule says
    found = saved(facts)
    if not found.function:
        return
    first = next(v for v in found.rows if _is_in(v, found.function))
    yield Finding(
        "saved-values",
        f"{percent(min(1.0, found.bytes / peak))} of the peak is saved for the backward pass:"
        f" {size(found.bytes)}",
        f"{found.calls:,} calls of `{found.function}` save {size(found.held)} of it, most in"
        f" {first.shape.dense_text} ({size(first.bytes)}), %{first.name}",
        AGAIN,
        facts.peak_share(found.gain) * limits.RESIDUALS_WEIGHT,
        None,
        found.gain,
        "peak memory",
        tuple(v.instruction for v in found.rows if _is_in(v, found.function)),
        _line(first),
        changes=changes_of(found),
    )


def _is_in(value: LiveValue, function: str) -> bool:
    return any(function in own_function(f) for f in value.frames)


def _line(value: LiveValue) -> StackFrame | None:
    return own_line(value.frames)
