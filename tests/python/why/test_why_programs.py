"""Why, on programs as people write them: nearly all named, none against its own row."""

from __future__ import annotations

import inspect

import hloscope as hs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hloscope.capturing.topology import make_mesh, topology_devices
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from quickly import as_users_do

MOVES = ("all-gather", "all-to-all", "collective-permute")


def mesh_of(topology=None, **axes):
    if topology is not None:
        return make_mesh(topology_devices(topology), axes, topology, exact=True)
    return Mesh(np.array(jax.devices()).reshape(tuple(axes.values())), tuple(axes))


def array(mesh, shape, *spec, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, P(*spec)))


def constrain(mesh, x, *spec):
    return lax.with_sharding_constraint(x, NamedSharding(mesh, P(*spec)))


def scanned_fsdp(mesh):
    """Layers in a scan, rematerialised; every weight is gathered, forward and again backward."""

    def layer(x, w):
        q, k = jnp.einsum("btd,dh->bth", x, w["q"]), jnp.einsum("btd,dh->bth", x, w["k"])
        p = jax.nn.softmax(jnp.einsum("bth,bsh->bts", q, k))
        h = x + jnp.einsum("bts,bsh,hd->btd", p, q, w["o"])
        return constrain(mesh, h + jax.nn.silu(h @ w["up"]) @ w["down"], "fsdp", None, None), None

    def loss(w, x):
        return jnp.mean(lax.scan(jax.checkpoint(layer), x, w)[0] ** 2)

    def step(w, x):
        return jax.tree.map(lambda p, g: p - 0.1 * g, w, jax.grad(loss)(w, x))

    d, f, n = 128, 256, 3
    w = {
        "q": array(mesh, (n, d, d), None, "fsdp", "tensor"),
        "k": array(mesh, (n, d, d), None, "fsdp", "tensor"),
        "o": array(mesh, (n, d, d), None, "tensor", "fsdp"),
        "up": array(mesh, (n, d, f), None, "fsdp", "tensor"),
        "down": array(mesh, (n, f, d), None, "tensor", "fsdp"),
    }
    return hs.capture(step, w, array(mesh, (8, 64, d), "fsdp"))


def unrolled(mesh):
    """Layers in a Python loop through a shared helper, and ops that need a dimension whole."""

    def dense(x, w):
        return jnp.tanh(x @ w)  # helper

    def f(ws, x):
        for w in ws:
            x = x + dense(dense(x, w["up"]), w["down"])
        y = constrain(mesh, x, "data", "model")
        whole = jnp.sort(y, axis=1), lax.top_k(y, 4)[0], jnp.max(y, axis=1)
        return *whole, jnp.concatenate([y, y * 2], axis=1), jnp.cumsum(y, axis=1)

    ws = [
        {"up": array(mesh, (128, 256), None, "model"), "down": array(mesh, (256, 128), "model")}
        for _ in range(3)
    ]
    return hs.capture(f, ws, array(mesh, (32, 128), "data"))


@pytest.fixture(scope="module")
def scanned():
    return scanned_fsdp(mesh_of(fsdp=2, tensor=4))


@pytest.fixture(scope="module")
def loops():
    return unrolled(mesh_of(data=2, model=4))


def contradictions(cap):
    """Cards that their own rows speak against: other axes, or another argument."""
    out = []
    for row in cap.collectives:
        card = cap.why(row)
        if card.by_user or not card.is_known:
            continue
        cards = card.parts or (card,)
        axes = {a.partition(":")[0] for a in row.axes.split("+")}
        if not {o.axis for o in card.origins if o.axis} <= axes:
            out.append((row.name, row.axes, str(card)))
        said = " ".join(f"{c.had} {c.needs}" for c in cards)
        if not all(f"'{a}" in said or f"over {a}" in said for a in axes) and "chose" not in said:
            out.append((row.name, row.axes, str(card)))
        if row.kind in MOVES and row.moves is not None and row.moves.kind == "argument":
            named = {c.operand for c in cards}
            if row.moves.name not in named and "computed" not in said:
                out.append((row.name, row.moves.name, str(card)))
    return out


def assert_named(cap, share=0.9):
    cards = [cap.why(r) for r in cap.collectives]
    known = [c for c in cards if c.is_known]
    assert len(known) >= share * len(cards), "\n".join(str(c) for c in cards if not c.is_known)
    assert contradictions(cap) == []


def test_scanned_and_rematerialised_weights_are_named(scanned):
    assert_named(scanned)
    gathered = {
        (scanned.why(r).operand, r.phase) for r in scanned.collectives if r.kind == "all-gather"
    }
    for weight in ("q", "k", "o", "up", "down"):
        assert (f"w['{weight}']", "forward") in gathered
    assert all(
        o.kind != "unknown"
        for r in scanned.collectives
        for o in scanned.why(r).origins
        if scanned.why(r).operand.startswith("w[") and o.of == "operand"
    )


def test_the_same_on_a_tpu(libtpu):
    assert_named(scanned_fsdp(mesh_of("v5e:2x4", fsdp=2, tensor=4)))


def test_unrolled_layers_and_ops_that_need_a_dimension_whole(loops):
    assert_named(loops)
    asked = {p.opcode for r in loops.collectives for p in (loops.why(r).parts or (loops.why(r),))}
    assert {"sort", "dot", "reduce"} <= asked
    largest = [
        loops.why(r) for r in loops.collectives if "maximum over model" in loops.why(r).needs
    ]
    assert [c.opcode for c in largest] == ["reduce"]


def test_a_shared_helper_shows_who_called_it(loops):
    first = inspect.getsourcelines(unrolled)[1]
    helper = next(
        first + k for k, s in enumerate(inspect.getsource(unrolled).splitlines()) if "# helper" in s
    )
    cards = [loops.why(r) for r in loops.collectives if r.line.endswith(f":{helper}")]
    assert cards
    for card in cards:
        assert card.callers
        assert card.callers[0].endswith(f":{helper + 4}")
        assert "called from" in str(card)


def test_what_the_program_returns_is_named():
    mesh = mesh_of(data=2, model=4)
    out = NamedSharding(mesh, P("data", None))
    f = jax.jit(lambda x, w: {"y": jnp.tanh(x @ w), "z": x * 2}, out_shardings={"y": out, "z": out})
    cap = hs.capture(f, array(mesh, (32, 64), "data"), array(mesh, (64, 64), None, "model"))
    (row,) = cap.collectives
    card = cap.why(row)
    assert (card.opcode, card.had, card.needs) == (
        "output", "P('data', 'model')", "returned as P('data', None)",
    )  # fmt: skip
    assert [(o.kind, o.name) for o in card.origins if o.of == "result"] == [("output", "['y']")]


def test_two_steps_of_one_move_have_each_its_axis(scanned):
    steps = [
        r for r in scanned.collectives
        if r.kind == "all-gather" and r.moves is not None and r.moves.kind == "argument"
    ]  # fmt: skip
    assert {r.axes for r in steps} <= {"fsdp", "tensor", "fsdp+tensor"}
    for row in steps:
        card = scanned.why(row)
        assert {o.axis for o in card.origins if o.of == "operand"} == set(row.axes.split("+"))


def by_hand(mesh):
    def run(w, v, x):
        def layer(x):
            h = jax.nn.relu(x @ w)
            return h @ v

        y = lax.psum(layer(x), "model")
        return lax.pmean(jnp.mean(y**2), "data") + lax.psum(jnp.sum(x) * 0, "data")

    specs = (P(None, "model"), P("model", None), P("data", None))
    f = jax.shard_map(run, mesh=mesh, in_specs=specs, out_specs=P())
    args = (
        array(mesh, (64, 128), None, "model"),
        array(mesh, (128, 64), "model"),
        array(mesh, (32, 64), "data"),
    )
    return hs.capture(jax.value_and_grad(f, (0, 1)), *args)


def test_what_autodiff_adds_is_not_asked_for_by_name():
    cap = by_hand(mesh_of(data=2, model=4))
    first = inspect.getsourcelines(by_hand)[1]
    lines = inspect.getsource(by_hand).splitlines()
    for row in cap.collectives:
        assert row.written_by in ("user", "autodiff")
        card = cap.why(row)
        for part in card.parts or (card,):
            text = lines[int(part.line.rpartition(":")[2]) - first]
            assert ("lax.p" in text) is not part.by_autodiff, text
    cards = [cap.why(r) for r in cap.collectives]
    assert any(p.by_autodiff for c in cards for p in c.parts or (c,))
    assert any("by autodiff, for the gradient" in str(c) for c in cards)


def piped(mesh, options=None):
    """Stages that hand on activations in a loop; their weights are whole on each of ``data``."""

    def stage(w, x):
        return x + jnp.tanh(x @ w["a"][0]) @ w["b"][0]

    def run(w, x):
        start = lax.pcast(jnp.zeros(x.shape[1:]), ("pipe", "data"), to="varying")

        def tick(c, t):
            y = stage(w, jnp.where(lax.axis_index("pipe") == 0, x[t], c))
            return lax.ppermute(y, "pipe", [(k, k + 1) for k in range(3)]), None

        out, _ = lax.scan(tick, start, jnp.arange(4))
        return lax.psum(jnp.where(lax.axis_index("pipe") == 3, out, 0), "pipe")

    specs = {"a": P("pipe"), "b": P("pipe")}, P(None, "data")
    whole = jax.shard_map(run, mesh=mesh, in_specs=specs, out_specs=P("data"))

    def step(w, x):
        return jax.value_and_grad(lambda w: jnp.mean(whole(w, x) ** 2))(w)

    w = {"a": array(mesh, (4, 64, 128), "pipe"), "b": array(mesh, (4, 128, 64), "pipe")}
    x = array(mesh, (4, 8, 64), None, "data")
    return hs.capture(step, w, x, compiler_options=options)


def test_gradients_that_autodiff_sums_in_a_loop_are_not_asked_for_by_name():
    """The names of what stands in a loop of a function do not tell who called the function."""
    cap = piped(mesh_of(pipe=4, data=2))
    (summed,) = [r for r in cap.collectives if r.axes == "data" and len(r.parts) == 2]
    card = cap.why(summed)
    assert card.by_autodiff
    assert all(p.by_autodiff for p in card.parts)
    assert "by name" not in str(card)
    kinds = {(r.axes, r.kind): cap.why(r) for r in cap.collectives if r.phase == "forward"}
    assert kinds["pipe", "collective-permute"].by_user
    assert not kinds["pipe", "collective-permute"].by_autodiff


def test_what_the_partitioner_puts_beside_it_is_not_asked_for_by_name(libtpu):
    """On TPU the mean of the loss rides along with the gradients that autodiff sums."""
    cap = piped(mesh_of("v5e:2x4", pipe=4, data=2), as_users_do(tpu=True))
    (row,) = [r for r in cap.collectives if r.axes == "data"]
    card = cap.why(row)
    assert len(row.parts) == 3
    asked = {p.by_user: p for p in card.parts}
    assert asked[True].by_autodiff
    assert asked[False].opcode == "reduce"
    assert "by name" not in str(card)
    assert "by reduce f32[]" in str(card)


def test_all_lines_of_a_combined_collective():
    mesh = mesh_of(data=8)

    def run(x):
        a = lax.psum(x.mean(0), "data")
        b = lax.psum(x.max(0) * 2, "data")
        return a, b

    f = jax.shard_map(run, mesh=mesh, in_specs=P("data"), out_specs=(P(), P()))
    cap = hs.capture(f, array(mesh, (64, 32), "data"))
    (row,) = cap.collectives
    assert len(row.parts) == 2
    first = inspect.getsourcelines(run)[1]
    card = cap.why(row)
    assert {int(p.line.rpartition(":")[2]) for p in card.parts} == {first + 1, first + 2}
    assert str(card).count(" at ") >= 2


def test_combined_gradients_name_every_op(scanned):
    combined = [r for r in scanned.collectives if len(r.parts) > 1 and r.kind == "all-reduce"]
    assert combined
    for row in combined:
        card = scanned.why(row)
        weights = {p.shape for p in row.parts}
        assert len({(p.line, p.shape) for p in card.parts or (card,)}) >= len(weights) - 1


def test_a_gather_of_what_had_its_layout_is_asked_for_by_what_takes_it():
    """A slice and a pad move rows first; the gather after that is for the output's sharding."""
    mesh = mesh_of(r=2, c=4)
    out = NamedSharding(mesh, P("r")), NamedSharding(mesh, P(None, "c"))
    f = jax.jit(lambda a, b: (a[::2], jnp.pad(b, ((1, 1), (0, 0)))), out_shardings=out)
    cap = hs.capture(f, array(mesh, (256, 64), "r", "c"), array(mesh, (256, 64), "r", "c"))
    cards = {r.axes: cap.why(r) for r in cap.collectives if r.kind == "all-gather"}
    assert set(cards) == {"r", "c"}
    assert {c.opcode for c in cards.values()} == {"output"}
    assert "returned as P(None, 'c')" in str(cards["r"])
    assert "returned as P('r', None)" in str(cards["c"])


def test_a_branch_within_a_loop_is_followed_to_its_argument():
    mesh = mesh_of(data=2, model=4)

    def f(x, w):
        def body(c, i):
            return lax.cond(i % 2 == 0, lambda a: jnp.tanh(a @ w), lambda a: a * 2, c), None

        return lax.scan(body, x, jnp.arange(6))[0]

    cap = hs.capture(f, array(mesh, (64, 128)), array(mesh, (128, 128), None, "model"))
    [row] = cap.collectives
    card = cap.why(row)
    assert card.operand.startswith("a value the loop carries")
    assert {(o.of, o.kind, o.name) for o in card.origins if o.of == "operand"} == {
        ("operand", "argument", "w")
    }


def test_figures_of_collectives_wait_for_no_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cards of all rows are made once, when the first line is asked for."""
    from hloscope.analysis.why import provenance

    made = []
    of = provenance.Provenance.why
    monkeypatch.setattr(
        provenance.Provenance, "why", lambda self, row: made.append(row.index) or of(self, row)
    )
    mesh = jax.make_mesh((8,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    cut = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
    x = jax.ShapeDtypeStruct((64, 32), jnp.float32, sharding=cut)
    cap = hs.capture(jax.jit(lambda x: (jnp.sin(x).sum(0), jnp.sort(x, 0))), x)
    rows = cap.collectives
    assert len(rows) > 1
    assert rows.total.wire_bytes > 0
    assert str(rows)
    assert cap.memory
    assert not made
    assert all(row.line for row in rows)
    assert [row.line for row in rows] == [cap.why(row).line for row in rows]
    assert made == list(range(len(rows)))


def test_a_gather_for_an_operation_that_is_not_computed_in_parts_needs_all_of_it():
    """Operand and result have one sharding: naming it alone would explain nothing."""
    on = mesh_of(x=8)

    def written(field, rows):
        return (field * 0.99).at[0:16].set(rows)

    fn = jax.jit(written, out_shardings=NamedSharding(on, P("x")))
    cap = hs.capture(fn, array(on, (4096, 512), "x"), array(on, (16, 512)))
    (row,) = [c for c in cap.collectives if c.kind == "all-gather"]
    card = cap.why(row)
    assert (card.opcode, card.had) == ("scatter", "P('x', None)")
    assert card.needs == "all of it over x; result P('x', None)"


def test_a_library_call_without_a_rule_needs_all_of_a_sharded_matrix():
    on = mesh_of(x=8)
    fn = jax.jit(lambda a: jnp.linalg.cholesky(a * 2))
    cap = hs.capture(fn, array(on, (512, 512), "x"))
    needs = {cap.why(c).needs for c in cap.collectives if c.kind == "all-gather"}
    assert "all of it over x" in needs
