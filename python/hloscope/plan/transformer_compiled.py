"""An analytic transformer beside what XLA makes of the same blocks, line by line.

The program is ``capturing/transformer.py``: forward and backward pass of all blocks on the same
mesh. Compared are one device's matmul FLOPs of every layer, wire bytes of every kind of
collective and mesh axis, and memory. What differs is said in ``why``; a rest that nothing here
explains is called that.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .._capture import Capture
from ..analysis.text.units import quantity, size
from . import volumes
from .transformer_layers import Exchange
from .words import columns

if TYPE_CHECKING:
    import pandas as pd

    from .transformer import Transformer


@dataclass(frozen=True, slots=True)
class Line:
    """One figure of one device and a whole step: from formulas, and counted in the program."""

    part: str  # "FLOPs", "wire", "memory"
    name: str
    unit: str
    analytic: float | None
    compiled: float | None
    why: str

    @property
    def difference(self) -> float | None:
        """Compiled over analytic, less one; None where either is unknown or nothing."""
        if not self.analytic or self.compiled is None:
            return None
        return self.compiled / self.analytic - 1


@dataclass(frozen=True, eq=False)
class Compared:
    """What ``Transformer.compiled`` returns. ``capture`` is the program."""

    model: Transformer
    capture: Capture
    lines: tuple[Line, ...]

    def line(self, part: str, name: str) -> Line:
        """One line. Raises ``ValueError`` when there is none of that name."""
        for found in self.lines:
            if (found.part, found.name) == (part, name):
                return found
        known = ", ".join(f"{x.part} {x.name}" for x in self.lines)
        raise ValueError(f"no line {part} {name}; there are {known}")

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "kind": "compared",
            "lines": [
                {
                    "part": x.part, "name": x.name, "unit": x.unit, "analytic": x.analytic,
                    "compiled": x.compiled, "difference": x.difference, "why": x.why,
                }
                for x in self.lines
            ],
        }  # fmt: skip

    def to_pandas(self) -> pd.DataFrame:
        """One row a line. Needs pandas."""
        import pandas as pd

        return pd.DataFrame(self.to_dict()["lines"])

    def to_html(self, path: str | Path | None = None) -> str | Path:
        """One offline page. Writes ``path`` and returns it, or returns the page."""
        from .page import save

        return save("Formulas and program", self._view(), repr(self), path)

    def _view(self) -> dict[str, Any]:
        from .transformer_explorer import facts

        out: list[dict[str, Any]] = [{"type": "facts", "rows": facts(self.model)[:4]}]
        for part, title, unit in (
            ("FLOPs", "FLOPs of matmuls", "FLOP"),
            ("wire", "Bytes sent", "B"),
            ("memory", "Memory", "B"),
        ):
            rows = [
                [x.name, x.analytic, x.compiled, _percent(x.difference), x.why]
                for x in self.lines
                if x.part == part
            ]
            heads = [
                {"name": ""}, {"name": "formulas", "unit": unit},
                {"name": "program", "unit": unit}, {"name": "difference"}, {"name": "why"},
            ]  # fmt: skip
            out.append({"type": "table", "title": title, "columns": heads, "rows": rows})
        return {"title": "Formulas and program", "sections": out}

    def __repr__(self) -> str:
        rows = [["", "formulas", "program", "difference", "why"]]
        for x in self.lines:
            both = size if x.unit == "B" else _flop
            name = f"{x.part} {x.name}"
            rows.append([name, both(x.analytic), both(x.compiled), _percent(x.difference), x.why])
        head = "per device and step; formulas are modelled, the program is counted"
        return "\n".join([head, "", *columns(rows, " nnn")])

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        from .page import mimebundle
        from .plain import Answers

        def answers(what: str, values: Any) -> dict[str, Any]:
            raise ValueError(f"there is no answer to {what!r}")

        found: Answers = answers
        return mimebundle("Formulas and program", self._view(), repr(self), found)


def _flop(value: float | None) -> str:
    return quantity(value, "FLOP")


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:+.2f} %"


def compare(model: Transformer, *, topology: str | None = None) -> Compared:
    """See ``Transformer.compiled``.

    Dense models on "data" and one-dimensional "tensor" axes, without what the program has not:
    dropout is left out of the formulas, and there is no head, recomputation or optimizer. Raises
    ``ValueError`` for other models.
    """
    from ..capturing.transformer import capture_transformer

    s = model.sizes
    others = [a for a in ("context", "expert", "pipeline") if s.size(a) > 1]
    for name, bad in (
        (f"a mesh axis {', '.join(others)!r}", bool(others)),
        (f"{s.tensor_kind} tensor parallelism", s.tensor_kind != "1d"),
        ("experts", s.experts > 1),
        ("gated layers", s.gated),
        ("recomputation", s.recompute != "none"),
        ("fsdp", s.fsdp),
        ("several microbatches", s.microbatches > 1),
        (f"elements of {s.element_bytes} bytes", s.element_bytes not in (2, 4)),
    ):
        if bad:
            raise ValueError(
                f"a model with {name} is not compared: data and 1D tensor parallelism of dense "
                "blocks are"
            )
    plain = model.with_sizes(dropout=False, vocab=0)
    s = plain.sizes
    m = s.size("tensor")
    if s.kv % m or (s.seq % m):
        raise ValueError(f"kv_heads {s.kv} and seq {s.seq} must divide by {m} (the tensor axis)")
    cap = capture_transformer(
        batch=s.batch, seq=s.seq, embed=s.embed, heads=s.heads, kv_heads=s.kv, hidden=s.f,
        depth=s.depth, axes={"data": s.size("data"), "tensor": m},
        element_bytes=s.element_bytes, topology=topology,
    )  # fmt: skip
    lines = (*_flops(plain, cap), *_wire(plain, cap), *_memory(plain, cap))
    return Compared(plain, cap, lines)


def _flops(model: Transformer, cap: Capture) -> list[Line]:
    cost = cap.cost()
    depth = model.sizes.depth
    names = [x.name for half in model.blocks.values() for x in half if x.is_matmul]
    counted = dict.fromkeys(names, 0.0)
    rest = 0.0
    own = np.nan_to_num(cost.work.matmul_flops) * cost.runs
    for n in np.flatnonzero(own):
        op_name = cap.module.instructions[n].op_name
        found = [x for x in names if re.search(rf"[/(]{x}[/)]", op_name)]
        if len(found) == 1:
            counted[found[0]] += float(own[n])
        else:
            rest += float(own[n])
    out = []
    total = 0.0
    for half in model.blocks.values():
        for layer in half:
            if not layer.is_matmul:
                continue
            analytic = depth * (layer.flops_fwd + layer.flops_bwd)
            total += analytic
            why = "XLA counts a product of n terms as 2n FLOPs, the formulas as 2n−1"
            if layer.kind == "linear" and layer.name != "qkv_proj":
                why += "; adding the bias is in the formulas' line, apart in the program"
            if counted[layer.name] < 0.99 * analytic and rest:
                why = "some of its matmuls lost their name: they are in the line without a name"
            out.append(Line("FLOPs", layer.name, "FLOP", analytic, counted[layer.name], why))
    if rest:
        why = "matmuls that XLA left without the scope of a layer"
        out.append(Line("FLOPs", "without a name", "FLOP", None, rest, why))
    whole = float(own.sum())
    out.append(Line("FLOPs", "all matmuls", "FLOP", total, whole, "the lines above"))
    return out


Sent = dict[tuple[str, str], dict[str, float]]  # (kind, axis) → layer → bytes


def _wire(model: Transformer, cap: Capture) -> list[Line]:
    """By kind and axis, each with the layers that send it on either side."""
    analytic: Sent = {}
    depth = model.sizes.depth

    def add(e: Exchange, layer: str, times: float = depth) -> None:
        of = analytic.setdefault((e.kind, e.axis), {})
        of[layer] = of.get(layer, 0.0) + times * e.wire_bytes

    for half in model.blocks.values():
        for layer in half:
            for e in (*layer.exchanges_fwd, *layer.exchanges_bwd):
                add(e, layer.name)
    held = depth * sum(x.parameters for half in model.blocks.values() for x in half)
    size_ = model.sizes.element_bytes
    for e in volumes.data_parallel(held * size_, model.sizes.size("data"))[1]:
        add(e, "gradients", 1)
    # the formulas gather the gradient at the dropout after these; without it, at them
    m = model.sizes.size("tensor")
    if m > 1:
        whole = model.sizes.local_batch * model.sizes.seq * model.sizes.embed * size_
        for name in ("v_proj", "fc2"):
            add(volumes.exchange("all-gather", "tensor", m, whole), name)
    counted: Sent = {}
    unknown: set[tuple[str, str]] = set()
    layers = [x.name for half in model.blocks.values() for x in half]
    for c in cap.collectives:
        key = (c.kind, str(c.axes) if c.axes is not None else "devices")
        sent = c.total_wire_bytes
        if sent is None:
            unknown.add(key)
            continue
        found = [x for x in layers if re.search(rf"[/(]{x}[/)]", c.op_name)]
        of = counted.setdefault(key, {})
        name = found[0] if len(found) == 1 else "outside the layers"
        of[name] = of.get(name, 0.0) + sent
    out = []
    for key in sorted({*analytic, *counted, *unknown}):
        ours = sum(analytic[key].values()) if key in analytic else None
        theirs = sum(counted[key].values()) if key in counted and key not in unknown else None
        if ours is not None and theirs is not None and abs(ours - theirs) <= 1e-9 * ours:
            why = "equal"
        else:
            why = (
                f"formulas: {_by_layer(analytic.get(key))}; program: {_by_layer(counted.get(key))}"
            )
            if key[0] == "all-reduce" and (("reduce-scatter", key[1]) in analytic):
                why += "; it sends twice what a reduce-scatter of the same array does"
        out.append(Line("wire", f"{key[0]} over {key[1]}", "B", ours, theirs, why))
    all_ = [sum(sum(of.values()) for of in side.values()) for side in (analytic, counted)]
    out.append(Line("wire", "all", "B", all_[0], None if unknown else all_[1], "the lines above"))
    return out


def _by_layer(sent: dict[str, float] | None) -> str:
    """ "fc2 12 MiB, v_proj 12 MiB"."""
    if not sent:
        return "none"
    ordered = sorted(sent.items(), key=lambda x: -x[1])
    said = [f"{name} {size(round(v))}" for name, v in ordered[:5]]
    rest = sum(v for _, v in ordered[5:])
    return ", ".join([*said, f"others {size(round(rest))}"] if rest else said)


def _memory(model: Transformer, cap: Capture) -> list[Line]:
    s = model.sizes
    stats = cap.target.memory_stats
    held = s.depth * sum(x.parameters for half in model.blocks.values() for x in half)
    weights = held * s.element_bytes
    block_input = s.local_batch * s.seq * s.embed * s.element_bytes / s.size("tensor")
    kept = s.depth * sum(x.kept_bytes for half in model.blocks.values() for x in half)
    arguments = stats.get("argument_size_in_bytes")
    outputs = stats.get("output_size_in_bytes")
    temp = stats.get("temp_size_in_bytes")
    out = [
        Line(
            "memory", "weights and input", "B", weights + block_input,
            None if arguments is None else float(arguments),
            "arguments of the program",
        ),
        Line(
            "memory", "gradients", "B", weights + block_input,
            None if outputs is None else float(outputs),
            "results of the program, with their table of pointers",
        ),
        Line(
            "memory", "kept activations", "B", kept, None if temp is None else float(temp),
            "not the same: XLA's temporaries are what it keeps and the working buffers of both "
            "passes",
        ),
    ]  # fmt: skip
    return out
