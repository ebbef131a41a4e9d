"""Replica groups: four spellings, XLA's four ways to number them, and the mesh axes they are."""

from __future__ import annotations

import itertools
import math

import hloscope as hs
import hypothesis.strategies as st
import numpy as np
import pytest
from hloscope.hlo import Mesh
from hloscope.hlo.shardings.axes import arrange, group_axes, infer_mesh
from hloscope.hlo.shardings.devices import axes_text, device_counts, device_groups, parse_groups
from hloscope.hlo.shardings.mesh_text import AxisRef, iota_array
from hypothesis import given

MESH = Mesh(("data", "model"), (2, 4), tuple(range(8)))
DATA = [[0, 4], [1, 5], [2, 6], [3, 7]]
MODEL = [[0, 1, 2, 3], [4, 5, 6, 7]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{{0,4},{1,5},{2,6},{3,7}}", DATA),
        ("[4,2]<=[2,4]T(1,0)", DATA),
        ("[2,4]<=[8]", MODEL),
        ("mesh['axis_0'=2,'axis_1'=4] {'axis_1'}", MODEL),
        ("mesh['axis_0'=2,'axis_1'=4] {'axis_0'}", DATA),
        ("mesh['a'=4,'b'=2], device_ids=([2,4]T(1,0)) {'b'}", DATA),
        ("mesh['a'=4,'b'=2], device_ids=(0,4,1,5,2,6,3,7) {'b'}", DATA),
        ("mesh['a'=2,'b'=4] {'b':(1)2}", [[0, 2], [1, 3], [4, 6], [5, 7]]),
        ("mesh['a'=2,'b'=4] {'a','b'}", [list(range(8))]),
    ],
)
def test_four_spellings(text, expected):
    found = parse_groups(text)
    assert found is not None
    assert found.rows() == expected


@pytest.mark.parametrize("text", ["{{0,x}}", "[4,2]<=[9]", "mesh['a'=2] {'b'}", "axis", "{0..3}"])
def test_what_cannot_be_read_is_none(text):
    assert parse_groups(text) is None


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.data())
def test_iota_is_the_slow_loop(reshape, data):
    order = data.draw(st.permutations(range(len(reshape))))
    n = math.prod(reshape)
    slow = []
    for place in itertools.product(*(range(reshape[d]) for d in order)):
        at = dict(zip(order, place, strict=True))
        number = 0
        for d, size in enumerate(reshape):
            number = number * size + at[d]
        slow.append(number)
    fast = iota_array([n], reshape, order)
    assert fast is not None
    assert fast.tolist() == slow


MODULE = """HloModule m, replica_count={replicas}, num_partitions={partitions}

%add (x: f32[], y: f32[]) -> f32[] {{
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %add = f32[] add(%x, %y)
}}

ENTRY %main (p: f32[8]) -> f32[8] {{
  %p = f32[8] parameter(0)
  ROOT %c = f32[8] {op}
}}
"""


def groups_of(op: str, replicas: int, partitions: int) -> list[list[int]]:
    text = MODULE.format(op=op, replicas=replicas, partitions=partitions)
    module = hs.read(text).module
    found = device_groups(module.find("c"), *device_counts(module))
    assert found is not None
    return found.rows()


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        # replica r, partition p is device 2r + p
        ("all-reduce(%p), replica_groups={{0,1}}, to_apply=%add", [[0, 2], [1, 3]]),
        ("all-reduce(%p), channel_id=1, replica_groups={{0},{1}}, to_apply=%add", [[0, 1], [2, 3]]),
        ("all-reduce(%p), channel_id=1, replica_groups={{0,1}}, to_apply=%add", [[0, 1, 2, 3]]),
        ("all-reduce(%p), channel_id=1, replica_groups={{0,3}}, use_global_device_ids=true, "
         "to_apply=%add", [[0, 3]]),
        ("all-reduce(%p), replica_groups={}, to_apply=%add", [[0, 2], [1, 3]]),
        ("all-reduce(%p), channel_id=1, replica_groups={}, use_global_device_ids=true, "
         "to_apply=%add", [[0, 1, 2, 3]]),
        ("all-to-all(%p), channel_id=1, replica_groups={{0,1}}, dimensions={0}", [[0, 1], [2, 3]]),
        ("collective-permute(%p), channel_id=1, source_target_pairs={{0,1}}", [[0, 1], [2, 3]]),
        ("collective-permute(%p), source_target_pairs={{0,1}}", [[0, 2], [1, 3]]),
    ],
)  # fmt: skip
def test_numbers_mean_what_xla_says(op, expected):
    assert groups_of(op, 2, 2) == expected


def test_one_zero_group_with_a_channel_is_every_partition():
    op = "all-reduce(%p), channel_id=1, replica_groups={{0}}, to_apply=%add"
    assert groups_of(op, 1, 4) == [[0, 1, 2, 3]]


@given(
    st.sampled_from([(8,), (2, 4), (2, 2, 2), (4, 16), (3, 4), (6,), (12, 2)]),
    st.randoms(use_true_random=False),
    st.data(),
)
def test_axes_are_recognised_on_any_mesh_and_device_order(sizes, random, data):
    order = list(range(math.prod(sizes)))
    random.shuffle(order)
    names = tuple("abc"[: len(sizes)])
    mesh = Mesh(names, sizes, tuple(order))
    used = data.draw(st.lists(st.sampled_from(names), unique=True, min_size=1))
    groups = arrange(mesh, [[AxisRef(n) for n in used]]).T
    rows = [random.sample(r, len(r)) for r in random.sample(groups.tolist(), len(groups))]
    found = group_axes(np.asarray(rows), mesh)
    assert found == tuple(AxisRef(n) for n in names if n in used)


def test_sub_axes_and_groups_that_are_no_axes():
    assert axes_text(parse_groups("{{0,2},{1,3},{4,6},{5,7}}").axes(MESH)) == "model:(1)2"
    assert axes_text(parse_groups("{{0,1},{2,3},{4,5},{6,7}}").axes(MESH)) == "model:(2)2"
    assert axes_text(parse_groups("[1,8]<=[8]").axes(MESH)) == "data+model"
    assert parse_groups("{{0,3},{1,2},{4,5},{6,7}}").axes(MESH) is None
    assert parse_groups("{{0,1,2},{3,4}}").axes(MESH) is None
    assert parse_groups("{{0,1,2},{3,4}}").rows() == [[0, 1, 2], [3, 4]]
    assert parse_groups("{{0,1},{2,3}}").axes(MESH) is None  # half of the devices only


def test_a_mesh_is_inferred_from_the_groups_alone():
    found = infer_mesh(8, [np.asarray(DATA), np.asarray(MODEL)], [])
    assert found is not None
    assert found.axis_sizes == (2, 4)
    assert found.axis_names == ("axis_0", "axis_1")
    rows = np.asarray([0, 1, 2, 0, 1, 2])
    assert infer_mesh(6, [], [(rows, 3)]).axis_sizes == (2, 3)
    assert infer_mesh(8, [np.asarray([[0, 3], [1, 2], [4, 5], [6, 7]])], []) is None


def test_no_groups_beside_explicit_ones_mean_all_devices_that_those_name() -> None:
    """A text without counts in its header: ``{}`` must not mean one device."""
    text = (
        "HloModule m\ns { x = f32[] parameter(0) y = f32[] parameter(1) ROOT z = add(x, y) }\n"
        "ENTRY e {\n  a = f32[1024]{0} parameter(0)\n"
        "  b = f32[1024]{0} all-reduce(a), ID1 replica_groups={{0,1},{2,3}}, to_apply=s\n"
        "  ROOT c = f32[1024]{0} all-reduce(b), ID2 replica_groups={}, to_apply=s\n}\n"
    )
    for one, two in (("", ""), ("channel_id=1, use_global_device_ids=true,", "channel_id=2,")):
        rows = hs.read(text.replace("ID1", one).replace("ID2", two)).collectives
        assert [r.group_size for r in rows] == [2, 4]
        assert [r.wire_bytes for r in rows] == [4096, 6144]


def test_groups_of_what_nothing_calls_count_no_devices():
    """A dead computation left over from a larger program."""
    text = """HloModule m

%sum (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %plus = f32[] add(%a, %b)
}

%dead (p: f32[4]) -> f32[4] {
  %p = f32[4] parameter(0)
  ROOT %old = f32[4] all-reduce(%p), replica_groups={{0,1,2,3,4,5,6,7}}, to_apply=%sum
}

ENTRY %main (x: f32[4]) -> f32[4] {
  %x = f32[4] parameter(0)
  %c = f32[4] all-reduce(%x), replica_groups={{0,1},{2,3}}, to_apply=%sum
  ROOT %all = f32[4] all-reduce(%c), replica_groups={}, to_apply=%sum
}
"""
    module = hs.read(text).module
    assert device_counts(module) == (4, 1)
    whole = device_groups(module.find("all"), *device_counts(module))
    assert whole.rows() == [[0, 1, 2, 3]]
