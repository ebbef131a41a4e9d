"""One Sharding whatever the spelling: against jax, against XLA's own parser, and by hand."""

from __future__ import annotations

import math
import subprocess
import sys
from random import Random

import hloscope as hs
import hypothesis.strategies as st
import jax
import numpy as np
import pytest
from hloscope.hlo import Mesh, parse_shape
from hloscope.hlo.shardings.axes import arrange
from hloscope.hlo.shardings.mesh_text import AxisRef
from hloscope.hlo.shardings.sharding import named, spec_text
from hloscope.hlo.shardings.sharding_text import parse_sharding, shardy_meshes
from hypothesis import given, settings
from jax._src.lib import xla_client
from jax.sharding import NamedSharding, PartitionSpec

MESH = Mesh(("data", "model"), (2, 4), tuple(range(8)))


@st.composite
def meshes(draw):
    sizes = draw(st.sampled_from([(8,), (2, 4), (4, 2), (2, 2, 2), (1, 8), (2, 1, 4), (2, 3)]))
    order = draw(st.permutations(range(math.prod(sizes))))
    names = tuple("xyz"[: len(sizes)])
    return Mesh(names, sizes, tuple(order))


@st.composite
def meshes_and_specs(draw):
    mesh = draw(meshes())
    axes = draw(st.permutations(mesh.axis_names))
    rank = draw(st.integers(1, 4))
    used = axes[: draw(st.integers(0, len(axes)))]
    spec = [[] for _ in range(rank)]
    for a in used:
        spec[draw(st.integers(0, rank - 1))].append(AxisRef(a))
    return mesh, tuple(tuple(s) for s in spec)


def jax_sharding(mesh: Mesh, spec) -> NamedSharding:
    devices = np.asarray(jax.devices())[list(mesh.partitions)].reshape(mesh.axis_sizes)
    entries = [tuple(r.name for r in axes) or None for axes in spec]
    return NamedSharding(jax.sharding.Mesh(devices, mesh.axis_names), PartitionSpec(*entries))


@settings(max_examples=150, deadline=None)
@given(meshes_and_specs(), st.data())
def test_tiles_are_jaxs_device_indices(mesh_and_spec, data):
    mesh, spec = mesh_and_spec
    ours = named(mesh, spec)
    shape = tuple(n * data.draw(st.integers(1, 3)) for n in ours.tiles)
    theirs = jax_sharding(mesh, spec).devices_indices_map(shape)
    expected = {
        d.id: tuple(s.indices(n)[:2] for s, n in zip(index, shape, strict=True))
        for d, index in theirs.items()
    }
    assert ours.device_ranges(shape, len(mesh.partitions)) == expected


@settings(max_examples=150, deadline=None)
@given(meshes_and_specs())
def test_gspmd_text_of_jax_means_the_same_and_gives_the_spec_back(mesh_and_spec):
    mesh, spec = mesh_and_spec
    n = len(mesh.partitions)
    sharding = jax_sharding(mesh, spec)
    # XLA numbers devices by their place in the program, which jax takes in mesh order
    logical = Mesh(mesh.axis_names, mesh.axis_sizes, tuple(range(n)))
    text = repr(sharding._to_xla_hlo_sharding(len(spec)))
    ours = parse_sharding(text)
    assert ours.is_known
    assert ours.places_alike(named(logical, spec), len(spec), n)
    back = ours.to_spec(logical, len(spec))
    assert back is not None
    assert named(logical, back).places_alike(ours, len(spec), n)


def random_named_text(random: Random) -> str:
    """XLA's named form with sub-axes and device orders, valid by construction."""
    sizes = random.choice([(8,), (2, 4), (4, 4), (16,), (2, 2, 2)])
    factors = []
    for name, size in zip("xyz", sizes, strict=False):
        pre = 1
        while pre < size:
            step = random.choice([n for n in (2, 4, 8, 16) if size // pre % n == 0])
            factors.append((name, pre, step, size))
            pre *= step
    random.shuffle(factors)
    rank = random.randint(1, 3)
    rows: list[list[tuple[str, int, int, int]]] = [[] for _ in range(rank + 1)]
    for factor in factors:
        row = random.choice(rows)
        last = row[-1] if row else ("", 0, 0, 0)
        if last[0] == factor[0] and last[1] * last[2] == factor[1]:  # XLA wants these merged
            row[-1] = (last[0], last[1], last[2] * factor[2], last[3])
        else:
            row.append(factor)

    def text(factor: tuple[str, int, int, int]) -> str:
        name, pre, step, size = factor
        return f"'{name}'" if step == size else f"'{name}':({pre}){step}"

    mesh = ",".join(f"'{n}'={s}" for n, s in zip("xyz", sizes, strict=False))
    dims = ", ".join("{" + ", ".join(map(text, row)) + "}" for row in rows[:rank])
    ids = ""
    if random.random() < 0.5 and len(sizes) > 1:
        turned = range(len(sizes) - 1, -1, -1)
        ids = f", device_ids=([{','.join(str(sizes[t]) for t in turned)}]"
        ids += f"T({','.join(map(str, turned))}))"
    return f"{{mesh[{mesh}]{ids}, [{dims}]}}"


# XLA's parser may abort the process, so it runs in a child.
ASK_XLA = """
import sys
from jax._src.lib import xla_client
for line in sys.stdin:
    print(repr(xla_client.HloSharding.from_string(line.strip()).v3_to_v2_sharding()), flush=True)
"""


def test_named_text_against_xlas_own_parser():
    random = Random(0)
    texts = [random_named_text(random) for _ in range(300)]
    child = subprocess.run(
        [sys.executable, "-c", ASK_XLA], input="\n".join(texts), capture_output=True, text=True
    )
    answers = child.stdout.splitlines()
    assert len(answers) == len(texts), child.stderr[-500:]
    for text, answer in zip(texts, answers, strict=True):
        ours, twin = parse_sharding(text), parse_sharding(answer)
        assert ours.is_known, text
        assert twin.is_known, answer
        assert ours.mesh is not None
        assert ours.places_alike(twin, len(ours.tiles), len(ours.mesh.partitions)), text


@pytest.mark.parametrize(
    "text",
    [
        "{devices=[4,2]<=[2,4]T(1,0)}",
        "{devices=[2,1,2,2]<=[2,4]T(1,0) last_tile_dims={manual, replicated}}",
        "{devices=[2,1,4]<=[8] last_tile_dims={unreduced}}",
        "{devices=[4,1,2]0,7,1,6,2,5,3,4 last_tile_dim_replicate}",
        '{devices=[4,2]<=[8] last_tile_dim_replicate metadata={op_name="a{b}" source_line=3}}',
        '{devices=[2,2,2]<=[8] last_tile_dim_replicate metadata={{op_name="a"}, {op_name="b"}}}',
    ],
)
def test_tile_arrays_are_xlas(text):
    theirs = xla_client.HloSharding.from_string(text)
    ours = parse_sharding(text)
    dims = [*ours.tiles, *(n for _, n in ours.subgroups)]
    assert dims == list(theirs.tile_assignment_dimensions())
    assert ours.device_array is not None
    assert ours.device_array.reshape(-1).tolist() == list(theirs.tile_assignment_devices())


def test_words_maximal_tuples_and_what_is_not_understood():
    assert parse_sharding("{replicated}").kind == "replicated"
    assert parse_sharding("{manual}").kind == "manual"
    assert parse_sharding("{unreduced}").kind == "unreduced"
    alone = parse_sharding("{maximal device=3}")
    assert alone.device_ranges((4, 4), 8) == {3: ((0, 4), (0, 4))}
    pair = parse_sharding("{{replicated}, {devices=[8]<=[8]}}")
    assert [p.kind for p in pair.parts] == ["replicated", "tiled"]
    assert pair.local_bytes(parse_shape("(f32[16], f32[16])")) == 64 + 8
    for text in ("{devices=[3,2]<=[8]}", "{devices=[8]0,1}", "{dazzling}", "", "devices"):
        odd = parse_sharding(text)
        assert (odd.kind, odd.text) == ("unknown", text)
    axes = "{mesh['x'=2,'y'=4], [{'y':(1)3}]}"
    assert parse_sharding(axes).kind == "unknown"


def test_uneven_tiles_are_smaller_then_empty():
    rows = parse_sharding("{devices=[4,1,2]<=[2,4]T(1,0) last_tile_dim_replicate}")
    tiles = rows.tile_list((10, 64), 8)
    assert [t.ranges[0] for t in tiles] == [(0, 3), (3, 6), (6, 9), (9, 10)]
    assert [t.devices for t in tiles] == [(0, 4), (1, 5), (2, 6), (3, 7)]
    assert rows.replicas(8) == 2
    short = rows.tile_list((5, 64), 8)
    assert [t.ranges[0] for t in short] == [(0, 2), (2, 4), (4, 5), (5, 5)]
    assert rows.local_bytes(parse_shape("f32[10,64]")) == 3 * 64 * 4


def test_shardy_attributes_with_sub_axes_and_open_dimensions():
    mlir = """sdy.mesh @mesh = <["data"=2, "model"=4]>
  sdy.mesh @r = <["a"=8], device_ids=[7, 6, 5, 4, 3, 2, 1, 0]>"""
    known = shardy_meshes(mlir)
    assert known["mesh"] == MESH
    assert known["r"].partitions == tuple(range(7, -1, -1))
    one = parse_sharding(
        '#sdy.sharding<@mesh, [{"data"}, {"model":(2)2, ?}], replicated={}>', known
    )
    assert one.places_alike(
        parse_sharding("{devices=[2,2,2]<=[2,2,2]T(0,2,1) last_tile_dim_replicate}"), 2, 8
    )
    many = parse_sharding('#sdy.sharding_per_value<[<@mesh, [{}]>, <@mesh, [{"model"}p1]>]>', known)
    assert [p.kind for p in many.parts] == ["replicated", "tiled"]
    inline = parse_sharding('#sdy.sharding<mesh<["x"=2, "y"=4]>, [{"y", "x"}]>')
    assert inline.device_array is not None
    assert inline.device_array.reshape(-1).tolist() == [0, 4, 1, 5, 2, 6, 3, 7]
    assert parse_sharding("#sdy.sharding<@other, [{}]>", known).kind == "unknown"


def test_jaxs_own_spelling():
    spec = parse_sharding("PartitionSpec('data', ('model',), None)", {"": MESH})
    assert spec.describe(MESH) == "P('data', 'model', None)"
    whole = repr(jax_sharding(MESH, ((AxisRef("model"), AxisRef("data")), ())))
    ours = parse_sharding(whole)
    assert ours.device_ranges((8, 2), 8)[4] == ((1, 2), (0, 2))
    assert spec_text(((AxisRef("x"),),)) == "P('x',)"


def test_specs_that_no_axis_explains():
    swapped = parse_sharding("{devices=[8]0,2,1,3,4,5,6,7}")
    assert swapped.to_spec(MESH) is None
    half = parse_sharding("{devices=[2,4]<=[2,2,2]T(1,0,2) last_tile_dim_replicate}")
    assert half.describe(MESH) == "P('model:(1)2',)"
    with pytest.raises(ValueError, match="does not fit the mesh"):
        named(MESH, ((AxisRef("stage"),),))
    assert arrange(MESH, [[AxisRef("data")], [AxisRef("data")]]) is None


def test_a_partitioned_dump_without_annotations_still_has_bytes_on_each_device():
    text = (
        "HloModule jit_f, is_scheduled=true, num_partitions=4\n\n"
        "ENTRY %main_spmd (p: f32[8]) -> f32[8] {\n"
        "  %p = f32[8]{0} parameter(0)\n"
        "  ROOT %n = f32[8]{0} negate(%p)\n}\n"
    )
    found = hs.read(text)
    assert found.shardings.device_bytes("parameter").tolist() == [32.0] * 4
    assert found.shardings.device_bytes("output").tolist() == [32.0] * 4
    assert found.summary["shapes"] == "local"
    assert "32 B per device" in str(found)
    before = hs.read(text.replace("is_scheduled=true, ", "").replace("main_spmd", "main"))
    assert all(math.isnan(b) for b in before.shardings.device_bytes("parameter"))
    assert before.summary["devices"][0]["parameter_bytes"] is None
    assert before.summary["shapes"] == "global"
    assert "32 B in global shapes, before partitioning" in str(before)


@pytest.mark.parametrize("stage", ["stablehlo", "hlo"])
def test_an_output_nobody_said_the_sharding_of_is_not_replicated(stage, tmp_path):
    """Before compiling it is not chosen yet; a constraint inside is a value's, not an output's."""
    mesh = jax.sharding.Mesh(np.array(jax.devices()).reshape(2, 4), ("data", "model"))
    cut, rows = (
        NamedSharding(mesh, PartitionSpec(*s)) for s in (("data", "model"), ("data", None))
    )

    def f(x):
        return jax.lax.with_sharding_constraint(x * 2, cut).sum(1)

    x = jax.ShapeDtypeStruct((32, 64), np.float32, sharding=rows)
    cap = hs.capture(f, x).at(stage)
    assert [(r.role, r.bytes_per_device) for r in cap.shardings] == [
        ("parameter", 32 * 64 * 4 // 2),
        ("value", 32 * 64 * 4 // 8),
    ]
    assert np.isnan(cap.shardings.device_bytes("output")).all()
    path = tmp_path / f"f.{'mlir' if stage == 'stablehlo' else 'hlo'}"
    path.write_text(cap.text)
    assert [(r.role, r.bytes_per_device) for r in hs.read(path).shardings] == [
        (r.role, r.bytes_per_device) for r in cap.shardings
    ]
    told = hs.capture(jax.jit(lambda x: x * 2, out_shardings=cut), x).at(stage)
    assert [(r.role, r.text) for r in told.shardings if r.role == "output"] == [
        ("output", "P('data', 'model')")
    ]
