"""Training and inference steps of a small transformer, with common shardings."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from .registry import Made, array, program

D, HEADS, FF, VOCAB, BATCH, LENGTH = 64, 4, 256, 512, 8, 32
TP = {
    "q": (None, "model"),
    "k": (None, "model"),
    "v": (None, "model"),
    "o": ("model", None),
    "w1": (None, "model"),
    "w2": ("model", None),
}
SIZES = {"q": (D, D), "k": (D, D), "v": (D, D), "o": (D, D), "w1": (D, FF), "w2": (FF, D)}


def attention(w: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    b, t, d = x.shape
    q, k, v = ((x @ w[n]).reshape(b, t, HEADS, d // HEADS) for n in "qkv")
    scores = jnp.einsum("bthd,bshd->bhts", q, k) * (d // HEADS) ** -0.5
    mask = jnp.tril(jnp.ones((t, t), bool))
    weights = jax.nn.softmax(jnp.where(mask, scores, -1e9), axis=-1)
    return jnp.einsum("bhts,bshd->bthd", weights, v).reshape(b, t, d) @ w["o"]


def layer(w: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    with jax.named_scope("attention"):
        x = x + attention(w, x)
    with jax.named_scope("mlp"):
        return x + jax.nn.gelu(x @ w["w1"]) @ w["w2"]


def loss_fn(params: dict[str, Any], tokens: jax.Array, blocks: Any) -> jax.Array:
    with jax.named_scope("embed"):
        x = params["embed"][tokens]
    x = blocks(params["layers"], x)
    with jax.named_scope("lm_head"):
        logits = x @ params["embed"].T
    with jax.named_scope("loss"):
        picked = jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[..., None], -1)
        return -jnp.mean(picked)


def unrolled(layers: list[dict[str, jax.Array]], x: jax.Array) -> jax.Array:
    for i, w in enumerate(layers):
        with jax.named_scope(f"layer_{i}"):
            x = layer(w, x)
    return x


def scanned(layers: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    return jax.lax.scan(lambda c, w: (layer(w, c), None), x, layers)[0]


def rematted(layers: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    body = jax.checkpoint(layer, policy=jax.checkpoint_policies.dots_saveable)
    return jax.lax.scan(lambda c, w: (body(w, c), None), x, layers)[0]


def sgd_step(blocks: Any) -> Any:
    def step(params: Any, tokens: jax.Array) -> tuple[Any, jax.Array]:
        loss, grads = jax.value_and_grad(loss_fn)(params, tokens, blocks)
        with jax.named_scope("sgd"):
            return jax.tree.map(lambda p, g: p - 1e-3 * g, params, grads), loss

    return step


def adam_step(params: Any, mean: Any, var: Any, tokens: jax.Array) -> Any:
    loss, grads = jax.value_and_grad(loss_fn)(params, tokens, unrolled)
    with jax.named_scope("adam"):
        mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, mean, grads)
        var = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, var, grads)
        params = jax.tree.map(
            lambda p, m, v: p - 1e-3 * m / (jnp.sqrt(v) + 1e-8), params, mean, var
        )
    return params, mean, var, loss


def shapes(
    mesh: Mesh | None, *, layers: int = 2, stacked: bool = False, specs: Any = TP, embed: Any = None
) -> dict[str, Any]:
    """Parameter shapes; ``stacked`` puts the layers on a leading dimension, as scan needs."""
    one = {
        n: array(
            mesh,
            (layers, *SIZES[n]) if stacked else SIZES[n],
            *((None, *specs[n]) if stacked else specs[n]),
        )
        for n in SIZES
    }
    spec = embed if embed is not None else ("model", None)
    return {
        "embed": array(mesh, (VOCAB, D), *spec),
        "layers": one if stacked else [dict(one) for _ in range(layers)],
    }


def tokens(mesh: Mesh | None, *spec: Any) -> jax.ShapeDtypeStruct:
    return array(mesh, (BATCH, LENGTH), *(spec or ("data",)), dtype=jnp.int32)


@program(
    "two unrolled layers, tensor parallel over model, batch over data; Adam; donated state",
    mesh={"data": 2, "model": 4},
    contains=("all-reduce", "fusion"),
)
def gpt_unrolled(mesh: Mesh) -> Made:
    p = shapes(mesh)
    fn = jax.jit(adam_step, donate_argnums=(0, 1, 2))
    return Made(fn, (p, p, p, tokens(mesh)))


@program(
    "four layers as one scan: a while forward and a while backward, trip count 4",
    mesh={"data": 2, "model": 4},
    contains=("while", "all-reduce"),
)
def gpt_scan(mesh: Mesh) -> Made:
    fn = jax.jit(sgd_step(scanned), donate_argnums=0)
    return Made(fn, (shapes(mesh, layers=4, stacked=True), tokens(mesh)))


@program(
    "scan with rematerialisation: op names with rematted_computation",
    mesh={"data": 2, "model": 4},
    contains=("while",),
)
def gpt_remat(mesh: Mesh) -> Made:
    fn = jax.jit(sgd_step(rematted), donate_argnums=0)
    return Made(fn, (shapes(mesh, layers=4, stacked=True), tokens(mesh)))


@program("the same step on one device: no collectives", contains=("fusion",))
def gpt_single(mesh: None) -> Made:
    return Made(jax.jit(sgd_step(unrolled), donate_argnums=0), (shapes(None), tokens(None)))


@program(
    "fully sharded data parallel: parameters split over data, gathered at use",
    mesh={"data": 8},
    contains=("all-gather",),
)
def fsdp(mesh: Mesh) -> Made:
    specs = dict.fromkeys(SIZES, ("data", None))
    p = shapes(mesh, specs=specs, embed=("data", None))
    out = (jax.tree.map(lambda s: s.sharding, p), NamedSharding(mesh, P()))
    fn = jax.jit(sgd_step(unrolled), donate_argnums=0, out_shardings=out)
    return Made(fn, (p, tokens(mesh)))


@program("FSDP over data with tensor parallelism over model", mesh={"data": 2, "model": 4})
def fsdp_tp(mesh: Mesh) -> Made:
    specs = {n: tuple("data" if a is None else a for a in s) for n, s in TP.items()}
    p = shapes(mesh, specs=specs, embed=("model", "data"))
    out = (jax.tree.map(lambda s: s.sharding, p), NamedSharding(mesh, P()))
    fn = jax.jit(sgd_step(unrolled), donate_argnums=0, out_shardings=out)
    return Made(fn, (p, tokens(mesh)))


@program(
    "batch, fsdp and tensor axes together",
    mesh={"replica": 2, "fsdp": 2, "tensor": 2},
    contains=("all-gather",),
)
def three_axes(mesh: Mesh) -> Made:
    rename = {"model": "tensor", None: "fsdp"}
    specs = {n: tuple(rename[a] for a in s) for n, s in TP.items()}
    p = shapes(mesh, specs=specs, embed=("tensor", "fsdp"))
    fn = jax.jit(sgd_step(unrolled), donate_argnums=0)
    return Made(fn, (p, tokens(mesh, ("replica", "fsdp"))))


@program(
    "sequence parallel: activations constrained to split the sequence between blocks",
    mesh={"data": 2, "model": 4},
    contains=("all-gather",),
)
def sequence_parallel(mesh: Mesh) -> Made:
    split = NamedSharding(mesh, P("data", "model", None))

    def forward(w: dict[str, jax.Array], x: jax.Array) -> jax.Array:
        for _ in range(2):
            x = jax.lax.with_sharding_constraint(x, split)
            x = x + jax.nn.gelu(x @ w["w1"]) @ w["w2"]
        return jax.lax.with_sharding_constraint(x, split)

    w = {n: array(mesh, SIZES[n], *TP[n]) for n in ("w1", "w2")}
    return Made(jax.jit(forward), (w, array(mesh, (BATCH, LENGTH, D), "data", "model")))


@program(
    "decoding with a key-value cache: dynamic-update-slice into donated buffers",
    mesh={"model": 8},
    contains=("fusion",),
)
def decode_cache(mesh: Mesh) -> Made:
    def step(cache: dict[str, jax.Array], x: jax.Array, position: jax.Array) -> Any:
        new = {
            n: jax.lax.dynamic_update_slice(cache[n], x[:, None], (0, position, 0, 0))
            for n in ("k", "v")
        }
        scores = jnp.einsum("bhd,bthd->bht", x, new["k"])
        scores = jnp.where(jnp.arange(LENGTH) <= position, scores, -1e9)
        out = jnp.einsum("bht,bthd->bhd", jax.nn.softmax(scores), new["v"])
        return new, out

    kv = array(mesh, (BATCH, LENGTH, 8, 16), None, None, "model")
    x = array(mesh, (BATCH, 8, 16), None, "model")
    return Made(
        jax.jit(step, donate_argnums=0), ({"k": kv, "v": kv}, x, array(mesh, (), dtype=jnp.int32))
    )
