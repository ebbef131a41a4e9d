"""An analytic transformer: seconds and bytes of every layer, and of a training step, by formulas.

A step, per device, part by part:

    seconds   layers of a block × blocks of a stage × microbatches, forward and backward
              + recomputation + (p−1) microbatches of bubble + gradients, weights
              among replicas + the optimizer's reads and writes + the head
    bytes     weights, gradients, optimizer state of a stage (÷ replicas with fsdp)
              + kept activations × microbatches in flight

Replicas are the devices that hold the same weights and see other tokens: those along "data" and
"context", and along "expert" for all weights but the experts'.

Recomputation after Korthikanti et al. 2022: "attention" recomputes scores (what is between
Q, K, V and the output), "block" keeps nothing but a block's input. Optimizer state after
Rajbhandari et al. 2020, section 3.1: a float32 copy where weights are narrower, Adam's moments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, Self

from ...hlo.mesh import mesh_axes
from . import blocks, layers, volumes
from .layers import Exchange, Layer
from .rates import Rates
from .sizes import OPTIMIZERS, TENSOR_KINDS, Sizes, checked

TIME_PARTS = (
    "matmuls",
    "other layers",
    "computed again",
    "head",
    "optimizer",
    "wire: tensor",
    "wire: context",
    "wire: expert",
    "wire: weights",
    "wire: pipeline",
    "bubble",
)
MEMORY_PARTS = (
    "weights",
    "gradients",
    "optimizer state",
    "activations",
    "gathered weights",
    "head",
)
_AGAIN = {"attention": ("logits", "softmax", "dropout_softmax", "attend")}


@dataclass(frozen=True, slots=True)
class LayerTime:
    """Seconds of one layer on one device: the larger of compute and memory, then the wire."""

    compute_fwd: float | None  # None: the rate is not published
    compute_bwd: float | None
    memory_fwd: float
    memory_bwd: float
    wire_fwd: float
    wire_bwd: float

    @property
    def busy_fwd(self) -> float:
        return max(self.compute_fwd or 0.0, self.memory_fwd)

    @property
    def busy_bwd(self) -> float:
        return max(self.compute_bwd or 0.0, self.memory_bwd)

    @property
    def fwd(self) -> float:
        return self.busy_fwd + self.wire_fwd

    @property
    def bwd(self) -> float:
        return self.busy_bwd + self.wire_bwd

    @property
    def intensity(self) -> float:
        """Compute over memory time of the forward pass: above 1 the layer is compute-bound."""
        return (self.compute_fwd or 0.0) / self.memory_fwd if self.memory_fwd else 0.0


@dataclass(frozen=True, slots=True)
class Totals:
    """A step on one device. ``seconds`` and ``memory`` are by part, ``wire_bytes`` by axis.

    "weights" is what replicas send each other: gradients, and with fsdp the weights.
    """

    seconds: Mapping[str, float]
    memory: Mapping[str, float]
    wire_bytes: Mapping[str, float]
    flops: float  # per device, without recomputation
    flops_again: float
    parameters: float  # of the whole model
    tokens: int  # of a step, all devices
    memory_limit: float | None
    model_flops_utilization: float

    @property
    def step_seconds(self) -> float:
        return sum(self.seconds.values())

    @property
    def memory_bytes(self) -> float:
        return sum(self.memory.values())

    @property
    def fits(self) -> bool | None:
        """Whether memory suffices; None where the chip's is unknown."""
        return None if self.memory_limit is None else self.memory_bytes <= self.memory_limit

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.step_seconds

    def to_dict(self) -> dict[str, Any]:
        """Plain data, sums included."""
        return {
            **asdict(self),
            "step_seconds": self.step_seconds,
            "memory_bytes": self.memory_bytes,
            "fits": self.fits,
            "tokens_per_second": self.tokens_per_second,
        }


@dataclass(frozen=True, eq=False)
class AnalyticModel:
    """Sizes on a mesh of a chip, and what the formulas make of them.

    ``blocks`` are the halves of a block by name, ``("attention", "mlp")``, each its layers on one
    device for one microbatch.
    """

    sizes: Sizes
    rates: Rates
    wire: str  # "ring": what a device sends; "whole": the whole array, as some count it
    overlap: bool
    blocks: Mapping[str, tuple[Layer, ...]]

    @classmethod
    def of(cls, sizes: Sizes, rates: Rates, *, wire: str, overlap: bool) -> Self:
        """The model of these sizes."""
        halves = {"attention": blocks.attention(sizes), "mlp": blocks.mlp(sizes)}
        return cls(sizes, rates, wire, overlap, halves)

    def with_sizes(self, **changes: Any) -> Self:
        """The same model with other sizes, mesh or options, as ``transformer`` takes them."""
        sizes = changed(self.sizes, changes)
        return self.of(sizes, self.rates, wire=self.wire, overlap=self.overlap)

    def time(self, layer: Layer) -> LayerTime:
        """Modelled seconds of a layer."""
        r = self.rates
        rate = r.matmul if layer.is_matmul else r.vector
        fwd = None if rate is None else layer.flops_fwd / rate
        bwd = None if rate is None else layer.flops_bwd / rate
        return LayerTime(
            fwd,
            bwd,
            layer.bytes_fwd / r.memory_bandwidth,
            layer.bytes_bwd / r.memory_bandwidth,
            sum(self.seconds(e) for e in layer.exchanges_fwd),
            sum(self.seconds(e) for e in layer.exchanges_bwd),
        )

    def sent(self, e: Exchange) -> float:
        """Bytes of an exchange as this model counts them."""
        return e.bytes if self.wire == "whole" else e.wire_bytes

    def seconds(self, e: Exchange) -> float:
        """Modelled seconds of an exchange on the link that reaches its devices.

        Raises ``ValueError`` when the chip has no link for that many.
        """
        # a grid's own axes (m1, x, …) are within the tensor axis
        inside = e.axis not in ("context", "expert", "data", "pipeline")
        reach = max(e.size, self.sizes.reach("tensor")) if inside else self.sizes.reach(e.axis)
        rate = self.rates.link(reach)
        if rate is None:
            raise ValueError(f"{self.rates.label} has no link that reaches {reach} devices")
        return self.sent(e) / rate

    @cached_property
    def totals(self) -> Totals:
        """A training step: seconds by part, bytes of memory by part, wire bytes by axis."""
        return _totals(self)


def changed(base: Sizes, given: Mapping[str, Any]) -> Sizes:
    """Sizes with others in place, as ``transformer`` takes them. Raises ``ValueError``."""
    changes = dict(given)
    if "mesh" in changes:
        mesh = changes.pop("mesh")
        mesh = mesh_axes(mesh) if isinstance(mesh, str) else dict(mesh)
        tensor = mesh.pop("tensor", 1)
        tensor = tuple(tensor) if isinstance(tensor, Sequence) else (tensor,)
        changes |= {"mesh": mesh, "tensor": tensor}
        by_count = {1: "1d", 2: "2d", 3: "3d"}
        if "tensor_kind" not in changes and len(tensor) != TENSOR_KINDS[base.tensor_kind]:
            changes["tensor_kind"] = by_count.get(len(tensor), "1d")
    unknown = sorted(set(changes) - set(Sizes.__slots__))
    if unknown:
        known = ", ".join(Sizes.__slots__)
        raise ValueError(f"a transformer has no {unknown[0]!r}; there are {known}")
    return checked(replace(base, **changes))


def _totals(model: AnalyticModel) -> Totals:
    """The step of a model."""
    s = model.sizes
    blocks = s.depth // s.size("pipeline")
    times = blocks * s.microbatches
    all_layers = [layer for half in model.blocks.values() for layer in half]
    head = _head(s)
    seconds = dict.fromkeys(TIME_PARTS, 0.0)
    wire: dict[str, float] = {}
    for layer in all_layers:
        t = model.time(layer)
        part = "matmuls" if layer.is_matmul else "other layers"
        seconds[part] += times * (t.busy_fwd + t.busy_bwd)
        for e in (*layer.exchanges_fwd, *layer.exchanges_bwd):
            _send(model, e, times, seconds, wire)
    again = [layer for layer in all_layers if _is_again(s, layer)]
    for layer in again:
        seconds["computed again"] += times * model.time(layer).busy_fwd
        for e in layer.exchanges_fwd:
            _send(model, e, times, seconds, wire)
    if head is not None:
        t = model.time(head)
        seconds["head"] = s.microbatches * (t.busy_fwd + t.busy_bwd)
    # the time of one microbatch in a stage, for each of the stages it waits for
    stages = s.size("pipeline")
    seconds["bubble"] = sum(seconds.values()) / s.microbatches * (stages - 1)
    held = blocks * sum(layer.parameters for layer in all_layers)
    own = held
    if head is not None:  # with the embedding, where it has weights of its own, and the last norm
        own += head.parameters * (1 if s.tied else 2) + _norm_parameters(s)
    experts = 0.0
    if s.experts > 1:
        experts = blocks * sum(x.parameters for x in all_layers if x.name in ("fc1", "fc2"))
    # parameters of a device, by how many devices hold the same
    whole = blocks * sum(layer.whole_parameters for layer in all_layers)
    of_experts = 0.0
    if s.experts > 1:
        of_experts = blocks * sum(x.whole_parameters for x in all_layers if x.name == "fc2")
    weights: dict[int, float] = {}
    for n, held in (
        (s.replicas(of_experts=False), own - experts - (whole - of_experts)),
        (s.replicas(of_experts=True), experts - of_experts),
        (s.replicas(of_experts=False) * s.size("tensor"), whole - of_experts),
        (s.replicas(of_experts=True) * s.size("tensor"), of_experts),
    ):
        weights[n] = weights.get(n, 0.0) + held
    own = sum(w / r for r, w in weights.items()) if s.fsdp else own
    _among_replicas(model, weights, seconds, wire)
    if stages > 1:
        one = s.local_batch * s.seq / s.size("context") * s.embed * s.element_bytes
        one /= s.size("tensor")
        both = Exchange("send", "pipeline", stages, one, one)
        for _ in ("forward", "backward"):
            _send(model, both, s.microbatches, seconds, wire)
    state = _state_bytes(s)
    moved = own * (3 * s.element_bytes + 2 * state)
    seconds["optimizer"] = moved / model.rates.memory_bandwidth
    flops = times * sum(x.flops_fwd + x.flops_bwd for x in all_layers)
    if head is not None:
        flops += s.microbatches * (head.flops_fwd + head.flops_bwd)
    step = sum(seconds.values())
    return Totals(
        seconds,
        _memory(s, all_layers, again, blocks, own, head),
        wire,
        flops,
        times * sum(x.flops_fwd for x in again),
        _parameters(s),
        s.batch * s.seq,
        model.rates.memory_bytes,
        flops / (step * model.rates.matmul) if step else 0.0,
    )


def _send(
    model: AnalyticModel,
    e: Exchange,
    times: float,
    seconds: dict[str, float],
    wire: dict[str, float],
) -> None:
    axis = e.axis if e.axis in ("context", "expert", "data", "pipeline") else "tensor"
    axis = "weights" if axis == "data" else axis
    seconds[f"wire: {axis}"] += times * model.seconds(e)
    wire[axis] = wire.get(axis, 0.0) + times * model.sent(e)


def _is_again(s: Sizes, layer: Layer) -> bool:
    return s.recompute == "block" or layer.name in _AGAIN.get(s.recompute, ())


def _head(s: Sizes) -> Layer | None:
    """Logits over the vocabulary; its weights are the embedding's where they are tied."""
    if not s.vocab:
        return None
    t = s.local_batch * s.seq / s.size("context")
    return layers.linear(
        "head", t, s.embed, s.vocab / s.size("tensor"), s.element_bytes, bias=False
    )


def _norm_parameters(s: Sizes) -> int:
    return 2 * s.embed if s.norm == "layer" else s.embed


def _among_replicas(
    model: AnalyticModel,
    weights: dict[int, float],
    seconds: dict[str, float],
    wire: dict[str, float],
) -> None:
    """Gradients once per step; with fsdp, weights and gradients for every microbatch."""
    s = model.sizes
    before = seconds["wire: weights"]
    for replicas, held in weights.items():
        if s.fsdp:
            fwd, bwd = volumes.fsdp(held * s.element_bytes, replicas)
            for e in (*fwd, *bwd):
                _send(model, e, s.microbatches, seconds, wire)
        else:
            for e in volumes.data_parallel(held * s.element_bytes, replicas)[1]:
                _send(model, e, 1, seconds, wire)
    if model.overlap:
        hidden = seconds["matmuls"] + seconds["other layers"]
        seconds["wire: weights"] = before + max(0.0, seconds["wire: weights"] - before - hidden)


def _state_bytes(s: Sizes) -> float:
    """Optimizer state of one parameter."""
    return OPTIMIZERS[s.optimizer] + (4 if s.element_bytes < 4 else 0)


def _memory(
    s: Sizes, all_layers: list[Layer], again: list[Layer], blocks: int, own: float,
    head: Layer | None,
) -> dict[str, float]:  # fmt: skip
    kept = sum(layer.kept_bytes for layer in all_layers)
    one_block = 0.0
    if s.recompute == "block":
        one_block = kept  # while a block is recomputed, all of it is in memory
        kept = s.local_batch * s.seq / s.size("context") * s.embed * s.element_bytes
        kept /= s.size("tensor")
    elif again:
        # Q, K and V stay; scores are recomputed. ``attend`` keeps its scores and V
        scores = sum(x.kept_bytes for x in again if x.name in ("softmax", "dropout_softmax"))
        attend = next(x for x in again if x.name == "attend")
        one_block = scores + attend.in_bytes
        kept -= one_block
    in_flight = min(s.size("pipeline"), s.microbatches)
    gathered = sum(layer.parameters for layer in all_layers) * s.element_bytes if s.fsdp else 0.0
    return {
        "weights": own * s.element_bytes,
        "gradients": own * s.element_bytes,
        "optimizer state": own * _state_bytes(s),
        "activations": kept * blocks * in_flight + one_block,
        "gathered weights": gathered if s.replicas(of_experts=False) > 1 else 0.0,
        "head": head.out_bytes if head is not None else 0.0,
    }


def _parameters(s: Sizes) -> float:
    """Parameters of the whole model, every weight once."""
    e, q, b = s.embed, s.head_width, int(s.bias)
    attention = e * q * (s.heads + 2 * s.kv) + s.heads * q * e + b * e
    wide = 2 * s.f if s.gated else s.f
    mlp = e * wide + b * wide + s.f * e + b * e
    shared = s.shared_experts * (e * wide + b * wide + s.f * e) + (b * e if s.shared_experts else 0)
    router = e * s.experts if s.experts > 1 else 0
    norms = (4 if s.post_norms else 2) * _norm_parameters(s)
    head = 0
    if s.vocab:
        head = s.vocab * e * (1 if s.tied else 2) + _norm_parameters(s)
    return s.depth * (attention + mlp * s.experts + shared + router + norms) + head
