"""Collectives that XLA combined: the line and the names of several arrays."""

from __future__ import annotations

import functools

import hloscope as hs
import jax
import jax.numpy as jnp
from hloscope.analysis.comms.apparent import apparent
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P


def small(x, bias):
    return jnp.tanh(x + bias)  # the sum of this line's gradient comes first …


def large(x, w):
    return x @ w  # … and this one's is most of the bytes


@functools.cache
def captured() -> hs.Capture:
    mesh = jax.make_mesh((8,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))

    def shaped(shape, *spec):
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, P(*spec)))

    def step(p, x):
        def loss(p):
            return jnp.square(large(small(x, p["bias"]), p["w"])).mean()

        return jax.tree.map(lambda p, g: p - 0.1 * g, p, jax.grad(loss)(p))

    params = {"bias": shaped((256,)), "w": shaped((256, 256))}
    return hs.capture(jax.jit(step), params, shaped((64, 256), "data"), hardware="tpu-v5e")


def line_of(function) -> int:
    return function.__code__.co_firstlineno + 1


def test_the_line_of_a_combined_collective_is_that_of_most_of_its_bytes() -> None:
    for cap in (captured(), hs.read(captured().text)):
        (row,) = cap.collectives
        assert len(row.parts) == 2
        assert row.instruction.frames[0].line == line_of(small)  # XLA takes the first array's
        assert row.source.line == line_of(large)
        costs = {r.instruction.name: r.line for r in cap.cost("tpu-v5e")}
        assert costs[row.name].endswith(f":{line_of(large)}")
        wired = {x.line for x in cap.source.own_lines if x.total.wire_bytes}
        assert line_of(large) in wired
        assert line_of(small) not in wired


def test_the_card_of_a_combined_collective_has_the_same_line() -> None:
    (row,) = captured().collectives
    card = captured().why(row)
    assert card.line == row.line
    assert {part.line.rpartition(":")[2] for part in card.parts} == {
        str(line_of(small)),
        str(line_of(large)),
    }


def test_no_array_of_a_combined_collective_is_named_for_all() -> None:
    (row,) = captured().collectives
    said = row.to_dict()
    assert said["moves"] == "2 arrays"
    named = {part["shape"]: part["moves"] for part in said["parts"]}
    assert list(named) == ["f32[256]", "f32[256,256]"]
    assert all(named.values())
    assert len(set(named.values())) == 2


def test_what_a_dump_shows_of_a_combined_collective_is_of_its_largest_array() -> None:
    (row,) = hs.read(captured().text).collectives
    said = apparent(row)
    assert said.startswith("of 2 arrays, the largest adds up partial products of")
    assert f"line {line_of(large)})" in said
