"""Ways over a torus and positions of a window, against walking them one by one."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import numpy as np
import pytest
from hloscope.analysis.cost.roofline.torus import torus_axes
from hloscope.analysis.flops.convolution import valid_positions
from hloscope.hlo import Device, Target
from hloscope.hlo.shardings.devices import DeviceGroups

Place = tuple[int, ...]


def target(extent: Place, begin: int = 0) -> tuple[Target, list[Place]]:
    """All places of a slice, which need not begin at zero."""
    places = [tuple(begin + x for x in p) for p in itertools.product(*map(range, extent))]
    devices = tuple(Device(k, k, "TPU", coords=p) for k, p in enumerate(places))
    return Target("tpu", "TPU v4", devices=devices), places


def closes(extent: Place) -> list[bool]:
    """Rings of 16, and of slices of three dimensions that are multiples of four in all."""
    cubes = len(extent) == 3 and all(e % 4 == 0 for e in extent)
    return [e == 16 or cubes for e in extent]


def walked(pairs: list[tuple[Place, Place]], extent: Place, begin: int) -> tuple[int, int]:
    """Longest way and ways over the busiest link: one dimension after the other, the short way."""
    ring, links, longest = closes(extent), Counter[tuple[Place, Place]](), 1
    for source, end in pairs:
        at, steps = list(source), 0
        for d, size in enumerate(extent):
            forth = (end[d] - at[d]) % size if ring[d] else end[d] - at[d]
            back = (at[d] - end[d]) % size if ring[d] else at[d] - end[d]
            up = at[d] < end[d] if ring[d] and forth == back else (
                forth <= back if ring[d] else forth > 0
            )  # fmt: skip
            while at[d] != end[d]:
                before = tuple(at)
                at[d] += 1 if up else -1
                if ring[d]:
                    at[d] = begin + (at[d] - begin) % size
                links[before, tuple(at)] += 1
                steps += 1
        longest = max(longest, steps)
    return longest, max(links.values(), default=1)


@pytest.mark.parametrize("extent", [(4, 4), (2, 8), (16, 2), (4, 4, 4), (2, 4, 4), (4, 4, 8)])
@pytest.mark.parametrize("begin", [0, 3])
def test_ways_of_pairs_are_those_that_one_walks(extent: Place, begin: int) -> None:
    made, places = target(extent, begin)
    r = random.Random(repr(extent))
    for _ in range(8):
        others = list(range(len(places)))
        r.shuffle(others)
        pairs = list(enumerate(others))[: r.choice([1, 3, len(others)])]
        found = torus_axes(DeviceGroups("", pairs=np.array(pairs)), made)
        moving = [(places[a], places[b]) for a, b in pairs if a != b]
        if moving:
            assert (found.hops, found.load) == walked(moving, extent, begin)
        assert found.known is bool(moving)


@pytest.mark.parametrize("extent", [(4, 4), (16, 16), (4, 4, 4), (2, 4, 4)])
def test_a_group_spans_the_axes_that_its_devices_differ_in(extent: Place) -> None:
    made, places = target(extent)
    ring = closes(extent)
    for picked in itertools.product((False, True), repeat=len(extent)):
        if not any(picked):
            continue
        group = [k for k, p in enumerate(places)
                 if all(x == 0 or picked[d] for d, x in enumerate(p))]  # fmt: skip
        found = torus_axes(DeviceGroups("", np.array([group])), made)
        wanted = [(extent[d], ring[d]) for d in range(len(extent)) if picked[d]]
        assert (found.axes, found.known) == (wanted, True)
        half = [k for k in group if places[k][picked.index(True)] < 2]
        (first, *_) = torus_axes(DeviceGroups("", np.array([half])), made).axes
        d = picked.index(True)
        assert first == (2, ring[d] and extent[d] == 2)


def test_positions_of_a_window_are_those_that_one_counts() -> None:
    for size, kernel, out, stride, low, base, window in itertools.product(
        (0, 1, 2, 5), (0, 1, 3), (0, 1, 4), (1, 2, 3), (-1, 0, 2), (1, 2, 3), (1, 2)
    ):
        real = {n * base for n in range(size)}
        counted = sum(
            o * stride - low + k * window in real for o in range(out) for k in range(kernel)
        )
        given = {"stride": stride, "low": low, "base_dilation": base, "window_dilation": window}
        assert valid_positions(size, kernel, out, **given) == counted, (size, kernel, out, given)
