"""``hs.transformer``: time, memory and communication of a transformer from formulas alone.

    sizes, mesh ─ blocks ─▶ layers of one block ─┬─ rates ─▶ seconds of every layer
                  layers    volumes              └─ model ─▶ a step

Nothing is compiled: every figure is modelled. ``Transformer.compiled`` puts what XLA makes of
the same blocks beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...api.files import written
from ...hardware import Hardware
from .compiled import Compared, compare
from .explorer import Explorer, explorer
from .meshes import best_meshes
from .model import AnalyticModel, changed
from .rates import Rates, rates
from .sizes import Sizes
from .text import text

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class Transformer(AnalyticModel):
    """The result of ``hs.transformer``. Prints a table; the last line of a cell is the explorer."""

    def best_meshes(self, devices: int, *, limit: int = 20) -> tuple[Transformer, ...]:
        """This model on every mesh of that many devices, quickest step first.

        Those whose memory exceeds the chip's come last. Raises ``ValueError`` when none fits the
        sizes.
        """
        return best_meshes(self, devices, limit)

    def compiled(self, **options: Any) -> Compared:
        """The same blocks compiled for the same mesh, figure by figure beside the formulas.

        Needs jax and as many devices as the mesh has, or ``topology=``. See ``Compared``.
        """
        return compare(self, **options)

    def explore(self, **options: Any) -> Explorer:
        """Sliders for sizes and mesh; see ``Explorer``."""
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

    def html(self) -> str:
        """The explorer as one offline page, as text."""
        return self.explore().html()

    def to_html(self, path: str | Path) -> Path:
        """Writes ``html`` to ``path`` and returns the path."""
        return written(path, self.html())

    def __repr__(self) -> str:
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
    **options: Any,
) -> Transformer:
    """A transformer from formulas: FLOPs, bytes and seconds of every layer, and of a step.

    batch: sequences of a step, over all devices; seq: tokens of one; embed: its width.
    hidden: width of the MLP, default 4 · embed; depth: number of blocks.
    mesh: devices per axis: "data", "tensor", "context", "expert", "pipeline". "tensor" may be
        (m1, m2) for SUMMA, (q, q, d) for 2.5D with ``tensor_kind="2.5d"``, (x, y, z) for 3D.
    hardware: a chip's id, or ``Rates``.
    options: ``wire`` ("ring" counts what a device sends, (m−1)/m of an array, "whole" the whole
        array), ``overlap`` (whether weights and their gradients travel while others are
        computed), ``kv_heads`` (grouped-query attention), ``experts``, ``top_k``, ``capacity``
        (MoE), ``shared_experts`` (for every token), ``vocab``, ``tied`` (head and embedding),
        ``head_dim`` (default embed / heads), ``gated``, ``bias``, ``norm`` ("layer" or "rms"),
        ``post_norms``, ``dropout``, ``microbatches``, ``fsdp``, ``tensor_kind``,
        ``context_kind`` ("ring" or "ulysses"), ``recompute`` ("none", "attention", "block"),
        ``optimizer``, ``element_bytes``, ``mask_bytes``.

    Formulas: ``plan/transformer/layers.py``; volumes and their sources: ``hloscope.plan.METHODS``.
    Raises ``ValueError`` for sizes that do not divide,
    ``HardwareError`` for an unknown chip.

        >>> hs.transformer(embed=12288, heads=96, depth=96, mesh={"tensor": 4}, hardware="a100")
    """
    given = dict(options)
    wire, overlap = given.pop("wire", "ring"), given.pop("overlap", False)
    if wire not in ("ring", "whole"):
        raise ValueError(f'wire is {wire!r}; there are "ring" and "whole"')
    given |= {"batch": batch, "seq": seq, "embed": embed, "heads": heads, "depth": depth}
    given |= {"hidden": hidden or 0, "mesh": mesh or {}}
    return Transformer.of(changed(Sizes(), given), rates(hardware), wire=wire, overlap=overlap)
