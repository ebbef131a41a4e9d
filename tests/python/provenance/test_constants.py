"""Which instructions have a constant's value in another form: ``fates_constants.py``."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hloscope.analysis.provenance.fates.constants import Constants, _number, same_value
from hloscope.analysis.provenance.fates.fate import Fate, FateKind
from hloscope.hlo import Module, Operation
from hloscope.readers.hlo.text import read_hlo_text


def read(text: str) -> Module:
    (module,) = read_hlo_text(text)
    return module


PROGRAM = read("""HloModule m

inner {
  u = f32[4] parameter(0)
  v = f32[4] parameter(1)
  w = f32[4] reshape(v)
  ROOT both = (f32[4], f32[4]) tuple(u, w)
}
alone { ROOT far = f32[4] parameter(7) }

ENTRY e {
  c = f32[] constant(2)
  b = f32[4] broadcast(c), dimensions={}
  t = f32[4] tanh(b)
  f = (f32[4], f32[4]) fusion(t, b), kind=kLoop, calls=inner
  f0 = f32[4] get-tuple-element(f), index=0
  f1 = f32[4] get-tuple-element(f), index=1
  g = f32[4] call(t), to_apply=alone
  ROOT r = (f32[4], f32[4], f32[4]) tuple(f0, f1, g)
}
""")
NAMED = {i.name: i for i in PROGRAM.instructions}


@pytest.mark.parametrize(
    ("name", "element", "expected"),
    [
        ("c", -1, ["c"]),
        ("b", -1, ["c"]),
        ("t", -1, ["t"]),
        ("f0", -1, ["t"]),
        ("f1", -1, ["c"]),
        ("f", 0, ["t"]),
        ("f", 1, ["c"]),
        ("f", 2, []),
        ("r", 0, ["t"]),
        ("r", 1, ["c"]),
        ("r", -1, ["r"]),
        ("u", -1, ["t"]),
        ("w", -1, ["c"]),
        ("g", -1, ["far"]),  # the call gives no such argument
        ("t", 0, []),
    ],
)
def test_behind(name: str, element: int, expected: list[str]) -> None:
    found = Constants(PROGRAM, None)._behind(NAMED[name], element)
    assert [i.name for i in found] == expected


def test_a_long_way_behind() -> None:
    rows = "".join(f"x{k + 1} = f32[] copy(x{k})\n" for k in range(100))
    module = read(f"HloModule m\n\nENTRY e {{\nx0 = f32[] constant(1)\n{rows}}}\n")
    assert len(list(Constants(module, None)._behind(module.instructions[-1]))) == 1


def test_in_a_fusion() -> None:
    told = Constants(PROGRAM, None)
    assert [told._around(NAMED[n]) for n in ("w", "far", "c")] == [NAMED["f"], None, None]


@pytest.mark.parametrize(
    ("k", "callers", "depth", "expected"),
    [
        (0, 1, 1, ["r"]),
        (1, 1, 1, []),  # the function has one parameter
        (0, 2, 1, []),  # of two callers each may give another value
        (0, 0, 1, []),
        (0, 1, 0, []),
    ],
)
def test_what_a_function_is_given(k: int, callers: int, depth: int, expected: list[str]) -> None:
    given: Any = SimpleNamespace(opcode="parameter")
    entry = SimpleNamespace(is_entry=True)
    given.users = [SimpleNamespace(opcode="return", operands=[given], computation=entry)]
    callee = SimpleNamespace(name="g", instructions=[given])
    call: Any = SimpleNamespace(opcode="call", called=[("to_apply", callee)], origins=())
    told = Constants(PROGRAM, None)
    vars(told)["_written_calls"] = {"g": [call] * callers}
    assert [i.name for i in told._at_use(call, k, depth)] == expected


@pytest.mark.parametrize(
    ("results", "k", "is_entry", "expected"),
    [
        (3, 0, True, ["t"]),
        (3, 1, True, ["c"]),
        (1, 0, True, ["r"]),
        (2, 0, True, []),
        (3, 0, False, []),
    ],
)
def test_what_the_program_returns(
    results: int, k: int, is_entry: bool, expected: list[str]
) -> None:
    where = SimpleNamespace(is_entry=is_entry)
    user: Any = SimpleNamespace(opcode="return", operands=[None] * results, computation=where)
    assert [i.name for i in Constants(PROGRAM, None)._at_use(user, k, 1)] == expected


ME = Operation(0, "constant")


@pytest.mark.parametrize(
    ("users", "expected"),
    [
        ([], ("dead", "")),
        ([("dead", "dce")], ("dead", "dce")),
        ([("dead", "dce"), ("dead", "dce")], ("dead", "dce")),
        ([("dead", "dce"), ("dead", "fold")], ("dead", "")),
        ([("folded", "fold")], ("folded", "fold")),
        ([("folded", "fold"), ("dead", "dce")], ("unknown", "")),
        ([("folded", "fold"), None], ("unknown", "")),
        ([("kept", "")], ("unknown", "")),
        ([None], ("unknown", "")),
    ],
)
def test_what_its_users_tell(
    users: list[tuple[str, str] | None], expected: tuple[str, str]
) -> None:
    origins = [
        SimpleNamespace(origins=[SimpleNamespace(operation=k)]) for k in range(1, len(users) + 1)
    ]
    constant: Any = SimpleNamespace(users=origins)
    rows = {k: Fate(ME, FateKind(u[0]), by=u[1]) if u else None for k, u in enumerate(users, 1)}
    found = Constants(PROGRAM, None)._with_users(ME, constant, rows)
    assert (found.kind, found.by) == expected


@pytest.mark.parametrize(
    ("text", "dtype", "expected"),
    [
        ("true", "pred", 1),
        ("false", "pred", 0),
        ("-3", "s32", -3),
        ("2.5", "f32", 2.5),
        ("0x3fc0", "bf16", 1.5),
        ("0x3fc00000", "f32", 1.5),
        ("0x13fc00000", "f32", None),
        ("0x3e00", "f16", 1.5),
        ("0x3f", "s8", None),
    ],
)
def test_numbers(text: str, dtype: str, expected: float | None) -> None:
    assert _number(text, dtype) == expected


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        ("f32[] constant(1)", "f32[2] constant({...})", None),
        ("f32[2] constant({...})", "f32[] constant(1)", None),
        ("f32[2] constant({1, 2})", "f32[] constant(1)", False),
        ("f32[] constant(1)", "f32[2] constant({1, 1})", True),
        ("f32[] constant(1.0)", "f32[] constant(1.001)", False),
        ("bf16[] constant(1.0)", "f32[] constant(1.001)", True),
        ("s32[] constant(1000)", "s64[] constant(1001)", False),
        ("f32[] constant(nan)", "f32[] constant(1.5)", False),
    ],
)
def test_same_value(a: str, b: str, same: bool | None) -> None:
    x, y = read(f"HloModule m\n\nENTRY e {{\n  x = {a}\n  ROOT y = {b}\n}}\n").instructions
    assert same_value(x, y) is same
