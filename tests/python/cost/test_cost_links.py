"""What a collective puts on each link: behind a switch, on a torus, between blocks and slices."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hloscope.analysis.cost.assumptions import BLOCK_SIZES
from hloscope.analysis.cost.chip import for_target
from hloscope.analysis.cost.roofline.roofline import reach, transfer_time
from hloscope.analysis.cost.roofline.torus import torus, torus_axes
from hloscope.analysis.cost.roofline.transfers import (
    Levels,
    Transfer,
    TransferMaker,
    members_inside,
    ring,
)
from hloscope.hardware import Hardware
from hloscope.hardware.chips import Link
from hloscope.hlo import Device, Target
from hloscope.hlo.shardings.devices import DeviceGroups, parse_groups


def groups(text: str, pairs: bool = False) -> DeviceGroups:
    found = parse_groups(text)
    assert found is not None
    return DeviceGroups(text, pairs=found.groups) if pairs else found


@pytest.mark.parametrize(
    ("text", "pairs", "inside"),
    [
        # most members of one group in blocks of 1, 2, 4 and 8 neighbours
        ("{{0,1,2,3}}", False, [1, 2, 4, 4]),
        ("{{0,2,4,6},{1,3,5,7}}", False, [1, 1, 2, 4]),
        ("{{0,4},{1,5}}", False, [1, 1, 1, 2]),
        ("{{3,4}}", False, [1, 1, 1, 2]),
        ("{{0,1,2},{3}}", False, [1, 2, 3, 3]),  # of unequal size
        ("{{7,0,6,5}}", False, [1, 2, 3, 4]),  # in any order
        # 2 where no pair leaves its block
        ("{{0,1},{2,3}}", True, [0, 2, 2, 2]),
        ("{{1,2},{0,1}}", True, [0, 0, 2, 2]),
        ("{{0,4}}", True, [0, 0, 0, 2]),
    ],
)
def test_members_of_a_group_in_a_block(text: str, pairs: bool, inside: list[int]) -> None:
    found = members_inside(groups(text, pairs))
    assert found[:4] == inside
    assert found[4:] == [inside[3]] * (BLOCK_SIZES - 4)
    assert members_inside(None) == [1] * BLOCK_SIZES


@pytest.mark.parametrize(
    ("kind", "n", "cost"),
    [
        ("all-gather", 4, (3, 300)),
        ("all-reduce", 4, (6, 600)),
        ("all-reduce", 2, (2, 400)),
        ("reduce-scatter", 2, (1, 200)),
        ("all-to-all", 4, (3, 300)),
        ("collective-broadcast", 4, (3, 400)),
        ("all-gather", 1, (0, 0)),
        ("collective-broadcast", 1, (0, 0)),
        ("collective-permute", 0, (1, 400)),  # pairs have no group
        ("collective-permute", 1, (1, 400)),
        ("collective-permute", 4, (1, 400)),
    ],
)
def test_behind_a_switch(kind: str, n: int, cost: tuple[float, float]) -> None:
    assert ring(kind, n, 400.0) == cost


RING, LINE = [(4, True)], [(4, False)]


@pytest.mark.parametrize(
    ("kind", "axes", "cost"),
    [
        # round a ring both ways, along a line one
        ("all-gather", RING, (2, 600 / 2)),
        ("all-gather", LINE, (3, 600)),
        ("all-reduce", RING, (4, 2 * 600 / 2)),
        ("all-reduce", LINE, (6, 2 * 600)),
        ("all-gather", [(5, True)], (2, 640 / 2)),
        ("all-gather", [(2, True), (1, True)], (1, 400 / 2)),
        ("all-gather", [(4, True), (2, False)], (3, 700 / 3)),  # both at once
        ("all-to-all", RING, (2, 800 * 4 / 8)),
        ("all-to-all", LINE, (3, 800 * 4 / 4)),
        ("all-to-all", [(2, False), (4, True)], (3, 800 * 4 / 8)),  # over the longest
        ("all-gather", [(1, False)], (0, 0)),
        ("all-gather", [], (0, 0)),
        ("collective-permute", RING, (3, 800 * 2)),
    ],
)
def test_on_a_torus(kind: str, axes: Any, cost: tuple[float, float]) -> None:
    assert torus(kind, axes, 800.0, hops=3, load=2) == pytest.approx(cost)


def made(kind: str, who: DeviceGroups | None, target: Target, **row: Any) -> Transfer:
    asked: Any = SimpleNamespace(index=7, wire_bytes=1, group_size=4, axes="x")
    asked.__dict__.update(row)
    return TransferMaker(target, (4, 2)).make(asked, 1, 2, kind, 800.0, who)


NOWHERE = Target()
NOTHING = (0.0, 0.0)


@pytest.mark.parametrize(
    ("kind", "text", "block", "near", "far"),
    [
        # one link for all: a ring of four
        ("all-gather", "{{0,1,2,3}}", BLOCK_SIZES, (3, 600), NOTHING),
        ("all-gather", "{{0,1,2,3}}", 2, (3, 600), NOTHING),
        # blocks of two: each gathers half over the far link, then its block the rest
        ("all-gather", "{{0,1,2,3}}", 1, (1, 400), (1, 200)),
        ("all-reduce", "{{0,1,2,3}}", 1, (2, 800), (2, 400)),
        ("all-to-all", "{{0,1,2,3}}", 1, (1, 400), (1, 400)),
        ("collective-broadcast", "{{0,1,2,3}}", 1, (1, 800), (1, 800)),
        ("all-gather", "{{0,1,2,3}}", 0, NOTHING, (3, 600)),
        ("all-gather", "{{0,4,8,12}}", 3, (1, 400), (1, 200)),
        ("all-gather", "{{0,1,2}}", 1, (1, 400), (1, 200)),  # ⌈3/2⌉ blocks
    ],
)
def test_blocks_of_neighbours(kind: str, text: str, block: int, near: Any, far: Any) -> None:
    found = made(kind, groups(text), NOWHERE)
    assert (found.levels[block].switch, found.levels[block].far) == (near, far)
    assert len(found.levels) == BLOCK_SIZES + 1
    assert (found.collective, found.start, found.done, found.torus_is_known) == (7, 1, 2, False)
    assert found.wire_bytes == made(kind, groups(text), NOWHERE).levels[-1].switch[1]
    assert not found.is_far


def test_pairs_are_near_or_far() -> None:
    found = made("collective-permute", groups("{{0,1},{2,3}}", pairs=True), NOWHERE)
    assert (found.levels[0].switch, found.levels[0].far) == (NOTHING, (1, 800))
    assert (found.levels[1].switch, found.levels[1].far) == ((1, 800), NOTHING)
    idle = made("collective-permute", groups("{{0,0},{3,3}}", pairs=True), NOWHERE)
    assert set(idle.levels) == {Levels(NOTHING, NOTHING, NOTHING)}
    assert len(idle.levels) == BLOCK_SIZES + 1
    mixed = made("collective-permute", groups("{{0,0},{3,2}}", pairs=True), NOWHERE)
    assert mixed.levels[-1].switch == (1, 800)


def test_who_communicates_may_be_unknown() -> None:
    unknown = made("all-gather", None, NOWHERE, wire_bytes=None)
    assert math.isnan(unknown.wire_bytes)
    assert math.isnan(unknown.levels[0].switch[0])
    assert len(unknown.levels) == BLOCK_SIZES + 1
    of_four = made("all-gather", None, NOWHERE)
    assert of_four.levels[-1].switch == (3, 600)
    assert of_four.levels[0].far == (3, 600)


def devices(slices: int, *, torus: bool = True) -> Target:
    """Four devices a slice, in a square."""
    return Target(
        devices=tuple(
            Device(k, k, coords=(k % 2, k // 2 % 2, 0) if torus else None, slice=k // 4)
            for k in range(4 * slices)
        )
    )


@pytest.mark.parametrize(
    ("kind", "text", "near", "torus_cost", "far"),
    [
        # two slices of four: half of 800 bytes … a quarter each over the far link
        ("all-gather", "{{0,1,2,3,4,5,6,7}}", (3, 600), (2, 600 / 2), (1, 100)),
        ("all-gather", "{{0,1,2,3},{4,5,6,7}}", (3, 600), (2, 600 / 2), NOTHING),
        ("all-gather", "{{0,4},{1,5}}", NOTHING, NOTHING, (1, 400)),
        ("all-reduce", "{{0,1,4,5}}", (2, 800), (2, 800), (2, 400)),
    ],
)
def test_slices(kind: str, text: str, near: Any, torus_cost: Any, far: Any) -> None:
    found = made(kind, groups(text), devices(2))
    assert found.levels[-1].switch == near
    assert found.levels[-1].torus == pytest.approx(torus_cost)
    assert found.levels[-1].far == far
    assert found.is_far is (near == NOTHING)
    assert found.torus_is_known
    assert found.wire_bytes == near[1] + far[1]


def test_pairs_between_slices_are_far() -> None:
    apart = made("collective-permute", groups("{{0,1},{3,4}}", pairs=True), devices(2))
    assert apart.levels[-1] == Levels(NOTHING, NOTHING, (1, 800))
    inside = made("collective-permute", groups("{{0,1},{4,6}}", pairs=True), devices(2))
    assert inside.levels[-1].far == NOTHING
    assert inside.levels[-1].torus == (1, 800)


@pytest.mark.parametrize(
    ("text", "pairs", "axes", "known"),
    [
        ("{{0,1}}", False, [(2, False)], True),
        ("{{0,3}}", False, [(2, False), (2, False)], True),
        ("{{0}}", False, [(1, False)], True),
        ("{{0,1,2,9}}", False, [(4, True)], False),  # there is no device 9
        ("{{0,4}}", False, [(2, True)], False),
        ("{{0,1}}", True, [], True),
        ("{{0,9}}", True, [], True),
        ("{{0,4}}", True, [], True),
        ("{{1,1}}", True, [], False),
    ],
)
def test_where_a_group_is(text: str, pairs: bool, axes: Any, known: bool) -> None:
    found = torus_axes(groups(text, pairs), devices(1))
    assert (found.axes, found.known) == (axes, known)
    assert torus_axes(None, devices(1)).axes == []
    without = torus_axes(groups(text, pairs), devices(1, torus=False), (2, 2))
    assert not without.known


FAST, SLOW = Link("near", "switch", 100.0, 1.0, group=2), Link("far", "switch", 10.0, 3.0)


def chip(*links: Link, **fields: Any) -> Hardware:
    figures: dict[str, Any] = {
        "memory_bytes": 64.0, "memory_bandwidth": 100.0, "matmul": {"f32": 10.0}, "vector": 4.0,
        "host_bandwidth": 8.0, "devices_per_chip": 1,
    }  # fmt: skip
    return Hardware("c", "C", links=links, **(figures | fields))


def test_seconds_of_a_transfer() -> None:
    gather = made("all-gather", groups("{{0,1,2,3}}"), NOWHERE)
    assert reach(chip(FAST, SLOW)) == 1
    assert reach(chip(SLOW)) == BLOCK_SIZES
    assert reach(chip()) == BLOCK_SIZES
    assert reach(chip(Link("n", "switch", 1.0, 1.0, group=5))) == 2  # blocks of four
    # a step near, a step far; 400 bytes near take 4 s, 200 far 20
    assert transfer_time(chip(FAST, SLOW), gather) == 1 + 3 + 20
    assert transfer_time(chip(SLOW), gather) == 3 * 3 + 60
    around = Link("ring", "torus", 10.0, 1.0, axes=2)
    assert transfer_time(chip(around), gather) == pytest.approx(
        gather.levels[-1].torus[0] + gather.levels[-1].torus[1] / 10
    )
    assert math.isnan(transfer_time(chip(), gather))


def test_figures_of_a_device_that_is_a_part_of_a_chip() -> None:
    cores = tuple(Device(k, k, coords=(k // 2, 0, 0), core=k % 2) for k in range(4))
    one = for_target(chip(SLOW), Target(devices=cores))
    assert (one.devices_per_chip, one.memory_bytes, one.memory_bandwidth) == (2, 32, 50)
    assert (one.matmul, one.vector, one.host_bandwidth) == ({"f32": 5.0}, 2.0, 4.0)
    assert [x.bytes_per_second for x in one.links] == [5.0]
    none = for_target(chip(vector=None, host_bandwidth=None), Target(devices=cores))
    assert (none.vector, none.host_bandwidth) == (None, None)
    two = chip(SLOW, devices_per_chip=2)
    assert for_target(two, Target(devices=cores)) is two
    assert for_target(two, Target()) is two
    lost = (*cores[:3], Device(3, 3))
    assert for_target(two, Target(devices=lost)) is two  # not all places are known
    slices = tuple(Device(k, k, coords=(0, 0, 0), slice=k) for k in range(2))
    assert for_target(chip(SLOW), Target(devices=slices)) == chip(SLOW)  # one place of each slice
    assert np.isclose(for_target(two, Target(devices=slices)).memory_bytes, 128)
