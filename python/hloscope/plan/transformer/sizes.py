"""The sizes of an analytic transformer and how it is split, checked."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

# Mesh axes, innermost (nearest devices) first.
AXES = ("tensor", "context", "expert", "data", "pipeline")
TENSOR_KINDS = {"1d": 1, "2d": 2, "2.5d": 3, "3d": 3}
CONTEXT_KINDS = ("ring", "ulysses")
RECOMPUTE = ("none", "attention", "block")
NORMS = ("layer", "rms")
# bytes of optimiser state per parameter, besides a float32 master copy where weights are narrower
OPTIMIZERS = {"sgd": 0, "momentum": 4, "adam": 8, "lion": 4}


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of a transformer and of a step; see ``transformer`` for what they mean."""

    batch: int = 1
    seq: int = 2048
    embed: int = 4096
    heads: int = 32
    depth: int = 32
    hidden: int = 0  # 0: 4 · embed
    kv_heads: int = 0  # 0: same as heads
    experts: int = 1
    top_k: int = 2
    capacity: float = 1.0
    vocab: int = 0
    gated: bool = False
    microbatches: int = 1
    mesh: Mapping[str, int] = field(default_factory=dict)
    tensor: tuple[int, ...] = (1,)
    tensor_kind: str = "1d"
    context_kind: str = "ring"
    fsdp: bool = False
    recompute: str = "none"
    optimizer: str = "adam"
    element_bytes: float = 2
    mask_bytes: float = 1
    dropout: bool = True
    head_dim: int = 0  # 0: embed / heads
    bias: bool = True
    norm: str = "layer"
    post_norms: bool = False
    shared_experts: int = 0
    tied: bool = True

    @property
    def f(self) -> int:
        """Width of the hidden layer."""
        return self.hidden or 4 * self.embed

    @property
    def kv(self) -> int:
        return self.kv_heads or self.heads

    @property
    def head_width(self) -> int:
        """Width of one head."""
        return self.head_dim or self.embed // self.heads

    def size(self, axis: str) -> int:
        """Devices along a mesh axis; 1 where the mesh lacks it."""
        return math.prod(self.tensor) if axis == "tensor" else int(self.mesh.get(axis, 1))

    @property
    def devices(self) -> int:
        return math.prod(self.size(a) for a in AXES)

    def reach(self, axis: str) -> int:
        """How many consecutive devices a group along ``axis`` spans."""
        return math.prod(self.size(a) for a in AXES[: AXES.index(axis) + 1])

    @property
    def local_batch(self) -> float:
        """Sequences of one microbatch on one device; devices of "expert" have their own too."""
        return self.batch / (self.size("data") * self.size("expert")) / self.microbatches

    def replicas(self, *, of_experts: bool) -> int:
        """How many devices hold the same weights and see other tokens.

        Those along "data" and "context"; along "expert" too, except for the weights of experts.
        """
        same = self.size("data") * self.size("context")
        return same if of_experts else same * self.size("expert")


def checked(sizes: Sizes) -> Sizes:
    """The same sizes; raises ``ValueError`` naming the first invalid one."""
    for f in fields(sizes):
        value = getattr(sizes, f.name)
        zero = f.name in ("hidden", "kv_heads", "vocab", "head_dim", "shared_experts")
        whole = isinstance(value, int) and not isinstance(value, bool)
        if whole and (value < 0 or (value == 0 and not zero)):
            raise ValueError(f"{f.name} is {value}; it must be at least {0 if zero else 1}")
    for wrong in _problems(sizes):
        raise ValueError(wrong)
    return sizes


def _problems(s: Sizes) -> Iterator[str]:
    for axis in s.mesh:
        if axis not in AXES:
            yield f"the mesh has an axis {axis!r}; axes of this model are {', '.join(AXES)}"
    for axis, n in s.mesh.items():
        if axis != "tensor" and (not isinstance(n, int) or n < 1):
            yield f"mesh axis {axis!r} has size {n!r}; sizes are whole numbers of at least 1"
    for name, known in (
        ("tensor_kind", tuple(TENSOR_KINDS)),
        ("context_kind", CONTEXT_KINDS),
        ("recompute", RECOMPUTE),
        ("optimizer", tuple(OPTIMIZERS)),
        ("norm", NORMS),
    ):
        if getattr(s, name) not in known:
            yield f"{name} is {getattr(s, name)!r}; there are {', '.join(known)}"
    if len(s.tensor) != TENSOR_KINDS[s.tensor_kind]:
        wanted = TENSOR_KINDS[s.tensor_kind]
        yield f"{s.tensor_kind} tensor parallelism has {wanted} sizes, not {s.tensor}"
    if any(not isinstance(n, int) or n < 1 for n in s.tensor):
        yield f"tensor sizes are whole numbers of at least 1, not {s.tensor}"
    if s.tensor_kind == "2.5d" and s.tensor[0] != s.tensor[1]:
        yield f"2.5d has square layers, (q, q, d), not {s.tensor}"
    split = heads_split(s)
    for what, of, by, why in (
        (s.embed, "embed", 1 if s.head_dim else s.heads, "heads"),
        (s.heads, "heads", s.kv, "kv_heads"),
        (s.heads, "heads", split, "the tensor axis"),
        (s.f, "hidden", math.prod(s.tensor), "the tensor axis"),
        (s.embed, "embed", math.prod(s.tensor), "the tensor axis"),
        (s.seq, "seq", s.size("context"), "the context axis"),
        (s.depth, "depth", s.size("pipeline"), "the pipeline axis"),
        (s.experts, "experts", s.size("expert"), "the expert axis"),
        (
            s.batch,
            "batch",
            s.size("data") * s.size("expert") * s.microbatches,
            "data × expert × microbatches" if s.size("expert") > 1 else "data × microbatches",
        ),
    ):
        if what % by:
            yield f"{of} {what} does not divide by {by} ({why})"
    if s.shared_experts and s.experts < 2:
        yield f"shared_experts is {s.shared_experts}, and there are no experts to share with"
    if s.experts > 1 and s.top_k > s.experts:
        yield f"top_k {s.top_k} is more than the {s.experts} experts"
    if s.context_kind == "ulysses" and (s.heads // split) % s.size("context"):
        yield f"ulysses needs heads on a device ({s.heads // split}) to divide by the context axis"
    if split > s.kv and split % s.kv:
        yield f"kv_heads {s.kv} neither divides by nor divides {split} (the tensor axis)"


def heads_split(s: Sizes) -> int:
    """Over how many devices heads are split; the rest of the tensor axis splits tokens."""
    return s.tensor[-1] if s.tensor_kind == "3d" else s.tensor[0]


def tokens_split(s: Sizes) -> int:
    """Over how many devices of the tensor axis tokens are split in the middle of a block."""
    return math.prod(s.tensor) // heads_split(s)


def with_mesh(s: Sizes, mesh: Mapping[str, Any]) -> Sizes:
    """The same sizes on another mesh, tensor parallelism one-dimensional; not checked."""
    rest = {a: int(n) for a, n in mesh.items() if a != "tensor"}
    return replace(s, mesh=rest, tensor=(int(mesh.get("tensor", 1)),), tensor_kind="1d")
