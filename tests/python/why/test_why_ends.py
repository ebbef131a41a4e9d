"""Where what is sent between slices comes from, what it may be padded to, and combined collectives."""

# ruff: noqa: E501
from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import hloscope as hs
import pytest
from hloscope.analysis.why.joining_slices import (
    Exchanges,
    _collectives_behind,
    _padding,
    _size,
    ends_of,
)
from test_why_joining import EVERYWHERE, MODEL, joining, row
from why_written import text

FLOW = """
%moves (p: f32[8], z: f32[]) -> f32[16] {
  %p = f32[8] parameter(0)
  %z = f32[] parameter(1)
  ROOT %pad = f32[16] pad(%p, %z), padding=0_8
}
%works (q: f32[8]) -> f32[8] {
  %q = f32[8] parameter(0)
  ROOT %s = f32[8] sine(%q)
}
%scatters (w: f32[8]) -> f32[8] {
  %w = f32[8] parameter(0)
  %in = f32[8] tanh(%w)
  ROOT %out = f32[8] copy(%in)
}
%body (t: (f32[8], f32[8], s32[])) -> (f32[8], f32[8], s32[]) {
  %t = (f32[8], f32[8], s32[]) parameter(0)
  %t0 = f32[8] get-tuple-element(%t), index=0
  %t1 = f32[8] get-tuple-element(%t), index=1
  %t2 = s32[] get-tuple-element(%t), index=2
  %next = f32[8] cosine(%t1)
  ROOT %r = (f32[8], f32[8], s32[]) tuple(%next, %t1, %t2)
}
%cond (u: (f32[8], f32[8], s32[])) -> pred[] {
  %u = (f32[8], f32[8], s32[]) parameter(0)
  ROOT %yes = pred[] constant(true)
}
ENTRY %main {
  %x = f32[8] parameter(0)
  %y = f32[8] parameter(1)
  %k = s32[] parameter(2)
  %zero = f32[] constant(0)
  %made = f32[8] exponential(%x)  # 3 exp
  %cast = bf16[8] convert(%made)
  %padded = f32[16] fusion(%made, %zero), kind=kLoop, calls=%moves
  %worked = f32[8] fusion(%x), kind=kLoop, calls=%works
  %joined = f32[24] concatenate(%made, %padded), dimensions={0}
  %mixed = f32[16] concatenate(%made, %worked), dimensions={0}
  %sum1 = f32[8] all-reduce(%x), channel_id=1, EVERYWHERE, to_apply=%sum  # 4 psum
  %two = (f32[8], f32[4]) all-reduce(%x, %y), channel_id=2, EVERYWHERE, to_apply=%sum  # 5 psum
  %first = f32[8] get-tuple-element(%two), index=0
  %second = f32[4] get-tuple-element(%two), index=1
  %of = f32[8] reshape(%sum1)
  %both = f32[12] concatenate(%of, %second), dimensions={0}
  %twice = f32[16] concatenate(%of, %sum1), dimensions={0}
  %again = f32[8] fusion(%y), kind=kLoop, calls=%scatters
  %init = (f32[8], f32[8], s32[]) tuple(%sum1, %made, %k)
  %loop = (f32[8], f32[8], s32[]) while(%init), condition=%cond, body=%body
  %l0 = f32[8] get-tuple-element(%loop), index=0
  %l1 = f32[8] get-tuple-element(%loop), index=1
  %half = f32[4] reduce(%joined, %zero), dimensions={0}, to_apply=%sum
  %named = f32[4] reduce(%joined, %zero), dimensions={0}, to_apply=%sum  # 6 reduce_sum
  %pair = (f32[4], f32[2]) custom-call(%x), custom_call_target="f"
  %p0 = f32[4] get-tuple-element(%pair), index=0
  %p1 = f32[2] get-tuple-element(%pair), index=1
  %sent = f32[8] copy(%x)
  %done = f32[8] logistic(%first)
  ROOT %end = f32[8] copy(%done)
}
"""
PARTS = {"sum1": 1, "two": 2, "again": 1}  # rows, and their parts


def ends(of: str) -> tuple[list[tuple[int, int]], list[tuple[str, int]]]:
    module: Any = hs.read(text(FLOW)).module
    found = {
        module.find(name).index: SimpleNamespace(index=k, parts=[None] * n)
        for k, (name, n) in enumerate(PARTS.items())
    }
    made = ends_of(module.find(of), SimpleNamespace(by_instruction=found))  # type: ignore[arg-type]
    return made.rows, [(i.name, n) for i, n in made.makers]


@pytest.mark.parametrize(
    ("of", "rows", "makers"),
    [
        ("made", [], [("made", 8)]),
        ("cast", [], [("made", 8)]),
        ("padded", [], [("made", 8)]),  # a fusion that only pads
        ("worked", [], [("worked", 8)]),
        ("joined", [], [("made", 8)]),  # once, though there are two ways to it
        ("mixed", [], [("made", 8), ("worked", 8)]),
        ("sent", [], []),  # an argument
        ("of", [(0, 0)], []),
        ("first", [(1, 0)], []),
        ("second", [(1, 1)], []),
        ("both", [(0, 0), (1, 1)], []),
        ("twice", [(0, 0)], []),
        ("again", [], [("in", 8)]),  # besides the transfer, the fusion computes
        # a loop: where it began, and what each trip makes
        ("l0", [(0, 0)], [("next", 8)]),
        ("l1", [], [("made", 8)]),
        # the second half of a sum counts what it makes of all that came
        ("half", [], [("made", 4)]),
        ("named", [], [("named", 4)]),
        ("p0", [], [("pair", 4)]),
        ("p1", [], [("pair", 2)]),
        ("end", [], [("done", 8)]),
    ],
)
def test_where_a_value_comes_from(of: str, rows: list[Any], makers: list[Any]) -> None:
    found, made = ends(of)
    assert (found, sorted(made)) == (rows, sorted(makers))


@pytest.mark.parametrize(
    ("of", "behind"),
    [
        ("twice", ["sum1"]),
        ("both", ["sum1", "two"]),
        ("done", []),
        ("joined", []),
        ("two", ["two"]),
    ],
)
def test_which_collectives_are_behind_a_value(of: str, behind: list[str]) -> None:
    module: Any = hs.read(text(FLOW)).module
    assert sorted(i.name for i in _collectives_behind(module.find(of))) == behind


@pytest.mark.parametrize(
    ("shape", "factor"),
    [
        ("f32[8,128]", 128 * 128 / (8 * 128)),  # 8 along the lanes
        ("f32[128,128]", 1),
        ("f32[128]", 128),  # as a column: a row of lanes each
        ("f32[100]", 104 * 128 / 100),
        ("f32[]", 8 * 128),
        ("(f32[128,128], f32[256])", 1),
        ("f32[9,128]", 128 * 128 / (9 * 128)),
        ("f32[16,64]", 64 * 128 / (16 * 64)),
    ],
)
def test_how_much_padding_can_enlarge(shape: str, factor: float) -> None:
    assert _padding(op(shape)) == factor


def op(shape: str) -> Any:
    module: Any = hs.read(
        text(f"  %p = {shape} parameter(0)\n  ROOT %r = {shape} copy(%p)\n")
    ).module
    return module.find("r")


def test_sizes_are_those_of_all_arrays() -> None:
    assert [_size(op(s)) for s in ("f32[3,5]", "(f32[4], f32[6,2])", "f32[]")] == [15, 16, 1]


@pytest.mark.parametrize(
    ("elements", "of", "fits"),
    [
        # all-reduces of 1,024 elements over two slices of four: a share of a slice's device is 256
        (1024, [["all"]], True),
        (256, [["all"]], True),
        (255, [["all"]], False),
        (8 * 1024, [["all"]], True),  # padded: 16 along the lanes
        (8 * 1024 + 1, [["all"]], False),
        (512, [["all"], ["all2"]], True),
        (511, [["all"], ["all2"]], False),
        (512, [["in"]], True),  # over four devices: two of the row's two
        (511, [["in"]], False),
        (511, [["in", "all"]], True),
    ],
)
def test_what_an_array_can_be_made_of(elements: int, of: list[list[str]], fits: bool) -> None:
    partitioned = joining().partitioned
    after: Any = partitioned.after
    exchanges = Exchanges(None, partitioned, *[None] * 5)  # type: ignore[arg-type]
    asked: Any = SimpleNamespace(group_size=2)
    assert exchanges.fits(asked, elements, [[after.find(n) for n in one] for one in of]) is fits


@pytest.mark.parametrize(
    ("size", "of", "least"),
    [(8, "all", 1024), (4, "all", 512), (2, "all", 256), (1, "all", 128), (0, "all", 128), (8, "in", 1024)],
)  # fmt: skip
def test_the_least_that_is_left_of_an_array(size: int, of: str, least: int) -> None:
    partitioned = joining().partitioned
    after: Any = partitioned.after
    exchanges = Exchanges(None, partitioned, *[None] * 5)  # type: ignore[arg-type]
    asked: Any = SimpleNamespace(group_size=size)
    whole = [[after.find(of)]]
    fits = [exchanges.fits(asked, n, whole) for n in (least, least - 1)]
    assert fits == [True, False]


COMBINED = """
  %x.2 = f32[16,64] parameter(0)  # =x
  %y.2 = f32[16,64] parameter(1)  # =y
  %n.2 = f32[16,64] negate(%x.2)  # 3 neg
  %m.2 = f32[16,64] negate(%y.2)  # 4 neg
  %far = f32[16,64] sine(%y.2)
  ROOT %r = (f32[16,64], f32[16,64]) tuple(%FIRST, %SECOND)
"""


def combined(first: str, second: str) -> Any:
    body = COMBINED.replace("%FIRST", f"%{first}").replace("%SECOND", f"%{second}")
    module: Any = hs.read(text(body)).module
    asked = row("all-reduce", EVERYWHERE, name="jit(f)/other", line=9)
    asked.instruction = module.find("r")
    asked.parts = asked.parts * 2
    return asked


@pytest.mark.parametrize(
    ("first", "second", "found"),
    [
        ("n.2", "m.2", ["all", "all2"]),
        ("m.2", "n.2", ["all2", "all"]),
        ("n.2", "n.2", ["all", "all2"]),  # each comes once
    ],
)
def test_combined_sums_are_told_by_what_they_sum(first: str, second: str, found: list[str]) -> None:
    asked = combined(first, second)
    parts = joining()._by_size(asked)
    assert [[i.name for i in one] for one in parts] == [[n] for n in found]


def test_what_a_row_of_its_own_took_is_not_in_a_combined_one() -> None:
    of = joining()
    alone = row("all-reduce", EVERYWHERE, name="jit(f)/dot", line=5, channel=1)
    alone.is_of_permutes = False
    of.rows = [alone]  # type: ignore[assignment]
    assert len(of._claimed) == 1
    parts = of._by_size(combined("n.2", "m.2"))
    assert [[i.name for i in one] for one in parts] == [["all2"], []]
    either = row("all-reduce", EVERYWHERE, name="jit(f)/other", line=9)
    either.is_of_permutes = False
    of = joining()
    of.rows = [either]  # type: ignore[assignment]
    assert not of._claimed  # it may be one of two


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"network": "dcn"}, True),
        ({"network": ""}, False),
        (
            {"network": "ici", "name": "jit(f)/dot"},
            False,
        ),  # one part, named, and one like it is there
        ({"network": "ici"}, True),  # nameless
        ({"network": "ici", "kind": "all-gather"}, False),
        ({"network": "ici", "name": "jit(f)/dot", "parts": 2}, True),
        ({"network": "ici", "name": "jit(f)/dot", "groups": "{{0,1},{2,3}}"}, True),
    ],
)
def test_when_data_flow_decides(change: dict[str, Any], told: bool) -> None:
    given = {"kind": "all-reduce", "groups": MODEL} | change
    count = given.pop("parts", 1)
    asked = row(given.pop("kind"), given.pop("groups"), **given)
    asked.parts = asked.parts * count
    assert joining()._is_told_by_flow(asked) is told
