"""Findings about what is sent, on a chip whose figures can be worked out by hand."""

from __future__ import annotations

from pathlib import Path

import hloscope as hs
import pytest
from round_chip import GATHERED, SUMMED, chip_file, mib, program, said, work


@pytest.fixture(autouse=True)
def _chip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOSCOPE_HARDWARE", chip_file(tmp_path))


def of(cap: hs.Capture, rule: str) -> tuple[hs.Finding, ...]:
    assert cap.findings.failed == ()
    return cap.findings.of(rule)


def figures(cap: hs.Capture, rule: str) -> list[tuple[object, ...]]:
    """Share, seconds, bytes and the instructions of each."""
    found = of(cap, rule)
    return [(f.share, f.seconds, f.bytes, " ".join(i.name for i in f.instructions)) for f in found]


def only(cap: hs.Capture, rule: str) -> hs.Finding:
    (found,) = of(cap, rule)
    return found


# -- what is waited for ------------------------------------------------------------------------

FORWARD, BACKWARD, ADAM = "jvp(n)/dot_general", "transpose(jvp(n))/dot_general", "adam/mul"


@pytest.mark.parametrize(
    ("op", "sent", "beside", "is_said"),
    [
        (FORWARD, 1, 38, True),  # 2 of 40 s: a twentieth
        (FORWARD, 1, 39, False),
        (BACKWARD, 2, 17, True),  # 3 of 20 s: gradients are worth saying from 15 % on
        (BACKWARD, 2, 18, False),
    ],
)
def test_what_is_waited_for_is_said_from_a_share_on(
    op: str, sent: int, beside: int, is_said: bool
) -> None:
    cap = program(f"""
{work(beside)}
%x = {mib(sent)} parameter(0)
%g = {mib(sent)} all-reduce(%x), {SUMMED}, {said(op)}
ROOT %out = ({mib(sent)}, f32[{beside},128,1024]{{2,1,0}}) tuple(%g, %w)""")
    seconds = 1.0 + sent
    row = (seconds / (seconds + beside), seconds, sent << 20, "g")
    assert figures(cap, "exposed-collective") == [row] * is_said


def latency(elements: int, beside: int) -> hs.Capture:
    """A sum of s8 that takes a second, and what it sends; beside it the work on so many of s8."""
    few, many = f"s8[{elements}]{{0}}", f"s8[{beside}]{{0}}"
    return program(f"""
%x = {few} parameter(0)
%y = {many} parameter(1)
%w = {many} negate(%y)
%g = {few} all-reduce(%x), {SUMMED}, {said("psum")}
ROOT %out = ({few}, {many}) tuple(%g, %w)""")


def test_what_waits_for_latency_alone_is_said_from_a_quarter_of_the_step_on() -> None:
    few = (1 << 16) - 1
    quarter = 3 * ((1 << 20) + few) // 2  # read and written: three times as long as the sum
    (found,) = of(latency(few, quarter - 1), "exposed-collective")
    assert "So little is sent that this is latency" in found.evidence
    assert found.advice == ""  # there is no other to join it with
    assert of(latency(few, quarter + 1), "exposed-collective") == ()
    # one byte more is sent for its bytes
    (found,) = of(latency(few + 1, quarter + 64), "exposed-collective")
    assert found.advice == ""


def test_steps_that_are_over_before_the_next_is_sent_have_no_latency_to_report() -> None:
    cap = latency(4, 4)
    assert len(of(cap, "exposed-collective")) == 1
    cap.hardware = "tpu-v5e"  # 2 µs
    assert cap.findings.of("exposed-collective") == ()


def looped(stack: str, summed: str, end: str = "") -> hs.Capture:
    """A sum in a loop of four; ``end``: what is put back into the loop's last element."""
    state = f"(s32[], {stack}, {summed})"
    loop = f"""
%body (p: {state}) -> {state} {{
%p = {state} parameter(0)
%i = s32[] get-tuple-element(%p), index=0
%all = {stack} get-tuple-element(%p), index=1
%old = {summed} get-tuple-element(%p), index=2
%one = s32[] constant(1)
%next = s32[] add(%i, %one)
%x = {summed} custom-call(%all), custom_call_target="f", {said(BACKWARD)}
%g = {summed} all-reduce(%x), {SUMMED}, {said(BACKWARD, 3)}
{end or f"%new = {summed} tanh(%g)"}
ROOT %t = {state} tuple(%next, %all, %new)
}}
%condition (p: {state}) -> pred[] {{
%p = {state} parameter(0)
%i = s32[] get-tuple-element(%p), index=0
%many = s32[] constant(4)
ROOT %less = pred[] compare(%i, %many), direction=LT
}}
"""
    return program(
        f"""
%a = {stack} parameter(0)
%b = {summed} broadcast(%zero.f), dimensions={{}}
%zero = s32[] constant(0)
%begin = {state} tuple(%zero, %a, %b)
ROOT %loop = {state} while(%begin), condition=%condition, body=%body""".replace(
            "%b =", "%zero.f = f32[] constant(0)\n%b ="
        ),
        before=loop,
    )


def test_what_a_loop_sends_counts_as_often_as_it_runs() -> None:
    found = only(looped("f32[4,512,1024]", "f32[512,1024]"), "exposed-collective")
    assert "it is %g, 2 MiB of `n/dot_general`, 4 times a step" in found.evidence
    # 4 · (1 s + 2 MiB)
    assert (found.seconds, found.bytes) == (12.0, 8 << 20)


FUSED = """
%added (u: f32[512,1024], v: f32[512,1024]) -> f32[512,1024] {
%u = f32[512,1024] parameter(0)
%v = f32[512,1024] parameter(1)
ROOT %a.1 = f32[512,1024] add(%u, %v)
}
"""


@pytest.mark.parametrize(
    ("end", "is_added_up"),
    [
        ("%new = f32[512,1024] add(%old, %g)", True),
        ("%cast = f32[512,1024] bitcast(%g)\n%new = f32[512,1024] add(%cast, %old)", True),
        ("%new = f32[512,1024] multiply(%old, %g)", False),
        ("%new = f32[512,1024] add(%x, %g)", False),  # not to what it carries
        # what it carries is read by something else, or the sum is
        ("%new = f32[512,1024] add(%old, %g)\n%more = f32[512,1024] tanh(%old)", False),
        ("%new = f32[512,1024] add(%old, %g)\n%more = f32[512,1024] tanh(%g)", False),
        # added, and not put back
        ("%lost = f32[512,1024] add(%old, %g)\n%new = f32[512,1024] tanh(%x)", False),
    ],
)
def test_sums_that_could_wait_for_the_end_of_the_loop(end: str, is_added_up: bool) -> None:
    # where the loop does more beside it, the price of a gradient is not worth saying
    found = of(looped("f32[4,512,1024]", "f32[512,1024]", end), "exposed-collective")
    said_so = ["Each trip of the loop sums over the devices" in f.evidence for f in found]
    assert (any(said_so), any(f.advice for f in found)) == (is_added_up, is_added_up)


def test_what_is_hidden_and_where_it_is_asked_for() -> None:
    """%g takes 5 s on the wire from the first second on, %h 3 s behind it; %w takes 2 s."""
    one, two = mib(4), mib(2)
    cap = program(f"""
%x = {one} parameter(0)
%y = {two} parameter(1)
%g = {one} all-reduce-start(%x), {SUMMED}, {said(FORWARD, 4)}
%h = {two} all-reduce-start(%y), {SUMMED.replace("id=1", "id=2")}, {said(FORWARD, 5)}
{work(2)}
%gd = {one} all-reduce-done(%g)
%hd = {two} all-reduce-done(%h)
ROOT %out = ({one}, {two}, f32[2,128,1024]{{2,1,0}}) tuple(%gd, %hd, %w)""")
    found = only(cap, "exposed-collective")
    assert found.title == (
        "The chip waits 6 s (75 % of the modelled step) for 2 all-reduces over one group of 2"
    )
    assert found.evidence == (
        "6 s of 8 s on the wire is not hidden behind compute: 50 % at m.py:4, 50 % at m.py:5;"
        " the longest is %g, 4 MiB of `%x`"
    )
    assert figures(cap, "exposed-collective") == [(0.75, 6.0, 6 << 20, "g h")]
    assert found.line == "m.py:4"


def test_what_is_hidden_is_no_part_of_it_and_half_a_second_is() -> None:
    part = "f32[128,1024]{1,0}"  # half a MiB: a gather of one takes 0.5 + 0.5 s
    cap = program(
        f"""
%x = {part} parameter(0)
%g = {mib(1)} all-gather-start(%x), {GATHERED}, {said("psum", 4)}
{work(5)}
%gd = {mib(1)} all-gather-done(%g)
%y = f32[64,1024]{{1,0}} parameter(1)
%h = f32[128,1024]{{1,0}} all-gather(%y), {GATHERED}, {said("psum", 5)}
ROOT %out = ({mib(1)}, {part}) tuple(%gd, %h)""".replace(mib(1), "f32[256,1024]{1,0}")
    )
    assert figures(cap, "exposed-collective") == [(0.75 / 5.75, 0.75, 1 << 18, "h")]


def test_waiting_for_a_busy_link_is_told_from_what_is_sent() -> None:
    """The gather of 1.5 s waits for the 5 s of the sum before it, which its own done does not."""
    one, part, whole = mib(4), mib(1), mib(2)
    cap = program(f"""
%x = {one} parameter(0)
%y = {part} parameter(1)
%g = {one} all-reduce-start(%x), {SUMMED}, {said("psum", 4)}
%h = {whole} all-gather(%y), {GATHERED}, {said("all_gather", 5)}
%gd = {one} all-reduce-done(%g)
ROOT %out = ({one}, {whole}) tuple(%gd, %h)""")
    found = only(cap, "exposed-collective")
    assert found.title.startswith("The chip waits 6.5 s (100 % of the modelled step) for")
    assert found.title.endswith(" for all-gather of `%y` over one group of 2")
    assert found.evidence == (
        "none of 1.5 s on the wire is hidden behind compute, and 5 s more is spent waiting for"
        " earlier transfers to free the links; it is %h, 2 MiB of `%y`. The program asks for it"
        " by name"
    )


def sums(*rows: tuple[int, int], more: str = "") -> str:
    """All-reduces (MiB, line); line 0 has none."""
    text = [f"%p{n} = {mib(k)} parameter({n})" for n, (k, _) in enumerate(rows)]
    for n, (k, line) in enumerate(rows):
        text.append(f"%s{n} = {mib(k)} all-reduce(%p{n}), {SUMMED}, {said('psum', line)}")
    shapes, names = ", ".join(mib(k) for k, _ in rows), [f"%s{n}" for n in range(len(rows))]
    return "\n".join([*text, f"ROOT %out = ({shapes}) tuple({', '.join(names)}{more})"])


def test_the_lines_that_wait_are_the_first_four_and_what_has_none() -> None:
    # 2, 3, 4, 5, 6 and 10 s
    cap = program(sums((1, 3), (2, 5), (3, 7), (4, 0), (5, 9), (9, 11)))
    found = only(cap, "exposed-collective")
    assert found.evidence == (
        "30 s of 30 s on the wire is not hidden behind compute: 33 % at m.py:11, 20 % at m.py:9,"
        " 17 % without a line, 13 % at m.py:7 and the rest at 2 more lines; the longest is"
        " %s5, 9 MiB of `%p5`. The program asks for it by name"
    )
    assert figures(cap, "exposed-collective") == [(1.0, 30.0, 24 << 20, "s5 s4 s3 s2 s1 s0")]
    # the line is of the one that waits longest of those that have one
    found = only(program(sums((1, 3), (9, 0))), "exposed-collective")
    assert (found.line, found.evidence.partition("; ")[2]) == (
        "m.py:3", "the longest is %s1, 9 MiB of `%p1`. The program asks for it by name",
    )  # fmt: skip


# -- small ones --------------------------------------------------------------------------------


def small(count: int, elements: int, kind: str = "all-reduce", after: int = 0) -> hs.Capture:
    """``after``: so many of them need the result of the one before."""
    shape = f"f32[{elements}]{{0}}"
    how = SUMMED if kind == "all-reduce" else "channel_id=1, source_target_pairs={{0,1},{1,0}}"
    lines = [f"%p{k} = {shape} parameter({k})" for k in range(count)]
    for k in range(count):
        given = f"%t{k - 1}" if 0 < k <= after else f"%p{k}"
        lines += [f"%r{k} = {shape} {kind}({given}), {how}", f"%t{k} = {shape} negate(%r{k})"]
    names = ", ".join(f"%t{k}" for k in range(count))
    return program("\n".join(lines) + f"\nROOT %o = ({', '.join([shape] * count)}) tuple({names})")


def test_small_sums_are_worth_one_from_eight_on() -> None:
    cap = small(8, 1 << 14)  # 64 KiB each: 1 s and a sixteenth, and an eighth to negate it
    found = only(cap, "tiny-collectives")
    assert found.title == "8 all-reduces of 64 KiB over one group of 2 could be one"
    assert found.evidence == "none needs the result of another: %r0, %r1, %r2 and 5 more"
    saved = 7 * 1.0625
    assert (found.seconds, found.bytes) == (saved, None)
    assert found.share == saved / (8 * (1.0625 + 0.125))
    assert [i.name for i in found.instructions] == [f"r{k}" for k in range(8)]
    for none in (small(7, 1 << 14), small(8, (1 << 14) + 1), small(9, 1 << 14, after=2)):
        assert of(none, "tiny-collectives") == ()
    assert len(only(small(9, 1 << 14, after=1), "tiny-collectives").instructions) == 8
    assert of(small(8, 64, "collective-permute"), "tiny-collectives") == ()
    sums = [f"%r{k} = f32[{8 << k}]{{0}} all-reduce(%p{k}), {SUMMED}" for k in range(8)]
    given = [f"%p{k} = f32[{8 << k}]{{0}} parameter({k})" for k in range(8)]
    last = "ROOT %o = (f32[8]{0}, f32[1024]{0}) tuple(%r0, %r7)"
    found = only(program("\n".join([*given, *sums, last])), "tiny-collectives")
    assert found.title == "8 all-reduces of 32 B to 4 KiB over one group of 2 could be one"


def test_of_combined_sums_each_part_is_small_or_not() -> None:
    def combined(elements: int) -> hs.Capture:
        a, b = f"f32[{elements}]{{0}}", f"f32[{elements}]{{0}}"
        lines = [f"%p{k} = {a} parameter({k})" for k in range(16)]
        for k in range(8):
            lines.append(f"%r{k} = ({a}, {b}) all-reduce(%p{k}, %p{k + 8}), {SUMMED}")
        lines.append(f"ROOT %o = (({a}, {b})) tuple(%r0)")
        return program("\n".join(lines))

    found = only(combined(1 << 14), "tiny-collectives")
    assert found.title == "8 all-reduces of 128 KiB over one group of 2 could be one"
    assert of(combined((1 << 14) + 1), "tiny-collectives") == ()


def test_pairs_of_start_and_done_are_one_each_and_depend_like_one() -> None:
    def pairs(chained: bool) -> hs.Capture:
        lines = [f"%p{k} = f32[64]{{0}} parameter({k})" for k in range(8)]
        for k in range(8):
            given = f"%d{k - 1}" if chained and k else f"%p{k}"
            lines.append(f"%r{k} = f32[64]{{0}} all-reduce-start({given}), {SUMMED}")
            lines.append(f"%d{k} = f32[64]{{0}} all-reduce-done(%r{k})")
        lines.append("ROOT %o = (f32[64]{0}) tuple(%d7)")
        return program("\n".join(lines))

    assert only(pairs(False), "tiny-collectives").title.startswith("8 all-reduces of 256 B")
    assert of(pairs(True), "tiny-collectives") == ()
