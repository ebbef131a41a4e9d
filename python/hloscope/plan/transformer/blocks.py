"""The layers of one block on one device, for every way to split it.

    attention  norm · qkv_proj · logits · softmax · dropout · attend · v_proj · dropout · norm
    mlp        fc1 · activation · dropout · fc2 · dropout

With ``post_norms`` there is a norm after ``v_proj`` and ``fc2`` as well, with ``shared_experts``
an MLP beside the experts.

1D tensor parallelism gathers at the norms and scatters after ``v_proj`` and ``fc2``, so that
norms and what follows a scatter work on T/m tokens. The gradient of what was scattered is gathered
again, before the first layer that needs it whole. 2D, 2.5D and 3D exchange operands in every
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
        _column("qkv_proj", s, t, e, q * (s.heads + 2 * max(s.kv, split)), bias=False),
        *core,
        _row("v_proj", s, t, q * s.heads, e, is_dropped=s.dropout),
    ]
    if s.dropout:
        out.append(_after("dropout", s, t, layers.dropout("", t * e / m, size, s.mask_bytes)))
    if s.post_norms:
        out.append(_norm("post_norm_1", s, t, is_gathered=False))
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
    active = layers.gate if s.gated else layers.activation
    if s.shared_experts:
        n = s.shared_experts
        out.append(_column("shared_fc1", s, t, e, n * wide, bias=s.bias))
        out.append(active("shared_act", t * n * f / m, size))
        out.append(_row("shared_fc2", s, t, n * f, e, is_dropped=s.dropout))
    fc1 = _several(_column("fc1", s, sent, e, wide, bias=s.bias), s)
    fc2 = _several(_row("fc2", s, sent, f, e, is_dropped=s.dropout), s)
    out.append(fc1.with_exchange(fwd[:1], bwd[:1]))
    out.append(active("act", sent * f / m, size))
    if s.dropout:
        out.append(layers.dropout("dpr1", sent * f / m, size, s.mask_bytes))
    out.append(fc2.with_exchange(fwd[1:], bwd[1:]))
    if s.dropout:
        out.append(_after("dpr2", s, t, layers.dropout("", t * e / m, size, s.mask_bytes)))
    if s.post_norms:
        out.append(_norm("post_norm_2", s, t, is_gathered=False))
    return tuple(out)


def _whole(s: Sizes, t: float) -> float:
    return t * s.embed * s.element_bytes


def _norm(name: str, s: Sizes, t: float, *, is_gathered: bool = True) -> Layer:
    m = math.prod(s.tensor)
    made = layers.norm if s.norm == "layer" else layers.rms_norm
    found = made(name, t / m, s.embed, s.element_bytes)
    if s.tensor_kind == "1d":
        if m > 1:
            found = replace(found, whole_parameters=found.parameters)
        if not is_gathered:
            return found
        gather = volumes.exchange("all-gather", "tensor", m, _whole(s, t), "tokens of all")
        return found.with_exchange((gather,) if m > 1 else ())
    # mean and variance of a token whose features are split
    over = s.tensor[0] if s.tensor_kind != "3d" else s.tensor[2]
    stats = (2 if s.norm == "layer" else 1) * t / tokens_split(s) * s.element_bytes
    one = volumes.exchange("all-reduce", "tensor", over, stats, "mean and variance")
    some = (one,) if over > 1 else ()
    return found.with_exchange(some, some)


def _after(name: str, s: Sizes, t: float, found: Layer) -> Layer:
    m = math.prod(s.tensor)
    found = replace(found, name=name)
    return found.with_exchange((), _gradient(s, t * s.embed)) if m > 1 else found


def _gradient(s: Sizes, n: float) -> tuple[Exchange, ...]:
    """Gather of the gradient of n elements that a 1D layer scattered."""
    if s.tensor_kind != "1d" or s.tensor[0] == 1:
        return ()
    whole = n * s.element_bytes
    return (volumes.exchange("all-gather", "tensor", s.tensor[0], whole, "gradient of all tokens"),)


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


def _row(name: str, s: Sizes, t: float, k: float, n: float, *, is_dropped: bool) -> Layer:
    """A layer whose input features are split; ``is_dropped``: dropout comes after it."""
    if s.tensor_kind != "1d":
        return _grid(name, s, t, k, n, s.bias, swapped=True)
    m = s.tensor[0]
    found = layers.linear(name, t, k / m, n, s.element_bytes, bias=s.bias)
    if m > 1 and s.bias:
        found = replace(found, whole_parameters=n)
    scatter = volumes.exchange(
        "reduce-scatter", "tensor", m, t * n * s.element_bytes, "partial sums"
    )
    # the layer's own gradients need the gradient whole; dropout before it takes it first
    back = () if is_dropped else _gradient(s, t * n)
    return found.with_exchange((scatter,) if m > 1 else (), back)


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
        whole_parameters=found.whole_parameters * n,
        bytes_fwd=found.bytes_fwd + more,
        bytes_bwd=found.bytes_bwd + 2 * more,
    )
