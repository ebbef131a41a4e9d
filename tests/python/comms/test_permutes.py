"""Which permutes are one collective matmul or one exchange of edges, rule by rule."""

from __future__ import annotations

import hloscope as hs
import pytest
from hloscope.analysis.base.collectives.find import find
from hloscope.analysis.base.collectives.halo import join_halos
from hloscope.analysis.base.collectives.windowed import join_windowed

F, T = "f32[8]", "(f32[8], f32[8])"
UP, DOWN = "{{0,1},{1,2},{2,3},{3,0}}", "{{0,3},{3,2},{2,1},{1,0}}"
OPEN = "{{0,1},{1,2},{2,3}}"
AT = "jit(f)/dot_general"
HEAD = f"""HloModule m, num_partitions=4

sum {{
  s0 = f32[] parameter(0)
  s1 = f32[] parameter(1)
  ROOT s2 = f32[] add(s0, s1)
}}

same {{
  ROOT v = {F} parameter(0)
}}

windowed_dot_general_body {{
  t = {T} parameter(0)
  t0 = {F} get-tuple-element(t), index=0
  t1 = {F} get-tuple-element(t), index=1
  inner = {F} collective-permute(t0), source_target_pairs={UP}
  ROOT o = {T} tuple(inner, t1)
}}

condition {{
  c = {T} parameter(0)
  ROOT go = pred[] constant(false)
}}

ENTRY main {{
  x = {F} parameter(0)
  y = {F} parameter(1)
"""


def of(name: str) -> str:
    return f', metadata={{op_name="{name}"}}' if name else ""


def permute(name: str, value: str, ring: str = UP, at: str = AT, own: bool = False) -> list[str]:
    """One that the partitioner inserted, or one of the user's own."""
    mark = "" if own else ', frontend_attributes={is_spmd_generated="true"}'
    return [f"{name} = {F} collective-permute({value}), source_target_pairs={ring}{of(at)}{mark}"]


def apart(name: str, value: str, ring: str, at: str = AT) -> list[str]:
    """The same as a start and a done."""
    mark = ', frontend_attributes={is_spmd_generated="true"}'
    pair = f"({F}, {F}, u32[], u32[])"
    return [
        f"{name}s = {pair} collective-permute-start({value}), source_target_pairs={ring}{of(at)}"
        f"{mark}",
        f"{name} = {F} collective-permute-done({name}s)",
    ]


def chain(count: int, value: str) -> list[str]:
    """``c1 … c<count>``, nobody's, from a value on."""
    return [f"c{k} = {F} negate({f'c{k - 1}' if k > 1 else value})" for k in range(1, count + 1)]


def joined(*parts: list[str], loop: bool = False) -> list[str]:
    """Those put together, as ``p1+p2``; ``loop+…`` for one around a windowed loop."""
    lines = [line for part in parts for line in part]
    text = HEAD + "".join(f"  {line}\n" for line in [*lines, f"ROOT r = {T} tuple(x, y)"]) + "}\n"
    module = hs.read(text).module
    assert module.warnings == ()
    found = join_windowed(module, join_halos(module, find(module)))
    return [
        "+".join(p.op.name for p in f.transfers) + (f" in {f.op.name}" if loop else "")
        for f in found
        if f.transfers
    ]


# -- rings -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second", "are_one"),
    [
        ({}, {}, True),
        ({"own": True}, {"own": True}, True),
        ({"at": "jit(f)/shard_map/dot_general"}, {"at": "jit(f)/shard_map/dot_general"}, True),
        (
            {"at": "jit(f)/shard_map/dot_general", "own": True},
            {"at": "jit(f)/shard_map/dot_general", "own": True},
            False,
        ),  # the user's own ring
        ({"at": "jit(f)/add"}, {"at": "jit(f)/add"}, False),  # nothing of a product
        ({"ring": OPEN}, {"ring": OPEN}, False),
        ({}, {"at": "jit(g)/dot_general"}, False),  # of two products
        ({}, {"ring": DOWN}, True),
    ],
)
def test_permutes_in_a_row_are_one_ring(first, second, are_one: bool) -> None:
    lines = [*permute("p", "x", **first), f"a = {F} negate(p)", *permute("q", "a", **second)]
    assert joined(lines) == (["p+q"] if are_one else [])


@pytest.mark.parametrize(("between", "are_one"), [(0, True), (12, True), (13, False)])
def test_permutes_of_one_ring_are_a_dozen_steps_apart(between: int, are_one: bool) -> None:
    last = f"c{between}" if between else "p"
    found = joined(permute("p", "x"), chain(between, "p"), permute("q", last))
    assert found == (["p+q"] if are_one else [])


@pytest.mark.parametrize(
    ("step", "are_one"),
    [
        (f"negate(p){of(AT)}", True),
        (f"negate(p){of('jit(f)/other')}", False),
        ("call(p), to_apply=same", False),
        ("all-reduce(p), replica_groups={{0,1,2,3}}, to_apply=sum", False),
    ],
)
def test_what_is_between_permutes_of_one_ring_is_of_the_same_product(
    step: str, are_one: bool
) -> None:
    found = joined(permute("p", "x"), [f"a = {F} {step}"], permute("q", "a"))
    assert found == (["p+q"] if are_one else [])


def test_a_permute_is_followed_once_in_each_direction() -> None:
    """Of two that it feeds in one direction the second begins another product's ring."""
    both = [*permute("q", "p"), *permute("u", "p", DOWN)]
    assert joined(permute("p", "x"), both) == ["p+q+u"]
    assert joined(permute("p", "x"), permute("q", "p"), permute("u", "p")) == ["p+q"]


def test_two_directions_end_in_one_sum() -> None:
    add = [f"a = {F} add(p, q)"]
    for make in (permute, apart):
        one = make("p", "x", UP)
        found = joined(one, make("q", "y", DOWN), add)
        assert found == (["p+q"] if make is permute else ["ps+qs"])
        assert joined(one, make("q", "y", UP), add) == []  # one direction
        assert joined(one, make("q", "y", DOWN), [f"a = {F} negate(p)"]) == []
        assert joined(one, make("q", "y", DOWN, "jit(g)/dot"), add) == []
    three = [f'a = {F} custom-call(p, u, q), custom_call_target="k"']
    rings = [*permute("p", "x"), *permute("u", "p"), *permute("q", "y", DOWN)]
    assert joined(rings, three) == ["p+u"]
    assert joined(permute("p", "x"), permute("u", "y"), permute("q", "y", DOWN), three) == []


# -- loops -----------------------------------------------------------------------------------


def looped(before: list[str], start: str = "x", at: str = AT) -> list[str]:
    while_ = f"l = {T} while(begin), condition=condition, body=windowed_dot_general_body{of(at)}"
    lines = [*before, f"begin = {T} tuple({start}, y)", while_]
    return [*lines, f"l0 = {F} get-tuple-element(l), index=0"]


def test_a_windowed_loop_has_the_permutes_before_and_after_it() -> None:
    one = looped(permute("p", "x"), "p")
    assert joined(one, permute("q", "l0"), loop=True) == ["inner+p+q in l"]
    assert joined(looped([]), loop=True) == ["inner in l"]
    # of another product
    other = permute("q", "l0", at="jit(g)/dot_general")
    assert joined(looped(permute("p", "x", at="jit(g)/dot"), "p"), other, loop=True) == [
        "inner in l"
    ]


@pytest.mark.parametrize(("steps", "are_one"), [(11, True), (12, False)])
def test_a_permute_that_feeds_a_loop_is_a_dozen_steps_before_it(steps: int, are_one: bool) -> None:
    """The loop's tuple is a step too."""
    before = [*permute("p", "x"), *chain(steps, "p")]
    found = joined(looped(before, f"c{steps}"), loop=True)
    assert found == ["inner+p in l" if are_one else "inner in l"]


@pytest.mark.parametrize(
    ("step", "are_one"),
    [
        (f"negate(p){of(AT)}", True),
        (f"negate(p){of('jit(f)/other')}", False),
        ("call(p), to_apply=same", False),
        ("all-reduce(p), replica_groups={{0,1,2,3}}, to_apply=sum", False),
    ],
)
def test_what_is_between_a_permute_and_its_loop_is_of_the_same_product(
    step: str, are_one: bool
) -> None:
    found = joined(looped([*permute("p", "x"), f"a = {F} {step}"], "a"), loop=True)
    assert found == ["inner+p in l" if are_one else "inner in l"]


# -- edges of tiles --------------------------------------------------------------------------

CONV = "jit(f)/conv_general_dilated"


def windowed(value: str, at: str = CONV) -> list[str]:
    return [f'w = {F} custom-call({value}, y), custom_call_target="__cudnn$convForward"{of(at)}']


@pytest.mark.parametrize(
    ("name", "own", "at", "are_one"),
    [
        (CONV, False, CONV, True),
        (CONV, True, CONV, True),
        ("", False, CONV, True),  # the partitioner's, of whatever it is needed for
        (CONV, False, "", True),
        ("", True, CONV, False),
        ("jit(f)/ppermute", True, "jit(f)/ppermute", False),  # asked for
        ("jit(f)/ppermute[axis_name=x]", True, "jit(f)/ppermute[axis_name=x]", False),
        ("jit(f)/pshuffle", True, "jit(f)/pshuffle", False),
        ("jit(f)/ppermute", False, "jit(f)/ppermute", True),
        (CONV, False, "jit(f)/other", False),
    ],
)
def test_an_exchange_of_edges_is_for_one_convolution(
    name: str, own: bool, at: str, are_one: bool
) -> None:
    found = joined(permute("p", "x", OPEN, name, own), windowed("p", at))
    assert found == (["p"] if are_one else [])
    assert joined(permute("p", "x", UP, name, own), windowed("p", at)) == []  # tiles swap places


@pytest.mark.parametrize("between", [1, 400, 2000])
def test_a_convolution_is_found_however_far_its_permute_is(between: int) -> None:
    found = joined(permute("p", "x", OPEN, CONV), chain(between, "p"), windowed(f"c{between}"))
    assert found == ["p"]


@pytest.mark.parametrize(
    ("step", "are_one"),
    [
        (f"{F} negate(p){of(CONV)}", True),
        (f"{F} negate(p){of('jit(f)/other')}", False),
        (f"{T} tuple(p, p)", False),
        (f"{F} call(p), to_apply=same", False),
    ],
)
def test_edges_go_to_their_convolution_under_one_name(step: str, are_one: bool) -> None:
    found = joined(permute("p", "x", OPEN, CONV), [f"a = {step}"], windowed("a"))
    assert found == (["p"] if are_one else [])


def test_the_second_dimension_of_an_exchange_sends_corners_on() -> None:
    """Whatever its name: the convolution is that of both."""
    second = permute("q", "p", OPEN, "")
    assert joined(permute("p", "x", OPEN, CONV), second, windowed("q")) == ["p+q"]
    other = permute("q", "p", OPEN, "jit(g)/conv")
    assert joined(permute("p", "x", OPEN, CONV), other, windowed("q")) == ["p"]


def test_two_convolutions_have_an_exchange_each() -> None:
    one = [*permute("p", "x", OPEN, CONV), *windowed("p")]
    other = [
        line.replace("p = ", "q = ").replace("(p", "(q").replace("w = ", "v = ") for line in one
    ]
    assert joined(one, other) == ["p", "q"]
