"""``hs.transformer``: time, memory and communication of a transformer from formulas alone.

    sizes, mesh ─ transformer_blocks ─▶ layers of one block ─┬─ rates ─▶ seconds of every layer
                  transformer_layers     volumes             └─ transformer_totals ─▶ a step

Nothing is compiled: every figure is modelled. ``Transformer.compiled`` puts what XLA makes of
the same blocks beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...hardware import Hardware
from . import blocks as blocks
from .layers import Exchange, Layer
from .rates import Rates, rates
from .sizes import TENSOR_KINDS, Sizes, checked

if TYPE_CHECKING:
    import pandas as pd

    from .compiled import Compared
    from .explorer import Explorer
    from .totals import Totals


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


@dataclass(frozen=True, eq=False)
class Transformer:
    """What ``hs.transformer`` returns. Prints a table; the last line of a cell is the explorer.

    ``blocks`` are the halves of a block by name, ``("attention", "mlp")``, each its layers on one
    device for one microbatch.
    """

    sizes: Sizes
    rates: Rates
    wire: str  # "ring": what a device sends; "whole": the whole array, as some count it
    overlap: bool
    blocks: Mapping[str, tuple[Layer, ...]]

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
        from .totals import totals

        return totals(self)

    def with_sizes(self, **changes: Any) -> Transformer:
        """The same model with other sizes, mesh or options, as ``transformer`` takes them."""
        return _make(_sizes(self.sizes, changes), self.rates, self.wire, self.overlap)

    def best_meshes(self, devices: int, *, limit: int = 20) -> tuple[Transformer, ...]:
        """This model on every mesh of that many devices, quickest step first.

        Those whose memory exceeds the chip's come last. Raises ``ValueError`` when none fits the
        sizes.
        """
        from .meshes import best_meshes

        return best_meshes(self, devices, limit)

    def compiled(self, **options: Any) -> Compared:
        """The same blocks compiled for the same mesh, figure by figure beside the formulas.

        Needs jax and as many devices as the mesh has, or ``topology=``. See ``Compared``.
        """
        from .compiled import compare

        return compare(self, **options)

    def explore(self, **options: Any) -> Explorer:
        """Sliders for sizes and mesh; see ``Explorer``."""
        from .explorer import explorer

        return explorer(self, **options)

    def rows(self) -> list[dict[str, Any]]:
        """One plain row per layer: FLOPs, bytes, seconds."""
        out = []
        for block, layers in self.blocks.items():
            for layer in layers:
                t = self.time(layer)
                row = {"block": block, **asdict(layer)}
                for way in ("fwd", "bwd"):
                    found = row.pop(f"exchanges_{way}")
                    own = getattr(layer, f"exchanges_{way}")
                    row[f"wire_bytes_{way}"] = sum(self.sent(e) for e in own)
                    row[f"collectives_{way}"] = ", ".join(e["kind"] for e in found)
                row |= {
                    "compute_seconds_fwd": t.compute_fwd,
                    "compute_seconds_bwd": t.compute_bwd,
                    "memory_seconds_fwd": t.memory_fwd,
                    "memory_seconds_bwd": t.memory_bwd,
                    "wire_seconds_fwd": t.wire_fwd,
                    "wire_seconds_bwd": t.wire_bwd,
                    "seconds_fwd": t.fwd,
                    "seconds_bwd": t.bwd,
                    "intensity": t.intensity,
                }
                out.append(row)
        return out

    def to_dict(self) -> dict[str, Any]:
        """Plain data: sizes, rates, layers, and totals of a step."""
        return {
            "kind": "transformer",
            "sizes": {**asdict(self.sizes), "mesh": dict(self.sizes.mesh)},
            "rates": asdict(self.rates),
            "wire": self.wire,
            "layers": self.rows(),
            "totals": self.totals.to_dict(),
        }

    def to_pandas(self) -> pd.DataFrame:
        """One row per layer of a block, for one microbatch on one device. Needs pandas."""
        import pandas as pd

        return pd.DataFrame(self.rows())

    def to_html(self, path: str | Path | None = None) -> str | Path:
        """The explorer as one offline page. Writes ``path`` and returns it, or the page."""
        return self.explore().to_html(path)

    def __repr__(self) -> str:
        from .text import text

        return text(self)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        return self.explore()._repr_mimebundle_(include, exclude)


def transformer(
    *,
    batch: int = 1,
    seq: int = 2048,
    embed: int = 4096,
    heads: int = 32,
    depth: int = 32,
    hidden: int | None = None,
    mesh: Mapping[str, Any] | None = None,
    hardware: str | Hardware | Rates = "h100",
    wire: str = "ring",
    overlap: bool = False,
    **options: Any,
) -> Transformer:
    """A transformer from formulas: FLOPs, bytes and seconds of every layer, and of a step.

    batch: sequences of a step, over all devices; seq: tokens of one; embed: its width.
    hidden: width of the MLP, default 4 · embed; depth: number of blocks.
    mesh: devices per axis: "data", "tensor", "context", "expert", "pipeline". "tensor" may be
        (m1, m2) for SUMMA, (q, q, d) for 2.5D with ``tensor_kind="2.5d"``, (x, y, z) for 3D.
    hardware: a chip's id, or ``Rates``.
    wire: "ring" counts what a device sends, (m−1)/m of an array; "whole" the whole array.
    overlap: whether weights and their gradients travel while others are computed.
    options: ``kv_heads`` (grouped-query attention), ``experts``, ``top_k``, ``capacity`` (MoE),
        ``vocab``, ``gated``, ``dropout``, ``microbatches``, ``fsdp``, ``tensor_kind``,
        ``context_kind`` ("ring" or "ulysses"), ``recompute`` ("none", "attention", "block"),
        ``optimizer``, ``element_bytes``, ``mask_bytes``.

    Formulas: ``plan/transformer_layers.py``; volumes and their sources:
    ``plan/volumes.METHODS``. Raises ``ValueError`` for sizes that do not divide,
    ``HardwareError`` for an unknown chip.

        >>> hs.transformer(embed=12288, heads=96, depth=96, mesh={"tensor": 4}, hardware="a100")
    """
    if wire not in ("ring", "whole"):
        raise ValueError(f'wire is {wire!r}; there are "ring" and "whole"')
    given = dict(options)
    given |= {"batch": batch, "seq": seq, "embed": embed, "heads": heads, "depth": depth}
    given |= {"hidden": hidden or 0, "mesh": mesh or {}}
    return _make(_sizes(Sizes(), given), rates(hardware), wire, overlap)


def _sizes(base: Sizes, given: Mapping[str, Any]) -> Sizes:
    changes = dict(given)
    if "mesh" in changes:
        mesh = dict(changes.pop("mesh"))
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


def _make(sizes: Sizes, found: Rates, wire: str, overlap: bool) -> Transformer:
    halves = {"attention": blocks.attention(sizes), "mlp": blocks.mlp(sizes)}
    return Transformer(sizes, found, wire, overlap, halves)
