"""Walks along edges that decide phases, on programs of a few instructions, in waves and without."""

from __future__ import annotations

import numpy as np
import pytest
from hloscope.analysis.base import waves
from hloscope.analysis.base.phases.edges import calls_that_hold, depends_on, into, used_as
from hloscope.analysis.base.phases.flow import held_to_flow
from hloscope.analysis.base.phases.optimiser import beside_model, serve_optimiser
from small_graphs import Small

F, B, R, OPT = 1, 2, 3, 4  # forward, backward, rematerialised, optimiser


@pytest.fixture(autouse=True, params=[0, 10**9], ids=["waves", "one by one"])
def _both_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waves, "WORTH_WAVES", request.param)


def mask(s: Small, names: str) -> np.ndarray:
    out = np.zeros(len(s.module.instructions), bool)
    out[[index(s, n) for n in names.split()]] = True
    return out


def index(s: Small, name: str) -> int:
    return next(i.index for i in s.module.instructions if i.name == name)


def named(s: Small, found: np.ndarray) -> str:
    return " ".join(s.module.instructions[k].name for k in np.flatnonzero(found))


def phases(s: Small, **of: int) -> np.ndarray:
    out = np.zeros(len(s.module.instructions), np.uint8)
    for name, phase in of.items():
        out[index(s, name)] = phase
    return out


# -- the order of edges ----------------------------------------------------------------------


@pytest.mark.parametrize("last_first", [False, True])
def test_every_chosen_edge_is_walked_once_and_in_order(last_first: bool) -> None:
    def lines(name: str, size: int) -> str:
        rows = [f"  {name}{k} = f32[] add({name}{k - 1}, {name}{k // 2})" for k in range(1, size)]
        rows[-1] = "  ROOT" + rows[-1][1:]
        head = f"{name} {{\n  {name}0 = f32[] parameter(0)\n"
        return head + "\n".join(rows) + "\n}\n\n"

    s = Small("x! a:x", before=lines("p", 64) + lines("q", 65) + lines("r", 3))
    t = s.t
    chosen = np.ones(len(t.operands.values), bool)
    chosen[3] = chosen[-2] = False
    steps, (users, values) = waves.in_order(t, chosen, last_first)
    walked: list[tuple[int, int]] = []
    large = {index(s, f"q{k}") for k in range(65)}
    places = []
    for i, o in steps:
        assert not large.intersection(i.tolist())
        of = {int(t.computation[u]): int(u) for u in i}
        assert len(of) == len(set(i.tolist()))  # one user of each computation
        places.append(min(u - int(t.first[c]) for c, u in of.items()))
        walked += zip(i.tolist(), o.tolist(), strict=True)
    assert places == sorted(places, reverse=last_first)
    assert users.tolist() == sorted(users.tolist(), reverse=last_first)
    walked += zip(users.tolist(), values.tolist(), strict=True)
    every = zip(t.operands.rows.tolist(), t.operands.values.tolist(), strict=True)
    assert sorted(walked) == sorted(e for e, yes in zip(every, chosen, strict=True) if yes)
    if waves.WORTH_WAVES:
        assert len(users) == chosen.sum()
    else:
        assert set(users.tolist()) <= large


NESTED = """inner {
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
CALLS = {"a": "to_apply=outer", "b": "kind=kLoop, calls=inner"}


def nested() -> Small:
    return Small("x! a=call:x b=fusion:a c:b", more=CALLS, before=NESTED)


def test_a_call_holds_what_is_in_what_it_calls() -> None:
    s = nested()
    names = [c.name for c in s.module.computations]

    def holds(wanted: str) -> list[str]:
        return [
            n for n, yes in zip(names, calls_that_hold(s.t, mask(s, wanted)), strict=True) if yes
        ]

    assert holds("q") == ["inner", "outer", "main"]
    assert holds("u") == ["outer", "main"]
    assert holds("c") == ["main"]
    assert holds("") == []


def test_what_is_computed_from_rows_and_from_calls_that_hold_one() -> None:
    s = nested()
    assert named(s, depends_on(s.t, mask(s, "q"))) == "q v w a b c"
    assert named(s, depends_on(s.t, mask(s, "u"))) == "u v w a b c"
    assert named(s, depends_on(s.t, mask(s, "b"))) == "b c"
    assert named(s, depends_on(s.t, mask(s, ""))) == ""
    s = Small("x! k=constant: a:k b:a c:x d:c,b e:c")
    assert named(s, depends_on(s.t, mask(s, "k x"))) == ""  # sources do not count
    assert named(s, depends_on(s.t, mask(s, "a k"))) == "a b d"
    assert named(s, depends_on(s.t, mask(s, "c"))) == "c d e"


def test_uses_are_by_rows_that_come_after() -> None:
    s = Small("x! a:b b:x c:b,a d:d")
    found = into(s.t, mask(s, "b a d"))
    pairs = zip(s.t.operands.rows[found], s.t.operands.values[found], strict=True)
    assert [s.said([int(u), int(v)]) for u, v in pairs] == ["c b", "c a"]


def test_a_fusion_uses_an_operand_as_what_reads_it_inside() -> None:
    inside = """f {
  p = f32[8,8] parameter(0)
  q = f32[8,8] parameter(1)
  r = f32[8,8] negate(p)
  u = f32[8,8] subtract(q, r)
  ROOT w = f32[8,8] negate(u)
}
"""
    s = Small("x! y! a=fusion:x,y b:x", more={"a": "kind=kLoop, calls=f"}, before=inside)

    def uses(**of: int) -> list[int]:
        found = used_as(s.t, phases(s, **of))
        assert found[-1] == of.get("b", 0)  # of the next instruction
        return [int(n) for n in found[s.t.operands.rows == index(s, "a")]]

    assert uses(r=B, u=OPT, w=OPT, a=B, b=OPT) == [B, OPT]
    assert uses(r=OPT, u=B, w=B, a=B) == [OPT, B]
    assert uses(r=R, u=B, w=B, a=B, b=OPT) == [B, B]  # no update inside
    assert uses(r=B, u=OPT, a=B, y=F) == [B, B]  # of the model's values the phase is known
    call = Small("x! y! a=call:x,y", more={"a": "to_apply=f"}, before=inside)
    assert used_as(call.t, phases(call, r=B, u=OPT, w=OPT, a=B)).tolist()[-2:] == [B, B]


def test_an_operand_read_by_two_phases_is_used_as_the_fusion() -> None:
    inside = """f {
  p = f32[8,8] parameter(0)
  q = f32[8,8] parameter(1)
  r = f32[8,8] negate(q)
  u = f32[8,8] subtract(q, p)
  ROOT w = f32[8,8] add(u, r)
}
"""
    s = Small("x! y! a=fusion:x,y", more={"a": "kind=kLoop, calls=f"}, before=inside)
    found = used_as(s.t, phases(s, r=B, u=OPT, w=OPT, a=B))
    assert found[-2:].tolist() == [OPT, B]


# -- held to flow ----------------------------------------------------------------------------


def moved(spec: str, **of: int) -> dict[str, int]:
    s = Small(spec)
    before = phases(s, **of)
    found = held_to_flow(s.t, before, F, B)
    return {s.said([int(k)]): int(found[k]) for k in np.flatnonzero(found != before)}


def test_what_the_forward_pass_needs_is_of_it() -> None:
    spec = "x! a:x e:a c:e d:c g:d h:g,e"
    known = {"a": F, "c": F, "d": F, "g": B, "h": B}
    assert moved(spec, e=B, **known) == {"e": F}
    assert moved(spec, e=R, **known) == {"e": F}
    assert moved(spec, **known) == {}  # what has no phase is given none
    assert moved("x! a:x e:a n:e c:n d:c g:d", a=F, e=B, c=F, d=F, g=B) == {"e": F}  # through n
    assert moved("x! a:x e:a t=tuple:e c:t d:c g:d", a=F, e=B, c=F, d=F, g=B) == {}
    assert moved("x! a:x e:a c:a d:c g:d", a=F, e=B, c=F, d=F, g=B) == {}  # nothing needs it


def test_what_is_made_from_a_gradient_is_of_the_backward_pass() -> None:
    spec = "x! a:x b:a g:b h:g m:h k:m"
    known = {"a": F, "b": F, "g": B, "h": B, "k": B}
    assert moved(spec, m=F, **known) == {"m": B}
    assert moved(spec, m=R, **known) == {}
    assert moved("x! a:x b:a g:b h:g m:a k:h", m=F, **known) == {}  # made of the forward pass
    assert moved("x! a:x b:a g:b n:g m:n k:m", a=F, b=F, g=B, m=F, k=B) == {"m": B}
    assert moved("x! a:x b:a g:b t=tuple:g m:t k:m h:k", m=F, **known) == {}
    assert moved("x! a:x g:a", a=F, g=F) == {}  # of one pass alone


def test_of_equal_parting_points_the_last_without_a_contradiction_counts() -> None:
    known = {"a": F, "c": F, "d": F, "e": B, "g": B, "k": B}
    # After c or after d: the backward pass has one row that d does not need.
    assert moved("x! e:x a:x c:a g:c d:c,e k:d", **known) == {"e": F}
    assert moved("x! e:x a:x c:a g:c d:g,e k:d", **known) == {"d": B}
    assert moved("x! e:x a:x c:a g:c n:g d:n,e k:d", **known) == {"d": B}
    assert moved("x! e:x a:x c:a g:c t=tuple:g d:t,e k:d", **known) == {"e": F}


def test_a_fusion_is_renamed_with_what_it_holds() -> None:
    s = Small("x! a=fusion:x c:a d:c g:d", more={"a": "kind=kLoop, calls=inner"},
              before=NESTED.partition("outer")[0])  # fmt: skip
    found = held_to_flow(s.t, phases(s, p=B, q=R, a=B, c=F, d=F, g=B), F, B)
    assert {n: int(found[index(s, n)]) for n in "pqa"} == {"p": F, "q": R, "a": F}


# -- the optimiser's -------------------------------------------------------------------------


def serving(
    spec: str, candidate: str, after: str = "", updates: str = "", names: str = "",
    **of: int,
) -> str:  # fmt: skip
    """``updates``: ``user<value`` each; ``names``: what has a name of its own."""
    s = Small(spec, {n: "jit(f)/op" for n in names.split()})
    edges = [f"{s.module.instructions[u].name}<{s.module.instructions[v].name}"
             for u, v in zip(s.t.operands.rows, s.t.operands.values, strict=True)]  # fmt: skip
    known = np.array([e in updates.split() for e in edges], bool)
    found = serve_optimiser(s.t, phases(s, **of), mask(s, candidate), mask(s, after), known)
    return named(s, found)


def test_what_only_the_optimiser_uses_is_its_own() -> None:
    assert serving("x! b:x c:b u:c", "b c", u=OPT) == "b c"
    assert serving("x! b:x c:b u:c f:b", "b c", u=OPT, f=F) == "c"
    assert serving("x! b:x c:b u:c f:c", "b c", u=OPT, f=F) == ""
    assert serving("x! b:x c:b u:c", "b", u=OPT) == "b"  # XLA's own c passes it on
    assert serving("x! b:x c:b u:c", "b", u=OPT, names="c") == ""
    assert serving("x! b:x c:b u:c", "b c", u=B) == ""
    assert serving("x! b:x u:b t=tuple:b,u", "b", u=OPT) == "b"  # a result is no use
    assert serving("x! b:x", "b") == ""


def test_what_comes_from_a_gradient_and_ends_is_the_optimisers() -> None:
    assert serving("x! b:x c:b t=tuple:c", "b", after="c") == "b"
    assert serving("x! b:x c:b t=tuple:c", "b", after="c", names="c") == ""
    assert serving("x! b:x c:b t=tuple:c", "b") == ""
    assert serving("x! b:x c:b f:c", "b", after="c", f=F) == ""


def test_some_uses_are_known_to_be_updates() -> None:
    assert serving("x! b:x g:b", "b", g=B) == ""
    assert serving("x! b:x g:b", "b", g=B, updates="g<b") == "b"
    assert serving("x! b:x g:b f:b", "b", g=B, f=F, updates="g<b") == ""
    assert serving("x! a:x b:a g:b", "a b", g=B, updates="g<b") == "a b"


def beside(spec: str, candidate: str, updates: str = "", names: str = "", **of: int) -> str:
    s = Small(spec, {n: "jit(f)/op" for n in names.split()})
    edges = [f"{s.module.instructions[u].name}<{s.module.instructions[v].name}"
             for u, v in zip(s.t.operands.rows, s.t.operands.values, strict=True)]  # fmt: skip
    known = np.array([e in updates.split() for e in edges], bool)
    return named(s, beside_model(s.t, phases(s, **of), mask(s, candidate), known))


def test_state_that_the_model_does_not_read_is_the_optimisers() -> None:
    ends = "r=tuple:f,d"
    assert beside(f"x! m! f:x d:m {ends}", "d", f=F) == "d"
    assert beside(f"x! m! f:x,m d:m {ends}", "d", f=F) == ""  # the model reads it too
    assert beside(f"x! m! f:x d:m,f {ends}", "d", f=F) == ""  # made of a value of the model
    assert beside("x! m! d:m f:x,d r=tuple:f,d", "d", f=F) == ""  # the model needs it
    assert beside("x! m! d:m e:d f:x,e r=tuple:f,d", "d e", f=F) == ""
    assert beside("x! m! f:x d:m e:d r=tuple:f,e", "d e", f=F) == "d e"
    assert beside("x! m! f:x d:m e:d r=tuple:f,e", "e", f=F) == "e"  # XLA's own d passes it on
    assert beside("x! m! f:x d:m e:d r=tuple:f,e", "e", f=F, names="d e") == ""
    assert beside(f"x! m! f:x d:m {ends}", "d", f=F, d=B) == ""


def test_what_shares_a_power_with_updates_is_the_optimisers() -> None:
    spec = "x! m! f:x,m w:m u:f,w d:m,w r=tuple:f,u,d"
    assert beside(spec, "w d", f=F, u=OPT) == "w d"
    assert beside(spec, "d", f=F, u=OPT, names="w") == "d"
    assert beside(spec, "w d", f=F, u=B) == ""
    assert beside(spec, "w d", f=F, u=B, updates="u<w") == "w d"
    far = "x! m! f:x,m w:m u:f,w d:w e:d g:e h:m r=tuple:f,u,g,h"
    assert beside(far, "w d e g h", f=F, u=OPT) == "w d e g"
    assert beside("x! m! f:x,m u:f d:u,m r=tuple:f,u,d", "d", f=F, u=OPT) == ""
