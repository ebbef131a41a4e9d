"""Bytes that parallel layers send: volume formulas of tensor, context, data and expert parallelism.

Every function returns ``(forward, backward)``: the collectives of one device. ``bytes`` of an
``Exchange`` is the whole array that its group of devices gathers, reduces or passes around;
``wire_bytes`` what one device sends by the ring formulas of ``hloscope``'s wire bytes.
``METHODS`` has each formula in words with its source.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...hlo.collective_kinds import KINDS
from .layers import Exchange

Both = tuple[tuple[Exchange, ...], tuple[Exchange, ...]]


@dataclass(frozen=True, slots=True)
class Method:
    """A way to split work: its forward volume in words, and its source."""

    name: str
    forward: str
    backward: str
    source: str


METHODS: dict[str, Method] = {
    m.name: m
    for m in (
        Method(
            "tensor 1d",
            "all-gather b·l·e before, reduce-scatter b·l·e after each half block, over m",
            "the same: reduce-scatter where it gathered, all-gather where it scattered",
            "Shoeybi et al. 2019, Megatron-LM; with sharded norms: Korthikanti et al. 2022",
        ),
        Method(
            "tensor 2d",
            "all-gather b·(l/m2)·k over m1 and k·(n/m1) over m2 for a (k, n) layer",
            "twice the forward: both gathered again, both gradients reduce-scattered",
            "van de Geijn and Watts 1997, SUMMA; for transformers: Xu et al. 2021, Optimus",
        ),
        Method(
            "tensor 2.5d",
            "tensor 2d with b·l/m3 tokens on each of m3 copies of the weights",
            "twice the forward, and all-reduce (k/m2)·(n/m1) of the weights' gradient over m3",
            "Solomonik and Demmel 2011; for transformers: Wang et al. 2021, Tesseract",
        ),
        Method(
            "tensor 3d",
            "all-gather (b·l/x)·(k/y) over z and (k/y)·(n/z) over x, reduce-scatter (b·l/x)·(n/z) "
            "over y",
            "all-gather (b·l/x)·(n/z) over y, the two operands again, and reduce-scatter both "
            "gradients",
            "Agarwal et al. 1995; for transformers: Bian et al. 2021",
        ),
        Method(
            "context ring",
            "K and V blocks, 2·b·(l/c)·kv·q, sent c−1 times round a ring of c",
            "K and V again, and their gradients: twice the forward",
            "Liu et al. 2023, Ring Attention",
        ),
        Method(
            "context ulysses",
            "all-to-all of Q, K, V and the output: b·(l/c)·q·(2h + 2kv)",
            "the same",
            "Jacobs et al. 2023, DeepSpeed Ulysses",
        ),
        Method(
            "data",
            "nothing",
            "all-reduce of all gradients over d, once a step",
            "Rajbhandari et al. 2020, ZeRO, section 7",
        ),
        Method(
            "fsdp",
            "all-gather of the weights over d",
            "all-gather of the weights again, reduce-scatter of the gradients",
            "Rajbhandari et al. 2020, ZeRO stage 3; Zhao et al. 2023, PyTorch FSDP",
        ),
        Method(
            "expert",
            "all-to-all b·l·e·k·c to the experts and back, for top k and capacity factor c",
            "the same",
            "Lepikhin et al. 2020, GShard; Fedus et al. 2021, Switch Transformer",
        ),
        Method(
            "pipeline",
            "sends b·l·e of a microbatch to the next stage",
            "sends its gradient back",
            "Huang et al. 2018, GPipe; Narayanan et al. 2021, Megatron-LM",
        ),
    )
}


def exchange(kind: str, axis: str, size: int, whole: float, why: str = "") -> Exchange:
    """A collective of ``size`` devices on an array of ``whole`` bytes (one device sends 0)."""
    share = KINDS[kind].wire_bytes(1.0, size)
    return Exchange(kind, axis, size, whole, share * whole, why)


def _some(*found: Exchange) -> tuple[Exchange, ...]:
    return tuple(e for e in found if e.size > 1)


def summa(t: float, k: float, n: float, m1: int, m2: int, size: float) -> Both:
    """2D: tokens over m2, features over m1. (T/m2, k/m1) × (k/m2, n/m1) → (T/m2, n/m1)."""
    a, w = t / m2 * k * size, k * n / m1 * size
    fwd = _some(
        exchange("all-gather", "m1", m1, a, "activations"),
        exchange("all-gather", "m2", m2, w, "weights"),
    )
    bwd = _some(
        exchange("all-gather", "m1", m1, a, "activations"),
        exchange("all-gather", "m2", m2, w, "weights"),
        exchange("reduce-scatter", "m1", m1, a, "gradient of activations"),
        exchange("reduce-scatter", "m2", m2, w, "gradient of weights"),
    )
    return fwd, bwd


def two_and_half(t: float, k: float, n: float, m1: int, m2: int, m3: int, size: float) -> Both:
    """2.5D: m3 copies of a 2D grid, each with T/m3 tokens."""
    fwd, bwd = summa(t / m3, k, n, m1, m2, size)
    own = k / m2 * n / m1 * size
    return fwd, (*bwd, *_some(exchange("all-reduce", "m3", m3, own, "gradient of weights")))


def cube(t: float, k: float, n: float, x: int, y: int, z: int, size: float) -> Both:
    """3D: tokens over x, the contracted dimension over y, features over z."""
    a, w, c = t / x * k / y * size, k / y * n / z * size, t / x * n / z * size
    fwd = _some(
        exchange("all-gather", "z", z, a, "activations"),
        exchange("all-gather", "x", x, w, "weights"),
        exchange("reduce-scatter", "y", y, c, "output"),
    )
    bwd = _some(
        exchange("all-gather", "y", y, c, "gradient of output"),
        exchange("all-gather", "z", z, a, "activations"),
        exchange("all-gather", "x", x, w, "weights"),
        exchange("reduce-scatter", "z", z, a, "gradient of activations"),
        exchange("reduce-scatter", "x", x, w, "gradient of weights"),
    )
    return fwd, bwd


def ring_attention(
    b: float, keys: float, kv: float, q: float, c: int, size: float, *, axis: str = "context"
) -> Both:
    """K and V of all ``keys`` pass through every device; b, kv and q are one device's share."""
    if c <= 1:
        return (), ()
    whole = 2 * b * keys * kv * q * size
    sent = whole / c * (c - 1)
    fwd = (Exchange("send", axis, c, whole, sent, "K and V round the ring", c - 1),)
    grads = Exchange("send", axis, c, whole, sent, "their gradients round the ring", c - 1)
    return fwd, (*fwd, grads)


def ulysses(b: float, own: float, h: float, kv: float, q: float, c: int, size: float) -> Both:
    """``own`` tokens of a device are exchanged for all tokens of h/c heads, and back."""
    one = exchange("all-to-all", "context", c, b * own * (2 * h + 2 * kv) * q * size, "Q, K, V, O")
    return _some(one), _some(one)


def data_parallel(weight_bytes: float, d: int) -> Both:
    """The gradients of a block, once per step."""
    return (), _some(exchange("all-reduce", "data", d, weight_bytes, "gradients"))


def fsdp(weight_bytes: float, d: int) -> Both:
    """The weights of a block gathered for use, its gradients scattered."""
    gather = exchange("all-gather", "data", d, weight_bytes, "weights")
    scatter = exchange("reduce-scatter", "data", d, weight_bytes, "gradients")
    return _some(gather), _some(gather, scatter)


def experts(t: float, e: float, top_k: float, capacity: float, x: int, size: float) -> Both:
    """T tokens of a device go to their experts and come back."""
    one = exchange("all-to-all", "expert", x, t * e * top_k * capacity * size, "tokens to experts")
    back = exchange("all-to-all", "expert", x, t * e * top_k * capacity * size, "and back")
    return _some(one, back), _some(one, back)
