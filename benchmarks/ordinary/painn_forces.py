"""PaiNN (equivariant message passing) trained on energies and forces; forces are the gradient of the energy, so the step is second order."""

TRUTH = """
IN ORDER
- `train_step`: energies and forces (forward + gradient to the positions) -> energy loss + force loss -> backward to the params -> optimiser (adamw)
- energy: edge vectors/distances -> radial basis (20 sines x cosine cutoff) -> atom embedding -> 5 x (`message`, `update`)
  -> `readout` MLP per atom -> sum per molecule
- `message`: dense 256 -> 256 -> 768 on scalars, filter from the radial basis (20 -> 768), gather at the sources, scatter-add at the targets
- `update`: vectors mixed by U and V (256x256 each), their norm, dense 512 -> 256 -> 768
COUNTS
- 5 interaction layers, unrolled (Python loop); no lax loop
- 4 passes over the network: forward, backward to positions (forces), and the backward through both of them (so layers appear forward,
  force-backward, and twice in the parameter backward)
ORDER / INDEPENDENCE
- the radial basis and all 5 layers' filters depend on the positions only, not on the previous layers; layers are serial
- energy loss and force loss independent once E and F exist
HEAVY
- dense layers; per layer the `update` on vectors (3 x atoms x 256 x 512) and `message`; edges: 16384 edges x 768 f32 = 50 MB per
  gathered tensor, vector messages [16384, 3, 256] as large: memory bound gathers and scatters dominate in time
PERFORMANCE
- healthy: params and opt state donated, f32, single device. What to say: gathers/scatter-adds over 16384 edges are the memory traffic
"""
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

F, LAYERS, RBF, CUT = 256, 5, 20, 5.0
MOLS, ATOMS, EDGES = 32, 1024, 16384


class Graph(NamedTuple):
    species: jax.Array
    pos: jax.Array
    src: jax.Array
    dst: jax.Array
    mol: jax.Array


class Linear(NamedTuple):
    w: jax.Array
    b: jax.Array

    def __call__(self, x):
        return x @ self.w + self.b


class Layer(NamedTuple):
    phi1: Linear
    phi2: Linear
    filt: Linear
    u: jax.Array
    v: jax.Array
    mix1: Linear
    mix2: Linear


class PaiNN(NamedTuple):
    embed: jax.Array
    layers: tuple
    out1: Linear
    out2: Linear


def linear(key, i, o):
    return Linear(jax.random.normal(key, (i, o)) / i**0.5, jnp.zeros(o))


def init(key):
    keys = iter(jax.random.split(key, 7 * LAYERS + 3))
    embed = jax.random.normal(next(keys), (100, F))
    layers = tuple(
        Layer(
            linear(next(keys), F, F),
            linear(next(keys), F, 3 * F),
            linear(next(keys), RBF, 3 * F),
            jax.random.normal(next(keys), (F, F)) / F**0.5,
            jax.random.normal(next(keys), (F, F)) / F**0.5,
            linear(next(keys), 2 * F, F),
            linear(next(keys), F, 3 * F),
        )
        for _ in range(LAYERS)
    )
    return PaiNN(embed, layers, linear(next(keys), F, F // 2), linear(next(keys), F // 2, 1))


def radial_basis(dist):
    n = jnp.arange(1, RBF + 1)
    rbf = jnp.sin(n * jnp.pi * dist[:, None] / CUT) / dist[:, None]
    cutoff = 0.5 * (jnp.cos(jnp.pi * dist / CUT) + 1) * (dist < CUT)
    return rbf, cutoff[:, None]


@jax.named_call
def message(layer, s, vec, g, rbf, cutoff, unit):
    x = layer.phi2(jax.nn.silu(layer.phi1(s)))
    w = layer.filt(rbf) * cutoff
    ds, a, b = jnp.split(x[g.src] * w, 3, axis=-1)
    dv = vec[g.src] * a[:, None, :] + unit[:, :, None] * b[:, None, :]
    s = s + jax.ops.segment_sum(ds, g.dst, ATOMS)
    vec = vec + jax.ops.segment_sum(dv, g.dst, ATOMS)
    return s, vec


@jax.named_call
def update(layer, s, vec):
    uv, vv = vec @ layer.u, vec @ layer.v
    norm = jnp.sqrt(jnp.sum(vv**2, axis=1) + 1e-8)
    x = layer.mix2(jax.nn.silu(layer.mix1(jnp.concatenate([s, norm], -1))))
    a_ss, a_sv, a_vv = jnp.split(x, 3, axis=-1)
    s = s + a_ss + a_sv * jnp.sum(uv * vv, axis=1)
    return s, vec + a_vv[:, None, :] * uv


@jax.named_call
def readout(params, s, mol):
    per_atom = params.out2(jax.nn.silu(params.out1(s)))[:, 0]
    return jax.ops.segment_sum(per_atom, mol, MOLS)


def energy(params, pos, g):
    d = pos[g.dst] - pos[g.src]
    dist = jnp.sqrt(jnp.sum(d * d, -1) + 1e-8)
    rbf, cutoff = radial_basis(dist)
    s = params.embed[g.species]
    vec = jnp.zeros((ATOMS, 3, F))
    for layer in params.layers:
        s, vec = message(layer, s, vec, g, rbf, cutoff, d / dist[:, None])
        s, vec = update(layer, s, vec)
    return readout(params, s, g.mol)


def energy_and_forces(params, g):
    total, pullback = jax.vjp(lambda pos: energy(params, pos, g), g.pos)
    return total, -pullback(jnp.ones_like(total))[0]


def loss_fn(params, g, e_ref, f_ref):
    e, f = energy_and_forces(params, g)
    energy_loss = jnp.mean((e - e_ref) ** 2)
    force_loss = jnp.mean((f - f_ref) ** 2)
    return 0.05 * energy_loss + 0.95 * force_loss, (energy_loss, force_loss)


def make():
    tx = optax.adamw(optax.exponential_decay(5e-4, 10_000, 0.8), weight_decay=0.01)

    def train_step(params, opt, g, e_ref, f_ref):
        (loss, parts), grads = jax.value_and_grad(loss_fn, has_aux=True)(params, g, e_ref, f_ref)
        updates, opt = tx.update(grads, opt, params)
        return optax.apply_updates(params, updates), opt, loss, parts

    S, i32 = jax.ShapeDtypeStruct, jnp.int32
    g = Graph(
        S((ATOMS,), i32),
        S((ATOMS, 3), jnp.float32),
        S((EDGES,), i32),
        S((EDGES,), i32),
        S((ATOMS,), i32),
    )
    params = jax.eval_shape(init, jax.random.key(0))
    opt = jax.eval_shape(tx.init, params)
    args = (params, opt, g, S((MOLS,), jnp.float32), S((ATOMS, 3), jnp.float32))
    return jax.jit(train_step, donate_argnums=(0, 1)), args
