"""The transformer of the analytic model as a JAX program: what its formulas are compared with.

Every layer is in a ``named_scope`` with the name its formula has. Blocks are scanned. Norms work on
tokens split over "tensor"; columns of ``qkv_proj`` and ``fc1`` and rows of ``v_proj`` and ``fc2``
are split over it, the batch over "data".
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

from ...api.capture import Capture
from ..entry import capture
from .sharded import make_mesh

AXES = ("data", "tensor")


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockSizes:
    """Sizes of the blocks and of their input. ``depth``: how many; ``hidden``: the MLP's width."""

    batch: int
    seq: int
    embed: int
    heads: int
    kv_heads: int
    hidden: int
    depth: int
    element_bytes: float
    head_width: int
    gated: bool = False
    bias: bool = True
    layer_norm: bool = True  # else of the root mean square, with scale only
    post_norms: bool = False


def capture_transformer(
    sizes: BlockSizes, axes: Mapping[str, int], topology: str | None = None
) -> Capture:
    """Forward and backward pass of all blocks, gradients of parameters and input.

    Raises ``CaptureError`` if the mesh cannot be made.
    """
    batch, seq, embed, heads = sizes.batch, sizes.seq, sizes.embed, sizes.heads
    kv_heads, hidden, depth = sizes.kv_heads, sizes.hidden, sizes.depth
    mesh = make_mesh({a: axes.get(a, 1) for a in AXES}, topology)
    dtype = {2: jnp.bfloat16, 4: jnp.float32}[int(sizes.element_bytes)]
    width = sizes.head_width

    def held(x: Any, *spec: Any) -> Any:
        return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, PartitionSpec(*spec)))

    def norm(x: Any, p: Any) -> Any:
        if not sizes.layer_norm:
            spread = jnp.mean(x * x, -1, keepdims=True)
            return x * jax.lax.rsqrt(spread + 1e-5).astype(x.dtype) * p["scale"]
        mean = jnp.mean(x, -1, keepdims=True)
        spread = jnp.mean((x - mean) ** 2, -1, keepdims=True)
        return (x - mean) * jax.lax.rsqrt(spread + 1e-5).astype(x.dtype) * p["scale"] + p["offset"]

    def block(x: Any, p: Any) -> tuple[Any, None]:
        with jax.named_scope("layer_norm_1"):
            n = held(norm(x, p["norm_1"]), "data", "tensor")
            n = held(n, "data")
        with jax.named_scope("qkv_proj"):
            q = jnp.einsum("ble,ehq->blhq", n, p["q"])
            k = jnp.einsum("ble,ehq->blhq", n, p["k"])
            v = jnp.einsum("ble,ehq->blhq", n, p["v"])
            # without this the backward pass spreads some of attention over tokens
            q, k, v = (held(a, "data", None, "tensor") for a in (q, k, v))
        group = heads // kv_heads
        q = q.reshape(batch, seq, kv_heads, group, width)
        with jax.named_scope("logits"):
            scores = jnp.einsum("blkgq,bmkq->bkglm", q, k) / math.sqrt(width)
        with jax.named_scope("softmax"):
            scores = jax.nn.softmax(scores, axis=-1)
        with jax.named_scope("attend"):
            out = jnp.einsum("bkglm,bmkq->blkgq", scores, v)
        out = held(out.reshape(batch, seq, heads, width), "data", None, "tensor")
        with jax.named_scope("v_proj"):
            out = jnp.einsum("blhq,hqe->ble", out, p["o"]) + p.get("o_bias", 0)
            out = held(out, "data", "tensor")
        if sizes.post_norms:
            with jax.named_scope("post_norm_1"):
                out = held(norm(out, p["post_norm_1"]), "data", "tensor")
        x = held(x + out, "data", "tensor")
        with jax.named_scope("layer_norm_2"):
            n = held(norm(x, p["norm_2"]), "data", "tensor")
            n = held(n, "data")
        with jax.named_scope("fc1"):
            wide = jnp.einsum("ble,ewf->blwf", n, p["fc1"]) + p.get("fc1_bias", 0)
            wide = held(wide, "data", None, None, "tensor")
        with jax.named_scope("act"):
            hid = jax.nn.relu(wide[:, :, 0])
            hid = hid * wide[:, :, 1] if sizes.gated else hid
        with jax.named_scope("fc2"):
            out = held(hid @ p["fc2"] + p.get("fc2_bias", 0), "data", "tensor")
        if sizes.post_norms:
            with jax.named_scope("post_norm_2"):
                out = held(norm(out, p["post_norm_2"]), "data", "tensor")
        return held(x + out, "data", "tensor"), None

    def loss(params: Any, x: Any) -> Any:
        x, _ = jax.lax.scan(block, x, params)
        return jnp.sum(x.astype(jnp.float32))

    def array(*shape: int, spec: tuple[Any, ...] = ()) -> Any:
        sharding = NamedSharding(mesh, PartitionSpec(*spec))
        return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)

    def stack(*shape: int, spec: tuple[Any, ...] = ()) -> Any:
        return array(depth, *shape, spec=(None, *spec))

    t, none = "tensor", None
    parts = ("scale", "offset") if sizes.layer_norm else ("scale",)
    norms = ["norm_1", "norm_2", *(["post_norm_1", "post_norm_2"] if sizes.post_norms else [])]
    params: dict[str, Any] = {n: {part: stack(embed) for part in parts} for n in norms}
    side = 2 if sizes.gated else 1
    params |= {
        "q": stack(embed, heads, width, spec=(none, t)),
        "k": stack(embed, kv_heads, width, spec=(none, t)),
        "v": stack(embed, kv_heads, width, spec=(none, t)),
        "o": stack(heads, width, embed, spec=(t,)),
        "fc1": stack(embed, side, hidden, spec=(none, none, t)),
        "fc2": stack(hidden, embed, spec=(t,)),
    }
    if sizes.bias:
        params |= {
            "o_bias": stack(embed),
            "fc1_bias": stack(side, hidden, spec=(none, t)),
            "fc2_bias": stack(embed),
        }
    x = array(batch, seq, embed, spec=("data", "tensor"))
    shardings = jax.tree.map(lambda a: a.sharding, (params, x))
    step = jax.jit(jax.grad(loss, (0, 1)), out_shardings=shardings)
    return capture(step, params, x, mesh=mesh, title="transformer", provenance=True)
