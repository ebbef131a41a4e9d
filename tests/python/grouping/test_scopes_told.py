"""Scopes of instructions without names: what they inherit, and what moves up or down."""

from __future__ import annotations

import numpy as np
import pytest
from hloscope.analysis.base.lines.op_name import Path
from hloscope.analysis.grouping.scopes import (
    _follow,
    _from_callees,
    _hoist,
    _inherit,
    _sink,
    combines,
    inherit,
    scopes,
)
from small_graphs import BEFORE, Small


def inherited(spec: str, own: dict[str, int], *, top: int = -2, combined: str = "") -> str:
    """Numbers of scopes after inheritance, as ``a:1 b:2``; nothing for unknown ones."""
    out = set()
    for before in (BEFORE, ""):
        s = Small(spec, before=before)
        mask = np.zeros(len(s.module.instructions), bool)
        mask[s.rows(combined)] = True
        for zero in {0, *own.values()}:  # whatever scope is the first, the result is the same
            other = {zero: 0, 0: zero}
            mine = numbers(s, {n: other.get(k, k) for n, k in own.items()})
            if top == -2 and not combined:
                found = inherit(s.t, mine)
            else:
                found = _inherit(s.t, mine, mask, other.get(top, top))
            assert (found[: s.first] == -1).all()  # of another computation nothing is known
            out.add(said(s, np.array([other.get(k, k) for k in found.tolist()])))
    (one,) = out
    return one


def numbers(s: Small, own: dict[str, int]) -> np.ndarray:
    out = np.full(len(s.module.instructions), -1, np.int64)
    for name, number in own.items():
        out[s.at(name)] = number
    return out


def said(s: Small, scope: np.ndarray) -> str:
    return " ".join(f"{n}:{scope[s.at(n)]}" for n in s.names if scope[s.at(n)] >= 0)


@pytest.mark.parametrize(
    ("spec", "own", "wanted"),
    [
        ("x! a:x b:a c:b", {"a": 0}, "x:0 a:0 b:0 c:0"),
        ("x! a:x b:x c:a,b d:b,a", {"a": 1, "b": 2}, "x:1 a:1 b:2 c:2 d:2"),  # the latest operand
        ("x! c:x d:c e:c", {"d": 3, "e": 4}, "x:3 c:3 d:3 e:4"),  # else the earliest user
        ("x! a:x b:a c:b", {"a": 1, "c": 2}, "x:1 a:1 b:1 c:2"),  # an operand before a user
        ("x! k=constant: b:k c:b", {"k": 5, "c": 2}, "k:5 b:2 c:2"),  # a constant says nothing
        ("x! a:x b:a", {}, ""),
        ("x! a:x b:a t=tuple:b", {"t": 7}, "x:7 a:7 b:7 t:7"),
        ("x! a:x b:a t=tuple:b d:b", {"t": 7, "d": 1}, "x:1 a:1 b:1 t:7 d:1"),
        ("a b:a c:b", {"b": 2}, "a:2 b:2 c:2"),
        ("x! a:b b:x c:b", {"a": 3, "c": 4}, "x:4 a:3 b:4 c:4"),  # printed before its operand
        ("x! a:b b:x", {"a": 3}, "x:3 a:3 b:3"),
        (
            "x! a:x b:x r=all-reduce:a,b g:r h:g",
            {"a": 1, "b": 1, "r": 1, "h": 2},
            "x:1 a:1 b:1 r:1 g:2 h:2",
        ),  # a combined collective has a name of several
        ("x! a:x r=all-reduce:a g:r h:g", {"a": 1, "r": 1, "h": 2}, "x:1 a:1 r:1 g:1 h:2"),
        ("x! a:x b:x r:a,b g:r h:g", {"a": 1, "b": 1, "r": 1, "h": 2}, "x:1 a:1 b:1 r:1 g:1 h:2"),
    ],
)
def test_a_scope_comes_from_the_latest_operand_or_the_first_user(
    spec: str, own: dict[str, int], wanted: str
) -> None:
    assert inherited(spec, own) == wanted


def test_a_chain_of_any_length_inherits() -> None:
    spec = "x! a0:x " + " ".join(f"a{k}:a{k - 1}" for k in range(1, 90))
    assert inherited(spec, {"a0": 6}).count(":6") == 91
    assert inherited(spec, {"a89": 6}).count(":6") == 91
    assert inherited(spec, {"a40": 6}).count(":6") == 91


def test_no_scope_and_a_combined_collective_say_little() -> None:
    spec = "x! a:x b:a c:b"
    assert inherited(spec, {"a": 0, "c": 2}, top=0) == "x:0 a:0 b:2 c:2"
    assert inherited(spec, {"a": 0, "c": 2}, top=1) == "x:0 a:0 b:0 c:2"
    assert inherited(spec, {"a": 1, "c": 2}, combined="a") == "x:1 a:1 b:2 c:2"
    assert inherited(spec, {"a": 1}, combined="a") == "x:1 a:1 b:1 c:1"
    assert inherited(spec, {"a": 0}, top=0) == "x:0 a:0 b:0 c:0"


def test_pointers_are_followed_to_the_end() -> None:
    pointer = np.array([0, 0, 1, 2, 4, 3, 5, 6])
    assert _follow(pointer.copy(), np.array([7, 4, 2])).tolist() == [0, 4, 0]


def test_what_calls_takes_the_last_scope_inside() -> None:
    inner = """inner {
  p = f32[8,8] parameter(0)
  ROOT q = f32[8,8] negate(p)
}

outer {
  r = f32[8,8] parameter(0)
  u = f32[8,8] negate(r)
  v = f32[8,8] fusion(u), kind=kLoop, calls=inner
  ROOT w = f32[8,8] negate(v)
}
"""
    calls = {"a": "kind=kLoop, calls=outer", "b": "kind=kLoop, calls=inner"}
    s = Small("x! a=fusion:x b=fusion:a c:b", more=calls, before=inner)
    at = {i.name: i.index for i in s.module.instructions}

    def found(**own: int) -> dict[str, int]:
        mine = np.full(len(at), -1, np.int64)
        for name, number in own.items():
            mine[at[name]] = number
        made = _from_callees(s.t, mine)
        return {n: int(made[k]) for n, k in at.items() if made[k] >= 0 and n not in own}

    assert found(q=5) == {"b": 5, "v": 5, "a": 5}  # nested: an operation, a fusion, another
    assert found(p=4, q=5) == {"b": 5, "v": 5, "a": 5}
    assert found(p=0) == {"b": 0, "v": 0, "a": 0}
    assert found(u=3, w=1) == {"a": 1}
    assert found(q=5, a=2) == {"b": 5, "v": 5}
    assert found(c=2) == {}


# -- up and down -----------------------------------------------------------------------------

PATHS: list[Path] = [("net", "a"), ("net", "b"), ("net",), ("other",), ("net", "a", "in")]
A, B, NET, OTHER, IN = range(5)


def hoisted(
    spec: str, scope: dict[str, int], named: str = "", combined: str = "", inline: str = ""
) -> dict[str, str]:
    """Scopes after hoisting, where they changed. ``named``: with a name of their own."""
    s = Small(spec)
    masks = []
    for names in (combined, inline):
        masks.append(np.zeros(len(s.module.instructions), bool))
        masks[-1][s.rows(names)] = True
    out = []
    for turn in range(len(PATHS)):  # whatever path is the first, the result is the same
        paths, of = turned(scope, turn)
        at = numbers(s, of)
        _hoist(s.t, numbers(s, {n: of[n] for n in named.split()}), at, paths, *masks)
        out.append({n: "/".join(paths[at[s.at(n)]]) for n in scope if at[s.at(n)] != of[n]})
    assert all(found == out[0] for found in out)
    return out[0]


def turned(scope: dict[str, int], turn: int) -> tuple[list[Path], dict[str, int]]:
    paths = [*PATHS[turn:], *PATHS[:turn]]
    return paths, {n: paths.index(PATHS[k]) for n, k in scope.items()}


@pytest.mark.parametrize(
    ("scope", "changed"),
    [
        ({"a": A, "b": B, "r": B}, {"r": "net"}),
        ({"a": A, "b": A, "r": B}, {"r": "net/a"}),
        ({"a": A, "b": IN, "r": B}, {"r": "net/a"}),
        ({"a": A, "b": OTHER, "r": B}, {"r": ""}),
        ({"a": A, "b": A, "r": A}, {}),
        ({"a": A, "r": B}, {"r": "net/a"}),  # of the other nothing is known
        ({"r": B}, {}),
    ],
)
def test_a_combined_collective_moves_up_to_what_its_operands_share(
    scope: dict[str, int], changed: dict[str, str]
) -> None:
    spec = "x! a:x b:x r=all-reduce:a,b"
    assert hoisted(spec, scope, "r", combined="r") == changed
    assert hoisted(spec, scope, "r") == {}


def test_xlas_own_tuples_of_three_move_up() -> None:
    of = {"a": A, "b": B, "t": B}
    assert hoisted("x! a:x b:x t=tuple:a,b,a", of) == {"t": "net"}
    assert hoisted("x! a:x b:x t=concatenate:a,b,a", of) == {"t": "net"}
    assert hoisted("x! a:x b:x t=tuple:a,b", of) == {}
    assert hoisted("x! a:x b:x t=tuple:a,b,a", of, named="t") == {}
    assert hoisted("x! a:x b:x t=maximum:a,b,a", of) == {}
    spec = "x! k=constant: a:x t=tuple:a,k,a"
    assert hoisted(spec, {"k": OTHER, "a": A, "t": B}) == {"t": "net/a"}  # constants do not count


def test_a_constant_that_layers_share_is_above_them() -> None:
    spec = "x! k=constant: a:k b:k"
    assert hoisted(spec, {"k": A, "a": A, "b": B}, inline="k") == {"k": "net"}
    assert hoisted(spec, {"k": A, "a": A, "b": B}) == {}
    assert hoisted(spec, {"k": A, "a": A, "b": A}, inline="k") == {}
    assert hoisted(spec, {"k": A, "b": B}, inline="k") == {"k": "net/b"}
    # what moved up first counts where it is now
    spec = "x! k=constant: a:x b:x r=all-reduce:a,b,k c:k"
    both = {"k": A, "a": A, "b": OTHER, "r": A, "c": IN}
    assert hoisted(spec, both, "r", "r", "k") == {"r": "", "k": ""}


def sunk(spec: str, scope: dict[str, int], named: str = "") -> dict[str, int]:
    s = Small(spec)
    out = []
    for turn in range(len(PATHS)):
        paths, of = turned(scope, turn)
        at = numbers(s, of)
        _sink(s.t, numbers(s, {n: of[n] for n in named.split()}), at, paths)
        here = {n: PATHS.index(paths[at[s.at(n)]]) for n in scope}
        out.append({n: k for n, k in here.items() if k != scope[n]})
    assert all(found == out[0] for found in out)
    return out[0]


def test_pieces_move_down_to_the_one_scope_that_uses_them() -> None:
    assert sunk("x! r:x p:r a:p", {"r": NET, "p": NET, "a": A}, "r a") == {"p": A}
    assert sunk("x! r:x p:r a:p", {"r": NET, "p": NET, "a": A}, "r a p") == {}
    assert sunk("x! r:x p:r a:p", {"r": NET, "p": NET, "a": OTHER}, "r a") == {}  # not within
    assert sunk("x! r:x p:r a:p", {"r": NET, "p": A, "a": NET}, "r a") == {}  # not deeper
    assert sunk("x! r:x p:r a:p b:p", {"p": NET, "a": A, "b": B}, "a b") == {}
    assert sunk("x! r:x p:r a:p b:p", {"p": NET, "a": A, "b": A}, "a b") == {"p": A}
    assert sunk("x! r:x p:r a:p b:p", {"p": NET, "a": A}, "a") == {}  # who else uses it?
    assert sunk("x! p:x q:p r:q a:r", {"p": NET, "q": NET, "r": NET, "a": IN}, "a") == {
        "p": IN, "q": IN, "r": IN,
    }  # fmt: skip


def test_what_xla_combines() -> None:
    yes = ("all-reduce", "all-gather-start", "reduce-scatter")
    no = ("all-reduce-done", "collective-permute", "tuple", "add")
    assert [combines(o) for o in (*yes, *no)] == [True] * 3 + [False] * 4


# -- of a module -----------------------------------------------------------------------------


def of(spec: str, **names: str) -> dict[str, str]:
    """Scopes of a program; ``names``: op_names without ``jit(f)/`` and the primitive."""
    s = Small(spec, {n: f"jit(f)/{name}/op" if name else "jit(f)/op" for n, name in names.items()})
    found = scopes(s.module)
    at = {n: s.at(n) for n in s.names}
    for n, k in at.items():  # inherited is what has a scope, but no name
        known = found.scope[k] >= 0 and n not in names
        assert found.inherited[k] == (known or n == "x")
    return {n: "/".join(found.paths[found.scope[k]]) for n, k in at.items() if found.scope[k] >= 0}


def test_phases_are_shown_if_there_are_two() -> None:
    assert of("x! a:x b:a", a="jvp(net)", b="jvp(net)/in") == {
        "x": "net", "a": "net", "b": "net/in",
    }  # fmt: skip
    assert of("x! a:x b:a", a="jvp(net)", b="transpose(jvp(net))") == {
        "x": "forward/net", "a": "forward/net", "b": "backward/net",
    }  # fmt: skip


def test_a_parameter_has_the_scope_of_its_user_whatever_its_name() -> None:
    assert of("x! a:x b:a", x="weights", a="first", b="second")["x"] == "first"


def test_an_op_at_the_top_says_less_than_a_user() -> None:
    assert of("x! a:x b:a c:b", a="", c="net")["b"] == "net"
    assert of("x! a:x b:a c:b", a="", c="")["b"] == ""
    assert of("x! a:x b:a c:b", a="one", c="net")["b"] == "one"


def test_a_combined_collective_says_less_too() -> None:
    one = "x! a:x b:x r=all-reduce:a g:r h:g"
    assert of(one, a="one", r="one", h="two")["g"] == "one"
    two = one.replace("all-reduce:a", "all-reduce:a,b")
    assert of(two, a="one", b="one", r="one", h="two")["g"] == "two"


def test_what_precedes_a_loop_over_layers_is_where_the_loop_is() -> None:
    spec = "x! c:x k:x a:c,k g:a"
    known = {"a": "jvp(net)/dec/layers.run", "g": "transpose(jvp(net))/dec"}
    found = of(spec, c="layers/cos", k="rest", **known)
    assert found["c"] == "forward/net/dec/layers.run/cos"
    assert found["k"] == "forward/rest"  # early by data flow
    twice = of(spec + " e:a", c="layers", e="jvp(net)/enc/layers.run", **known)
    assert twice["c"] == "forward/layers"  # before which of the two?
    once = of(spec, c="layers/cos", a="jvp(net)/layers.run", g="transpose(jvp(net))")
    assert once["c"] == "forward/net/layers.run/cos"
    top = of(spec, c="layers", a="jvp(layers.run)", g="transpose(jvp(net))")
    assert top["c"] == "forward/layers"


def test_a_scope_of_its_own_is_not_inherited() -> None:
    """Whichever scope is the first of all, and where a name has no scope."""
    for names, wanted in (
        ({"a": "jit(f)/one/sin"}, {"x": "one", "a": "one", "b": "one", "c": "one"}),
        ({"a": "jit(f)/one/sin", "c": "jit(f)/two/sin"},
         {"x": "one", "a": "one", "b": "one", "c": "two"}),
        ({"a": "jit(f)/sin", "c": "jit(f)/two/sin"}, {"x": "", "a": "", "b": "two", "c": "two"}),
        ({}, {}),
    ):  # fmt: skip
        s = Small("x! a:x b:a c:b", names=names, before="")
        found = scopes(s.module)
        said = {n: "/".join(found.paths[found.scope[s.at(n)]]) for n in s.names
                if found.scope[s.at(n)] >= 0}  # fmt: skip
        assert said == wanted, names
        inherited = [n for n in s.names if found.inherited[s.at(n)]]
        assert inherited == [n for n in wanted if n not in names]
