"""Compares what is computed from texts with what is written below them in one file.

``as_text`` writes out a module: what each instruction has and where it is in the source text.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path

from hloscope.hlo import Module


def as_text(modules: Iterable[Module]) -> str:
    """One line per module, computation and instruction, then warnings with line and column.

    ``name = shape opcode(operands) [arguments] {attributes} begin+length``, and ``*`` before roots.
    """
    out = []
    for m in modules:
        out.append(f"{m.name} from line {m.first_line} {m.attributes or ''}".rstrip())
        for c in m.computations:
            begin, end = c.text_span or (0, 0)
            out.append(f"{'ENTRY ' if c is m.entry else ''}{c.name} {begin}+{end - begin}")
            assert [i for i in c.instructions if i.is_root] == ([c.root] if c.root else [])
            assert c.is_entry == (c is m.entry)
            for i in c.instructions:
                begin, end = i.text_span or (0, 0)
                operands = ", ".join(o.name for o in i.operands)
                out.append(
                    f"{'*' if i.is_root else ' '} {i.name} = {i.shape.text} {i.opcode}({operands}) "
                    f"[{i.argument_text}] {{{i.attribute_text}}} {begin}+{end - begin}"
                )
        assert [i.index for i in m.instructions] == list(range(len(m.instructions)))
        out += [f"! {w.line}:{w.column} {w.message}" for w in m.warnings]
        if m.frames.frames:
            f = m.frames
            out.append(f"{f.files} {f.functions} {f.locations} {f.frames}")
    return "\n".join(out)


GOLDEN = Path(__file__).parents[2] / "golden" / "tables"
_CASE = re.compile(r"^===== (.*)\n((?s:.*?))^----- gives\n((?s:.*?))(?=^=====|\Z)", re.M)


def assert_table(name: str, tell: Callable[[str], str]) -> None:
    """Asserts that ``tell`` gives for each text of ``golden/tables/<name>.txt`` what is below it.

    With ``HLOSCOPE_ACCEPT=1`` writes what it gives now.
    """
    path = GOLDEN / f"{name}.txt"
    cases = _CASE.findall(path.read_text())
    assert len(cases) == path.read_text().count("===== ")
    if os.environ.get("HLOSCOPE_ACCEPT"):
        path.write_text(
            "".join(f"===== {what}\n{t}----- gives\n{tell(t)}\n" for what, t, _ in cases)
        )
    for what, text, want in cases:
        assert tell(text) + "\n" == want, what
