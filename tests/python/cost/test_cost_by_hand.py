"""Modelled seconds of a chip with whole numbers, worked out by hand: instructions, loops, transfers, copies.

A thousand bytes take a second in memory and on the wire, four to the host; 500 FLOPs of the vector
unit, 2,000 of the matrix unit; a step of a collective half a second.
"""

# ruff: noqa: E501
from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import hloscope as hs
import pytest
from hloscope.analysis.cost.cost import Cost, estimate
from hloscope.hardware import Hardware
from hloscope.hardware.chips import Link
from hloscope.hlo import Target

NET = Link("net", "switch", 1000.0, 0.5)
CHIP = Hardware(
    "round", "Round", memory_bytes=2**30, memory_bandwidth=1000.0, vector=500.0, links=(NET,), host_bandwidth=250.0,
    matmul={"f32": 2000.0, "f32:highest": 1000.0, "bf16": 4000.0},
)  # fmt: skip
BEFORE = """
%sum (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %ab = f32[] add(%a, %b)
}
%less (c: f32[], d: f32[]) -> pred[] {
  %c = f32[] parameter(0)
  %d = f32[] parameter(1)
  ROOT %cd = pred[] compare(%c, %d), direction=LT
}
%body (p: (s32[], f32[250])) -> (s32[], f32[250]) {
  %p = (s32[], f32[250]) parameter(0)
  %k = s32[] get-tuple-element(%p), index=0
  %v = f32[250] get-tuple-element(%p), index=1
  %one = s32[] constant(1)
  %next = s32[] add(%k, %one)
  %twice = f32[250] add(%v, %v)
  ROOT %t = (s32[], f32[250]) tuple(%next, %twice)
}
%cond (q: (s32[], f32[250])) -> pred[] {
  %q = (s32[], f32[250]) parameter(0)
  %kq = s32[] get-tuple-element(%q), index=0
  %three = s32[] constant(3)
  ROOT %under = pred[] compare(%kq, %three), direction=LT
}
%product (l: f32[10,100], r: f32[100,10]) -> f32[10,10] {
  %l = f32[10,100] parameter(0)
  %r = f32[100,10] parameter(1)
  ROOT %dot = f32[10,10] dot(%l, %r), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
BOTH = "channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true"


def modelled(entry: str, chip: Hardware | None = CHIP, **target: Any) -> Cost:
    text = f"HloModule m, is_scheduled=true, num_partitions=2\n{BEFORE}\nENTRY %main {{\n{entry.strip()}\n}}\n"
    module = hs.read(text.replace("BOTH", BOTH)).module
    assert not module.warnings, module.warnings
    return estimate(module, Target(**target), hardware=chip)


def of(cost: Cost, name: str) -> Any:
    found = cost.module.find(name)
    assert found is not None
    return cost.row(found)


X = "%x = f32[250] parameter(0)\n"  # 1,000 bytes
MATRICES = "%l.1 = {0}[10,100] parameter(0)\n%r.1 = {0}[100,10] parameter(1)\n"
DOT = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"


@pytest.mark.parametrize(
    ("entry", "seconds", "bound"),
    [
        (X + "ROOT %op = f32[250] add(%x, %x)", 3.0, "memory"),
        (X + "ROOT %op = f32[250] tanh(%x)", 2.0, "memory"),
        # ⌈log₂ 256⌉ · 256 comparisons; 2 · 1,024 bytes
        ("%y = f32[256] parameter(0)\nROOT %op = f32[256] sort(%y), dimensions={0}, to_apply=%less", 2048 / 500, "vector"),
        # 2 · 100 · 100 FLOPs; 4,000 + 4,000 + 400 bytes
        (MATRICES.format("f32") + f"ROOT %op = f32[10,10] dot(%l.1, %r.1), {DOT}", 10.0, "compute"),
        (MATRICES.format("f32") + f"ROOT %op = f32[10,10] dot(%l.1, %r.1), {DOT}, operand_precision={{highest,highest}}", 20.0, "compute"),
        (MATRICES.format("bf16") + f"ROOT %op = bf16[10,10] dot(%l.1, %r.1), {DOT}, operand_precision={{highest,highest}}", 5.0, "compute"),
        (MATRICES.format("f32") + "ROOT %op = f32[10,10] fusion(%l.1, %r.1), kind=kOutput, calls=%product", 10.0, "compute"),
        (X + 'ROOT %op = f32[250] custom-call(%x), custom_call_target="f"', math.nan, "unknown"),
        (MATRICES.format("f64") + f"ROOT %op = f64[10,10] dot(%l.1, %r.1), {DOT}", math.nan, "unknown"),  # no rate for it
        (X + "ROOT %op = f32[25,10] bitcast(%x)", 0.0, ""),
    ],
)  # fmt: skip
def test_seconds_of_an_instruction(entry: str, seconds: float, bound: str) -> None:
    cost = modelled(entry)
    row = of(cost, "op")
    assert row.bound == bound
    assert row.seconds == (None if math.isnan(seconds) else pytest.approx(seconds))
    assert cost.roofline is not None
    unmodelled = [i.name for i in cost.roofline.unmodelled]
    assert unmodelled == (["op"] if bound == "unknown" else [])
    # without a rate of the vector unit what is not a matmul takes what memory takes
    plain = of(modelled(entry, replace(CHIP, vector=None)), "op")
    if bound == "vector":
        assert plain.seconds == pytest.approx(2048 / 1000)
        assert plain.bound == "memory"
    else:
        assert (plain.seconds, plain.bound) == (row.seconds, row.bound)


LOOP = X + """
%n = s32[] parameter(1)
%init = (s32[], f32[250]) tuple(%n, %x)
%w = (s32[], f32[250]) while(%init), condition=%cond, body=%body, backend_config={"known_trip_count":{"n":"3"}}
%w1 = f32[250] get-tuple-element(%w), index=1
%odd = f32[2] custom-call(%x), custom_call_target="f"
ROOT %last = f32[250] add(%w1, %w1)
"""  # fmt: skip


def test_what_a_loop_repeats_counts_as_often_as_it_runs() -> None:
    cost = modelled(LOOP, cost_analysis={"flops": 501.0, "bytes accessed": 7024.0})
    twice, under = of(cost, "twice"), of(cost, "under")
    assert (twice.runs, twice.flops, twice.bytes_accessed, twice.seconds) == (3, 750, 9000, 9.0)
    assert (under.runs, under.flops) == (4, 4)  # the condition is asked once more
    assert twice.step_seconds == 9.0
    # costliest first; what takes unknown time before all; the loop itself is not a row
    names = [row.instruction.name for row in cost]
    assert names[:3] == ["odd", "twice", "last"]
    assert "w" not in names
    assert len(cost) == len(names) == 5
    flops, heavy, moved = cost.xla
    # XLA: the loop once (250 + 1 + 1) and the last sum, -1 for the call that nobody knows
    assert (flops.quantity, flops.xla, flops.ours) == ("flops", 501, 3 * 251 + 4 + 250)
    assert flops.ours - flops.loops == 502
    assert (flops.custom_calls, flops.other) == (1, 0)
    assert (heavy.xla, heavy.ours, heavy.custom_calls, heavy.other) == (None, 0, 0, None)
    # twice and last 3,000 bytes each, next 12, under 9, the call 1,008
    assert moved.ours == 3 * 3012 + 4 * 9 + 3000 + 1008
    assert moved.ours - moved.loops == 3012 + 9 + 3000 + 1008
    assert (moved.custom_calls, moved.other) == (1009, 3012 + 9 + 3000 + 1008 - 1009 - 7024)


def events(cost: Cost) -> list[tuple[Any, ...]]:
    found = cost.timeline
    assert found is not None
    columns = (found.instruction, found.lane, found.start, found.duration, found.times)
    return [
        (cost.module.instructions[i].name, found.lanes[lane], begin, took, times)
        for i, lane, begin, took, times in zip(*(c.tolist() for c in columns), strict=True)
    ]


def test_a_loop_on_the_time_line() -> None:
    cost = modelled("\n".join(line for line in LOOP.splitlines() if "%odd" not in line))
    trip, check = 3.0 + 0.012, 0.009
    assert events(cost) == [
        ("next", "compute", 0.0, pytest.approx(0.012), 1.0),
        ("twice", "compute", pytest.approx(0.012), 3.0, 1.0),
        ("under", "compute", 0.0, pytest.approx(check), 1.0),
        ("w", "compute", 0.0, pytest.approx(4 * check), 4.0),
        ("w", "compute", pytest.approx(4 * check), pytest.approx(3 * trip), 3.0),
        ("last", "compute", pytest.approx(3 * trip + 4 * check), 3.0, 1.0),
    ]  # fmt: skip
    found = cost.timeline
    assert found is not None
    assert found.seconds == pytest.approx(3 * trip + 4 * check + 3)
    assert found.total("compute") == pytest.approx(found.seconds)
    assert found.total("waiting") == 0


GATHER = (
    X
    + """
%s = (f32[250], f32[500]) all-gather-start(%x), BOTH, dimensions={0}
WORK%d = f32[500] all-gather-done(%s)
ROOT %last = f32[500] negate(%d)
"""
)


@pytest.mark.parametrize(
    ("work", "waits"),
    [
        ("", 1.5),
        ("%w = f32[250] negate(%x)\n", 0.0),
        ("%w = f32[50] slice(%x), slice={[0:50]}\n", 1.1),
    ],
)
def test_a_gather_beside_work(work: str, waits: float) -> None:
    # 2,000 bytes between two: a step of half a second, and a second for 1,000 of them
    cost = modelled(GATHER.replace("WORK", work))
    r = cost.roofline
    assert r is not None
    assert r.collective_seconds == 1.5
    assert r.exposed_seconds == pytest.approx(waits)
    done = cost.module.find("d")
    assert done is not None
    assert r.exposed[done.index] == pytest.approx(waits)
    start = of(cost, "s")
    assert (start.bound, start.seconds) == ("collective", 1.5)
    assert start.step_seconds == pytest.approx(waits)
    busy = {"": 0.0, "n": 2.0, "s": 0.4}[work[14:15] and work.split("] ")[1][0]] if work else 0.0
    on_wire = [e for e in events(cost) if e[1] not in ("compute", "waiting")]
    assert [(e[0], e[2], e[3]) for e in on_wire] == [("s", 0.0, 1.5)]
    waiting = [e for e in events(cost) if e[1] == "waiting"]
    assert waiting == ([("d", "waiting", busy, pytest.approx(waits), 1.0)] if waits else [])
    assert r.total_seconds == pytest.approx(busy + waits + 4.0)


COPY = (
    X
    + """
%c = (f32[250]{0:S(5)}, f32[250], u32[]) copy-start(%x)
%w = f32[250] add(%x, %x)
%e = f32[250]{0:S(5)} copy-done(%c)
ROOT %t = (f32[250], f32[250]{0:S(5)}) tuple(%w, %e)
"""
)


def test_what_copies_to_the_host_leave_over_comes_last() -> None:
    cost = modelled(COPY)
    r = cost.roofline
    assert r is not None
    # 4 seconds over the host's link, beside 3 of the sum
    assert (r.copy_seconds, r.copy_wait_seconds, r.total_seconds) == (4.0, 1.0, 4.0)
    assert of(cost, "c").bound == "copy"
    assert events(cost) == [
        ("w", "compute", 0.0, 3.0, 1.0),
        ("t", "copies left over", 3.0, 1.0, 1.0),
    ]
    found = cost.timeline
    assert found is not None
    assert found.seconds == 4.0
    slower = modelled(COPY.replace("add(%x, %x)", "negate(%x)"))
    assert slower.roofline is not None
    assert slower.roofline.copy_wait_seconds == 2.0
    # without a figure of the host's link: that of memory
    near = modelled(COPY, replace(CHIP, host_bandwidth=None)).roofline
    assert near is not None
    assert near.copy_seconds == 1.0


def test_without_a_chip_there_is_no_time() -> None:
    cost = modelled(COPY, None)
    assert cost.timeline is None
    assert of(cost, "w").seconds is None
    assert [row.instruction.name for row in cost] == ["w", "c"]  # by FLOPs


CHOICE = """
%reads (e: f32[250]) -> f32[250] {
  %e = f32[250] parameter(0)
  %turned = f32[250] reverse(%e), dimensions={0}
  ROOT %again = f32[250] reverse(%turned), dimensions={0}
}
%computes (f: f32[250]) -> f32[250] {
  %f = f32[250] parameter(0)
  ROOT %doubled = f32[250] add(%f, %f)
}
%sends (g: f32[250]) -> f32[250] {
  %g = f32[250] parameter(0)
  ROOT %summed = f32[250] all-reduce(%g), channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true, to_apply=%sum
}
"""


@pytest.mark.parametrize(
    ("first", "second", "seconds", "total"),
    [
        # 4,000 bytes and no FLOP against 3,000 bytes and 250 FLOPs
        ("reads", "computes", 4.0, (0, 4000)),
        ("computes", "reads", 4.0, (0, 4000)),
        # two steps of half a second and 1,000 bytes on the wire against 3,000 bytes of memory
        ("sends", "computes", 3.0, (250, 3000)),
    ],
)
def test_the_branch_that_takes_most_time_is_the_step(
    first: str, second: str, seconds: float, total: tuple[float, float]
) -> None:
    entry = f"""%p = pred[] parameter(1)
%x = f32[250] parameter(0)
ROOT %c = f32[250] conditional(%p, %x, %x), true_computation=%{first}, false_computation=%{second}"""
    text = f"HloModule m, is_scheduled=true, num_partitions=2\n{BEFORE}{CHOICE}\nENTRY %main {{\n{entry}\n}}\n"
    cost = estimate(hs.read(text).module, Target(cost_analysis={"flops": 250.0}), hardware=CHIP)
    assert cost.roofline is not None
    assert cost.roofline.total_seconds == pytest.approx(seconds)
    assert cost.ranges["seconds"][1] == pytest.approx(seconds)
    assert (cost.total_flops, cost.total_bytes) == total
    # XLA counts the greatest branch of each quantity: no loop explains the difference
    flops = cost.xla[0]
    assert (flops.loops, flops.branches, flops.other) == (0, total[0] - 250, 0)


# As XLA:TPU writes a layer's int8 weights in a loop: other tiles, in the memory of the stack.
RETILED = """HloModule m, is_scheduled=true

tiles {
  t = s8[36,256,512]{2,1,0:T(32,128)(4,1)} parameter(0)
  ROOT c = s8[36,256,512]{2,1,0:T(8,128)(4,1)} copy(t)
}

slice {
  p = s8[36,256,512]{2,1,0:T(32,128)(4,1)} parameter(0)
  f = s8[36,256,512]{2,1,0:T(8,128)(4,1)} fusion(p), kind=kLoop, ATTRIBUTE calls=tiles
  n = s32[] parameter(1)
  z = s32[] constant(0)
  ROOT s = s8[1,256,512]{2,1,0:T(8,128)(4,1)} dynamic-slice(f, n, z, z), dynamic_slice_sizes={1,256,512}
}

ENTRY e {
  w = s8[36,256,512]{2,1,0:T(32,128)(4,1)} parameter(0)
  n = s32[] parameter(1)
  ROOT s = s8[1,256,512]{2,1,0:T(8,128)(4,1)} fusion(w, n), kind=kLoop, calls=slice
}
"""


def test_of_a_stack_that_only_gets_other_tiles_one_slice_is_read() -> None:
    alias = "output_to_operand_aliasing={{}: (0, {})},"
    (row,) = [
        r for r in hs.read(RETILED.replace("ATTRIBUTE", alias)).cost()
        if r.instruction.opcode == "fusion"
    ]  # fmt: skip
    assert row.bytes_accessed == pytest.approx(2 * 256 * 512, rel=0.02)  # read and written


FUSED_LOOKUP = """HloModule m, is_scheduled=true

f {
  table = f32[ROWS,512] parameter(0)
  at = s32[64,1] parameter(1)
  taken = f32[64,512] gather(table, at), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,512}
  ROOT twice = f32[64,512] add(taken, taken)
}

ENTRY e {
  table = f32[ROWS,512] parameter(0)
  at = s32[64,1] parameter(1)
  ROOT out = f32[64,512] fusion(table, at), kind=kLoop, calls=f
}
"""


@pytest.mark.parametrize(("rows", "read"), [(100_000, 64), (16, 16)])
def test_a_fused_lookup_reads_the_rows_that_it_takes_or_all_that_there_are(
    rows: int, read: int
) -> None:
    cost = hs.read(FUSED_LOOKUP.replace("ROWS", str(rows))).cost()
    assert cost.total_bytes == 4 * (512 * read + 64 + 512 * 64)
