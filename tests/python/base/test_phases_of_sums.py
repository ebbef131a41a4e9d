"""Phases of sums over devices: gradients' sums, norms of an optimiser, steps over slices."""

from __future__ import annotations

from typing import Any

import hloscope as hs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

MESH = Mesh(np.array(jax.devices()[:8]).reshape(2, 4), ("data", "model"))


def array(mesh: Mesh, *dims: int, spec: tuple[Any, ...] = ()) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(dims, np.float32, sharding=NamedSharding(mesh, P(*spec)))


def loss(w: Any, x: Any) -> Any:
    return jnp.mean((jnp.tanh(x @ w["up"]) @ w["down"]) ** 2)


def test_a_mean_of_gradients_written_by_hand_is_of_the_backward_pass() -> None:
    def step(w, x):
        def local(w, x):
            g = jax.tree.map(lambda v: lax.pmean(v, "data"), jax.grad(loss)(w, x))
            return jax.tree.map(lambda p, v: p - 0.1 * v, w, g)

        return jax.shard_map(
            local, mesh=MESH, in_specs=(P(), P("data")), out_specs=P(), check_vma=False
        )(w, x)

    w = {"up": array(MESH, 32, 64), "down": array(MESH, 64, 16)}
    cap = hs.capture(jax.jit(step), w, array(MESH, 64, 32, spec=("data",)))
    assert {(row.kind, row.phase) for row in cap.collectives} == {("all-reduce", "backward")}


def test_norms_of_parameters_and_updates_are_the_optimisers() -> None:
    def step(w, x):
        g = jax.grad(loss)(w, x)

        def update(p, v):
            size = jnp.maximum(jnp.sqrt(jnp.mean(p * p)), 1e-3)
            v = v / jnp.maximum(1.0, jnp.sqrt(jnp.mean(v * v)))
            return p - 0.1 * size * v

        return jax.tree.map(update, w, g)

    w = {
        "up": array(MESH, 32, 64, spec=(None, "model")),
        "down": array(MESH, 64, 16, spec=("model",)),
    }
    cap = hs.capture(jax.jit(step), w, array(MESH, 64, 32, spec=("data",)))
    norms = [r for r in cap.collectives if all(p.shape == "f32[]" for p in r.parts)]
    assert norms
    assert {r.phase for r in norms} == {"optimiser"}
    others = {(r.axes, r.phase) for r in cap.collectives if r.payload_bytes > 1024}
    assert {("model", "forward"), ("data", "backward")} <= others


def test_steps_over_slices_have_the_phase_of_what_they_sum() -> None:
    topologies = pytest.importorskip("jax.experimental.topologies")
    try:
        found = topologies.get_topology_desc("v5e:2x4", "tpu", num_slices=2).devices
    except Exception as error:
        pytest.skip(str(error))
    devices = sorted(found, key=lambda d: (d.slice_index, d.id))
    mesh = Mesh(np.array(devices).reshape(2, 2, 4), ("dcn", "data", "model"))

    def step(w, x):
        return jax.tree.map(lambda p, g: p - 0.1 * g, w, jax.grad(loss)(w, x))

    w = {
        "up": array(mesh, 256, 1024, spec=(None, "model")),
        "down": array(mesh, 1024, 256, spec=("model",)),
    }
    cap = hs.capture(jax.jit(step), w, array(mesh, 512, 256, spec=(("dcn", "data"),)))
    phases = {(row.axes, row.phase) for row in cap.collectives}
    assert phases == {("model", "forward"), ("data", "backward"), ("dcn", "backward")}
