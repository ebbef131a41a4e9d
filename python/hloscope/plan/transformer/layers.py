"""The costs of one layer of a transformer on one device: FLOPs, bytes moved, bytes kept.

With T tokens, S bytes per element and M bytes per element of a dropout mask, per layer:

============  ==================================  ============================  ===========
layer         FLOPs forward / backward            elements moved fwd / bwd      kept for bwd
============  ==================================  ============================  ===========
linear(k,n)   Tn(2k−1) [+Tn] /                    Tk+Tn+kn [+n] /               Tk
              Tk(2n−1)+kn(2T−1) [+Tn]             2Tk+Tn+2kn [+2n]
activation N  N / N                               2N / 2N                       N
gated N       2N / 3N                             3N / 3N                       2N
dropout N     N / N                               2N+mask / N+mask              mask
norm N        9N / 9N+4T(e−1)                     2N+2e / 3N+2e                 N
rms norm N    4N / 8N                             2N+e / 3N+e                   N
logits        P(2q−1) / Q(2k−1)+K(2l−1)           Q+K+P / 2Q+2K+P               Q+K
softmax       2P+R(k−1) / 3P+R(k−1)               2P / 3P                       P
attend        Q(2k−1) / P(2q−1)+K(2l−1)           P+Q+K / 2P+Q+K                P+K
============  ==================================  ============================  ===========

(in brackets where there is a bias; scores P = b·h·l·k over l queries and k keys of width q,
Q = b·h·l·q, K = b·h·k·q, R = b·h·l rows; with l = k these are the usual published figures.)

A product of n terms is counted as 2n−1 FLOPs: n multiplications, n−1 additions. Layers are not
fused, even where nothing is kept between them: every layer reads and writes memory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

MATMULS = frozenset({"linear", "logits", "attend"})


@dataclass(frozen=True, slots=True)
class Exchange:
    """One collective of a layer: ``bytes`` is the whole array it works on, in one device group.

    ``wire_bytes`` is what one device sends, see ``volumes``. ``size`` is the number of devices
    that take part.
    """

    kind: str  # "all-gather", "reduce-scatter", "all-reduce", "all-to-all", "send"
    axis: str
    size: int
    bytes: float
    wire_bytes: float
    why: str = ""
    count: float = 1


@dataclass(frozen=True, slots=True)
class Layer:
    """FLOPs and bytes of one layer of one block, for one device and one microbatch.

    ``kept_bytes`` stays from the forward to the backward pass.
    """

    name: str
    kind: str  # "linear", "activation", "dropout", "norm", "logits", "softmax", "attend"
    flops_fwd: float
    flops_bwd: float
    in_bytes: float
    other_in_bytes: float  # the second operand: a mask, K or V
    out_bytes: float
    kept_bytes: float
    weight_bytes: float
    gradient_bytes: float  # activations' gradients moved by the backward pass
    bytes_fwd: float
    bytes_bwd: float
    parameters: float = 0
    # the part of ``parameters`` that devices along "tensor" hold alike and use on other tokens
    whole_parameters: float = 0
    exchanges_fwd: tuple[Exchange, ...] = ()
    exchanges_bwd: tuple[Exchange, ...] = ()

    @property
    def is_matmul(self) -> bool:
        """Whether the matrix unit runs it."""
        return self.kind in MATMULS

    def with_exchange(self, fwd: Any = (), bwd: Any = ()) -> Layer:
        """The same layer with further collectives before or after it."""
        return replace(
            self,
            exchanges_fwd=(*self.exchanges_fwd, *fwd),
            exchanges_bwd=(*self.exchanges_bwd, *bwd),
        )


def linear(name: str, t: float, k: float, n: float, size: float, *, bias: bool = True) -> Layer:
    """(T, k) × (k, n): T·k·S bytes are kept for the weights' gradient."""
    b = 1 if bias else 0
    weights = (k * n + b * n) * size
    grads = (t * k + t * n) * size
    return Layer(
        name=name,
        kind="linear",
        flops_fwd=t * n * (2 * k - 1) + b * t * n,
        flops_bwd=t * k * (2 * n - 1) + k * n * (2 * t - 1) + b * t * n,
        in_bytes=t * k * size,
        other_in_bytes=0.0,
        out_bytes=t * n * size,
        kept_bytes=t * k * size,
        weight_bytes=weights,
        gradient_bytes=grads,
        bytes_fwd=(t * k + t * n) * size + weights,
        bytes_bwd=t * k * size + grads + 2 * weights,
        parameters=k * n + b * n,
    )


def activation(name: str, n: float, size: float) -> Layer:
    """An elementwise function of n elements, one FLOP each."""
    return Layer(
        name, "activation", n, n, n * size, 0.0, n * size, n * size, 0.0, n * size, 2 * n * size,
        2 * n * size,
    )  # fmt: skip


def gate(name: str, n: float, size: float) -> Layer:
    """An elementwise function of n elements times n others; both are kept."""
    return Layer(
        name, "activation", 2 * n, 3 * n, 2 * n * size, 0.0, n * size, 2 * n * size, 0.0,
        3 * n * size, 3 * n * size, 3 * n * size,
    )  # fmt: skip


def dropout(name: str, n: float, size: float, mask_size: float) -> Layer:
    """n elements times a mask, which is kept."""
    mask = n * mask_size
    return Layer(
        name, "dropout", n, n, n * size, mask, n * size, mask, 0.0, n * size,
        2 * n * size + mask, n * size + mask,
    )  # fmt: skip


def norm(name: str, t: float, e: float, size: float) -> Layer:
    """Layer norm of T tokens of width e, with scale and offset."""
    n = t * e
    return Layer(
        name, "norm", 9 * n, 9 * n + 4 * t * (e - 1), n * size, 0.0, n * size, n * size,
        2 * e * size, 2 * n * size, (2 * n + 2 * e) * size, (3 * n + 2 * e) * size, 2 * e,
    )  # fmt: skip


def rms_norm(name: str, t: float, e: float, size: float) -> Layer:
    """Root-mean-square norm of T tokens of width e, with scale."""
    n = t * e
    return Layer(
        name, "norm", 4 * n, 8 * n, n * size, 0.0, n * size, n * size, e * size, 2 * n * size,
        (2 * n + e) * size, (3 * n + e) * size, e,
    )  # fmt: skip


def logits(
    b: float, queries: float, keys: float, q: float, h: float, size: float, kv: float
) -> Layer:
    """QKᵀ of h heads of width q on this device; ``kv`` heads hold keys."""
    p, qs, ks = b * h * queries * keys, b * h * queries * q, b * h * keys * q
    held = b * kv * keys * q
    return Layer(
        name="logits",
        kind="logits",
        flops_fwd=p * (2 * q - 1),
        flops_bwd=qs * (2 * keys - 1) + ks * (2 * queries - 1),
        in_bytes=qs * size,
        other_in_bytes=held * size,
        out_bytes=p * size,
        kept_bytes=(qs + held) * size,
        weight_bytes=0.0,
        gradient_bytes=(p + qs + held) * size,
        bytes_fwd=(qs + held + p) * size,
        bytes_bwd=(p + 2 * qs + 2 * held) * size,
    )


def softmax(b: float, queries: float, keys: float, h: float, size: float) -> Layer:
    """Softmax of every row of scores."""
    p = b * h * queries * keys
    adds = b * h * queries * (keys - 1)
    return Layer(
        "softmax", "softmax", 2 * p + adds, 3 * p + adds, p * size, 0.0, p * size, p * size, 0.0,
        2 * p * size, 2 * p * size, 3 * p * size,
    )  # fmt: skip


def attend(
    b: float, queries: float, keys: float, q: float, h: float, size: float, kv: float
) -> Layer:
    """Scores times V."""
    p, qs, ks = b * h * queries * keys, b * h * queries * q, b * h * keys * q
    held = b * kv * keys * q
    return Layer(
        name="attend",
        kind="attend",
        flops_fwd=qs * (2 * keys - 1),
        flops_bwd=p * (2 * q - 1) + ks * (2 * queries - 1),
        in_bytes=p * size,
        other_in_bytes=held * size,
        out_bytes=qs * size,
        kept_bytes=(p + held) * size,
        weight_bytes=0.0,
        gradient_bytes=(p + held) * size,
        bytes_fwd=(p + held + qs) * size,
        bytes_bwd=(2 * p + held + qs) * size,
    )
