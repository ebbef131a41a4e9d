"""Phases where a loss depends on the gradients of another: each derivative has its own passes."""

from __future__ import annotations

from collections import Counter

import hloscope as hs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hloscope.analysis.base.phases.phases import PHASES, phases
from hloscope.hlo import opcodes
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P


def net(w, x):
    for k in ("a", "b"):
        x = jnp.tanh(x @ w[k])
    return x @ w["c"]


def sgd(w, g):
    return jax.tree.map(lambda p, g: p - 0.1 * g, w, g)


def adversaries(w, v, x):
    """The second network learns against what the first one has become."""
    w = sgd(w, jax.grad(lambda w: jnp.mean(net(w, net(v, x)) ** 2) - jnp.mean(net(w, x)))(w))
    return w, sgd(v, jax.grad(lambda v: jnp.mean(net(w, net(v, x))))(v))


def actor_and_critic(w, v, x):
    loss, g = jax.value_and_grad(lambda w: jnp.mean((net(w, x) - x) ** 2))(w)
    w = sgd(w, g)
    value, g = jax.value_and_grad(lambda v: -jnp.mean(net(w, net(v, x))))(v)
    return w, sgd(v, g), loss, value


def adapts(w, v, x):
    """The outer loss takes weights that have made steps of their own (MAML)."""

    def outer(w):
        u = sgd(w, jax.grad(lambda u: jnp.mean((net(u, x) - x) ** 2))(w))
        return jnp.mean((net(u, x) + net(v, x)) ** 2)

    return sgd(w, jax.grad(outer)(w))


def penalised(w, v, x):
    """The loss holds the size of a gradient (WGAN-GP)."""

    def loss(w):
        slope = jax.grad(lambda x: net(w, x).sum())(x)
        return net(w, net(v, x)).mean() + ((jnp.sqrt((slope**2).sum(-1)) - 1) ** 2).mean()

    return sgd(w, jax.grad(loss)(w))


def sharpness(w, v, x):
    """The gradient is taken where a first gradient leads (SAM)."""

    def loss(w):
        return jnp.mean((net(w, x) - net(v, x)) ** 2)

    g = jax.grad(loss)(w)
    norm = jnp.sqrt(sum(jnp.sum(a * a) for a in jax.tree.leaves(g)))
    return sgd(w, jax.grad(loss)(jax.tree.map(lambda p, a: p + 0.05 * a / norm, w, g)))


def steps(w, v, x):
    """Three steps written out."""
    for _ in range(3):
        w = sgd(w, jax.grad(lambda w: jnp.mean((net(w, x) - net(v, x)) ** 2))(w))
    return w


PROGRAMS = [adversaries, actor_and_critic, adapts, penalised, sharpness, steps]


def mesh_of(platform):
    if platform == "cpu":
        return Mesh(np.array(jax.devices()[:4]), ("data",))
    pytest.importorskip("libtpu", reason='not installed (pip install "hloscope[tpu]")')
    from jax.experimental import topologies

    found = topologies.get_topology_desc(platform, "tpu").devices
    return Mesh(np.array(found), ("data",))


@pytest.mark.parametrize("platform", ["cpu", "v5e:2x2"])
@pytest.mark.parametrize("step", PROGRAMS, ids=lambda f: f.__name__)
def test_products_have_the_phase_of_their_own_derivative(step, platform):
    """What jax named a transpose is of a backward pass, and no other product is."""
    mesh = mesh_of(platform)

    def given(shape, *spec):
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, P(*spec)))

    w = {"a": given((32, 64)), "b": given((64, 64)), "c": given((64, 32))}
    module = hs.capture(jax.jit(step), w, w, given((64, 32))).module
    of = phases(module)
    found = Counter()
    for i in module.instructions:
        if i.opcode in opcodes.PRODUCTS and "jvp(" in i.op_name and ":" not in i.op_name:
            wanted = "backward" if "transpose(" in i.op_name else "forward"
            found[wanted, PHASES[of[i.index]]] += 1
    assert found.keys() == {("backward", "backward"), ("forward", "forward")}
    assert min(found.values()) >= 3


def distil(w, v, x):
    """A frozen model makes the targets: nothing marks it as forward."""
    target = jax.nn.softmax(net(v, x))
    return sgd(w, jax.grad(lambda w: -(target * jax.nn.log_softmax(net(w, x))).mean())(w))


def test_what_a_fusion_of_a_frozen_model_holds_is_forward_as_the_fusion_is() -> None:
    """On CPU each product is a fusion of one; in it are no users that tell what it is."""
    weight = jax.ShapeDtypeStruct((512, 512), jnp.float32)
    w = {"a": weight, "b": weight, "c": weight}
    module = hs.capture(distil, w, w, jax.ShapeDtypeStruct((256, 512), jnp.float32)).module
    found = phases(module)
    dots = [i for i in module.instructions if i.opcode == "dot"]
    assert len(dots) == 3 + 3 + 5
    by_phase = Counter(PHASES[found[i.index]] for i in dots)
    assert by_phase == {"forward": 6, "backward": 5}
    for i in module.instructions:
        for c in i.called_computations if i.opcode == "fusion" else ():
            if found[i.index] == PHASES.index("forward"):
                assert PHASES.index("optimiser") not in {found[x.index] for x in c.instructions}
