"""Which instruction of one program is which of another: each step of ``diff_match.py``.

Rows are the bodies of two programs, and pairs of names; an instruction that is not in a pair has
no partner. Names never help: those of the second program are in capitals.
"""

from __future__ import annotations

import pytest
from hloscope.analysis.diff.match import _Matcher, _topological, match, meaning, sides
from hloscope.hlo import Module
from hloscope.readers.hlo.text import read_hlo_text

CALLED = """add { x = f32[] parameter(0) y = f32[] parameter(1) ROOT s = f32[] add(x, y) }
mul { x = f32[] parameter(0) y = f32[] parameter(1) ROOT s = f32[] multiply(x, y) }
twin { u = f32[] parameter(0) v = f32[] parameter(1) ROOT w = f32[] add(u, v) }
"""
P = "p = f32[4] parameter(0)\n"
Q = "Q = f32[4] parameter(0)\n"


def read(body: str) -> Module:
    (module,) = read_hlo_text(f"HloModule m\n{CALLED}\nENTRY e {{\n{body}\n}}\n")
    assert not module.warnings
    return module


def paired(a: str, b: str) -> dict[str, str]:
    x, y = sides(read(a))["e"], sides(read(b))["e"]
    found = match(x, y)
    assert len(found) == len(x.instructions)
    assert len({j for j in found if j >= 0}) == sum(j >= 0 for j in found), "one partner each"
    return {x.instructions[i].name: y.instructions[j].name for i, j in enumerate(found) if j >= 0}


PAIRS = {
    "the same in another order": (
        P + "a = f32[4] sine(p)\nb = f32[4] cosine(p)\nROOT r = f32[4] add(a, b)",
        Q + "B = f32[4] cosine(Q)\nA = f32[4] sine(Q)\nROOT R = f32[4] add(A, B)",
        "p:Q a:A b:B r:R",
    ),
    "operands swapped": (
        P + "a = f32[4] sine(p)\nb = f32[4] cosine(p)\nROOT r = f32[4] subtract(a, b)",
        Q + "A = f32[4] sine(Q)\nB = f32[4] cosine(Q)\nROOT R = f32[4] subtract(B, A)",
        "p:Q a:A b:B r:R",
    ),
    "twins by their uses": (
        P + "a = f32[4] sine(p)\nb = f32[4] sine(p)\nc = f32[4] tanh(a)\nROOT r = f32[4] add(b, c)",
        Q + "A = f32[4] sine(Q)\nB = f32[4] sine(Q)\nC = f32[4] tanh(B)\nROOT R = f32[4] add(A, C)",
        "p:Q a:B b:A c:C r:R",
    ),
    "twins in order": (
        P + "a = f32[4] sine(p)\nb = f32[4] sine(p)\nROOT r = f32[4] tanh(p)",
        Q + "A = f32[4] sine(Q)\nB = f32[4] sine(Q)\nROOT R = f32[4] tanh(Q)",
        "p:Q a:A b:B r:R",
    ),
    "one replaced in a chain": (
        P + "a = f32[4] tanh(p)\nb = f32[4] sine(a)\nROOT r = f32[4] negate(b)",
        Q + "A = f32[4] tanh(Q)\nB = f32[4] cosine(A)\nROOT R = f32[4] negate(B)",
        "p:Q a:A b:B r:R",
    ),
    "one inserted": (
        P + "a = f32[4] tanh(p)\nROOT r = f32[4] negate(a)",
        Q + "A = f32[4] tanh(Q)\nX = f32[4] sine(A)\nROOT R = f32[4] negate(X)",
        "p:Q a:A r:R",
    ),
    "one removed": (
        P + "a = f32[4] tanh(p)\nx = f32[4] sine(a)\nROOT r = f32[4] negate(x)",
        Q + "A = f32[4] tanh(Q)\nROOT R = f32[4] negate(A)",
        "p:Q a:A r:R",
    ),
    "another root": (
        P + "ROOT r = f32[4] tanh(p)",
        Q + "ROOT R = s32[4] convert(Q)",
        "p:Q r:R",
    ),
    "parameters by number": (
        "p = f32[4] parameter(0)\nq = f32[4] parameter(1)\nROOT r = f32[4] subtract(p, q)",
        "Y = f32[4] parameter(1)\nX = f32[4] parameter(0)\nROOT R = f32[4] subtract(Y, X)",
        "p:X q:Y r:R",
    ),
    "a parameter of another type": (
        "p = f32[4] parameter(0)\nROOT r = f32[4] tanh(p)",
        "Q = f32[8] parameter(0)\nROOT R = f32[8] tanh(Q)",
        "p:Q r:R",
    ),
    "a collective does not become another operation": (
        P + "a = f32[4] all-reduce(p), to_apply=add\nROOT r = f32[4] negate(a)",
        Q + "A = f32[4] sine(Q)\nROOT R = f32[4] negate(A)",
        "p:Q r:R",
    ),
    "nor another collective": (
        P + "a = f32[4] all-reduce(p), to_apply=add\nROOT r = f32[4] negate(a)",
        Q + "A = f32[4] all-to-all(Q), dimensions={0}\nROOT R = f32[4] negate(A)",
        "p:Q r:R",
    ),
    "but one of other groups": (
        P + "a = f32[4] all-reduce(p), replica_groups={{0,1}}\nROOT r = f32[4] negate(a)",
        Q + "A = f32[4] all-reduce(Q), replica_groups={{0},{1}}\nROOT R = f32[4] negate(A)",
        "p:Q a:A r:R",
    ),
    "replaced by one of another shape": (
        P + "a = f32[4] sine(p)\nROOT r = f32[2] custom-call(a)",
        Q + "A = f32[8] concatenate(Q, Q)\nROOT R = f32[2] custom-call(A)",
        "p:Q r:R",
    ),
    "replaced by one of other operands": (
        P + "a = f32[4] sine(p)\nROOT r = f32[4] negate(a)",
        Q + "Y = f32[4] parameter(1)\nA = f32[4] cosine(Y)\nROOT R = f32[4] negate(A)",
        "p:Q r:R",
    ),
    "an operand more": (
        P + "a = f32[4] sine(p)\nROOT r = (f32[4]) tuple(a)",
        Q + "B = f32[4] cosine(Q)\nA = f32[4] sine(Q)\nROOT R = (f32[4], f32[4]) tuple(B, A)",
        "p:Q a:A r:R",
    ),
    "moved, of the same scope": (
        P + 'a = f32[4] sine(p), metadata={op_name="f/sin"}\nb = f32[4] tanh(a)\n'
        "ROOT r = f32[4] negate(p)",
        Q + "B = f32[4] exponential(Q)\nX = f32[4] log(B)\n"
        'A = f32[4] sine(X), metadata={op_name="f/sin"}\nROOT R = f32[4] negate(Q)',
        "p:Q a:A r:R b:",
    ),
    "moved, of another scope": (
        P + 'a = f32[4] sine(p), metadata={op_name="f/sin"}\nb = f32[4] tanh(a)\n'
        "ROOT r = f32[4] negate(p)",
        Q + "B = f32[4] exponential(Q)\nX = f32[4] log(B)\n"
        'A = f32[4] sine(X), metadata={op_name="g/sin"}\nROOT R = f32[4] negate(Q)',
        "p:Q r:R",
    ),
    "moved, of no scope": (
        P + "a = f32[4] sine(p)\nb = f32[4] tanh(a)\nROOT r = f32[4] negate(p)",
        Q + "B = f32[4] exponential(Q)\nX = f32[4] log(B)\nA = f32[4] sine(X)\n"
        "ROOT R = f32[4] negate(Q)",
        "p:Q r:R",
    ),
    "of one scope, with other attributes": (
        P + 'a = f32[4] reverse(p), dimensions={}, metadata={op_name="f"}\n'
        "ROOT r = f32[4] negate(p)",
        Q + "X = f32[4] log(Q)\n"
        'A = f32[4] reverse(X), dimensions={0}, metadata={op_name="f"}\nROOT R = f32[4] negate(Q)',
        "p:Q a:A r:R",
    ),
    "nothing to pair": ("", "", ""),
}  # fmt: skip


@pytest.mark.parametrize("what", PAIRS)
def test_pairs(what: str) -> None:
    a, b, pairs = PAIRS[what]
    want = dict(p.split(":") for p in pairs.split() if not p.endswith(":"))
    assert paired(a, b) == want
    assert paired(b, a) == {y: x for x, y in want.items()}, "the other way around"


def meant(line: str) -> dict[str, str]:
    module = read(P + f"ROOT r = {line}")
    assert module.entry
    assert module.entry.root
    return meaning(module.entry.root)


def test_what_an_instruction_means() -> None:
    assert meant('f32[4] reverse(p), dimensions={0}, metadata={op_name="x"}') == {
        "dimensions": "{0}"
    }
    assert meant('f32[4] sine(p), backend_config="x"') == {}, "an estimate"
    assert meant('f32[4] custom-call(p), backend_config="x"') == {"backend_config": "x"}
    one = meant("f32[4] all-reduce(p), replica_groups={{0,1},{2,3}}, to_apply=add, channel_id=1")
    two = meant("f32[4] all-reduce(p), replica_groups=[2,2]<=[4], to_apply=mul, channel_id=2")
    assert one == two == {"replica_groups": "{{0,1},{2,3}}"}


def test_computations_that_compute_the_same_have_one_hash() -> None:
    found = sides(read(P + "ROOT r = f32[4] map(p), to_apply=add"))
    assert found["add"].hash == found["twin"].hash != found["mul"].hash
    assert list(found) == ["add", "mul", "twin", "e"], "what is called comes before its caller"
    assert [name for name, side in found.items() if side.entry] == ["e"]
    other = sides(read(P + "ROOT r = f32[4] map(p), to_apply=twin"))
    changed = sides(read(P + "ROOT r = f32[4] map(p), to_apply=mul"))
    assert found["e"].hash == other["e"].hash != changed["e"].hash


def test_a_caller_that_is_printed_first_comes_last_all_the_same() -> None:
    entry = "ENTRY e {\np = f32[4] parameter(0)\nROOT r = f32[4] map(p), to_apply=add\n}\n"
    (first,) = read_hlo_text(f"HloModule m\n{entry}{CALLED}")
    (last,) = read_hlo_text(f"HloModule m\n{CALLED}{entry}")
    found, other = sides(first), sides(last)
    assert list(found) == ["add", "e", "mul", "twin"]
    assert {name: side.hash for name, side in found.items()} == {
        name: side.hash for name, side in other.items()
    }


def test_what_is_printed_before_its_operands_is_the_same() -> None:
    lines = [P, "a = f32[4] sine(p)\n", "b = f32[4] tanh(a)\n", "ROOT r = f32[4] add(a, b)\n"]
    there, back = (sides(read("".join(order)))["e"] for order in (lines, lines[::-1]))
    assert there.hash == back.hash
    assert there.up == back.up[::-1]
    assert there.down == back.down[::-1]
    assert len({*there.up}) == len({*there.down}) == 4
    assert (there.root, back.root) == (3, 0)
    assert match(there, back) == [3, 2, 1, 0]
    assert there.users == [[(1, 0)], [(2, 0), (3, 0)], [(3, 1)], []]


def test_another_root_is_another_computation() -> None:
    lines = ["a = f32[4] parameter(0)\n", "b = f32[4] parameter(1)\n"]
    first = sides(read("ROOT " + lines[0] + lines[1]))["e"]
    second = sides(read(lines[0] + "ROOT " + lines[1]))["e"]
    assert first.up == second.up
    assert first.hash != second.hash
    assert first.down[0] != second.down[0]
    assert first.down[1] != second.down[1]


@pytest.mark.parametrize(
    ("operands", "order"),
    [
        ([], []),
        ([[], [], []], [0, 1, 2]),
        ([[], [0], [1]], [0, 1, 2]),
        ([[1], [2], []], [2, 1, 0]),
        ([[], [0], [0], [0]], [0, 1, 2, 3]),  # as printed
        ([[3], [0], [3], []], [3, 0, 1, 2]),
        ([[1, 2], [], [1, 1]], [1, 2, 0]),
        ([[], [2], [1], [0]], [0, 3, 1, 2]),  # 1 and 2 go in a circle
        ([[0]], [0]),
    ],
)
def test_operands_come_first(operands: list[list[int]], order: list[int]) -> None:
    users: list[list[tuple[int, int]]] = [[] for _ in operands]
    for user, of in enumerate(operands):
        for at, operand in enumerate(of):
            users[operand].append((user, at))
    assert _topological(operands, users) == order


def matcher(a: str, b: str) -> _Matcher:
    return _Matcher(sides(read(a))["e"], sides(read(b))["e"])


TWINS = P + "a = f32[4] sine(p)\nb = f32[4] sine(p)\nc = f32[4] tanh(p)\nROOT r = f32[4] log(p)"


@pytest.mark.parametrize(
    ("keys_of_a", "keys_of_b", "only_one", "pairs"),
    [
        ("xyz..", "zxy..", False, {0: 1, 1: 2, 2: 0}),
        ("xx...", "xx...", False, {0: 0, 1: 1}),
        ("xx...", "x....", False, {0: 0}),
        ("x....", ".xx..", False, {0: 1}),
        ("xy...", "yx...", True, {0: 1, 1: 0}),
        ("xx...", "x....", True, {}),
        ("x....", "xx...", True, {}),
        ("xx...", "xx...", True, {}),
        (".....", ".....", True, {}),
    ],
)
def test_pairs_of_equal_keys(
    keys_of_a: str, keys_of_b: str, only_one: bool, pairs: dict[int, int]
) -> None:
    m = matcher(TWINS, TWINS)
    keys = {id(m.a): keys_of_a, id(m.b): keys_of_b}
    m.by(lambda s, k: None if keys[id(s)][k] == "." else keys[id(s)][k], only_one=only_one)
    assert m.to_b == [pairs.get(k, -1) for k in range(5)]
    assert m.to_a == [{j: i for i, j in pairs.items()}.get(k, -1) for k in range(5)]


def test_pairs_stay() -> None:
    m = matcher(TWINS, TWINS)
    m.pair(0, 1)
    m.by(lambda s, k: "x")
    assert m.to_b == [1, 0, 2, 3, 4]
    assert not m.try_pair(1, 2), "both have a partner"
    m = matcher(TWINS, TWINS)
    assert not m.try_pair(1, 3), "a sine and a tanh"
    assert m.try_pair(1, 2)
    assert not m.try_pair(1, 1)
    assert not m.try_pair(2, 2)
    assert m.to_b == [-1, 2, -1, -1, -1]


def test_one_step_down_and_one_up() -> None:
    m = matcher(TWINS, TWINS)
    assert not m.down(), "nothing is paired"
    m.pair(0, 0)
    assert m.down()
    assert m.to_b == [0, 1, 2, 3, 4]
    assert not m.down()
    m = matcher(TWINS, TWINS)
    assert m.up(), "from the roots"
    assert m.to_b == [0, -1, -1, -1, 4]
    assert not m.up()
    assert m.places(1, 2) == [(0, 0)]


def test_of_two_with_different_operands_those_without_a_partner_are_at_one_place() -> None:
    m = matcher(
        P + "ROOT r = (f32[4]) tuple(p)", Q + "X = f32[4] log(Q)\nROOT R = (f32[4]) tuple(Q, X)"
    )
    assert m.places(1, 2) == [(0, 0)]
    m.pair(0, 0)
    assert m.places(1, 2) == []
    m = matcher(
        P + "ROOT r = (f32[4]) tuple(p)", Q + "X = f32[4] log(Q)\nROOT R = (f32[4]) tuple(Q, X)"
    )
    m.to_a[0] = 9
    assert m.places(1, 2) == [(0, 1)]
