"""The calls of the person's own functions that made each instruction, by its Python stack.

    train_step:38 ─ loss:34 ─ layer:29 ─ attention:19     line 29 of layer called attention
                                       ─ norm:16          and norm; line 30 called norm again:
                            ─ layer:30 ─ norm:16          another call

Stacks name lines: what one line calls several times has one stack.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..base.lines.frames import is_library
from ..base.table import Ints, Table, per_module, table
from .scopes import inherit
from .true_calls import own_calls

if TYPE_CHECKING:
    from ...hlo import Module
    from ...hlo.parts import FrameTable

Mask = NDArray[np.bool_]
# (line of the caller, function called), outermost first; the last entry is (line, "")
Chain = tuple[tuple[int, str], ...]


@dataclass(frozen=True, eq=False)
class Calls:
    """``chain[i]`` indexes ``chains``; -1 if no stack is known nearby."""

    chains: tuple[Chain, ...]
    chain: Ints
    own: Mask  # whether the stack is the instruction's own
    loop: int = -1  # number of the opcode "while" in the table


@per_module
def calls(module: Module) -> Calls:
    """The calls that made every instruction, or its neighbours' if it has none."""
    t = table(module)
    frames, ids = module.source_frames()
    number: dict[Chain, int] = {}
    of_frame: dict[int, int] = {0: -1}
    for frame in set(ids):
        if frame not in of_frame:
            found = _chain(frames, frame)
            of_frame[frame] = number.setdefault(found, len(number)) if found else -1
    chains = list(number)
    calls_known = own_calls(module)
    if not (calls_known >= 0).any():
        return _without_calls(module, of_frame, number, ids)
    exact = calls_known.tolist()
    lines = {f: found[-1][0] for f, k in of_frame.items() if k >= 0 for found in [chains[k]]}
    of_call: dict[tuple[int, int], int] = {}
    for key in set(zip(exact, ids, strict=True)):
        if key[0] >= 0:
            whole = _exact_chain(module, key[0], lines.get(key[1], 0))
            of_call[key] = number.setdefault(whole, len(number))
    own = np.array(
        [of_call[c, f] if c >= 0 else of_frame[f] for c, f in zip(exact, ids, strict=True)],
        np.int64,
    )
    return _calls(t, number, own)


def _without_calls(
    module: Module, of_frame: dict[int, int], number: dict[Chain, int], ids: list[int]
) -> Calls:
    frames = np.array(ids, np.int64)
    known = np.full(int(frames.max(initial=0)) + 1, -1, np.int64)
    known[list(of_frame)] = list(of_frame.values())
    return _calls(table(module), number, known[frames])


def _calls(t: Table, number: dict[Chain, int], own: Ints) -> Calls:
    own[t.by_opcode(lambda o: o in ("parameter", "constant"), bool)] = -1
    chain = inherit(t, own) if number else own
    loop = t.opcodes.index("while") if "while" in t.opcodes else -1
    return Calls(tuple(number), chain, own >= 0, loop)


def _chain(frames: FrameTable, frame: int) -> Chain:
    """The user's own calls, outermost first, once each, as XLA repeats what it inlines."""
    out: list[tuple[str, str, int]] = []  # file, function, line
    for f in reversed(frames.stack(frame)):
        name = (f.function or "").rpartition("<locals>.")[2].removesuffix(".__call__")
        if is_library(f.file) or not name or name.startswith("<"):
            continue
        entry = (f.file, name, f.line)
        if entry in out:
            del out[out.index(entry) :]
        out.append(entry)
    if not out:
        return ()
    lines = [0, *(line for _, _, line in out)]
    return tuple(zip(lines, [*(name for _, name, _ in out), ""], strict=True))


def _exact_chain(module: Module, call: int, line: int) -> Chain:
    """The same from exactly known calls; each has a number instead of a line."""
    assert module.origins is not None
    python = module.origins.python
    stack = [c for c in python.stack(python[call]) if not c.name.startswith("<")]
    names = [(-1 - c.number, c.name.removesuffix(".__call__")) for c in stack]
    return (*names, (line, ""))
