"""Whose identity a part of another shares, and what had no op name of its own: ``identity_row.py``.

Nodes are written as in ``identity_nodes.py``.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hloscope.analysis.passes.identity.how import How
from hloscope.analysis.passes.identity.row import Row
from identity_nodes import line, walk

A = line("%a = f32[4] add()", "f")


class Owned(Row):
    """Node 7, with ``w.line`` of nodes before from 101 on; callers of its computation are 20 …"""

    def __init__(self, told: str, op_name: str = "f") -> None:
        super().__init__(walk({7: (line(told, op_name), ())}), 3)
        self.fresh, self.place, self.parts = {7: True}, {7: 0}, {7: {}}
        self.whole = -1
        self.wholes = SimpleNamespace(of=lambda n, c: self.whole)  # type: ignore[assignment]
        self.callers: list[int] = []

    def _callers(self, name: str) -> list[int]:
        return self.callers if name == "now" else []

    def before(self, **texts: str) -> None:
        for name, text in texts.items():
            self.w.line[int(name[1:])] = line(text)


def test_a_part_is_of_what_its_whole_is_of() -> None:
    for whole in (0, 20):
        found = Owned("%d = f32[4] copy-done()")
        found.whole = whole
        found.parts[whole], found.how[whole] = {"f": (1,)}, How.ORDER
        assert found._of_owner(7, "f")
        assert (found.parts[7], found.how[7]) == ({"f": (1,)}, How.ORDER)


@pytest.mark.parametrize(
    ("opcode", "waits", "held"),
    [("copy-done", True, True), ("fusion", True, False), ("copy-done", False, False)],
)
def test_a_part_waits_for_its_whole(opcode: str, waits: bool, held: bool) -> None:
    found = Owned(f"%d = f32[4] {opcode}()")
    found.whole = 0
    found._undecided[0] = ["f"] if waits else ["g"]
    assert not found._of_owner(7, "f")
    assert ((7, "f") in found._held) is held
    assert found.parts[7] == {}


def test_a_copy_of_what_had_no_op_name() -> None:
    def owned(copies: list[int], pairs: list[int] = [], fresh: bool = True, **texts: str) -> Any:  # noqa: B006
        found = Owned("%d = f32[4] add()")
        found.before(**texts)
        found.clone_of[7] = copies
        found.pairs = {7: {(y, ()): None for y in pairs}}
        found.w.known = {101: (1,), 102: (1,), 103: (3,), 7: (9,)}
        found.w.how = {101: How.GUESSED}
        if not fresh:
            found.fresh = {}
        return found._of_owner(7, "f") and (found.parts[7]["f"], found.how[7])

    plain, other = "%a = f32[4] add()", "%a = f32[4] tanh()"
    assert owned([101], y101=plain) == ((1,), How.GUESSED)
    assert owned([], [101], y101=plain) == ((1,), How.GUESSED)
    assert owned([101], y101=other) is False
    assert owned([104]) is False, "it is gone"
    assert owned([102, 103], y102=plain, y103=plain) is False, "two answers"
    assert owned([102], [101], y101=plain, y102=plain) == ((1,), How.GUESSED), "one answer twice"
    assert owned([]) is False
    assert owned([], y7=plain, fresh=False) == ((9,), How.NEIGHBOURS)
    assert owned([101], y101=plain, y7=other, fresh=False) == ((9,), How.NEIGHBOURS), "it stayed"


def test_with_an_op_name_of_its_own_before_it_is_not_its_caller_s() -> None:
    found = Owned("%d = f32[4] add()")
    found.w.line = {101: A, 102: line("%b = f32[4] add()")}
    found.w.known = {102: (1,)}
    found.clone_of[7] = [101]
    assert not found._of_owner(7, "f")
    found.clone_of[7] = [101, 102]
    assert not found._of_owner(7, "f")


@pytest.mark.parametrize(
    ("opcode", "name", "known", "found"),
    [
        ("parameter", "f", {20: "f"}, (20,)),
        ("parameter", "f", {20: "g/f"}, (20,)),
        ("parameter", "f", {20: "gf"}, None),
        ("parameter", "f", {20: "f", 21: "f"}, None),
        ("add", "f", {20: "f"}, None),
        ("tuple", "f", {20: "f"}, None),
    ],
)
def test_plumbing_is_of_what_calls_it(
    opcode: str, name: str, known: dict[int, str], found: tuple[int, ...] | None
) -> None:
    made = Owned(f"%d = f32[4] {opcode}()")
    made.callers = [*known]
    made.parts |= {z: {k: (z,)} for z, k in known.items()}
    made.how[20] = How.GUESSED
    assert made._of_owner(7, name) is (found is not None)
    assert made.parts[7] == ({} if found is None else {name: found})
    if found:
        assert made.how[7] == How.GUESSED


@pytest.mark.parametrize("undecided", ["f", "g/f", "gf"])
def test_plumbing_waits_for_what_calls_it(undecided: str) -> None:
    """Else it is of the call that it was inlined from."""
    found = Owned("%d = f32[4] parameter(0)")
    found.callers = [20]
    found._undecided[20] = [undecided]
    found.pairs = {7: {(101, (102, 103)): None, (104, ()): None}}
    found.w.known = {102: (2,), 103: (3,)}
    assert found._of_owner(7, "f") is (undecided == "gf")
    assert found.parts[7] == ({"f": (3,)} if undecided == "gf" else {}), "the innermost one"


def test_what_its_loop_was_inlined_from() -> None:
    found = Owned("%d = f32[4] parameter(0)")
    found.callers = [20]
    found.place[20] = 0
    found.pairs = {20: {(101, (102,)): None}}
    found.w.known, found.w.how = {102: (2,)}, {102: How.GUESSED}
    assert found._came_out_of(7) == {(2,): How.GUESSED}
    assert found._came_out_of(7, depth=1) == {(2,): How.GUESSED}
    assert found._came_out_of(7, depth=0) == {}
    del found.place[20]
    assert found._came_out_of(7) == {}, "it stayed as it was"
    found.callers, found.place[20], found.pairs = [7], 0, {}
    assert found._came_out_of(7) == {}, "it calls itself"


def test_a_loop_in_a_loop_that_was_inlined() -> None:
    found = Owned("%d = f32[4] parameter(0)")
    found.w.steps.places.append(SimpleNamespace(name="around"))
    found.place |= {20: 1, 21: 1}
    found._callers = lambda name: [20] if name == "now" else [21]  # type: ignore[method-assign]
    found.pairs = {21: {(101, (102,)): None}}
    found.w.known = {102: (2,)}
    assert found._came_out_of(7, depth=2) == {(2,): How.FIRST}
    assert found._came_out_of(7, depth=1) == {}


def test_only_one_answer_is_taken() -> None:
    found = Owned("%d = f32[4] add()")
    assert not found._put_only(7, "f", {})
    assert not found._put_only(7, "f", {(1,): How.FIRST, (2,): How.FIRST})
    assert not found._put_only(7, "f", {(): How.FIRST})
    assert 7 not in found.how
    assert found._put_only(7, "f", {(1,): How.FIRST})
    assert (found.parts[7], found.how[7]) == ({"f": (1,)}, How.NEIGHBOURS)
