"""What PyTorch/XLA writes as metadata, as the path that JAX would have written.

    op_type="aten__mm" op_name="Llama[model]/Layer[layers.0]/Linear[q]/aten__mm"   model/layers.0/q
    op_type="aten__mm" op_name="aten__norm.14/aten__mul" source_file=".../adamw.py"   adamw
    op_type="aten__threshold_backward" op_name="aten__threshold_backward"      backward

Autograd runs in threads without Python: what has no source line, in a program with operations
named backward, belongs to the backward pass.
"""

from __future__ import annotations

import re

import numpy as np

from .op_name import split_components

_OP = re.compile(r"(?:aten|xla|prim)__\w")
_FIELD = re.compile(r'(op_type|op_name|source_file)="((?:[^"\\]|\\.)*)"')
_MODULE = re.compile(r"[A-Za-z_]\w*\[([\w.]*)\]$")
_OPTIMISER = re.compile(r"/optim(?:izers?)?/(\w+)\.py$|/((?:adam|sgd|lamb|lion|adafactor)\w*)\.py$")
_NOWHERE = "@No Python Frames"


def places(
    of: np.ndarray, texts: list[str], names: tuple[str, ...], name: np.ndarray
) -> tuple[tuple[str, ...], np.ndarray]:
    """``names`` and ``name`` unchanged, except PyTorch's, which become what JAX would write.

    ``of`` indexes ``texts``, the attributes of each instruction; ``name`` indexes ``names``.
    """
    fields = {n: dict(_FIELD.findall(t)) for n, t in enumerate(texts) if 'op_type="' in t}
    mine = {n: f for n, f in fields.items() if _OP.match(f.get("op_type", ""))}
    if not mine:
        return names, name
    trains = any("_backward" in f["op_type"] for f in mine.values())
    known = {n: k for k, n in enumerate(names)}
    all_names, to = list(names), np.full(len(texts), -1, np.int64)
    for n, f in mine.items():
        path = _path(f, trains, "stack_frame_id=" in texts[n])
        if path not in known:
            known[path] = len(all_names)
            all_names.append(path)
        to[n] = known[path]
    return tuple(all_names), np.where(to[of] >= 0, to[of], name)


def _path(fields: dict[str, str], trains: bool, framed: bool) -> str:
    op = fields["op_type"]
    *around, _ = split_components(fields.get("op_name", op))
    parts = [_part(p) for p in around if not _OP.match(p)]
    file = fields.get("source_file", "")
    updates = _OPTIMISER.search(file)
    if updates is not None:
        parts = [updates.group(1) or updates.group(2)]
    elif trains and op.startswith("aten__"):
        nowhere = not framed and file in ("", _NOWHERE)
        if nowhere or "_backward" in op:
            parts.insert(0, "transpose(jvp())")
        elif not framed or parts:  # with frames, data flow identifies the update
            parts.insert(0, "jvp()")
    if not parts:  # a transfer by the runtime: where it is used says more
        return fields.get("op_name", op)
    return "/".join(["jit(graph)", *parts, op])


def _part(text: str) -> str:
    """``Linear[q_proj]``: the name of the attribute; the class where it has none."""
    found = _MODULE.match(text)
    if found is None:
        return text
    inside = found.group(1).lstrip(".")
    return inside if inside and not inside.isdecimal() else text.partition("[")[0]
