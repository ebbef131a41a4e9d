"""All instructions that were ever in a module, as one module that can be grouped and laid out.

Each appears once, as in its last line, in the computation it was in: what is kept between passes
has one place in the picture. It is for the picture alone: its contents were never in one program,
so no figures are computed from it.
"""

from __future__ import annotations

import re

from ...hlo import Computation, Instruction, Module
from ...hlo.columns import NEVER_CALLS, called_names
from ...hlo.parts import FrameTable
from ...hlo.shape import Shape, parse_shape
from .steps import PassNode, Steps

_CALLED = re.compile(r"(?<![\w.\-])%([\w.\-]+)")
_PREDECESSORS = re.compile(r",? ?control-predecessors=\{[^{}]*\}")


def union(steps: Steps, name: str, partitions: int = 1) -> tuple[Module, list[int]]:
    """The union, and the node of each of its instructions."""
    module = Module(name, (), None, {"num_partitions": str(partitions)}, FrameTable(), (), "hlo")
    made: dict[int, Instruction] = {}
    computations: list[Computation] = []
    used: set[str] = set()
    name_of = {}
    for place in steps.places:
        own = place.name
        while own in used:  # a later computation has the name of one that is gone
            own += "'"
        used.add(own)
        name_of[place.index] = own
    called = _Names(steps, name_of)
    numbers: list[int] = []
    # called computations come before their callers, as in printed modules
    for place in sorted(steps.places, key=lambda p: (p.entry, p.index)):
        c = Computation.__new__(Computation)
        c.index, c.name, c.module = len(computations), name_of[place.index], module
        c.is_entry = place.entry and place.last == steps.rows
        c.attribute_text, c.text_span, c.root = "", None, None
        body = []
        roots: dict[int, Instruction] = {}  # by the row after their last one
        for n in _in_order(steps, place.order):
            node = steps.nodes[n]
            version = steps.versions[node.versions[-1]]
            line = version.line
            i = Instruction.__new__(Instruction)
            i.index = len(numbers)
            i.name, i.opcode, i.computation = line.name, line.opcode, c
            i.shape = _shape(line.shape)
            i.argument_text = line.arguments
            i.is_root = False
            i.text_span, i._attributes = None, None
            i.attribute_text = called.now(_PREDECESSORS.sub("", line.attributes), node.last)
            earlier = called.earlier(node)
            if earlier:
                extra = f"called_computations={{{', '.join(earlier)}}}"
                i.attribute_text = f"{i.attribute_text}, {extra}" if i.attribute_text else extra
            if line.op_name:
                extra = f'metadata={{op_name="{line.op_name}"}}'
                i.attribute_text = f"{i.attribute_text}, {extra}" if i.attribute_text else extra
            i.operands = ()
            if line.root:
                roots[node.last] = i
            made[n] = i
            numbers.append(n)
            body.append(i)
        if roots:
            c.root = roots[max(roots)]
            c.root.is_root = True
        c.instructions = tuple(body)
        c._names = None
        computations.append(c)
    for n, i in made.items():
        version = steps.versions[steps.nodes[n].versions[-1]]
        i.operands = tuple([made[o] for o in version.operands])
    module.entry = next((c for c in computations if c.is_entry), None)
    module.computations = _reached(computations, module.entry)
    order = [numbers[i.index] for c in module.computations for i in c.instructions]
    for k, c in enumerate(module.computations):
        c.index = k
    for k, i in enumerate(i for c in module.computations for i in c.instructions):
        i.index = k
    return module, order


def _reached(found: list[Computation], entry: Computation | None) -> tuple[Computation, ...]:
    """Computations without those that nothing ever called: passes leave such ones behind."""
    if entry is None:
        return tuple(found)
    by_name = {c.name: c for c in found}
    reached: dict[str, None] = {}
    stack = [entry]
    while stack:
        c = stack.pop()
        if c.name in reached:
            continue
        reached[c.name] = None
        for i in c.instructions:
            if i.opcode not in NEVER_CALLS:
                for _, name in called_names(i.opcode, i.attribute_text):
                    if name in by_name:
                        stack.append(by_name[name])
    return tuple(c for c in found if c.name in reached)


def _shape(text: str) -> Shape:
    try:
        return parse_shape(text)
    except ValueError:
        return Shape(text, "opaque")


def _in_order(steps: Steps, order: list[int]) -> list[int]:
    """Operands before their users if possible, otherwise as they were printed."""
    out: list[int] = []
    seen: set[int] = set()
    for start in order:
        if start in seen:
            continue
        seen.add(start)
        stack = [(start, iter(_operands(steps, start)))]
        while stack:
            node, rest = stack[-1]
            for o in rest:
                if o not in seen:
                    seen.add(o)
                    stack.append((o, iter(_operands(steps, o))))
                    break
            else:
                out.append(node)
                stack.pop()
    return out


def _operands(steps: Steps, n: int) -> tuple[int, ...]:
    return steps.versions[steps.nodes[n].versions[-1]].operands


class _Names:
    """The names in the union of the computations that a line calls."""

    def __init__(self, steps: Steps, name_of: dict[int, str]) -> None:
        self._steps = steps
        self._lives: dict[str, list[tuple[int, int, str]]] = {}
        for place in steps.places:
            for first, last, name in place.names():
                self._lives.setdefault(name, []).append((first, last, name_of[place.index]))

    def now(self, attributes: str, last: int) -> str:
        """``attributes`` of a line in the rows before ``last``, with names of the union."""
        if "%" not in attributes:
            return attributes

        def put(m: re.Match[str]) -> str:
            for first, end, name in self._lives.get(m[1], ()):
                if first < last <= end:
                    return f"%{name}"
            return m[0]

        return _CALLED.sub(put, attributes)

    def earlier(self, node: PassNode) -> list[str]:
        """What it called earlier and no longer calls; for one name, all that had it meanwhile."""
        versions = [self._steps.versions[v] for v in node.versions]
        ends = [v.row for v in versions[1:]] + [node.last]
        found: dict[str, None] = {}
        for version, end in zip(versions, ends, strict=True):
            line = version.line
            if "%" in line.attributes:
                for _, called in called_names(line.opcode, line.attributes):
                    lives = self._lives.get(called, ())
                    found |= {f"%{n}": None for a, b, n in lives if a < end and version.row < b}
        if not found:
            return []
        last = versions[-1].line
        now = self.now(last.attributes, node.last)
        present = {f"%{n}" for _, n in called_names(last.opcode, now)}
        return [name for name in found if name not in present]
