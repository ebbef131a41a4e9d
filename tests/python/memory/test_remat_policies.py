"""What remat policies really keep: a gathered array is named, whatever the policy meant."""

from __future__ import annotations

from typing import Any

import hloscope as hs
import numpy as np
import pytest
from kept_captures import FOLDER, load, save

NEVER = "all_gather"


def policies() -> Any:
    import jax

    return jax.checkpoint_policies


def scan_over_layers(saved: str, *, pinned: bool) -> Any:
    """Memory of the gradient of 6 layers on a 2×4 mesh that keep one named array each."""
    import jax
    import jax.numpy as jnp
    from jax.ad_checkpoint import checkpoint_name
    from jax.sharding import Mesh, NamedSharding
    from jax.sharding import PartitionSpec as P

    mesh = Mesh(np.array(jax.devices("cpu")[:8]).reshape(2, 4), ("data", "model"))

    def cut(x: Any, *spec: Any) -> Any:
        return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P(*spec)))

    def layer(x: Any, weights: Any) -> Any:
        up, down = weights
        n = x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6)
        n = checkpoint_name(cut(n, "data", "model", None), "scattered")
        if pinned:
            n = cut(n, "data", "model", None)
        g = checkpoint_name(cut(n, "data", None, None), "gathered")
        return cut(x + jnp.tanh(g @ up) @ down, "data", "model", None), None

    def loss(weights: Any, x: Any) -> Any:
        kept = policies().save_only_these_names(saved)
        y, _ = jax.lax.scan(jax.checkpoint(layer, policy=kept), x, weights)
        return (y * y).mean()

    def shape(dims: Any, *spec: Any) -> Any:
        return jax.ShapeDtypeStruct(dims, jnp.float32, sharding=NamedSharding(mesh, P(*spec)))

    weights = shape((6, 32, 64), None, "data", "model"), shape((6, 64, 32), None, "model", "data")
    x = shape((2, 64, 32), "data", "model", None)
    return hs.capture(jax.jit(jax.grad(loss)), weights, x, provenance=False).memory


SHARDED, GATHERED = "f32[6,1,16,32]", "f32[6,1,64,32]"


@pytest.mark.parametrize(
    ("saved", "pinned", "stored"),
    [
        # Shardy pulls the second constraint through the name: the policy's opposite is stored
        ("scattered", False, GATHERED),
        ("gathered", False, SHARDED),
        # another constraint right after the name pins it
        ("scattered", True, SHARDED),
    ],
)
def test_the_audit_shows_which_of_gathered_or_sharded_was_stacked(
    saved: str, pinned: bool, stored: str
) -> None:
    memory = scan_over_layers(saved, pinned=pinned)
    # beside the named array, the carry of each layer
    assert sorted(r.shape.dense_text for r in memory.residuals) == sorted([stored, SHARDED])
    for r in memory.residuals:
        assert (r.writer.phase, r.writer.trips) == ("forward", 6)
        assert {x.phase for x in r.readers} == {"backward"}
        assert r.bytes == 6 * r.slice_shape.byte_size


def norm_then_two_products(policy: Any) -> hs.Capture:
    """Seed 001's function with a tanh between the products, for v5e:2x4; compiling takes 15 s."""
    import jax
    import jax.numpy as jnp
    from jax.ad_checkpoint import checkpoint_name
    from jax.experimental import topologies
    from jax.sharding import NamedSharding
    from jax.sharding import PartitionSpec as P

    topology = topologies.get_topology_desc(platform="tpu", topology_name="v5e:2x4")
    mesh = topologies.make_mesh(topology, (2, 4), ("data", "model"))

    def cut(x: Any, *spec: Any) -> Any:
        return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P(*spec)))

    def forward(x: Any, up: Any, down: Any, scale: Any) -> Any:
        x = cut(x, "data", "model", None)
        x = x * jax.lax.rsqrt((x * x).mean(axis=-1, keepdims=True) + 1e-8) * scale
        x = checkpoint_name(cut(x, "data", "model", None), NEVER)
        x = cut(x, "data", None, None)
        return jnp.mean(jnp.tanh(x @ up) @ down)

    def shape(dims: Any, *spec: Any) -> Any:
        return jax.ShapeDtypeStruct(dims, jnp.float32, sharding=NamedSharding(mesh, P(*spec)))

    step = jax.grad(jax.checkpoint(forward, policy=policy), argnums=(0, 1, 2))
    return hs.capture(
        jax.jit(step),
        shape((2, 2048, 1024), "data", "model", None),
        shape((1024, 4096), "data", "model"),
        shape((4096, 1024), "model", "data"),
        shape((1024,), None),
        provenance=False,
    )


def keep() -> None:
    """Compiles the captures anew that the test below reads."""
    for name, policy in (
        ("remat_everything_saved", policies().everything_saveable),
        ("remat_gathered_again", policies().save_any_names_but_these(NEVER)),
    ):
        found = norm_then_two_products(policy)
        save(FOLDER / f"{name}.capture.gz", found, {f"{FOLDER.parents[2]}/": "/src/"})


def test_two_policies_of_seed_001s_program_on_a_real_topology() -> None:
    kept = load(FOLDER / "remat_everything_saved.capture.gz").memory
    again = load(FOLDER / "remat_gathered_again.capture.gz").memory
    assert kept.xla_peak_bytes == 56_636_928
    assert again.xla_peak_bytes == 44_054_016
    for memory in (kept, again):
        assert memory.simulated_bytes == memory.peak_bytes == 16_781_824

    # at VMEM's peak stands the array gathered in the forward pass
    gathered = kept.live_in("VMEM")[0]  # the largest
    assert gathered.instruction.opcode == "all-gather"
    assert gathered.instruction.shape.dense_text == "f32[1,2048,1024]"
    assert gathered.instruction.op_name == "jit(forward)/jvp()/sharding_constraint"
    assert gathered.bytes == 8_388_608
    # and what the backward pass keeps of it, rounded: the whole of it, not this device's part
    (saved,) = [
        v
        for v in kept.live_in("VMEM")
        if v.category == "saved for backward" and v.instruction.opcode == "reduce-precision"
        if gathered.instruction in v.instruction.operands
    ]
    assert saved.instruction.shape.dense_text == "bf16[1,2048,1024]"
    assert saved.end > gathered.end
    # the other policy gathers once more for the backward pass instead
    gathers = [i for i in again.module.instructions if i.opcode == "all-gather"]
    assert any("checkpoint/rematted_computation/sharding_constraint" in i.op_name for i in gathers)
    assert not [v for v in again.live_in("VMEM") if v.category == "saved for backward"]
