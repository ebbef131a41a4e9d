"""Every figure and name that a program's views show, as lines of text that a golden keeps.

    everything(capture)      ["summary.flops = 2.8311e+06", …, "instruction 12: name=dot.3 …", …]

One line per leaf of JSON, one per row of columns, then the results' own texts. Figures have six
digits: enough to see any difference, and the same on every machine. Of sentences only figures
and names are kept, so that wording may change without changes here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import hloscope as hs
import numpy as np
from hloscope.hlo import Module
from hloscope.show import blocks
from hloscope.view.schema import joined

# Peak figures of every chip, which are the same for all programs.
LEFT_OUT = ("extras.cost.hardware", "extras.findings.leftOut")
RESULTS = ("collectives", "shardings", "memory", "source", "findings")
SENTENCES = ("extras.findings", "warnings", "extras.memory.note")
TOLD = re.compile(r"[\d%`_/'(]")
OTHER_CHIPS = ("h100", "cpu")
LONGEST = 300  # characters of a text


def everything(cap: hs.Capture) -> list[str]:
    header, columns = joined(blocks.view(cap), blocks.analyses(cap))
    parts = {k: header[k] for k in ("counts", "title", "subtitle", "summary", "extras", "warnings")}
    lines = [line for k, v in parts.items() for line in leaves(k, v)]
    lines += rows(header, columns)
    texts: dict[str, object] = {n: getattr(cap, n) for n in RESULTS}
    texts |= {chip: cap.cost(chip) for chip in OTHER_CHIPS}
    texts |= {f"why {c.name}": cap.why(c) for c in cap.collectives}
    if cap.module.origins is not None:
        texts["fates"] = cap.fates()
        texts |= {f"origins {i.name}": cap.origins(i) for i in cap.module.instructions}
    for name, text in texts.items():
        lines += [f"{name}: {said(line)}" for line in str(text).splitlines()]
    return lines


def said(line: str) -> str:
    """Figures, and names of instructions, operations, axes, files."""
    return " ".join(w for w in line.split() if TOLD.search(w))


def leaves(path: str, value: Any) -> Iterator[str]:
    if path in LEFT_OUT:
        return
    if isinstance(value, dict):
        for k, v in value.items():
            yield from leaves(f"{path}.{k}", v)
    elif isinstance(value, list) and any(isinstance(v, dict | list) for v in value):
        for k, v in enumerate(value):
            yield from leaves(f"{path}[{k}]", v)
    else:
        shown = [plain(v) for v in value] if isinstance(value, list) else plain(value)
        if path.startswith(SENTENCES):
            shown = said(str(shown))
        yield f"{path} = {shown}"


def plain(value: Any) -> str:
    if isinstance(value, float | np.floating):
        return f"{value:.6g}"
    return str(value).replace("\n", "\\n")[:LONGEST]


def rows(header: dict[str, Any], columns: dict[str, Any]) -> Iterator[str]:
    """Columns of one table and one length side by side, with texts instead of their numbers."""
    texts = columns["strings"]
    tables: dict[tuple[str, int], dict[str, list[str]]] = {}
    for name, spec in header["columns"].items():
        if name not in columns or name == "strings":
            continue
        table, _, column = name.partition(".")
        values = columns[name].tolist()
        shown = (
            [plain(texts[v]) for v in values] if spec.get("text") else [plain(v) for v in values]
        )
        tables.setdefault((table, len(values)), {})[column] = shown
    for (table, count), found in tables.items():
        for k in range(count):
            told = " ".join(f"{c}={v[k]}" for c, v in found.items() if v[k] not in ("", "0"))
            yield f"{table} {k}: {told}"


def dumped(module: Module) -> list[str]:
    """What a reader found: one line per instruction, with operands, calls and attributes."""
    lines = [f"{module.name} {module.dialect} {sorted(module.attributes)} {module.warnings}"]
    for c in module.computations:
        lines.append(f"{c.name} entry={c.is_entry} root={c.root.name if c.root else None}")
    for i in module.instructions:
        told = [f"{i.name} {i.opcode} {i.shape} <- {[o.name for o in i.operands]}"]
        told += [f"{role} {c.name}" for role, c in i.called]
        told += [f"{c.name} before" for c in i.control_predecessors]
        for word in (i.parameter_number, i.literal, i.sharding_text, i.metadata, i.frames):
            told.append(str(word)[:LONGEST])
        lines.append(" | ".join(told).replace("\n", "\\n"))
    return lines
