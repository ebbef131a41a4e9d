"""The call that each instruction comes from, where a capture knows each one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..base.table import Ints, per_module, table
from .scopes import combines

if TYPE_CHECKING:
    from ...hlo import Module
    from ...hlo.origins.python_calls import PythonCalls


@per_module
def own_calls(module: Module) -> Ints:
    """The innermost call that each instruction comes from, -1 where unknown."""
    n = len(module.instructions)
    out = np.full(n, -1, np.int64)
    origins = module.origins
    if origins is None or not len(origins.python):
        return out
    python = origins.python
    t = table(module)
    joined = (t.by_opcode(combines, bool) & (t.operands.counts > 1)).tolist()
    silent = t.by_opcode(lambda o: o in ("parameter", "constant"), bool).tolist()
    for i, of in enumerate(origins.of):
        if not of or silent[i]:
            continue
        found = [python.of(o) for o in (of if joined[i] else of[:1])]
        numbers = {-1 if c is None else c.number for c in found}
        out[i] = numbers.pop() if len(numbers) == 1 else _shared(python, numbers)
    return out


def _shared(python: PythonCalls, numbers: set[int]) -> int:
    """The innermost call around all of these."""
    if -1 in numbers:
        return -1
    stacks = [[c.number for c in python.stack(python[n])] for n in numbers]
    shared = -1
    for level in zip(*stacks, strict=False):
        if len(set(level)) > 1:
            break
        shared = level[0]
    return shared
