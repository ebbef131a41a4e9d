"""Property: a real program with one random edit differs by that edit, whatever its names."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hloscope as hs
import pytest
from hloscope.hlo import Instruction
from test_diff import renamed_and_reordered

KEPT = Path(__file__).resolve().parents[2] / "golden" / "programs"
PROGRAMS = ("cnn_step", "lstm_scan", "moe_einsum", "scan_gradient-v5e")
EDITS_OF_A_KIND = 6
OTHER = {
    "add": "maximum",
    "multiply": "minimum",
    "tanh": "logistic",
    "exponential": "cosine",
    "negate": "abs",
    "rsqrt": "sqrt",
    "maximum": "add",
    "divide": "power",
    "subtract": "atan2",
    "convert": "negate",
}


def line_of(cap: hs.Capture, i: Instruction) -> str:
    """The instruction's line, which no other is."""
    found = re.findall(rf"^ *(?:ROOT )?%?{re.escape(i.name)} = .*$", cap.text, re.M)
    assert len(found) == 1
    return str(found[0])


def replaced(cap: hs.Capture, old: str, new: str) -> hs.Capture:
    assert cap.text.count(old + "\n") == 1
    return hs.read(cap.text.replace(old + "\n", new + "\n"))


def opcode(cap: hs.Capture, i: Instruction) -> hs.Capture | None:
    if i.opcode not in OTHER or not i.shape.is_array:
        return None
    line = line_of(cap, i)
    return replaced(cap, line, line.replace(f" {i.opcode}(", f" {OTHER[i.opcode]}(", 1))


def swap(cap: hs.Capture, i: Instruction) -> hs.Capture | None:
    if i.opcode not in ("subtract", "divide", "dot") or i.operands[0] is i.operands[1]:
        return None
    line = line_of(cap, i)
    a, b = (f"%{o.name}" for o in i.operands)
    return replaced(cap, line, line.replace(f"({a}, {b})", f"({b}, {a})", 1))


def attribute(cap: hs.Capture, i: Instruction) -> hs.Capture | None:
    line = line_of(cap, i)
    if i.opcode == "compare":
        way = "LT" if "direction=GT" in line else "GT"
        return replaced(cap, line, re.sub(r"direction=\w\w", f"direction={way}", line))
    if i.opcode == "dot":
        return replaced(cap, line, f"{line}, operand_precision={{highest,high}}")
    return None


def insertion(cap: hs.Capture, i: Instruction) -> hs.Capture | None:
    wanted = [o for o in i.operands if o.shape.is_array and o.shape.element_type == "f32"]
    if not wanted or i.opcode in ("fusion", "tuple", "call", "while", "conditional"):
        return None
    line, o = line_of(cap, i), wanted[0]
    indent = line[: len(line) - len(line.lstrip())]
    extra = f"{indent}%an.extra.one = {o.shape.text} cbrt(%{o.name})"
    head, sep, tail = line.partition(f"{i.opcode}(")
    used = re.sub(rf"%{re.escape(o.name)}(?![\w.-])", "%an.extra.one", tail, count=1)
    return replaced(cap, line, f"{extra}\n{head}{sep}{used}")


KINDS: tuple[Callable[[hs.Capture, Instruction], hs.Capture | None], ...] = (
    opcode,
    swap,
    attribute,
    insertion,
)


@pytest.fixture(scope="module")
def programs() -> dict[str, hs.Capture]:
    return {name: hs.read(KEPT / f"{name}.hlo.gz") for name in PROGRAMS}


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.__name__)
@pytest.mark.parametrize("name", PROGRAMS)
def test_one_edit(programs: dict[str, hs.Capture], name: str, kind: Any) -> None:
    cap = programs[name]
    rng = random.Random(f"{name} {kind.__name__}")
    live = _reaching_root(cap)
    order = list(cap.module.instructions)
    rng.shuffle(order)
    done = 0
    for i in order:
        edited = kind(cap, i) if i.index in live else None
        if edited is None:
            continue
        other = renamed_and_reordered(edited, rng.randrange(10**6))
        found = hs.diff(cap, other)
        told = f"{kind.__name__} of %{i.name} in {i.computation.name}:\n{found}"
        if kind is insertion:
            assert (found.removed, found.changed) == ((), ()), told
            assert [x.opcode for x in found.added] == ["cbrt"], told
        else:
            assert (found.removed, found.added) == ((), ()), told
            [change] = found.changed
            [(field, before, after)] = change.fields
            assert before != after
            if kind is opcode:
                assert (field, before, after) == ("opcode", i.opcode, OTHER[i.opcode]), told
            elif kind is swap:
                assert (field, change.a.opcode) == ("operands", i.opcode), told
            else:
                assert (field, change.a.opcode) == (_FIELD[i.opcode], i.opcode), told
        back = hs.diff(other, cap)
        assert (len(back.added), len(back.removed), len(back.changed)) == (
            len(found.removed), len(found.added), len(found.changed),
        ), told  # fmt: skip
        done += 1
        if done == EDITS_OF_A_KIND:
            break
    assert done, "the program has no place for such an edit"


_FIELD = {"compare": "direction", "dot": "operand_precision"}


def _reaching_root(cap: hs.Capture) -> set[int]:
    """Instructions that something uses: another's edit cannot be told from a dead one's."""
    used = {o.index for i in cap.module.instructions for o in i.operands}
    return used | {c.root.index for c in cap.module.computations if c.root is not None}
