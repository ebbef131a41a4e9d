"""Small facts at the edges of what work costs: each would be wrong after a change of one character.

As ``test_edges.py``, for ``analysis/cost``: bytes, FLOPs and hops that can be counted by hand.
"""

from __future__ import annotations

import math
import random
import re
from dataclasses import replace

import hloscope as hs
import numpy as np
import pytest
from hloscope.analysis.comms.collectives import collectives
from hloscope.analysis.cost.bytes_accessed import bytes_accessed
from hloscope.analysis.cost.roofline.torus import assumed_axes, assumed_slice, torus_axes
from hloscope.analysis.flops.convolution import convolution_flops, valid_positions
from hloscope.hardware import find
from hloscope.hlo import Device, Target
from hloscope.hlo.shape import parse_shape


def read(body: str, before: str = "", header: str = "") -> hs.Capture:
    lines = "\n".join(f"  {line.strip()}" for line in body.strip().split("\n"))
    return hs.read(f"HloModule m{header}\n\n{before}\nENTRY main {{\n{lines}\n}}\n")


# -- convolutions --------------------------------------------------------------------------


def test_positions_on_real_elements():
    draw = random.Random(4).randint
    for _ in range(2000):
        size, kernel, output = draw(1, 6), draw(1, 4), draw(1, 9)
        stride, low, base, window = draw(1, 3), draw(-2, 3), draw(1, 4), draw(1, 3)
        read_at = [o * stride - low + k * window for o in range(output) for k in range(kernel)]
        real = sum(0 <= at <= (size - 1) * base and at % base == 0 for at in read_at)
        ways = {"stride": stride, "low": low, "base_dilation": base, "window_dilation": window}
        assert valid_positions(size, kernel, output, **ways) == real, (size, kernel, output, ways)


LINE = ("f32[2,8,4]", "f32[3,4,6]", "f32[2,6,6]", "window={size=3}, dim_labels=b0f_0io->b0f")
PLANE = ("f32[1,4,4,1]", "f32[1,1,1,1]", "f32[1,2,4,1]")


@pytest.mark.parametrize(
    ("shapes", "attributes", "flops"),
    [
        (LINE[:3], LINE[3], 2 * 2 * 4 * 6 * 18),
        (LINE[:3], LINE[3] + ", feature_group_count=2", 2 * 4 * 6 * 18),
        (LINE[:3], LINE[3] + ", batch_group_count=2", 2 * 4 * 6 * 18),
        ((*LINE[:2], "f32[2,8,6]"), LINE[3].replace("=3", "=3 pad=1_1"), 2 * 2 * 4 * 6 * 22),
        # what the window does not say of a dimension is as if it were not there
        (PLANE, "window={size=1x1 stride=2 pad=0_0}, dim_labels=b01f_01io->b01f", 16),
        (LINE[:3], "window={size=3}", math.nan),
        (("f32[8,4]", *LINE[1:3]), LINE[3], math.nan),
        (LINE[:3], "window={size=3}, dim_labels=b0f_1io->b0f", math.nan),
    ],
)
def test_flops_of_convolutions(shapes, attributes, flops):
    found = convolution_flops(*map(parse_shape, shapes), attributes)
    assert found == flops or (math.isnan(found) and math.isnan(flops))


# -- bytes ---------------------------------------------------------------------------------


UPDATE = "dynamic-update-slice(p0, p1, p2)"


@pytest.mark.parametrize(
    ("inputs", "body", "reads", "writes"),
    [
        # in place: the array is neither read nor written, but for the update
        (("f32[1000]", "f32[10]", "s32[]"), f"ROOT r = f32[1000] {UPDATE}", 44, 40),
        (("f32[1000]", "s32[]"), "ROOT r = f32[10] dynamic-slice(p0, p1)", 44, 40),
        (("f32[1000]",), "a = f32[10] slice(p0)\nb = f32[10] slice(p0)\n"
         "ROOT r = f32[10] add(a, b)", 80, 40),
        (("f32[1000]",), "a = f32[10] slice(p0)\nROOT r = f32[1000] pad(p0, a)", 4040, 4000),
        (("f32[10]",), "ROOT r = f32[10] add(p0, p0)", 40, 40),
        (("f32[4]",), "a = f32[2,2] reshape(p0)\nb = f32[4,2] broadcast(p0)\n"
         "ROOT r = (f32[2,2], f32[4,2]) tuple(a, b)", 32, 48),
        (("f32[1000]", "f32[10]", "s32[]", "f32[8]"), f"a = f32[1000] {UPDATE}\n"
         "b = f32[8] negate(p3)\nROOT r = (f32[1000], f32[8]) tuple(a, b)", 76, 72),
    ],
)  # fmt: skip
def test_bytes_of_fusions(inputs, body, reads, writes):
    parameters = "\n".join(f"p{k} = {shape} parameter({k})" for k, shape in enumerate(inputs))
    shape = re.search(r"ROOT r = (\([^)]*\)|\S+)", body)[1]
    called = f"{shape} fusion({', '.join(f'p{k}' for k in range(len(inputs)))}), kind=kLoop"
    inner = f"f {{\n{parameters}\n{body}\n}}\n"
    outer = f"g {{\n{parameters}\nROOT n = {called}, calls=f\n}}\n"
    # a fusion in a fusion reads the same, and what it gives is written whole
    for before, calls, written in ((inner, "f", writes), (inner + outer, "g", None)):
        module = read(f"{parameters}\nROOT o = {called}, calls={calls}", before).module
        executed = np.array([c.is_entry for c in module.computations])
        found = bytes_accessed(module, executed)[module.entry.root.index]
        assert found == reads + (parse_shape(shape).byte_size if written is None else written)


# -- tables --------------------------------------------------------------------------------


def test_what_is_listed_costs_something():
    cap = read(
        """p = f32[0] parameter(0)
        q = f32[4] parameter(1)
        nothing = f32[0] negate(p)
        moved = f32[4] copy(q)
        one = u8[1] iota(), iota_dimension=0
        ROOT t = (f32[0], f32[4], u8[1]) tuple(nothing, moved, one)"""
    )
    assert [row.instruction.name for row in cap.cost()] == ["moved", "one"]


def test_xla_counts_what_is_called_twice_twice():
    cap = read(
        "p = f32[64] parameter(0)\na = f32[64] call(p), to_apply=f\n"
        "ROOT b = f32[64] call(a), to_apply=f",
        "f {\n  x = f32[64] parameter(0)\n  ROOT y = f32[64] negate(x)\n}\n",
    )
    flops = cap.cost().xla[0]
    assert (flops.ours, flops.loops) == (128, 0)


# -- where a group lies --------------------------------------------------------------------


def spanned(x: int, y: int, op: str):
    cap = read(
        f"p = f32[64] parameter(0)\nROOT c = f32[64] {op}",
        "s {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = f32[] add(a, b)\n}\n",
        f", num_partitions={x * y}",
    )
    places = tuple(Device(k, k, "TPU v5 lite", (k % x, k // x, 0), 0) for k in range(x * y))
    target = Target(devices=places)
    (found,) = collectives(cap.module, target)
    return torus_axes(found.groups, target)


ALL_REDUCE = (
    "all-reduce(p), replica_groups={{{}}}, use_global_device_ids=true, channel_id=1, to_apply=s"
)
PERMUTE = "collective-permute(p), source_target_pairs={{{}}}, channel_id=1"


@pytest.mark.parametrize(
    ("x", "y", "group", "axes"),
    [
        (4, 4, range(16), [(4, False), (4, False)]),
        (4, 4, range(4), [(4, False)]),
        (4, 4, range(0, 16, 4), [(4, False)]),
        (16, 2, range(16), [(16, True)]),
        (16, 2, range(8), [(8, False)]),
        (16, 2, range(32), [(16, True), (2, False)]),
    ],
)
def test_the_axes_of_a_group(x, y, group, axes):
    rest = [k for k in range(x * y) if k not in group]
    groups = [list(group)] + [rest[k : k + len(group)] for k in range(0, len(rest), len(group))]
    text = ",".join("{" + ",".join(map(str, g)) + "}" for g in groups)
    found = spanned(x, y, ALL_REDUCE.format(text))
    assert (found.axes, found.known) == (axes, True)


@pytest.mark.parametrize(
    ("x", "y", "pairs", "hops", "load"),
    [
        (4, 4, "{0,1}", 1, 1),
        (4, 4, "{0,3}", 3, 1),  # no wrap
        (4, 4, "{0,5}", 2, 1),
        (4, 4, "{0,2},{1,3}", 2, 2),  # both use the link from 1 to 2
        (4, 4, "{1,0},{0,1}", 1, 1),  # one each way
        (16, 2, "{0,15}", 1, 1),  # around
        (16, 2, "{0,8}", 8, 1),
        (16, 2, "{15,0},{14,1}", 3, 2),
        (16, 2, "{3,3},{0,2}", 2, 1),  # one stays
    ],
)
def test_the_ways_of_a_permute(x, y, pairs, hops, load):
    found = spanned(x, y, PERMUTE.format(pairs))
    assert (found.axes, found.hops, found.load, found.known) == ([], hops, load, True)


@pytest.mark.parametrize(
    ("count", "dimensions", "slice_"),
    [(16, 2, (4, 4)), (8, 2, (2, 4)), (8, 3, (2, 2, 2)), (1, 2, (1, 1)), (6, 2, (2, 3))],
)
def test_the_slice_that_is_assumed(count, dimensions, slice_):
    assert assumed_slice(count, dimensions) == slice_


@pytest.mark.parametrize(
    ("size", "slice_", "axes"),
    [
        (16, (4, 4), [(4, False), (4, False)]),
        (4, (4, 4), [(4, False)]),
        (16, (16, 16), [(16, True)]),
        (8, (16, 16), [(8, False)]),
        (64, (4, 4, 4), [(4, True), (4, True), (4, True)]),
        (8, (4, 4, 4), [(4, True), (2, False)]),
        (3, (4, 4), [(3, False)]),
    ],
)
def test_the_axes_that_are_assumed(size, slice_, axes):
    assert assumed_axes(size, slice_) == axes


def test_a_chip_without_links_has_no_torus():
    chip = replace(find("tpu-v5e"), links=())
    cap = read("p = f32[64] parameter(0)\nROOT n = f32[64] negate(p)")
    assert cap.cost(chip).roofline is not None
