"""An analytic transformer beside what XLA makes of the same blocks, line by line.

The program is ``capturing/transformer.py``: forward and backward pass of all blocks on the same
mesh. Compared are one device's matmul FLOPs of every layer, wire bytes of every kind of
collective and mesh axis, and memory. ``why`` explains each difference; what nothing here
explains is named as such.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import numpy as np

from ...analysis.text.units import quantity, size
from ...api.capture import Capture
from ...api.files import written
from ...hlo import opcodes, walk
from ...show.pages.words import columns
from .lines import ComparedLine
from .model import AnalyticModel
from .wire import wire_lines

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class Compared:
    """The result of ``Transformer.compiled``. ``capture`` is the program."""

    model: AnalyticModel
    capture: Capture
    lines: tuple[ComparedLine, ...]

    def line(self, part: str, name: str) -> ComparedLine:
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
        """One row per line. Needs pandas."""
        import pandas as pd

        return pd.DataFrame(self.to_dict()["lines"])

    def html(self) -> str:
        """One offline page, as text."""
        from ...show.pages.page import page

        return page("Formulas and program", self._view(), repr(self))

    def to_html(self, path: str | Path) -> Path:
        """Writes ``html`` to ``path`` and returns the path."""
        return written(path, self.html())

    def _view(self) -> dict[str, Any]:
        from .explorer import facts

        out: list[dict[str, Any]] = [{"type": "facts", "rows": facts(self.model)[:4]}]
        for part, title, unit in (
            ("FLOPs", "FLOPs of matmuls", "FLOP"),
            ("wire", "Bytes sent, by collective", "B"),
            ("layer", "Bytes sent, by layer", "B"),
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
        rows = [["", "formulas", "program", "difference"]]
        for x in self.lines:
            both = size if x.unit == "B" else _flop
            name = f"{x.part} {x.name}"
            rows.append([name, both(x.analytic), both(x.compiled), _percent(x.difference)])
        head = "per device and step; formulas are modelled, the program is counted"
        first, *table = columns(rows, " nnn")
        out = [head, "", first]
        for row, x in zip(table, self.lines, strict=True):
            out += [row, *wrap(x.why, 100, initial_indent="    ", subsequent_indent="    ")]
        return "\n".join(out)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        from ...show.pages.front_end import Answers
        from ...show.pages.page import mimebundle

        def answers(what: str, values: Any) -> dict[str, Any]:
            raise ValueError(f"there is no answer to {what!r}")

        found: Answers = answers
        return mimebundle("Formulas and program", self._view(), repr(self), found)


def _flop(value: float | None) -> str:
    return quantity(value, "FLOP")


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:+.2f} %"


def compare(model: AnalyticModel, *, topology: str | None = None) -> Compared:
    """See ``Transformer.compiled``.

    Dense models on "data" and one-dimensional "tensor" axes, without what the program lacks:
    dropout is left out of the formulas, and there is no head, recomputation or optimizer. Raises
    ``ValueError`` for other models.
    """
    from ...capturing.planning.transformer import BlockSizes, capture_transformer

    s = model.sizes
    others = [a for a in ("context", "expert", "pipeline") if s.size(a) > 1]
    for name, bad in (
        (f"a mesh axis {', '.join(others)!r}", bool(others)),
        (f"{s.tensor_kind} tensor parallelism", s.tensor_kind != "1d"),
        ("experts", s.experts > 1),
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
    plain = model.with_sizes(dropout=False, vocab=0, tied=True)
    s = plain.sizes
    m = s.size("tensor")
    if s.kv % m or (s.seq % m):
        raise ValueError(f"kv_heads {s.kv} and seq {s.seq} must divide by {m} (the tensor axis)")
    blocks = BlockSizes(
        batch=s.batch, seq=s.seq, embed=s.embed, heads=s.heads, kv_heads=s.kv, hidden=s.f,
        depth=s.depth, element_bytes=s.element_bytes, head_width=s.head_width, gated=s.gated,
        bias=s.bias, layer_norm=s.norm == "layer", post_norms=s.post_norms,
    )  # fmt: skip
    cap = capture_transformer(blocks, {"data": s.size("data"), "tensor": m}, topology)
    lines = (*_flops(plain, cap), *wire_lines(plain, cap), *_memory(plain, cap))
    return Compared(plain, cap, lines)


def _flops(model: AnalyticModel, cap: Capture) -> list[ComparedLine]:
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
            if model.sizes.bias and layer.kind == "linear" and layer.name != "qkv_proj":
                why += "; adding the bias is in the formulas' line, apart in the program"
            if counted[layer.name] < 0.99 * analytic and rest:
                why = "some of its matmuls lost their name: they are in the line without a name"
            out.append(
                ComparedLine("FLOPs", layer.name, "FLOP", analytic, counted[layer.name], why)
            )
    if rest:
        why = "matmuls that XLA left without the scope of a layer"
        out.append(ComparedLine("FLOPs", "without a name", "FLOP", 0.0, rest, why))
    whole = float(own.sum())
    out.append(ComparedLine("FLOPs", "all matmuls", "FLOP", total, whole, "the lines above"))
    return out


def _memory(model: AnalyticModel, cap: Capture) -> list[ComparedLine]:
    s = model.sizes
    stats = cap.target.memory_stats
    held = s.depth * sum(x.parameters for half in model.blocks.values() for x in half)
    weights = held * s.element_bytes
    block_input = s.local_batch * s.seq * s.embed * s.element_bytes / s.size("tensor")
    kept = s.depth * sum(x.kept_bytes for half in model.blocks.values() for x in half)
    arguments = stats.get("argument_size_in_bytes")
    outputs = stats.get("output_size_in_bytes")
    temp = stats.get("temp_size_in_bytes")
    handed = _handed_on(cap)
    between = sum(size_ for _, size_ in handed) if handed else None
    shapes = Counter(shape for shape, _ in handed).most_common()
    listed = ", ".join(f"{shape} ×{n}" if n > 1 else shape for shape, n in shapes)
    rest = None if temp is None or between is None or temp < between else temp - between
    return [
        ComparedLine(
            "memory", "weights and input", "B", weights + block_input,
            None if arguments is None else float(arguments),
            "arguments of the program",
        ),
        ComparedLine(
            "memory", "gradients", "B", weights + block_input,
            None if outputs is None else float(outputs),
            "results of the program, with their table of pointers",
        ),
        ComparedLine(
            "memory", "kept activations", "B", kept, between,
            "what the loop over layers hands to the backward pass; the formulas keep what each "
            f"layer's gradient needs, the program {listed}"
            if handed else "what is handed to the backward pass was not found in the program",
        ),
        ComparedLine(
            "memory", "temporaries", "B", None, None if temp is None else float(temp),
            "XLA's own: what is kept and working buffers of both passes, of which the formulas "
            "have none" + (f" ({size(rest)})" if rest is not None else ""),
        ),
    ]  # fmt: skip


def _handed_on(cap: Capture) -> list[tuple[str, int]]:
    """(shape, bytes) of every array that the first loop produces and the second takes."""
    entry = cap.module.entry
    loops = [i for i in entry.instructions if i.opcode == "while"] if entry else []
    if len(loops) < 2:
        return []
    first, second = loops[0], loops[-1]
    given = second.operands[0].operands
    out = {}
    for value in given:
        made = walk.source(value, opcodes.SAME_ORDER)
        if made.instruction is not first or not made.element:
            continue
        number = made.element[0]
        begun = walk.source(made, opcodes.SAME_VALUE | opcodes.LOOPS).instruction
        if value.shape.is_array and begun is first:  # else no trip changes it
            out[number] = value.shape.dense_text, value.shape.byte_size
    return list(out.values())
