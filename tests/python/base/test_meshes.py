"""The mesh that device groups and shardings of a module tell, by hand."""

from __future__ import annotations

import hloscope as hs
import pytest
from hloscope.analysis.base.meshes import RARE, module_mesh
from hloscope.hlo import Mesh, Target

PAIRS, FOURS = "{{0,1},{2,3},{4,5},{6,7}}", "{{0,2,4,6},{1,3,5,7}}"
ALL, EACH = "{{0,1,2,3,4,5,6,7}}", "{{0},{1},{2},{3},{4},{5},{6},{7}}"


def module(
    groups: list[str],
    *,
    partitions: int = 8,
    replicas: int = 1,
    sharding: str = "",
    aside: str = "",
) -> hs.Module:
    """An all-reduce over each of these groups, and one that nothing calls."""
    head = f"HloModule m, replica_count={replicas}, num_partitions={partitions}"
    ids = ", channel_id=1, use_global_device_ids=true, to_apply=sum"
    rows = [
        f"  r{k} = f32[8,8] all-reduce(x), replica_groups={g}{ids}" for k, g in enumerate(groups)
    ]
    never = f"  ROOT n = f32[8,8] all-reduce(q), replica_groups={aside}{ids}" if aside else ""
    lines = [
        head,
        "sum { s0 = f32[] parameter(0) s1 = f32[] parameter(1) ROOT s = f32[] add(s0, s1) }",
    ]
    if aside:
        lines += ["never {", "  q = f32[8,8] parameter(0)", never, "}"]
    mark = f", sharding={sharding}" if sharding else ""
    lines += ["ENTRY main {", f"  x = f32[8,8] parameter(0){mark}", *rows]
    return hs.read("\n".join([*lines, "  ROOT r = f32[8,8] negate(x)", "}"])).module


def axes_of(found: hs.Module) -> list[int]:
    """Sizes of the axes; [] for no mesh."""
    mesh = module_mesh(found)
    if mesh is None:
        return []
    assert mesh.axis_names == tuple(f"axis_{k}" for k in range(len(mesh.axis_names)))
    return list(mesh.axis_sizes)


@pytest.mark.parametrize(
    ("groups", "axes"),
    [
        ([PAIRS], [4, 2]),
        ([FOURS], [4, 2]),
        ([PAIRS, FOURS], [4, 2]),
        (["{{0,1,2,3},{4,5,6,7}}"], [2, 4]),
        (["{{0,1,2,3},{4,5,6,7}}", PAIRS], [2, 2, 2]),
        # of all devices or of one each: they say nothing of axes
        ([ALL], []),
        ([EACH], []),
        ([], []),
    ],
)
def test_axes_are_those_of_the_groups(groups: list[str], axes: list[int]) -> None:
    assert axes_of(module(groups)) == axes


def test_what_is_rare_or_never_run_says_nothing() -> None:
    """One in twenty still counts; one in twenty-one does not."""
    assert RARE == 1 / 20
    many = ["{{0,1,2,3},{4,5,6,7}}"]
    assert axes_of(module([*many * 19, PAIRS])) == [2, 2, 2]
    assert axes_of(module([*many * 20, PAIRS])) == [2, 4]
    assert axes_of(module(many, aside=PAIRS)) == [2, 4]


@pytest.mark.parametrize(
    ("sharding", "axes"),
    [
        ("{devices=[4,2]<=[8]}", [4, 2]),
        ("{devices=[2,4]<=[8]}", [2, 4]),
        ("{devices=[8,1]<=[8]}", [8]),
        ("{devices=[2,1,4]<=[8] last_tile_dim_replicate}", [2, 4]),
        ("{replicated}", []),
        ("{devices=[2,2]<=[4]}", []),  # of other devices
    ],
)
def test_axes_are_those_of_the_tiles(sharding: str, axes: list[int]) -> None:
    assert axes_of(module([], sharding=sharding)) == axes


def test_tiles_of_several_replicas_are_not_those_of_all_devices() -> None:
    one = module([], partitions=4, sharding="{devices=[2,2]<=[4]}")
    assert axes_of(one) == [2, 2]
    two = module([], partitions=4, replicas=2, sharding="{devices=[2,2]<=[4]}")
    assert axes_of(two) == []


def test_a_mesh_needs_two_devices() -> None:
    assert axes_of(module([], partitions=2, sharding="{devices=[2,1]<=[2]}")) == [2]
    assert axes_of(module([], partitions=1, sharding="{devices=[1,1]<=[1]}")) == []


def test_the_mesh_that_is_given_is_taken_if_it_has_as_many_devices() -> None:
    given = module_mesh(module([PAIRS]))
    assert given is not None
    named = Mesh(("data", "model"), given.axis_sizes, given.partitions)
    assert module_mesh(module([FOURS]), Target(mesh=named)) is named
    two = module([], partitions=4, sharding="{devices=[2,2]<=[4]}")
    found = module_mesh(two, Target(mesh=named))
    assert found is not None
    assert (found.axis_names, found.axis_sizes) == (("axis_0", "axis_1"), (2, 2))
