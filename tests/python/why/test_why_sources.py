"""What a card blames is what decides: the value's own axes, shifts, constraints without an axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hloscope as hs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

DEVICES = np.array(jax.devices()[:8]).reshape(2, 4)
MESH = Mesh(DEVICES, ("data", "model"), axis_types=(AxisType.Auto,) * 2)


def array(*dims: int, spec: tuple[Any, ...] = ()) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(dims, jnp.float32, sharding=sharded(*spec))


def sharded(*spec: Any) -> NamedSharding:
    return NamedSharding(MESH, PartitionSpec(*spec))


def keep(x: Any, *spec: Any) -> Any:
    return lax.with_sharding_constraint(x, sharded(*spec))


def line_of(f: Callable[..., Any], words: str) -> str:
    """The place of the line of a function that has these words."""
    import inspect

    source, first = inspect.getsourcelines(f)
    (at,) = (n for n, line in enumerate(source, first) if words in line)
    return f"{__file__}:{at}"


def asked(f: Callable[..., Any], *arguments: Any, **options: Any) -> list[Any]:
    cap = hs.capture(jax.jit(f, **options), *arguments)
    return [cap.why(row) for row in cap.collectives]


def blamed(card: Any) -> set[tuple[str, str, str]]:
    """(axis, of, name or line) of each origin; of a constraint the line that calls the helper."""
    return {
        (o.axis, o.of, o.name or (o.stack[1] if len(o.stack) > 1 else o.line)) for o in card.origins
    }


def test_a_constraint_that_leaves_an_axis_out_is_named() -> None:
    def f(x, w):
        y = jnp.tanh(x @ w)
        z = keep(y)
        return jnp.sort(z, -1)

    (card,) = asked(f, array(64, 32), array(32, 512, spec=(None, "model")))
    assert blamed(card) == {
        ("model", "operand", "w"),
        ("", "result", line_of(f, "keep(y)")),
    }


def test_an_output_that_leaves_an_axis_out_is_named() -> None:
    (card,) = asked(jnp.sin, array(64, 32, spec=("model",)), out_shardings=sharded())
    assert ("model", "operand", "x") in blamed(card)
    assert [o.kind for o in card.origins if o.of == "result"] == ["output"]


def test_what_a_loop_carries_is_explained_by_its_own_dimension() -> None:
    def f(q):
        def body(q, _):
            rows = keep(jnp.sin(q), None, "model")
            return keep(rows * 1.1, "model", None), None

        return lax.scan(body, q, None, length=3)[0]

    cards = asked(f, array(64, 32, spec=("model",)))
    rows, back = line_of(f, "keep(jnp.sin(q)"), line_of(f, "keep(rows")
    carried = {c.operand: c for c in cards if c.needs == "carried as P(None, 'model')"}
    assert ("model", "result", rows) in blamed(carried["q"])
    assert ("model", "operand", "q") in blamed(carried["q"])
    assert {o for o in blamed(carried["result of sharding_constraint"]) if o[0]} == {
        ("model", "operand", back),
        ("model", "result", rows),
    }


def test_two_values_of_one_loop_have_their_own_origins() -> None:
    def f(u, v):
        def body(_, c):
            u, v = c
            return keep(jnp.sin(u), None, "model"), jnp.cos(v)

        return lax.fori_loop(0, 3, body, (u, v))

    u, v = array(64, 32, spec=("model",)), array(64, 32, spec=("model",))
    (card,) = asked(f, u, v)
    assert blamed(card) >= {("model", "operand", "u"), ("model", "result", line_of(f, "keep("))}
    assert "v" not in {o.name for o in card.origins}


SHIFTS: dict[str, Callable[[Any], Any]] = {
    "roll": lambda x: jnp.roll(x, 3, 0),
    "slices": lambda x: jnp.concatenate([x[1:], x[:1]], 0),
    "reverse": lambda x: x[::-1],
    "difference": lambda x: x[1:],
    "pad": lambda x: jnp.pad(x, ((1, 1), (0, 0))),
    "halves": lambda x: jnp.split(x, 2, 0)[1],
}


@pytest.mark.parametrize("name", SHIFTS)
@pytest.mark.parametrize("looped", [False, True])
def test_a_shift_is_asked_for_by_itself(name: str, looped: bool) -> None:
    def f(x):
        y = SHIFTS[name](x)
        z = jnp.sin(y)
        return z * 0.5

    def g(x):
        def body(_, x):
            y = SHIFTS[name](x * 2)
            return jnp.resize(jnp.sin(y), x.shape) if y.shape != x.shape else jnp.sin(y)

        return lax.fori_loop(0, 3, body, x)

    run = g if looped else f
    cards = asked(run, array(64, 32, spec=("model",)))
    if looped and name in ("difference", "pad", "halves"):
        cards = [c for c in cards if "resize" not in c.op_name]  # that moves elements too
    mine = [c for c in cards if line_of(run, "SHIFTS[") in (c.line, *c.callers)]
    assert mine
    readers = [c for c in cards if c.opcode in ("sine", "multiply")]
    assert readers == []
    for card in mine:
        assert ("model", "operand", "x") in blamed(card)


def test_both_halves_of_a_split_are_asked_for_by_the_split() -> None:
    def f(x, w):
        u, z = jnp.split(x @ w, 2, -1)
        return jax.nn.silu(u) * z

    cards = asked(f, array(64, 32, spec=("data",)), array(32, 128, spec=(None, "model")))
    split = line_of(f, "jnp.split")
    assert cards
    assert {c.line for c in cards} == {split}
    assert {c.needs for c in cards} == {
        "elements of dimension 1 that other devices hold; result P('data', 'model')"
    }


def test_every_step_of_a_move_names_what_the_move_is_for() -> None:
    def f(x, w):
        return jnp.tanh(x @ w)

    cards = asked(f, array(64, 32, spec=("data",)), array(32, 64, spec=("data",)))
    assert cards
    for card in cards:
        assert blamed(card) == {("data", "operand", "w"), ("data", "result", "x")}


def test_tables_and_source_have_the_line_of_the_card() -> None:
    pytest.importorskip("libtpu")
    from jax.experimental import topologies

    found = np.array(topologies.get_topology_desc("v5e:2x4", "tpu").devices).reshape(2, 4)
    mesh = Mesh(found, ("data", "model"), axis_types=(AxisType.Auto,) * 2)

    def on(*spec: Any) -> NamedSharding:
        return NamedSharding(mesh, PartitionSpec(*spec))

    def g(x, w):
        whole = lax.with_sharding_constraint(w, on())  # gathered there
        return jnp.tanh(x @ whole)

    x = jax.ShapeDtypeStruct((512, 256), np.float32, sharding=on("data"))
    w = jax.ShapeDtypeStruct((256, 512), np.float32, sharding=on("data"))
    cap = hs.capture(jax.jit(g), x, w)
    (row,) = cap.collectives
    there = line_of(g, "# gathered there")
    assert (cap.why(row).line, row.line, row.inferred) == (there, there, "")
    (total,) = cap.collectives.totals(by=["line"])
    assert total.key == (there,)
    sent = {f"{x.file}:{x.line}": x.total.wire_bytes for x in cap.source.own_lines}
    assert sent.get(there, row.total_wire_bytes) == row.total_wire_bytes


def test_with_explicit_axes_an_out_sharding_that_drops_an_axis_is_named() -> None:
    mesh = Mesh(DEVICES, ("data", "model"), axis_types=(AxisType.Explicit,) * 2)

    def f(table, ids, up, down):
        x = table.at[ids].get(out_sharding=PartitionSpec(None, None))
        x = jax.sharding.reshard(x, PartitionSpec("data", None))
        h = jnp.tanh(jnp.einsum("bd,df->bf", x, up))
        return jnp.einsum("bf,fd->bd", h, down, out_sharding=PartitionSpec("data", None))

    def shape(*dims: int, spec: tuple[Any, ...], dtype: Any = np.float32) -> Any:
        on = NamedSharding(mesh, PartitionSpec(*spec))
        return jax.ShapeDtypeStruct(dims, dtype, sharding=on)

    with jax.set_mesh(mesh):
        cap = hs.capture(
            jax.jit(f), shape(512, 64, spec=("model", None)),
            shape(256, spec=("data",), dtype=np.int32), shape(64, 128, spec=(None, "model")),
            shape(128, 64, spec=("model", None)),
        )  # fmt: skip
    (gather,) = (cap.why(r) for r in cap.collectives if r.kind == "all-gather")
    dropped = line_of(f, "table.at")
    assert {o.line for o in gather.origins if o.of == "result"} == {dropped}
    summed = [cap.why(r) for r in cap.collectives if r.kind == "all-reduce"][-1]
    assert blamed(summed) == {("model", "operand", "up"), ("model", "operand", "down")}


def test_with_explicit_axes_weights_of_a_scan_have_their_axis_from_the_argument() -> None:
    """jax pins every value, so that Shardy names another one that has the axis, as of the batch."""
    mesh = Mesh(DEVICES, ("data", "model"), axis_types=(AxisType.Explicit,) * 2)

    @jax.checkpoint
    def layer(x, w):
        w = jax.sharding.reshard(w, PartitionSpec(None, None))
        return jnp.tanh(jnp.einsum("bd,df->bf", x, w))

    def loss(table, ids, ws):
        x = table.at[ids].get(out_sharding=PartitionSpec("data", None))
        x, _ = jax.lax.scan(lambda x, w: (layer(x, w), None), x, ws)
        return (x * x).sum()

    def shape(*dims: int, spec: tuple[Any, ...], dtype: Any = np.float32) -> Any:
        on = NamedSharding(mesh, PartitionSpec(*spec))
        return jax.ShapeDtypeStruct(dims, dtype, sharding=on)

    with jax.set_mesh(mesh):
        cap = hs.capture(
            jax.jit(jax.grad(loss, argnums=(0, 2))), shape(512, 64, spec=(None, None)),
            shape(256, spec=("data",), dtype=np.int32), shape(4, 64, 64, spec=(None, "data", None)),
        )  # fmt: skip
    gathers = [cap.why(r) for r in cap.collectives if r.kind == "all-gather"]
    assert len(gathers) == 2  # forward, and again for the backward pass
    for why in gathers:
        assert {(o.kind, o.name) for o in why.origins if o.of == "operand"} == {("argument", "ws")}
