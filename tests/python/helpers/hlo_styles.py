"""One Module written in many styles that XLA's parser accepts, as in text edited by hand.

``write(module, style)`` prints it; ``styles()`` returns the combinations worth reading.
"""

from __future__ import annotations

import itertools
import random
import re
from dataclasses import dataclass

from hloscope.hlo import Module
from hloscope.hlo.module import Computation, Instruction
from hloscope.hlo.texts.printer import shape_text

# Opcodes whose shape XLA infers from operands alone (not all of them).
_INFERRED = frozenset(
    "add subtract multiply divide maximum minimum negate abs exponential tanh sqrt rsqrt "
    "tuple get-tuple-element select clamp compare while".split()
)


@dataclass(frozen=True)
class Style:
    """A style of HLO text: each field is one habit."""

    percent: str = "all"  # all, none, mixed
    blanks: str = "plain"  # plain, shapes, tabs
    lines: str = "one"  # one line per instruction; attributes, leading, tokens, whole
    comments: str = "none"  # none, block, line, both
    signature: str = "line"  # line, none, lines
    typed: bool = False
    inferred: bool = False
    entry_first_word: bool = True


def styles() -> list[Style]:
    """Over 40 habits and combinations, each pair of neighbouring fields at least once."""
    singles = [
        Style(),
        *(Style(percent=p) for p in ("none", "mixed")),
        *(Style(blanks=b) for b in ("shapes", "tabs")),
        *(Style(lines=x) for x in ("attributes", "leading", "tokens", "whole")),
        *(Style(comments=c) for c in ("block", "line", "both")),
        *(Style(signature=s) for s in ("none", "lines")),
        Style(typed=True),
        Style(inferred=True),
    ]
    pairs = itertools.product(
        ("none", "mixed"), ("shapes", "tabs"), ("attributes", "leading", "tokens"), ("line", "both")
    )
    both = [
        Style(p, b, x, c, "none", n % 2 == 0, n % 3 == 0) for n, (p, b, x, c) in enumerate(pairs)
    ]
    return singles + both


def write(module: Module, style: Style, seed: int = 0) -> str:
    return _Writer(module, style, random.Random(seed)).text()


class _Writer:
    def __init__(self, module: Module, style: Style, r: random.Random) -> None:
        self.module, self.style, self.r = module, style, r

    def text(self) -> str:
        m, s = self.module, self.style
        header = [f"HloModule {m.name}"]
        header += [f"{k}={v}" if v else k for k, v in m.attributes.items()]
        breaks = s.lines in ("attributes", "tokens")
        top = (",\n  " if breaks else ", ").join(header)
        bodies = [self.computation(c) for c in m.computations]
        space = " " if s.lines == "whole" else "\n"
        return top + space + self.comment(end=True) + space.join(bodies) + "\n"

    def computation(self, c: Computation) -> str:
        s = self.style
        nl = " " if s.lines == "whole" else "\n"
        head = ("ENTRY " if c.is_entry else "") + self.name(c.name)
        if s.signature != "none":
            sep = "\n    " if s.signature == "lines" and nl == "\n" else " "
            params = f",{sep}".join(
                f"{p.name}: {shape_text(p.shape, layout=False)}" for p in c.parameters
            )
            root = shape_text(c.root.shape, layout=False) if c.root is not None else "()"
            head += f"{sep}({params}){sep}-> {root}"
        lines = [self.instruction(i, c) for i in c.instructions]
        tail = f"}}, {c.attribute_text}" if c.attribute_text else "}"
        return head + " {" + nl + nl.join(lines) + nl + tail + (nl if nl == "\n" else "")

    def instruction(self, i: Instruction, c: Computation) -> str:
        s = self.style
        indent = {"tabs": "\t"}.get(s.blanks, "  ")
        parts = ["ROOT"] if i is c.root else []
        parts += [self.name(i.name), "="]
        if not (s.inferred and i.opcode in _INFERRED):
            parts.append(self.shape(shape_text(i.shape)))
        parts.append(f"{i.opcode}({self.arguments(i)})")
        glue = "\n    " if s.lines == "tokens" else " "
        line = indent + glue.join(parts)
        joint = {"attributes": ",\n      ", "leading": "\n      , ", "tokens": "\n,\n"}.get(
            s.lines, ", "
        )
        for k, v in i.attributes.items():
            line += joint + self.comment() + (f"{k}={v}" if v else k)
        return line + self.comment(end=True)

    def arguments(self, i: Instruction) -> str:
        if i.opcode in ("parameter", "constant") or not i.operands:
            return i.argument_text
        joint = ",\n        " if self.style.lines == "tokens" else ", "
        names = [self.name(o.name) for o in i.operands]
        if self.style.typed:
            names = [f"{shape_text(o.shape)} {n}" for o, n in zip(i.operands, names, strict=True)]
        return joint.join(self.comment() + n for n in names)

    def name(self, name: str) -> str:
        p = self.style.percent
        return name if p == "none" or (p == "mixed" and self.r.random() < 0.5) else "%" + name

    def shape(self, text: str) -> str:
        if self.style.blanks != "shapes":
            return text
        return re.sub(r"\[[\d,<=]+\]", lambda m: m[0].replace(",", " , "), text)

    def comment(self, end: bool = False) -> str:
        c = self.style.comments
        if c == "none" or self.r.random() < 0.4:
            return ""
        if end and c in ("line", "both") and self.style.lines != "whole":
            return " // x = f32[] add(a, b) {\n"
        return "/* f32[] ) } */ " if c in ("block", "both") else ""
