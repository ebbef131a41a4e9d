"""What the rules about collectives share: wording, and what a collective moves."""

from __future__ import annotations

from collections.abc import Iterable

from ...hlo import Instruction, Module, opcodes, walk
from ..base.table import per_module
from ..comms.collective import Collective


def over(row: Collective) -> str:
    return f"over {row.axes_or_groups}"


def moved(row: Collective) -> str:
    """What a collective moves: the array's name, or of how many arrays its bytes are."""
    if row.is_combined:
        return row.moved
    return f"`{row.moved}`" if row.moved else row.parts[0].shape


def sent(rows: Iterable[Collective]) -> int | None:
    """Sum of the known wire bytes of the rows; None if none are known."""
    known = [wire for row in rows if (wire := row.total_wire_bytes) is not None]
    return sum(known) if known else None


def times(row: Collective) -> str:
    n = row.most_executions if row.executions is None else row.executions
    return "" if n in (0, 1, None) else f", {row.executions_text} times a step"


def moves_constants(row: Collective) -> bool:
    """Whether everything that a row moves is constant.

    The first permute of a windowed sum moves its zeros, the others what was added to them.
    """
    here = row.instruction.computation
    beside = [p.instruction for p in row.parts if p.instruction.computation is here]
    senders = {row.instruction, *beside}
    operands = [o for i in senders for o in i.operands]
    return bool(operands) and all(_is_constant(o) for o in operands)


# Differ between devices or runs whatever they are made from, or are not followed: a loop's value
# differs between its trips.
_DIFFERS = (
    opcodes.COMMUNICATION | opcodes.DEVICE_IDS | opcodes.RANDOM | opcodes.LOOPS
    | opcodes.BRANCHES | {"custom-call", "async-start", "scatter", "sort"}
) - opcodes.RESHARDS  # fmt: skip


@per_module
def _known(module: Module) -> dict[int, bool]:
    """What is known about values so far: a module may have 40,000 collectives in a chain."""
    return {}


def _is_constant(value: Instruction) -> bool:
    """Whether nothing that a value is computed from differs between devices or runs."""
    known = _known(value.module)
    if value.index not in known:
        way = walk.back(
            value, lambda i: i.opcode not in _DIFFERS, inside_fusions=True, dependencies=True,
            where=lambda p: not known.get(p.instruction.index, False),
        )  # fmt: skip
        visited = []
        for at, *_ in way:
            visited.append(at.index)
            differs = at.opcode in _DIFFERS or (at.opcode == "parameter" and not _is_passed(at))
            if differs or known.get(at.index) is False or len(visited) == walk.MOST:
                known[value.index] = False
                return False
        known.update(dict.fromkeys(visited, True))
    return known[value.index]


def _is_passed(parameter: Instruction) -> bool:
    """Whether a parameter has its value from a fusion or a call."""
    sites = parameter.module.call_sites(parameter.computation)
    return bool(sites) and all(s.opcode in ("fusion", "call") for s in sites)
