"""Loops that count, in every spelling of start, step and test; and loops that nobody can count."""

# ruff: noqa: E501

from __future__ import annotations

import itertools
import operator

import hloscope as hs
import pytest
from hloscope.analysis.base.loops.trips import count_steps, trip_count

HOLDS = {
    "LT": operator.lt, "LE": operator.le, "GT": operator.gt,
    "GE": operator.ge, "EQ": operator.eq, "NE": operator.ne,
}  # fmt: skip


@pytest.mark.parametrize("direction", HOLDS)
def test_steps_are_those_of_the_loop_run_by_hand(direction: str) -> None:
    """Every start, step and bound between −4 and 4; of bytes at the ends of their range too."""
    small = range(-4, 5)
    cases = [(*c, "s32") for c in itertools.product(small, repeat=3)]
    ends = (-128, -127, -126, 125, 126, 127)
    cases += [(*c, "s8") for c in itertools.product(ends, (-2, -1, 0, 1, 2, 100), ends)]
    unsigned = (0, 1, 2, 3, 253, 254, 255)
    cases += [(*c, "u8") for c in itertools.product(unsigned, (0, 1, 2, 255, 254), unsigned)]
    for start, step, bound, kind in cases:
        # a step of 255 in an unsigned byte is one of −1, as XLA prints it
        moves = step - 256 if kind == "u8" and step > 127 else step
        low, high = {"s8": (-128, 127), "u8": (0, 255)}.get(kind, (-(2**31), 2**31 - 1))
        if direction == "EQ":  # one step on it is another number, wrapped or not
            low, high = -(2**63), 2**63
        at, n = start, 0
        while n is not None and HOLDS[direction](at, bound):
            at, n = at + moves, n + 1
            if n > 300 or not low <= at <= high:
                n = None
        assert count_steps(start, step, bound, direction, kind) == n, (start, step, bound, kind)


LOOP = """HloModule m

%body (c: (s32[], s32[], f32[8])) -> (s32[], s32[], f32[8]) {{
  %c = (s32[], s32[], f32[8]) parameter(0)
  %i = s32[] get-tuple-element(%c), index=0
  %n = s32[] get-tuple-element(%c), index=1
  %x = f32[8] get-tuple-element(%c), index=2
  %one = s32[] constant(1)
  %two = s32[] constant(2)
  {step}
  {carried}
  ROOT %out = (s32[], s32[], f32[8]) tuple(%next, %same, %x)
}}

%plus (p: s32[], q: s32[]) -> s32[] {{
  %p = s32[] parameter(0)
  %q = s32[] parameter(1)
  ROOT %sum = s32[] add(%p, %q)
}}

%below (r: s32[], s: s32[]) -> pred[] {{
  %r = s32[] parameter(0)
  %s = s32[] parameter(1)
  ROOT %cmp = pred[] compare(%r, %s), direction=LT
}}

%condition (d: (s32[], s32[], f32[8])) -> pred[] {{
  %d = (s32[], s32[], f32[8]) parameter(0)
  %j = s32[] get-tuple-element(%d), index=0
  %m = s32[] get-tuple-element(%d), index=1
  %ten = s32[] constant(10)
  {test}
}}

ENTRY %main (x0: f32[8], n0: s32[]) -> f32[8] {{
  %x0 = f32[8] parameter(0)
  %n0 = s32[] parameter(1)
  {start}
  {bound}
  %begin = (s32[], s32[], f32[8]) tuple(%start, %bound, %x0)
  %w = (s32[], s32[], f32[8]) while(%begin), condition=%condition, body=%body{config}
  ROOT %y = f32[8] get-tuple-element(%w), index=2
}}
"""
PLAIN = {
    "step": "%next = s32[] add(%i, %one)",
    "carried": "%same = s32[] copy(%n)",
    "test": "ROOT %t = pred[] compare(%j, %ten), direction=LT",
    "start": "%start = s32[] constant(0)",
    "bound": "%bound = s32[] constant(7)",
    "config": "",
}
FUSED = "s32[] fusion(%i, %one), kind=kLoop, calls=%plus"
AND = "pred[] and(%a, %b)"
TRUE, FALSE = "pred[] constant(true)", "pred[] constant(false)"
LESS = "pred[] compare(%j, %ten), direction=LT"


def trips(**parts: str) -> int | None:
    module = hs.read(LOOP.format(**PLAIN | parts)).module
    assert not module.warnings, module.warnings
    return trip_count(module.find("w"))


@pytest.mark.parametrize(
    ("parts", "count"),
    [
        ({}, 10),
        # the step
        ({"step": "%next = s32[] add(%one, %i)"}, 10),
        ({"step": "%next = s32[] add(%two, %i)"}, 5),
        ({"step": "%minus = s32[] constant(-1)\n  %next = s32[] subtract(%i, %minus)"}, 10),
        ({"step": f"%next = {FUSED}"}, 10),
        ({"step": "%next = s32[] call(%i, %two), to_apply=%plus"}, 5),
        ({"step": "%k = s32[] add(%i, %one)\n  %next = s32[] add(%k, %two)"}, 4),
        ({"step": "%k = s32[] copy(%i)\n  %next = s32[] add(%k, %two)"}, 5),
        ({"step": "%next = s32[] multiply(%i, %two)"}, None),
        ({"step": "%next = s32[] subtract(%one, %i)"}, None),  # −i + 1
        ({"step": "%next = s32[] add(%i, %i)"}, None),
        ({"step": "%next = s32[] add(%n, %one)"}, None),  # another element
        ({"step": "%next = s32[] subtract(%i, %one)"}, None),  # away from the bound
        # the test
        ({"test": "ROOT %t = pred[] compare(%ten, %j), direction=GT"}, 10),
        ({"test": "ROOT %t = pred[] compare(%ten, %j), direction=GE"}, 11),
        ({"test": "ROOT %t = pred[] compare(%j, %ten), direction=LE"}, 11),
        ({"test": "ROOT %t = pred[] compare(%j, %ten), direction=NE"}, 10),
        ({"test": "ROOT %t = pred[] compare(%ten, %j), direction=NE"}, 10),
        ({"test": "ROOT %t = pred[] compare(%j, %ten), direction=EQ"}, 0),
        ({"test": "ROOT %t = pred[] compare(%j, %ten), direction=GT"}, 0),
        ({"test": "%g = pred[] compare(%j, %ten), direction=GE\n  ROOT %t = pred[] not(%g)"}, 10),
        ({"test": "%g = pred[] compare(%j, %ten), direction=GT\n  ROOT %t = pred[] not(%g)"}, 11),
        ({"test": "%g = pred[] compare(%j, %ten), direction=EQ\n  ROOT %t = pred[] not(%g)"}, 10),
        ({"test": "ROOT %t = pred[] fusion(%j, %ten), kind=kLoop, calls=%below"}, 10),
        ({"test": "ROOT %t = pred[] fusion(%ten, %j), kind=kLoop, calls=%below"}, 0),
        ({"test": f"%a = {LESS}\n  %b = {TRUE}\n  ROOT %t = {AND}"}, 10),
        ({"test": f"%a = {TRUE}\n  %b = {LESS}\n  ROOT %t = {AND}"}, 10),
        ({"test": f"%a = {LESS}\n  %b = {FALSE}\n  ROOT %t = {AND}"}, None),
        ({"test": f"%a = {LESS}\n  %b = {LESS}\n  ROOT %t = {AND}"}, None),
        ({"test": "ROOT %t = pred[] compare(%j, %m), direction=LT"}, 7),  # the bound is carried
        ({"test": "ROOT %t = pred[] compare(%m, %j), direction=GT"}, 7),
        ({"test": "%k = s32[] add(%j, %ten)\n  ROOT %t = pred[] compare(%k, %m), direction=LT"}, 0),
        ({"test": "%k = s32[] subtract(%j, %ten)\n  ROOT %t = pred[] compare(%k, %m), "
          "direction=LT"}, 17),
        ({"test": "%k = s32[] add(%m, %ten)\n  ROOT %t = pred[] compare(%j, %k), direction=LT"},
         17),
        ({"test": "%k = s64[] convert(%j)\n  %l = s64[] constant(12)\n  ROOT %t = pred[] "
          "compare(%k, %l), direction=LT"}, 12),
        ({"test": "%k = f32[] convert(%j)\n  %l = f32[] constant(12)\n  ROOT %t = pred[] "
          "compare(%k, %l), direction=LT"}, None),
        # start and bound
        ({"start": "%start = s32[] constant(4)"}, 6),
        ({"start": "%c4 = s32[] constant(4)\n  %start = s32[] add(%c4, %c4)"}, 2),
        ({"start": "%c4 = s32[] constant(4)\n  %c1 = s32[] constant(1)\n  "
          "%start = s32[] subtract(%c4, %c1)"}, 7),
        ({"start": "%start = s32[] copy(%n0)"}, None),
        ({"bound": "%bound = s32[] copy(%n0)",
          "test": "ROOT %t = pred[] compare(%j, %m), direction=LT"}, None),
        ({"carried": "%same = s32[] add(%n, %one)",
          "test": "ROOT %t = pred[] compare(%j, %m), direction=LT"}, None),  # both move
        # what the compiler wrote counts before what the loop says
        ({"config": ', backend_config={"known_trip_count":{"n":"3"}}'}, 3),
        ({"config": ', backend_config={"known_trip_count":{"n":"0"}}'}, 0),
        ({"config": ', backend_config={"known_trip_count":{"n":"x"}}'}, 10),
    ],
)  # fmt: skip
def test_a_loop_is_counted_in_every_spelling(parts: dict[str, str], count: int | None) -> None:
    assert trips(**parts) == count


HANDED_ON = {
    "copy": "%start = s32[] copy(%zero)",
    "asynchronous copy": "%a = (s32[], s32[], u32[]) copy-start(%zero)\n  %start = s32[] copy-done(%a)",
    "bits": "%a = u32[] bitcast-convert(%zero)\n  %start = s32[] bitcast-convert(%a)",
    "transpose": "%start = s32[] transpose(%zero), dimensions={}",
    "broadcast": "%start = s32[] broadcast(%zero), dimensions={}",
    "barrier": "%start = s32[] opt-barrier(%zero)",
    "slice": "%a = s32[1] reshape(%zero)\n  %b = s32[1] slice(%a), slice={[0:1]}\n  %start = s32[] reshape(%b)",
    "part of many": "%a = s32[5] broadcast(%zero), dimensions={}\n  %b = s32[1] slice(%a), slice={[0:1]}\n"
                    "  %start = s32[] reshape(%b)",
    "sum": "%start = s32[] add(%zero, %zero)",
    "product": "%c1 = s32[] constant(1)\n  %start = s32[] multiply(%zero, %c1)",
    "vector": "%a = s32[1] constant({0})\n  %start = s32[] reshape(%a)",
}  # fmt: skip


@pytest.mark.parametrize("how", HANDED_ON)
def test_a_number_is_the_same_however_it_is_handed_on(how: str) -> None:
    assert trips(start="%zero = s32[] constant(0)\n  " + HANDED_ON[how]) == 10


def test_bits_of_another_number_are_not_that_number() -> None:
    begin = "%zero = s32[] constant(0)\n  "
    assert (
        trips(start=begin + "%a = f32[] bitcast-convert(%zero)\n  %start = s32[] convert(%a)")
        is None
    )
    both = "%c3 = s32[] constant(3)\n  %c1 = s32[] constant(1)\n  %start = s32[] and(%c3, %c1)"
    assert trips(start=both) is None  # 1, and not 3


def test_chains_of_thousands_are_followed_or_given_up() -> None:
    def step(line: str, length: int) -> dict[str, str]:
        lines = ["%k0 = s32[] copy(%i)", "%none = s32[] constant(0)"]
        lines += [line.format(k=k, j=k - 1) for k in range(1, length)]
        return {"step": "\n  ".join([*lines, f"%next = s32[] add(%k{length - 1}, %one)"])}

    tuples = (
        "%t{k} = (s32[], s32[]) tuple(%n, %k{j})\n  %k{k} = s32[] get-tuple-element(%t{k}), index=1"
    )
    assert trips(**step("%k{k} = s32[] copy(%k{j})", 4000)) == 10
    assert trips(**step(tuples, 4000)) == 10
    for line in (
        "%k{k} = s32[] add(%k{j}, %none)",
        "%k{k} = s32[] fusion(%k{j}, %none), kind=kLoop, calls=%plus",
    ):
        assert trips(**step(line, 100)) == 10
        assert trips(**step(line, 4000)) is None


@pytest.mark.parametrize(
    ("parts", "count"),
    [
        # what a fusion, a tuple or a loop lacks is not made up
        ({"step": "%next = s32[] fusion(%i), kind=kLoop, calls=%plus"}, None),
        ({"step": "%next = s32[] fusion(%i, %one, %two), kind=kLoop, calls=%plus"}, 10),
        (
            {"step": "%k = s32[] add(%i, %two)\n  %pair = (s32[], s32[]) tuple(%k, %one)\n"
                     "  %next = s32[] get-tuple-element(%pair), index=0"},
            5,
        ),
        (
            {"step": "%k = s32[] add(%i, %two)\n  %pair = (s32[], s32[]) tuple(%one, %k)\n"
                     "  %next = s32[] get-tuple-element(%pair), index=2"},
            None,
        ),
        # the longest number of 64 bits has twenty characters
        ({"test": "%far = s64[] constant(-9223372036854775808)\n"
                  "  ROOT %t = pred[] compare(%j, %far), direction=LT"}, 0),
        ({"test": "%far = s64[] constant(-92233720368547758080)\n"
                  "  ROOT %t = pred[] compare(%j, %far), direction=LT"}, None),
        # counts that XLA wrote; one that is no such number is counted again
        ({"config": ', backend_config={"known_trip_count":{"n":"123456789012345678"}}'},
         123456789012345678),
        ({"config": ', backend_config={"known_trip_count":{"n":"1234567890123456789"}}'}, 10),
        ({"config": ', backend_config={"known_trip_count":{"n":"-3"}}'}, 10),
        ({"config": ', backend_config={"known_trip_count":{"n":4}}'}, 4),
        ({"config": ', backend_config={"known_trip_count":6}'}, 6),
    ],
)  # fmt: skip
def test_limits_of_what_is_counted(parts: dict[str, str], count: int | None) -> None:
    assert trips(**parts) == count
