"""Models whose layers are calls: unrolled, scanned, nested, shared, rematerialised, Flax.

``PROGRAMS``: name → function without arguments that returns a function, its arguments, the name
of the function that is its layer, and the number of its calls in the program.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

Made = tuple[Callable[..., Any], tuple[Any, ...], str, int]
PROGRAMS: dict[str, Callable[[], Made]] = {}


def program(make: Callable[[], Made]) -> Callable[[], Made]:
    PROGRAMS[make.__name__] = make
    return make


def w(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


ONE = {k: w(32, 32) for k in "qkvo"} | {"up": w(32, 64), "down": w(64, 32), "n": w(32)}
STACKED = {k: w(4, *v.shape) for k, v in ONE.items()}
X = w(16, 32)


def norm(x: Any, scale: Any) -> Any:
    return x * jax.lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-5) * scale


def attention(p: Any, x: Any) -> Any:
    q, k, v = x @ p["q"], x @ p["k"], x @ p["v"]
    return (jax.nn.softmax(q @ k.T, -1) @ v) @ p["o"]


def mlp(p: Any, x: Any) -> Any:
    return jax.nn.gelu(x @ p["up"]) @ p["down"]


def block(p: Any, x: Any) -> Any:
    x = x + attention(p, norm(x, p["n"]))
    return x + mlp(p, norm(x, p["n"]))


def error(x: Any) -> Any:
    return jnp.square(jnp.tanh(x)).mean()


def graded(model: Callable[..., Any]) -> Callable[..., Any]:
    def step(params: Any, x: Any) -> Any:
        return jax.value_and_grad(lambda p: error(model(p, x)))(params)

    return step


def unrolled_model(ps: Any, x: Any) -> Any:
    for p in ps:
        x = block(p, x)
    return x


@program
def unrolled() -> Made:
    return unrolled_model, ([ONE] * 4, X), "block", 4


@program
def unrolled_gradient() -> Made:
    return graded(unrolled_model), ([ONE] * 4, X), "block", 4


@program
def one_scope_for_all_layers() -> Made:
    def model(ps: Any, x: Any) -> Any:
        for p in ps:
            with jax.named_scope("layer"):
                x = block(p, x)
        return x

    return graded(model), ([ONE] * 4, X), "block", 4


@program
def a_scope_for_each_layer() -> Made:
    def model(ps: Any, x: Any) -> Any:
        for k, p in enumerate(ps):
            with jax.named_scope(f"layer_{k}"):
                x = block(p, x)
        return x

    return graded(model), ([ONE] * 4, X), "block", 4


@program
def scanned() -> Made:
    def body(x: Any, p: Any) -> Any:
        return block(p, x), None

    def model(ps: Any, x: Any) -> Any:
        return jax.lax.scan(body, x, ps)[0]

    return model, (STACKED, X), "block", 1


@program
def scanned_gradient() -> Made:
    def model(ps: Any, x: Any) -> Any:
        return jax.lax.scan(lambda x, p: (block(p, x), None), x, ps)[0]

    return graded(model), (STACKED, X), "block", 1


@program
def scanned_and_rematerialised() -> Made:
    def model(ps: Any, x: Any) -> Any:
        return jax.lax.scan(lambda x, p: (jax.checkpoint(block)(p, x), None), x, ps)[0]

    return graded(model), (STACKED, X), "block", 1


@program
def two_layers_a_turn() -> Made:
    def model(ps: Any, x: Any) -> Any:
        def body(x: Any, p: Any) -> Any:
            return block(p, block(p, x)), None

        return jax.lax.scan(body, x, ps)[0]

    return graded(model), (STACKED, X), "block", 2


@program
def rematerialised() -> Made:
    def model(ps: Any, x: Any) -> Any:
        for p in ps:
            x = jax.checkpoint(lambda p, x: block(p, x))(p, x)
        return x

    return graded(model), ([ONE] * 4, X), "block", 4


@program
def rematerialised_by_one_function() -> Made:
    saved = jax.checkpoint(block)

    def apply(p: Any, x: Any) -> Any:
        return saved(p, x)

    def model(ps: Any, x: Any) -> Any:
        for p in ps:
            x = apply(p, x)
        return x

    return graded(model), ([ONE] * 4, X), "apply", 4


@program
def jitted_layer() -> Made:
    jitted = jax.jit(block)

    def apply(p: Any, x: Any) -> Any:
        return jitted(p, x)

    def model(ps: Any, x: Any) -> Any:
        for p in ps:
            x = apply(p, x)
        return x

    return graded(model), ([ONE] * 4, X), "apply", 4


@program
def shared_layer() -> Made:
    def model(p: Any, x: Any) -> Any:
        for _ in range(4):
            x = block(p, x)
        return x

    return graded(model), (ONE, X), "block", 4


@program
def encoder_and_decoder() -> Made:
    def encode(ps: Any, x: Any) -> Any:
        for p in ps:
            x = block(p, x)
        return x

    def cross(p: Any, x: Any, memory: Any) -> Any:
        x = block(p, x)
        return x + jax.nn.softmax((x @ p["q"]) @ (memory @ p["k"]).T, -1) @ (memory @ p["v"])

    def decode(ps: Any, x: Any, memory: Any) -> Any:
        for p in ps:
            x = cross(p, x, memory)
        return x

    def model(ps: Any, x: Any) -> Any:
        return decode(ps, x, encode(ps, x))

    return graded(model), ([ONE] * 3, X), "block", 6


@program
def nested_blocks() -> Made:
    def stage(ps: Any, x: Any) -> Any:
        for p in ps:
            x = block(p, x)
        return jnp.tanh(x @ ps[0]["q"])

    def model(ps: Any, x: Any) -> Any:
        for k in range(0, 4, 2):
            x = stage(ps[k : k + 2], x)
        return x

    return graded(model), ([ONE] * 4, X), "block", 4


@program
def micro_batches() -> Made:
    def loss(ps: Any, x: Any) -> Any:
        return error(unrolled_model(ps, x))

    def step(ps: Any, x: Any) -> Any:
        gradients = [jax.grad(loss)(ps, part) for part in (x[:8], x[8:])]
        return jax.tree.map(lambda a, b: a + b, *gradients)

    return step, ([ONE] * 3, X), "block", 6


@program
def optimiser_step() -> Made:
    def adam(ps: Any, mean: Any, x: Any) -> Any:
        gradients = jax.grad(lambda ps: error(unrolled_model(ps, x)))(ps)
        mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, mean, gradients)
        return jax.tree.map(lambda p, m: p - m, ps, mean), mean

    return adam, ([ONE] * 4, [ONE] * 4, X), "block", 4


@program
def mapped_over_a_batch() -> Made:
    def model(ps: Any, x: Any) -> Any:
        return jax.vmap(lambda one: unrolled_model(ps, one))(x)

    return graded(model), ([ONE] * 3, w(4, 16, 32)), "block", 3


@program
def custom_gradient() -> Made:
    @jax.custom_vjp
    def clipped(x: Any) -> Any:
        return jnp.clip(x, -1, 1)

    clipped.defvjp(lambda x: (jnp.clip(x, -1, 1), x), lambda x, g: (g * jnp.cos(x),))

    def careful(p: Any, x: Any) -> Any:
        return clipped(block(p, x)) + x

    def model(ps: Any, x: Any) -> Any:
        for p in ps:
            x = careful(p, x)
        return x

    return graded(model), ([ONE] * 3, X), "careful", 3


@program
def experts() -> Made:
    def expert(p: Any, x: Any, weight: Any) -> Any:
        return jnp.sin(jnp.cumsum(jax.nn.gelu(x @ p["up"]) @ p["down"], 0)) * weight[:, None]

    def model(ps: Any, x: Any) -> Any:
        weights = jax.nn.softmax(x @ ps[0]["q"], -1)
        return sum(expert(p, x, weights[:, k]) for k, p in enumerate(ps))

    return graded(model), ([ONE] * 4, X), "expert", 4


@program
def sharded() -> Made:
    mesh = Mesh(np.array(jax.devices()[:8]).reshape(2, 4), ("data", "model"))

    def cut(shape: jax.ShapeDtypeStruct, *spec: Any) -> jax.ShapeDtypeStruct:
        sharding = NamedSharding(mesh, P(*spec))
        return jax.ShapeDtypeStruct(shape.shape, shape.dtype, sharding=sharding)

    spec = {"up": (None, "model"), "down": ("model",), "n": ()}
    one = {k: cut(v, *spec.get(k, (None, "model"))) for k, v in ONE.items()}
    return graded(unrolled_model), ([one] * 3, cut(X, "data")), "block", 3


@program
def a_branch_in_each_layer() -> Made:
    def either(p: Any, x: Any) -> Any:
        return jax.lax.cond(x[0, 0] > 0, lambda x: block(p, x), lambda x: jnp.sin(x @ p["q"]), x)

    def model(ps: Any, x: Any) -> Any:
        for p in ps:
            x = jnp.tanh(either(p, x) @ p["q"])
        return x

    return model, ([ONE] * 3, X), "either", 3


def _linen(wrap: str) -> Made:
    from flax import linen as nn

    class Block(nn.Module):  # type: ignore[misc]
        @nn.compact
        def __call__(self, x: Any) -> Any:
            h = nn.LayerNorm()(x)
            x = x + nn.SelfAttention(num_heads=2)(h)
            return x + nn.Dense(32)(nn.gelu(nn.Dense(64)(nn.LayerNorm()(x))))

    class Model(nn.Module):  # type: ignore[misc]
        @nn.compact
        def __call__(self, x: Any) -> Any:
            if wrap == "scan":
                scanned = nn.scan(
                    lambda m, x, _: (m(x), None),
                    variable_axes={"params": 0},
                    split_rngs={"params": True},
                    length=4,
                )
                return scanned(Block(), x, None)[0]
            if wrap == "shared":
                shared = Block()
                return shared(shared(shared(x)))
            kind = nn.remat(Block) if wrap == "remat" else Block
            for _ in range(3):
                x = kind()(x)
            return x

    x = w(2, 16, 32)
    model = Model()
    params = jax.eval_shape(model.init, jax.random.key(0), x)
    return graded(model.apply), (params, x), "Block.__call__", 1 if wrap == "scan" else 3


@program
def linen_unrolled() -> Made:
    return _linen("")


@program
def linen_rematerialised() -> Made:
    return _linen("remat")


@program
def linen_scanned() -> Made:
    return _linen("scan")


@program
def linen_shared() -> Made:
    return _linen("shared")


def _nnx(wrap: str) -> Made:
    from flax import nnx

    class Block(nnx.Module):  # type: ignore[misc]
        def __init__(self, rngs: Any) -> None:
            self.norm = nnx.LayerNorm(32, rngs=rngs)
            self.up = nnx.Linear(32, 64, rngs=rngs)
            self.down = nnx.Linear(64, 32, rngs=rngs)

        def __call__(self, x: Any) -> Any:
            return x + self.down(nnx.gelu(self.up(jnp.cumsum(self.norm(x), 0))))

    class Model(nnx.Module):  # type: ignore[misc]
        def __init__(self, rngs: Any) -> None:
            if wrap == "scan":
                self.blocks = nnx.vmap(Block)(rngs.fork(split=4))
            else:
                self.blocks = nnx.List([Block(rngs) for _ in range(3)])

        def __call__(self, x: Any) -> Any:
            if wrap == "scan":
                return nnx.scan(lambda x, b: b(x), in_axes=(nnx.Carry, 0), out_axes=nnx.Carry)(
                    x, self.blocks
                )
            for one in self.blocks:
                x = nnx.remat(lambda b, x: b(x))(one, x) if wrap == "remat" else one(x)
            return x

    model = Model(nnx.Rngs(0))
    graph, state = nnx.split(model)

    def apply(state: Any, x: Any) -> Any:
        return nnx.merge(graph, state)(x)

    return graded(apply), (state, X), "Block.__call__", 1 if wrap == "scan" else 3


@program
def nnx_unrolled() -> Made:
    return _nnx("")


@program
def nnx_rematerialised() -> Made:
    return _nnx("remat")


@program
def nnx_scanned() -> Made:
    return _nnx("scan")
