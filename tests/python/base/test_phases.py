"""Phases of a training step: from op_name, from what follows the backward pass, by inheritance."""

from __future__ import annotations

import hloscope as hs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hloscope.analysis.base.operands import short_op_name
from hloscope.analysis.base.phases.phases import PHASES, name_phase, phases
from hloscope.readers import read_modules
from jax.ad_checkpoint import checkpoint_name


@pytest.mark.parametrize(
    ("name", "phase"),
    [
        ("jit(step)/jvp(layer_0)/dot_general", "forward"),
        ("jit(step)/transpose(jvp(layer_0))/dot_general", "backward"),
        ("jit(f)/jit(main)/transpose(jvp(checkpoint))/rematted_computation/mul", "rematerialised"),
        ("jit(step)/transpose(jvp())/checkpoint/rematted_computation/tanh", "rematerialised"),
        ("jit(step)/adam/mul", "optimiser"),
        ("jit(step)/jvp(adam_layer)/transpose", "forward"),
        ("jit(step)/dot_general", ""),
        ("params['w']", ""),
        ("", ""),
    ],
)
def test_what_a_name_says(name, phase):
    assert PHASES[name_phase(name)] == phase


def test_a_whole_step(compiled):
    for topology in (None, "v5e:2x4"):
        module = compiled("gpt_unrolled", topology).module
        found = {PHASES[p] for p in phases(module)}
        assert {"forward", "backward", "optimiser"} <= found
        assert "rematerialised" not in found
        remat = compiled("gpt_remat", topology).module
        assert "rematerialised" in {PHASES[p] for p in phases(remat)}


def test_a_program_without_gradients_has_no_phases(compiled):
    assert not phases(compiled("ring_attention").module).any()


BARRIER = """HloModule m, is_scheduled=true, num_partitions=4

ENTRY e {
  w = f32[16,64] parameter(0)
  x = f32[8,64] parameter(1)
  h = f32[8,64] tanh(x), metadata={op_name="jit(step)/jvp()/tanh"}
  again = f32[64,64] all-gather(w), replica_groups={{0,1,2,3}}, dimensions={0}, metadata={op_name="jit(step)/transpose(jvp())/remat2"}
  d = f32[8,64] dot(x, again), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="jit(step)/transpose(jvp())/checkpoint/rematted_computation/dot_general"}
  c = f32[8,64] multiply(h, d), metadata={op_name="jit(step)/transpose(jvp())/mul"}
  all = f32[32,64] all-gather(c), replica_groups={{0,1,2,3}}, dimensions={0}, metadata={op_name="jit(step)/transpose(jvp())/remat2"}
  v = f32[16,64] parameter(2)
  own = f32[64,64] all-gather(v), replica_groups={{0,1,2,3}}, dimensions={0}, metadata={op_name="jit(step)/transpose(jvp())/remat2"}
  n = f32[32,64] negate(all), metadata={op_name="jit(step)/transpose(jvp())/checkpoint/neg"}
  ROOT g = f32[32,64] dot(n, own), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="jit(step)/transpose(jvp())/checkpoint/dot_general"}
}
"""  # noqa: E501


def test_a_gather_at_the_barrier_of_a_checkpoint_is_done_again_if_what_it_reads_is() -> None:
    """It has the name of the barrier; one of a cotangent has it, too, and one of weights that only
    a cotangent is multiplied with."""
    cap = hs.read(BARRIER)
    assert [c.phase for c in cap.collectives] == ["rematerialised", "backward", "backward"]


def test_seed_001_rematerialised_rows(seeds):
    (path,) = seeds.glob("001_*.txt")
    module = hs.read(str(path)).module
    marked = sum("rematted_computation" in i.op_name for i in module.instructions)
    assert marked == 13
    of = phases(module)
    assert all(
        PHASES[of[i.index]] == "rematerialised"
        for i in module.instructions
        if "rematted_computation" in i.op_name
    )


@pytest.mark.parametrize(
    ("policy", "phase"),
    [("everything_saveable", "forward"), ("save_any_names_but_these", "rematerialised")],
)
def test_the_gather_of_an_activation_moves_with_the_policy(libtpu, policy, phase):
    """The program of seed 001 with a tanh between the products, on v5e:2x4."""
    from jax.experimental import topologies

    found = jax.checkpoint_policies
    chosen = {
        "everything_saveable": found.everything_saveable,
        "save_any_names_but_these": found.save_any_names_but_these("all_gather"),
    }[policy]
    topology = topologies.get_topology_desc(platform="tpu", topology_name="v5e:2x4")
    mesh = topologies.make_mesh(topology, (2, 4), ("data", "model"))
    sharding = lambda *s: jax.sharding.NamedSharding(mesh, jax.P(*s))  # noqa: E731
    cut = lambda x, *s: jax.lax.with_sharding_constraint(x, sharding(*s))  # noqa: E731

    def forward(x, up, down, scale):
        x = cut(x, "data", "model", None)
        y = x.astype(jnp.float32)
        y = y * jax.lax.rsqrt((y * y).mean(axis=-1, keepdims=True) + 1e-8)
        x = cut(y.astype(x.dtype) * scale, "data", "model", None)
        x = checkpoint_name(cut(x, "data", None, None), name="all_gather")  # the gather
        return jnp.mean(jnp.tanh(x @ up) @ down)

    shapes = [((2, 2048, 1024), ("data", "model", None)), ((1024, 4096), ("data", "model"))]
    shapes += [((4096, 1024), ("model", "data")), ((1024,), (None,))]
    arguments = [
        jax.ShapeDtypeStruct(shape, np.float32, sharding=sharding(*spec)) for shape, spec in shapes
    ]
    step = jax.jit(jax.grad(jax.checkpoint(forward, policy=chosen)))
    rows = [
        r
        for r in hs.capture(step, *arguments).collectives
        if r.kind == "all-gather" and "sharding_constraint" in r.op_name
    ]
    first = forward.__code__.co_firstlineno
    lines = {first + 4, first + 5}  # the value that is gathered, or the constraint that asks
    gathers = [r for r in rows if lines & {f.line for f in r.frames}]
    assert [(r.axes, r.phase) for r in gathers] == [("model", phase)]


def test_short_names():
    assert short_op_name("jit(step)/transpose(jvp(layer_0))/mlp/dot_general") == (
        "layer_0/mlp/dot_general"
    )
    assert short_op_name("jit(f)/while/body/closed_call/checkpoint/mul") == "mul"
    assert short_op_name("pmap(f)/dot_general[ precision=None ]") == "dot_general"


def test_an_update_without_a_name_that_is_fused_is_no_forward_pass() -> None:
    text = """HloModule m

update {
  p = f32[4]{0} parameter(0)
  g = f32[4]{0} parameter(1)
  s = f32[4]{0} multiply(g, g), metadata={op_name="jit(step)/mul"}
  ROOT n = f32[4]{0} subtract(p, s), metadata={op_name="jit(step)/sub"}
}

ENTRY e {
  w = f32[4]{0} parameter(0)
  y = f32[4]{0} tanh(w), metadata={op_name="jit(step)/jvp()/tanh"}
  dy = f32[4]{0} multiply(y, y), metadata={op_name="jit(step)/transpose(jvp())/mul"}
  ROOT new = f32[4]{0} fusion(w, dy), kind=kLoop, calls=update
}
"""
    (m,) = read_modules(text)
    found = {i.name: PHASES[p] for i, p in zip(m.instructions, phases(m), strict=True)}
    assert (found["new"], found["s"], found["n"]) == ("optimiser",) * 3
    assert (found["y"], found["dy"]) == ("forward", "backward")


def test_steps_counted_and_moments_without_a_gradient_are_the_optimisers() -> None:
    """The count is used in a fusion of the backward pass, but by the update in it alone."""
    text = """HloModule m

product {
  y = f32[4]{0} parameter(0)
  g = f32[4]{0} parameter(1)
  d = f32[] parameter(2)
  dw = f32[4]{0} multiply(y, g), metadata={op_name="jit(step)/transpose(jvp())/mul"}
  b = f32[4]{0} broadcast(d), dimensions={}, metadata={op_name="jit(step)/div"}
  ROOT u = f32[4]{0} divide(dw, b), metadata={op_name="jit(step)/div"}
}

decay {
  m = f32[4]{0} parameter(0)
  d = f32[] parameter(1)
  b = f32[4]{0} broadcast(d), dimensions={}, metadata={op_name="jit(step)/div"}
  ROOT n = f32[4]{0} divide(m, b), metadata={op_name="jit(step)/div"}
}

ENTRY e {
  w = f32[4]{0} parameter(0)
  moment = f32[4]{0} parameter(1)
  count = s32[] parameter(2)
  one = s32[] constant(1), metadata={op_name="jit(step)/jvp(jit(_take))/add"}
  copied = s32[] copy(count)
  next = s32[] add(copied, one), metadata={op_name="jit(step)/add"}
  power = f32[] convert(next), metadata={op_name="jit(step)/pow"}
  y = f32[4]{0} tanh(w), metadata={op_name="jit(step)/jvp()/tanh"}
  dy = f32[4]{0} multiply(y, y), metadata={op_name="jit(step)/transpose(jvp())/mul"}
  new = f32[4]{0} fusion(y, dy, power), kind=kLoop, calls=product, metadata={op_name="jit(step)/transpose(jvp())/mul"}
  idle = f32[4]{0} fusion(moment, power), kind=kLoop, calls=decay
  ROOT out = (f32[4]{0}, f32[4]{0}, s32[]) tuple(new, idle, next)
}
"""  # noqa: E501
    (m,) = read_modules(text)
    found = {i.name: PHASES[p] for i, p in zip(m.instructions, phases(m), strict=True)}
    assert found["new"] == "backward"
    assert {n: found[n] for n in ("next", "power", "idle", "n")} == dict.fromkeys(
        ("next", "power", "idle", "n"), "optimiser"
    )


def test_what_a_fusion_takes_beside_a_gradient_is_no_later_than_the_model() -> None:
    """A teacher's softmax is fused with the loss and a gradient of it; its layers are before."""
    text = """HloModule m

losses {
  t = f32[4]{0} parameter(0)
  y = f32[4]{0} parameter(1)
  soft = f32[4]{0} exponential(t), metadata={op_name="jit(step)/exp"}
  loss = f32[4]{0} multiply(soft, y), metadata={op_name="jit(step)/jvp()/mul"}
  dy = f32[4]{0} negate(soft), metadata={op_name="jit(step)/transpose(jvp())/neg"}
  ROOT both = (f32[4]{0}, f32[4]{0}) tuple(loss, dy)
}

ENTRY e {
  teacher = f32[4]{0} parameter(0)
  x = f32[4]{0} parameter(1)
  w = f32[4]{0} parameter(2)
  wanted = f32[4]{0} cosine(teacher), metadata={op_name="jit(step)/cos"}
  center = f32[4]{0} add(wanted, wanted), metadata={op_name="jit(step)/add"}
  y = f32[4]{0} multiply(x, w), metadata={op_name="jit(step)/jvp()/mul"}
  f = (f32[4]{0}, f32[4]{0}) fusion(wanted, y), kind=kLoop, calls=losses, metadata={op_name="jit(step)/jvp()/mul"}
  loss.1 = f32[4]{0} get-tuple-element(f), index=0
  dy.1 = f32[4]{0} get-tuple-element(f), index=1
  dw = f32[4]{0} multiply(dy.1, x), metadata={op_name="jit(step)/transpose(jvp())/mul"}
  new = f32[4]{0} subtract(w, dw), metadata={op_name="jit(step)/sub"}
  ROOT out = (f32[4]{0}, f32[4]{0}, f32[4]{0}) tuple(new, center, loss.1)
}
"""  # noqa: E501
    (m,) = read_modules(text)
    found = {i.name: PHASES[p] for i, p in zip(m.instructions, phases(m), strict=True)}
    assert {found[n] for n in ("wanted", "soft")} == {"forward"}
    assert found["new"] == "optimiser"
