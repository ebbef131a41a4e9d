"""Findings about what is gathered twice and about constants that are sent, worked out by hand."""

from __future__ import annotations

from pathlib import Path

import hloscope as hs
import pytest
from round_chip import GATHERED, SUMMED, chip_file, mib, program, said
from test_findings_sent import BACKWARD, FORWARD, figures, of, only


@pytest.fixture(autouse=True)
def _chip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOSCOPE_HARDWARE", chip_file(tmp_path))


# -- twice -------------------------------------------------------------------------------------

HALF, WHOLE = "f32[4,128,1024]", "f32[8,128,1024]"  # 2 and 4 MiB: a gather takes 0.5 + 2 s


def gathered(name: str, given: str, shape: str = WHOLE, op: str = FORWARD, how: str = "") -> str:
    return f"%{name} = {shape} all-gather(%{given}), {how or GATHERED}, {said(op)}"


def twice(first: str, second: str, more: str = "") -> hs.Capture:
    shapes = [line.split()[2] for line in (first, second)]
    return program(f"""
%x = {HALF} parameter(0)
%y = {HALF} parameter(1)
%at = s32[] constant(0)
{more}
{first}
{second}
ROOT %out = ({", ".join(shapes)}) tuple(%g, %h)""")


ONCE = gathered("g", "x")
CUT = "f32[2,128,1024]"


def test_what_is_gathered_again_costs_the_second_time() -> None:
    cap = twice(ONCE, gathered("h", "x", op=BACKWARD))
    assert figures(cap, "gathered-twice") == [(0.5, 2.5, 2 << 20, "g h")]
    found = only(cap, "gathered-twice")
    assert found.title == "`%x` is gathered 2 times over one group of 2"
    assert found.evidence == (
        f"the same shards are gathered as {WHOLE}, forward and backward: %g, %h"
    )
    narrow = HALF.replace("f32", "f16")
    cap = twice(
        ONCE,
        gathered("h", "n", WHOLE.replace("f32", "f16")),
        f"%n = {narrow} convert(%x), {said(FORWARD)}",
    )
    found = only(cap, "gathered-twice")
    assert f"gathered as {WHOLE} and f16[8,128,1024], forward:" in found.evidence
    assert (found.seconds, found.bytes) == (1.5, 1 << 20)


CUTS = [f"%{n} = {CUT} slice(%x), slice={{[{a}:{a + 2}], [0:128], [0:1024]}}" for n, a in
        (("a", 0), ("b", 2), ("c", 0))]  # fmt: skip
SHORT = "f32[4,128,1024]"
INSIDE = """
%cut (u: f32[4,128,1024]) -> f32[2,128,1024] {
%u = f32[4,128,1024] parameter(0)
ROOT %v = f32[2,128,1024] slice(%u), slice={[0:2], [0:128], [0:1024]}
}
"""


@pytest.mark.parametrize(
    ("first", "second", "more", "is_twice"),
    [
        (ONCE, gathered("h", "y"), "", False),  # another argument
        (ONCE, gathered("h", "x", op="checkpoint/rematted_computation/dot_general"), "", False),
        (ONCE, gathered("h", "x", how="channel_id=3, replica_groups={{1,0}}, dimensions={0}"), "",
         False),
        # the sum of both has a name of its own, and is a value like another
        (gathered("g", "z"), gathered("h", "z"), f"%z = {HALF} add(%x, %y), {said(FORWARD)}", True),
        (gathered("g", "z"), gathered("h", "z"),
         f"%z = {HALF} iota(), iota_dimension=0", False),  # a finding of its own
        # parts of one argument: two of them, or the same twice
        (gathered("g", "a", SHORT), gathered("h", "b", SHORT), "\n".join(CUTS), False),
        (gathered("g", "a", SHORT), gathered("h", "c", SHORT), "\n".join(CUTS), True),
        (gathered("g", "a", SHORT), gathered("h", "x"), "\n".join(CUTS), False),
    ],
)  # fmt: skip
def test_what_counts_as_the_same_gathered_again(
    first: str, second: str, more: str, is_twice: bool
) -> None:
    assert bool(of(twice(first, second, more), "gathered-twice")) is is_twice


# -- what every device knows -------------------------------------------------------------------

MADE = """
%made () -> f32[4,128,1024] {
%k = f32[] constant(2)
ROOT %b = f32[4,128,1024] broadcast(%k), dimensions={}
}
%through (u: f32[4,128,1024]) -> f32[4,128,1024] {
%u = f32[4,128,1024] parameter(0)
ROOT %v = f32[4,128,1024] negate(%u)
}
%maximum (p: f32[], q: f32[]) -> f32[] {
%p = f32[] parameter(0)
%q = f32[] parameter(1)
ROOT %m = f32[] maximum(%p, %q)
}
"""
FULL = f"%k.1 = f32[] constant(1)\n%full = {HALF} broadcast(%k.1), dimensions={{}}\n"


@pytest.mark.parametrize(
    ("value", "is_constant"),
    [
        (f"{FULL}%z = {HALF} negate(%full)", True),
        (f"%z = {HALF} iota(), iota_dimension=0", True),
        (f"%z = {HALF} fusion(), kind=kLoop, calls=%made", True),
        (f"{FULL}%z = {HALF} fusion(%full), kind=kLoop, calls=%through", True),
        (f"%z = {HALF} fusion(%x), kind=kLoop, calls=%through", False),
        (f"{FULL}%z = {HALF} call(%full), to_apply=%through", True),
        (f"{FULL}%z = {HALF} add(%full, %x)", False),
        (f"{FULL}%z = {HALF} add(%x, %full)", False),
        (f"{FULL}%z = {HALF} add(%full, %full)", True),
        (f'%z = {HALF} custom-call(), custom_call_target="f"', False),
        (f"%i = u32[] partition-id()\n%f = f32[] convert(%i)\n%z = {HALF} broadcast(%f),"
         " dimensions={}", False),
        (f"%i = u32[] replica-id()\n%f = f32[] convert(%i)\n%z = {HALF} broadcast(%f),"
         " dimensions={}", False),
        (f"%a = f32[] constant(0)\n%c = f32[] constant(1)\n%z = {HALF} rng(%a, %c),"
         " distribution=rng_uniform", False),
        (f"{FULL}%z = {HALF} all-reduce(%full), {SUMMED}", False),  # itself a collective
    ],
)  # fmt: skip
def test_what_every_device_could_have_made(value: str, is_constant: bool) -> None:
    cap = program(
        f"%x = {HALF} parameter(0)\n{value}\n{gathered('g', 'z')}\n"
        f"ROOT %out = ({HALF}, {WHOLE}) tuple(%x, %g)",
        before=MADE,
    )
    named = [f.instructions[0].name for f in of(cap, "collective-of-constant")]
    assert ("g" in named) is is_constant


def test_a_constant_that_is_sent_is_said_from_a_hundredth_of_the_wire_on() -> None:
    def sent(beside: int) -> hs.Capture:
        return program(f"""
%z = {mib(1)} iota(), iota_dimension=0
%x = {mib(beside)} parameter(0)
%g = {mib(1)} all-reduce(%z), {SUMMED}, {said(FORWARD)}
%h = {mib(beside)} all-reduce(%x), {SUMMED}, {said(FORWARD)}
ROOT %out = ({mib(1)}, {mib(beside)}) tuple(%g, %h)""")

    assert of(sent(100), "collective-of-constant") == ()
    found = only(sent(99), "collective-of-constant")
    assert found.title == (
        "all-reduce of a constant over one group of 2: every device already knows the result"
    )
    assert found.evidence == ("%g moves 1 MiB, and its operand %z is the same constant everywhere")
    # 1 s to write the constant, 2 s and 100 s for the sums: worth 2 % whatever it takes
    assert (found.share, found.seconds, found.bytes) == (0.02, 2.0, 1 << 20)
    assert only(sent(9), "collective-of-constant").share == 2 / 13


def test_chains_of_thousands_of_collectives_are_followed() -> None:
    def chain(first: str) -> hs.Capture:
        lines = [first]
        lines += [f"%c{k + 1} = f32[64]{{0}} negate(%c{k})" for k in range(4000)]
        lines.append(f"ROOT %g = f32[64]{{0}} all-reduce(%c4000), {SUMMED}")
        return program("\n".join(lines))

    assert of(chain("%c0 = f32[64]{0} iota(), iota_dimension=0"), "collective-of-constant")
    assert not of(chain("%c0 = f32[64]{0} parameter(0)"), "collective-of-constant")
