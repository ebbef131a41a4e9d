"""The layers of one block on one device, for every way to split it.

    attention  norm · qkv_proj · logits · softmax · dropout · attend · v_proj · dropout · norm
    mlp        fc1 · activation · dropout · fc2 · dropout

1D tensor parallelism gathers at the norms and scatters after ``v_proj`` and ``fc2``, so that
norms and what follows a scatter work on T/m tokens. 2D, 2.5D and 3D exchange operands in every
linear layer and keep everything else split over all devices.
"""

from __future__ import annotations

import math
from dataclasses import replace

from . import layers as layers
from . import volumes
from .layers import Exchange, Layer
from .sizes import Sizes, heads_split, tokens_split


def attention(s: Sizes) -> tuple[Layer, ...]:
    """The attention half of a block, with the norms of both halves."""
    size, e, q = s.element_bytes, s.embed, s.head_width
    b, own = s.local_batch, s.seq / s.size("context")
    m, split, tokens = math.prod(s.tensor), heads_split(s), tokens_split(s)
    t = b * own
    # tokens are split by sequences where there are enough, else within them
    batch = b / tokens if b % tokens == 0 else b
    queries = own if b % tokens == 0 else own / tokens
    heads, kv = s.heads / split, max(s.kv / split, 1)
    keys = float(s.seq)
    fwd: tuple[Exchange, ...] = ()
    bwd: tuple[Exchange, ...] = ()
    c = s.size("context")
    if c > 1 and s.context_kind == "ulysses":
        fwd, bwd = volumes.ulysses(batch, queries, heads, kv, q, c, size)
        heads, kv, queries = heads / c, max(kv / c, 1), queries * c
    elif c > 1:
        fwd, bwd = volumes.ring_attention(batch, keys, kv, q, c, size)
    if b % tokens and tokens > 1:
        within, back = volumes.ring_attention(batch, own, kv, q, tokens, size, axis="tensor")
        fwd, bwd = (*fwd, *within), (*bwd, *back)
    core = [
        layers.logits(batch, queries, keys, q, heads, size, kv).with_exchange(fwd, bwd),
        layers.softmax(batch, queries, keys, heads, size),
    ]
    if s.dropout:
        n = batch * heads * queries * keys
        core.append(layers.dropout("dropout_softmax", n, size, s.mask_bytes))
    core.append(layers.attend(batch, queries, keys, q, heads, size, kv))
    out = [
        _norm("layer_norm_1", s, t),
        # K and V with fewer heads than devices are held several times
        _column("qkv_proj", s, t, e, e + 2 * q * max(s.kv, split), bias=False),
        *core,
        _row("v_proj", s, t, e, e),
    ]
    if s.dropout:
        out.append(_after("dropout", s, t, layers.dropout("", t * e / m, size, s.mask_bytes)))
    out.append(_norm("layer_norm_2", s, t))
    return tuple(out)


def mlp(s: Sizes) -> tuple[Layer, ...]:
    """The MLP half of a block."""
    size, e, f = s.element_bytes, s.embed, s.f
    t = s.local_batch * s.seq / s.size("context")
    m = math.prod(s.tensor)
    wide = 2 * f if s.gated else f
    sent = t
    fwd: tuple[Exchange, ...] = ()
    bwd: tuple[Exchange, ...] = ()
    out: list[Layer] = []
    if s.experts > 1:
        sent = t * s.top_k * s.capacity
        fwd, bwd = volumes.experts(t / m, e, s.top_k, s.capacity, s.size("expert"), size)
        out.append(layers.linear("router", t / m, e, s.experts, size, bias=False))
    fc1 = _several(_column("fc1", s, sent, e, wide), s)
    fc2 = _several(_row("fc2", s, sent, f, e), s)
    out.append(fc1.with_exchange(fwd[:1], bwd[:1]))
    out.append(layers.activation("act", sent * f / m, size))
    if s.dropout:
        out.append(layers.dropout("dpr1", sent * f / m, size, s.mask_bytes))
    out.append(fc2.with_exchange(fwd[1:], bwd[1:]))
    if s.dropout:
        out.append(_after("dpr2", s, t, layers.dropout("", t * e / m, size, s.mask_bytes)))
    return tuple(out)


def _whole(s: Sizes, t: float) -> float:
    return t * s.embed * s.element_bytes


def _norm(name: str, s: Sizes, t: float) -> Layer:
    m = math.prod(s.tensor)
    found = layers.norm(name, t / m, s.embed, s.element_bytes)
    if s.tensor_kind == "1d":
        gather = volumes.exchange("all-gather", "tensor", m, _whole(s, t), "tokens of all")
        return found.with_exchange((gather,) if m > 1 else ())
    # mean and variance of a token whose features are split
    over = s.tensor[0] if s.tensor_kind != "3d" else s.tensor[2]
    stats = 2 * t / tokens_split(s) * s.element_bytes
    one = volumes.exchange("all-reduce", "tensor", over, stats, "mean and variance")
    some = (one,) if over > 1 else ()
    return found.with_exchange(some, some)


def _after(name: str, s: Sizes, t: float, found: Layer) -> Layer:
    m = math.prod(s.tensor)
    found = replace(found, name=name)
    if s.tensor_kind != "1d" or m == 1:
        return found
    gather = volumes.exchange("all-gather", "tensor", m, _whole(s, t), "gradient of all tokens")
    return found.with_exchange((), (gather,))


def _column(name: str, s: Sizes, t: float, k: float, n: float, *, bias: bool = True) -> Layer:
    """A layer whose output features are split."""
    if s.tensor_kind != "1d":
        return _grid(name, s, t, k, n, bias, swapped=False)
    m = s.tensor[0]
    found = layers.linear(name, t, k, n / m, s.element_bytes, bias=bias)
    scatter = volumes.exchange(
        "reduce-scatter", "tensor", m, t * k * s.element_bytes, "gradient of the input"
    )
    return found.with_exchange((), (scatter,) if m > 1 else ())


def _row(name: str, s: Sizes, t: float, k: float, n: float) -> Layer:
    """A layer whose input features are split."""
    if s.tensor_kind != "1d":
        return _grid(name, s, t, k, n, True, swapped=True)
    m = s.tensor[0]
    found = layers.linear(name, t, k / m, n, s.element_bytes)
    scatter = volumes.exchange(
        "reduce-scatter", "tensor", m, t * n * s.element_bytes, "partial sums"
    )
    return found.with_exchange((scatter,) if m > 1 else ())


def _grid(name: str, s: Sizes, t: float, k: float, n: float, bias: bool, *, swapped: bool) -> Layer:
    """2D, 2.5D and 3D: both operands split; ``swapped`` turns the cube for every other layer."""
    size = s.element_bytes
    m = math.prod(s.tensor)
    if s.tensor_kind == "3d":
        x, y, z = s.tensor
        y, z = (z, y) if swapped else (y, z)
        found = layers.linear(name, t / x, k / y, n / z, size, bias=bias)
        fwd, bwd = volumes.cube(t, k, n, x, y, z, size)
        held = k * n / m
    else:
        m1, m2 = s.tensor[:2]
        m3 = s.tensor[2] if s.tensor_kind == "2.5d" else 1
        found = layers.linear(name, t / (m2 * m3), k, n / m1, size, bias=bias)
        fwd, bwd = volumes.two_and_half(t, k, n, m1, m2, m3, size)
        held = k * n / (m1 * m2)
    kept = t * k / m * size  # gathered again in the backward pass
    found = replace(found, parameters=held + (n / m if bias else 0), kept_bytes=kept)
    return found.with_exchange(fwd, bwd)


def _several(found: Layer, s: Sizes) -> Layer:
    """The weights of all experts that a device holds, each read once."""
    n = s.experts / s.size("expert")
    if n == 1:
        return found
    more = (n - 1) * found.weight_bytes
    return replace(
        found,
        weight_bytes=found.weight_bytes + more,
        parameters=found.parameters * n,
        bytes_fwd=found.bytes_fwd + more,
        bytes_bwd=found.bytes_bwd + 2 * more,
    )
