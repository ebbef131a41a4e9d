"""Groups made from a line are named by its code, where the capture kept the file.

train_step, line 38          →  tx.update(grads, …), line 38
train_step, line 52 · loop   →  lax.fori_loop(0, …), line 52 · loop
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from ...hlo import Module
from .groups import GroupTree

LONGEST = 36  # characters of code in a label
_MADE_BY = re.compile(r"(?P<function>.+), line (?P<line>\d+)(?P<more> · loop.*)?\Z")
_STATEMENT = re.compile(
    r"(?:return|yield|await|for [\w, ]+ in|while|if|elif|assert|with)\b\s*"
    r"|\(?[\w., *]+(?:\[[^\]]*\])?\)?\s*[-+*/@]?=(?!=)\s*"
)


def labels_with_code(module: Module, tree: GroupTree, sources: Mapping[str, str]) -> list[str]:
    """The label of every group; ``sources`` as in ``Target.sources``."""
    out = list(tree.label)
    if not sources:
        return out
    made = {g: m for g, label in enumerate(out) if (m := _MADE_BY.match(label))}
    if not made:
        return out
    texts = {file: text.splitlines() for file, text in sources.items()}
    frames, ids = module.source_frames()
    order = np.argsort(tree.group, kind="stable")
    begins = np.searchsorted(tree.group[order], np.arange(len(out) + 1))
    for g, m in made.items():
        rows = order[begins[g] : begins[g + 1]].tolist()
        wanted = int(m["line"])
        for frame in dict.fromkeys(ids[i] for i in rows):
            at = next(
                (f for f in frames.stack(frame) if f.line == wanted and f.file in texts), None
            )
            code = texts[at.file] if at is not None else []
            if 0 < wanted <= len(code) and (said := shortened(code[wanted - 1])):
                out[g] = f"{said}, line {wanted}{m['more'] or ''}"
                break
    return out


def shortened(code: str) -> str:
    """``updates, s = tx.update(grads, s, params)`` → ``tx.update(grads, …)``."""
    code = code.strip()
    bare = _STATEMENT.match(code)
    if bare and len(code) > bare.end():
        code = code[bare.end() :].rstrip(":")
    code = code.partition("  #")[0].strip()
    if code.endswith("("):
        return f"{code}…)" if len(code) < LONGEST else code[: LONGEST - 1] + "…"
    if len(code) <= LONGEST:
        return code
    head, comma, _ = code.partition(", ")
    if comma and "(" in head and len(head) <= LONGEST - 4:
        return f"{head}, …{')' * (head.count('(') - head.count(')'))}"
    return code[: LONGEST - 1].rstrip() + "…"
