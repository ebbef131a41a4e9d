"""Dumps for tests, each instruction with the operations that it comes from.

A dump is written as its ENTRY, instructions separated by semicolons; other computations come
before it, each as ``name: instructions |``. The numbers behind ``@`` are operations, ``3<0.1`` is
operation 3 through the calls 0 and 1.
"""

from __future__ import annotations

from hloscope.hlo import Module, Operation, Origin, Origins
from hloscope.readers.hlo.text import read_hlo_text


def read(text: str, operations: tuple[Operation, ...] = ()) -> Module:
    lines, of = ["HloModule m"], []
    for block in text.split("|"):
        name, _, body = block.strip().rpartition(": ")
        lines.append(f"{name} {{" if name else "ENTRY e {")
        for row in body.split(";"):
            line, _, numbers = row.strip().partition("@")
            lines.append(f"  {line}")
            of.append(tuple(map(_origin, filter(None, numbers.split(",")))))
        lines.append("}")
    (module,) = read_hlo_text("\n".join(lines) + "\n")
    assert len(module.instructions) == len(of), module.warnings
    module.origins = Origins(operations, tuple(of))
    return module


def _origin(text: str) -> Origin:
    number, _, calls = text.partition("<")
    return Origin(int(number), tuple(int(c) for c in calls.split(".") if c))
