"""Programs over several TPU slices: what crosses between them is there, counted and budgeted."""

from __future__ import annotations

import inspect

import hloscope as hs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

SLICES, INSIDE = 2, 4


@pytest.fixture(scope="module")
def mesh(libtpu_at_hand):
    from jax.experimental import mesh_utils, topologies

    found = topologies.get_topology_desc("v5e:2x2", "tpu", num_slices=SLICES).devices
    grid = mesh_utils.create_hybrid_device_mesh(
        [1, INSIDE], [SLICES, 1], found, allow_split_physical_axes=True
    )
    return Mesh(grid, ("dcn", "ici"))


@pytest.fixture(scope="module")
def libtpu_at_hand():
    return pytest.importorskip("libtpu", reason='not installed (pip install "hloscope[tpu]")')


def array(mesh, shape, *spec):
    return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, P(*spec)))


@pytest.fixture(scope="module")
def step(mesh):
    """FSDP within a slice, data parallel between slices."""

    def loss(w, x):
        return jnp.mean(lax.scan(lambda c, w: (jnp.tanh(c @ w), None), x, w)[0] ** 2)

    def train(w, x):
        return jax.tree.map(lambda p, g: p - 0.1 * g, w, jax.grad(loss)(w, x))

    w, x = array(mesh, (3, 512, 512), None, "ici"), array(mesh, (64, 512), ("dcn", "ici"))
    return hs.capture(train, w, x)


@pytest.fixture(scope="module")
def by_hand(mesh):
    def f(x, y):
        return (
            lax.all_to_all(x, "dcn", 0, 1, tiled=True),
            lax.ppermute(y, "dcn", [(0, 1), (1, 0)]),
            lax.psum_scatter(x, "dcn", tiled=True),
            lax.all_gather(y, ("dcn", "ici"), tiled=True),
        )

    both = P(("dcn", "ici"))
    run = jax.shard_map(
        f, mesh=mesh, in_specs=(both, both), out_specs=(both, both, both, P()), check_vma=False
    )
    args = array(mesh, (64, 256), ("dcn", "ici")), array(mesh, (64, 128), ("dcn", "ici"))
    return hs.capture(run, *args)


def test_the_gradients_cross_between_slices(step):
    rows = step.collectives
    assert (rows.num_devices, rows.num_slices) == (SLICES * INSIDE, SLICES)
    crossing = [r for r in rows if r.network == "dcn"]
    assert {(r.kind, r.axes) for r in crossing} == {("all-reduce", "dcn")}
    # each device exchanges its shard of every layer's gradient once
    assert sum(r.total_payload_bytes for r in crossing) == 3 * 512 * 512 * 4 // INSIDE
    assert {r.axes for r in rows if r.network == "ici"} == {"ici"}
    assert "wire per device and network: dcn" in str(rows)
    assert {r["network"] for r in step.summary["collectives"]} == {"dcn", "ici"}


def test_every_exchange_is_one_row(step, by_hand):
    for cap in (step, by_hand):
        sends = sum(" send(" in line for line in cap.text.splitlines())
        assert sum(r.network == "dcn" for r in cap.collectives) == sends > 0


def test_traffic_stays_in_its_slice_or_crosses(step):
    rows = step.collectives
    slice_of = {d.partition: d.slice for d in step.target.devices}
    for row in rows:
        source, target = np.nonzero(rows.traffic([row]))
        crosses = {slice_of[a] != slice_of[b] for a, b in zip(source, target, strict=True)}
        assert crosses == {row.network == "dcn"}
        assert len(set(source)) == SLICES * INSIDE
    assert rows.traffic().sum(axis=1) == pytest.approx(rows.wire_bytes)


def test_kinds_by_hand(by_hand):
    found = {(r.kind, r.axes) for r in by_hand.collectives if r.network == "dcn"}
    kinds = ("all-to-all", "collective-permute", "reduce-scatter", "all-gather")
    assert found == {(kind, "dcn") for kind in kinds}


def test_budgets_see_both_networks(step):
    assert not hs.check(step, forbid=["all-reduce over dcn"])
    assert not hs.check(step, forbid=["all-gather over ici"])
    assert hs.check(step, forbid=["all-gather over dcn"])
    assert hs.check(step, max_wire_bytes={"dcn": "1MiB", "ici": "1GiB"})
    for axis in ("dcn", "ici"):
        assert hs.check(step, max_wire_bytes={axis: "1KiB"}).status == 1
    assert hs.check(step, max_wire_bytes={"fsdp": "1KiB"}).status == 2


def test_a_budget_over_part_of_an_axis_counts_for_the_axis(mesh):
    """One axis over both networks: its halves are rows of their own, and both are its."""
    whole = Mesh(mesh.devices.reshape(-1), ("fsdp",))
    cap = hs.capture(lambda x: jnp.sum(x, axis=0), array(whole, (4096, 512), "fsdp"))
    assert {r.axes for r in cap.collectives} == {"fsdp:(1)2", "fsdp:(2)4"}
    assert not hs.check(cap, forbid=["collective over fsdp"])
    assert hs.check(cap, max_wire_bytes={"fsdp": 8}).status == 1
    assert hs.check(cap, max_wire_bytes={"dcn": "1GiB"})


def test_the_exchange_has_its_time(step):
    cost = step.cost("tpu-v5e")
    far = [t for t in cost.transfers if t.is_far]
    rows = {r.index: r for r in step.collectives}
    assert [rows[t.collective].network for t in far] == ["dcn"] * len(far)
    assert len(far) == sum(r.network == "dcn" for r in step.collectives)
    assert len({t.collective for t in cost.transfers}) == len(rows)  # each once


def test_why(step):
    for row in step.collectives:
        card = step.why(row)
        if card.is_known:
            assert {o.axis for o in card.origins if o.axis} <= set(row.axes.split("+"))
    assert all(step.why(r).is_known for r in step.collectives)


def test_what_crosses_between_slices_is_told_by_data_flow(mesh):
    """Gradients of one size, in loops, padded to tiles and put together, have no names there."""
    heads, depth, wide = 4, 256, 512
    lines = {}

    def layer(x, w):
        h = jnp.einsum("bd,dhk->bhk", x, w["in"])  # padded: 64 of 128 lanes
        lines["in"] = here() - 1
        x = x + jnp.einsum("bhk,hkd->bd", jnp.tanh(h), w["out"])
        lines["out"] = here() - 1
        up = jnp.tanh(x @ w["up"])
        lines["up"] = here() - 1
        return x + up @ w["down"], None

    def loss(w, x):
        return jnp.mean(lax.scan(jax.checkpoint(layer), x, w)[0] ** 2)

    def train(w, x):
        return jax.tree.map(lambda p, g: p - 0.1 * g, w, jax.grad(loss)(w, x))

    w = {
        "in": array(mesh, (3, depth, heads, 64), None, "ici"),
        "out": array(mesh, (3, heads, 64, depth), None, None, None, "ici"),
        "up": array(mesh, (3, depth, wide), None, "ici"),
        "down": array(mesh, (3, wide, depth), None, None, "ici"),
    }
    cap = hs.capture(train, w, array(mesh, (128, depth), ("dcn", "ici")))
    lines["down"] = lines["up"] + 2
    far = [r for r in cap.collectives if r.network == "dcn"]
    cards = [cap.why(r) for r in far]
    assert far
    assert all(c.is_known for c in cards)
    size = {"in": depth * heads * 64, "out": heads * 64 * depth, "up": depth * wide}
    size["down"] = size["up"]
    of_line = {str(line): name for name, line in lines.items()}
    named = set()
    for row, card in zip(far, cards, strict=True):
        parts = [c.line.rpartition(":")[2] for c in (card.parts or (card,))]
        arrays = [of_line[line] for line in parts]
        named |= set(arrays)
        elements = sum(size[a] for a in arrays) // INSIDE
        itemsize = 4
        assert elements * itemsize <= row.payload_bytes <= 2 * elements * itemsize
        assert {o.axis for o in card.origins} <= {"", "dcn"}
    assert named == set(lines)


def here() -> int:
    """The line that calls it."""
    return inspect.currentframe().f_back.f_lineno


def test_a_permute_over_both_networks_is_what_the_program_asks_for(mesh):
    whole = Mesh(mesh.devices.reshape(-1), ("stage",))
    ring = [(k, (k + 1) % 8) for k in range(8)]
    f = jax.shard_map(
        lambda x: lax.fori_loop(0, 3, lambda _, c: lax.ppermute(c * 2, "stage", ring), x),
        mesh=whole, in_specs=P("stage"), out_specs=P("stage"), check_vma=False,
    )  # fmt: skip
    cap = hs.capture(f, array(whole, (64, 256), "stage"))
    assert {r.network for r in cap.collectives} == {"dcn", "ici"}
    assert all(cap.why(r).by_user for r in cap.collectives)


def test_arrays_and_devices_are_those_of_all_slices(step):
    found = step.shardings
    assert found.num_devices == SLICES * INSIDE
    w, x = found.parameters
    assert (w.replicas, x.replicas) == (SLICES, 1)
    assert found.device_bytes() == pytest.approx(3 * 512 * 512 * 4 / INSIDE + 64 * 512 * 4 / 8)


def test_the_text_alone_tells_the_slices(step, tmp_path):
    path = tmp_path / "step.hlo"
    path.write_text(step.text)
    read = hs.read(path).collectives
    assert (read.num_devices, read.num_slices) == (SLICES * INSIDE, SLICES)
    live = step.collectives
    assert [(r.kind, r.network, r.wire_bytes) for r in read] == [
        (r.kind, r.network, r.wire_bytes) for r in live
    ]
    assert read.traffic() == pytest.approx(live.traffic())


def test_a_permute_from_one_slice_to_the_other_is_found_too(mesh):
    """Its send and receive say which slices, not which way."""
    cap = hs.capture(lambda x: jnp.cumsum(x, axis=0)[1:], array(mesh, (64, 256), "dcn"))
    permutes = [r for r in cap.collectives if r.kind == "collective-permute"]
    assert {r.network for r in permutes} == {"dcn"}
    assert all(cap.why(r).is_known for r in permutes)
