"""Why over several TPU slices, where what crosses has no name: by data flow, not by size."""

from __future__ import annotations

import inspect

import hloscope as hs
import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P


@pytest.fixture(scope="module")
def mesh():
    pytest.importorskip("libtpu", reason='not installed (pip install "hloscope[tpu]")')
    from jax.experimental import mesh_utils, topologies

    found = topologies.get_topology_desc("v5e:2x2", "tpu", num_slices=2).devices
    grid = mesh_utils.create_hybrid_device_mesh(
        [1, 4], [2, 1], found, allow_split_physical_axes=True
    )
    return Mesh(grid, ("dcn", "ici"))


def array(mesh, shape, *spec, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, P(*spec)))


def line_of(function, mark):
    """The number of the line of ``function`` that ends in a comment with ``mark``."""
    lines, first = inspect.getsourcelines(function)
    return first + next(k for k, text in enumerate(lines) if text.rstrip().endswith(f"# {mark}"))


def number(line):
    return int(line.rpartition(":")[2])


def language_model(mesh):
    """Embedding and output weights of one size, rematerialised layers in a scan, norms."""
    d, f, n, v = 256, 512, 3, 1024

    def block(x, w):
        h = x * lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * w["norm"]  # norm
        x = x + jax.nn.silu(h @ w["gate"]) @ w["down"]  # mlp
        return lax.with_sharding_constraint(x, NamedSharding(mesh, P(("dcn", "ici")))), None

    def loss(p, tokens):
        x = p["in"][tokens]  # in
        x, _ = lax.scan(jax.checkpoint(block), x, p["blocks"])  # scan
        return jnp.mean(jax.nn.log_softmax(x @ p["out"]) ** 2)  # out

    def step(p, tokens):
        g = jax.grad(loss)(p, tokens)
        norm = jnp.sqrt(sum(jnp.sum(a * a) for a in jax.tree.leaves(g)))
        return jax.tree.map(lambda a, b: a - b / jnp.maximum(norm, 1.0), p, g)

    blocks = {
        "norm": array(mesh, (n, d)),
        "gate": array(mesh, (n, d, f), None, "ici"),
        "down": array(mesh, (n, f, d), None, None, "ici"),
    }
    p = {
        "in": array(mesh, (v, d), None, "ici"),
        "out": array(mesh, (d, v), "ici"),
        "blocks": blocks,
    }
    return hs.capture(step, p, array(mesh, (16, 128), ("dcn", "ici"), dtype=jnp.int32))


def test_equal_sizes_are_told_apart_and_loops_end(mesh):
    cap = language_model(mesh)
    rows = list(cap.collectives)
    cards = [cap.why(row) for row in rows]
    assert sum(c.is_known for c in cards) >= 0.9 * len(cards)
    of = {line_of(language_model, name): name for name in ("norm", "mlp", "in", "out")}
    summed = {}
    for row, card in zip(rows, cards, strict=True):
        if card.is_known and row.phase != "forward" and len(card.parts or (card,)) == 1:
            summed.setdefault(of.get(number(card.line)), set()).add((row.network, row.kind))
            if row.moves is not None and row.moves.kind == "argument":
                name = row.moves.name.removeprefix("p['blocks']").strip("p[']")
                at = {"gate": "mlp", "down": "mlp"}.get(name, name)
                assert of[number(card.line)] == at
    assert ("dcn", "all-reduce") in summed["in"]
    assert ("dcn", "all-reduce") in summed["out"]
    # a gather of the loop is of the op there, not of the same weight's in the derivative
    for row, card in zip(rows, cards, strict=True):
        if row.kind == "all-gather" and row.phase == "forward" and card.opcode == "dot":
            assert "transpose(" not in card.op_name


def by_name(mesh):
    """Reduced by name, in the slice, between slices and in the slice again; a ring and a sum."""

    def local(w, x):
        loss, g = jax.value_and_grad(lambda w: jnp.mean((jnp.tanh(x @ w) @ w) ** 2))(w)
        g = lax.psum_scatter(g, "ici", scatter_dimension=0, tiled=True)  # scatter
        g = lax.psum(g, "dcn")  # psum
        g = lax.all_gather(g, "ici", axis=0, tiled=True)  # gather
        x = lax.ppermute(x, "dcn", [(0, 1), (1, 0)])  # permute
        return w - 0.1 * g, x, lax.pmean(loss, ("dcn", "ici"))  # mean

    both = P(("dcn", "ici"))
    f = jax.shard_map(
        local, mesh=mesh, in_specs=(P(), both), out_specs=(P(), both, P()), check_vma=False
    )
    return hs.capture(f, array(mesh, (256, 256)), array(mesh, (64, 256), ("dcn", "ici")))


def test_the_line_that_asks_by_name_is_its_own(mesh):
    cap = by_name(mesh)
    names = ("scatter", "psum", "gather", "permute", "mean")
    of = {line_of(by_name, name): name for name in names}
    found = {}
    for row in cap.collectives:
        card = cap.why(row)
        assert card.by_user
        assert card.is_known
        found.setdefault(of[number(card.line)], set()).add((row.kind, row.network))
        assert row.line == card.line  # tables have the card's
    assert found == {
        "scatter": {("reduce-scatter", "ici")},
        "psum": {("all-reduce", "dcn")},
        "gather": {("all-gather", "ici")},
        "permute": {("collective-permute", "dcn")},
        "mean": {("all-reduce", "ici"), ("all-reduce", "dcn")},
    }


def test_a_lost_name_is_not_made_up(mesh):
    """Two lines ask for what looks the same between slices."""

    def local(x):
        a = lax.ppermute(x, "dcn", [(0, 1), (1, 0)])
        return lax.ppermute(jnp.sin(a), "dcn", [(0, 1), (1, 0)])

    both = P(("dcn", "ici"))
    f = jax.shard_map(local, mesh=mesh, in_specs=both, out_specs=both, check_vma=False)
    cap = hs.capture(f, array(mesh, (64, 256), ("dcn", "ici")))
    first = inspect.getsourcelines(local)[1]
    for row, line in zip(cap.collectives, (first + 1, first + 2), strict=True):
        card = cap.why(row)
        assert not card.is_known or number(card.line) == line


@pytest.fixture(scope="module")
def square():
    """Four by four devices: the first axis lies across two slices, and both are of one length."""
    pytest.importorskip("libtpu", reason='not installed (pip install "hloscope[tpu]")')
    import numpy as np
    from jax.experimental import topologies

    found = topologies.get_topology_desc("v5e:2x4", "tpu", num_slices=2).devices
    found = sorted(found, key=lambda d: (d.slice_index, d.id))
    return Mesh(np.array(found).reshape(4, 4), ("data", "model"))


def said(card):
    return {(o.axis, o.kind, o.name or number(o.line)) for o in card.origins}


def moved(mesh):
    """Each line moves something to other places, across the slices as within them."""

    keep = lax.with_sharding_constraint
    other, rows, columns = (
        NamedSharding(mesh, P(*spec)) for spec in (("model", "data"), ("data",), (None, "data"))
    )

    def f(x, y, z, w):
        a = keep(jnp.sin(x), other)  # swapped
        b = keep(y, rows)  # there
        b = keep(jnp.cos(b), columns)  # back
        c = keep(jnp.sin(z), columns)  # held
        c = jnp.einsum("ecd,edf->ecf", c, w)  # product
        c = keep(c, rows)
        return a, b, c, jnp.max(jnp.abs(x))  # largest

    f32 = [((64, 32), "data", "model"), ((64, 32), None, "data")]
    f32 += [((8, 64, 32), None, "data"), ((8, 32, 16), "data")]
    return hs.capture(jax.jit(f), *(array(mesh, dims, *spec) for dims, *spec in f32)), f


def test_all_steps_of_one_move_have_its_cause(square):
    cap, f = moved(square)
    of = {line_of(f, k): k for k in ("swapped", "there", "back", "held", "product", "largest")}
    found = {}
    for row in cap.collectives:
        card = cap.why(row)
        assert card.is_known, row
        found.setdefault(of[number(card.line)], []).append((row.kind, row.network, said(card)))
    assert found.keys() == {"swapped", "there", "back", "product", "largest"}
    swapped = {(kind, network) for kind, network, _ in found["swapped"]}
    assert swapped == {("collective-permute", "ici"), ("collective-permute", "dcn")}
    # every slice runs its own branch; in both the same moves
    assert all(("data", "argument", "x") in o for _, _, o in found["swapped"])
    assert [(k, n) for k, n, _ in found["there"]] == [("all-to-all", "dcn")]
    assert [(k, n) for k, n, _ in found["back"]] == [("all-to-all", "dcn")]
    assert ("data", "argument", "y") in found["there"][0][2]
    held = next(n for n, k in of.items() if k == "held")
    for _, _, origins in found["product"]:  # the other factor is why the first one moves
        assert ("data", "constraint", held) in origins
        assert ("data", "argument", "w") in origins
    assert {(k, n) for k, n, _ in found["largest"]} == {
        ("all-reduce", "ici"),
        ("all-reduce", "dcn"),
    }


def test_what_is_summed_elsewhere_than_it_is_returned(square):
    """The partitioner sums over one axis what it then moves to the other one."""
    out = NamedSharding(square, P(None, "model"))
    cap = hs.capture(
        jax.jit(lambda x, w: x @ w, out_shardings=out),
        array(square, (64, 32), None, "model"), array(square, (32, 64), "model"),
    )  # fmt: skip
    kinds = {row.kind for row in cap.collectives}
    assert kinds == {"all-reduce", "collective-permute"}
    for row in cap.collectives:
        card = cap.why(row)
        assert {("model", "argument", "x"), ("model", "argument", "w")} <= said(card)
        assert (row.kind == "all-reduce") != any(o.kind == "output" for o in card.origins)


def test_a_sum_over_an_axis_that_no_operand_had(square):
    """Rows of weights on the axis that the batch has: the partitioner moves them to the other."""
    cap = hs.capture(
        jax.jit(lambda x, w: x @ w),
        array(square, (64, 32), "data"), array(square, (32, 64), "data"),
    )  # fmt: skip
    summed = next(row for row in cap.collectives if row.kind == "all-reduce")
    assert summed.axes == "model"
    card = cap.why(summed)
    assert said(card) == {("data", "argument", "w"), ("data", "argument", "x")}
    assert "as the partitioner chose" in card.needs


def test_a_shift_of_what_a_scatter_wrote_is_the_shifts_own() -> None:
    """Rows of walls written into a field, whose fluxes are shifts by a row."""
    rows = NamedSharding(jax.make_mesh((8,), ("x",), axis_types=(AxisType.Auto,)), P("x"))

    def step(h):
        h = h.at[0:2].set(h[2:4]).at[-2:].set(h[-4:-2])
        return h + jnp.roll(h, -1, 0)

    field = jax.ShapeDtypeStruct((4096, 512), jnp.float32, sharding=rows)
    cap = hs.capture(jax.jit(step, out_shardings=rows), field)
    shifts = [row for row in cap.collectives if "roll" in row.op_name]
    assert shifts
    for row in shifts:
        assert cap.why(row).opcode == "concatenate"
