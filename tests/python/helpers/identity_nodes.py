"""Nodes for tests of identities: the lines and operands of two dumps.

Nodes have numbers; those from 100 on are in the dump before the pass.
"""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace
from typing import Any

from hloscope.readers.hlo.pass_lines import Line, _line


def line(text: str, op_name: str = "", frame: str = "") -> Line:
    told = f'op_name="{op_name}"' if op_name else ""
    told += f" stack_frame_id={frame}" if frame else ""
    made = _line(f"  {text}, metadata={{{told}}}" if told else f"  {text}")
    assert made is not None, text
    return made


def walk(new: dict[int, Any] | None = None, old: dict[int, Any] | None = None) -> Any:
    """``new`` and ``old``: node → (line, its operands)."""
    new, old = new or {}, old or {}
    w = SimpleNamespace(guesses=False, row=3, changes=[], main={}, how={}, parts={}, outside={})
    w.line = {n: a for n, (a, _) in old.items()}
    w.operands = {n: b for n, (_, b) in old.items()}
    w.present = lambda n: new[n][0]
    w.present_operands = lambda n: new[n][1] if n in new else ()
    w.users, w.inside, w.callers = defaultdict(dict), defaultdict(dict), defaultdict(dict)
    for n, (_, b) in old.items():
        for o in b:
            w.users[o][n] = None
    w.known, w.place, w.names_before, w.first_opcode = {}, {}, {}, {}
    w.of = lambda n: w.known.get(n, ())
    w.before, w.place_of, w.alive, w.prior, w.prior_alive, w.prior_place_of = {}, {}, {}, {}, {}, {}
    last = defaultdict(lambda: SimpleNamespace(last=w.row + 1))
    w.steps = SimpleNamespace(places=[SimpleNamespace(name="now")], nodes=last)
    return w
