"""Programs of a few instructions: ``"x! a:x b:a,x"`` is a parameter and what is made of it."""

from __future__ import annotations

from collections.abc import Mapping

import hloscope as hs
from hloscope.analysis.base.table import Table, table

SHAPE = "f32[8,8]"
# Another computation before ENTRY, so that rows of the module are not rows of ENTRY.
BEFORE = """aside {
  p = f32[] parameter(0)
  q = f32[] add(p, p)
  ROOT s = f32[] negate(q)
}
"""
FIRST = 3  # row of ENTRY's first instruction


class Small:
    """``name=opcode:operands`` for each instruction; without an opcode it is some kernel's."""

    def __init__(
        self,
        spec: str,
        names: Mapping[str, str] | None = None,  # op_name of some
        shapes: Mapping[str, str] | None = None,
        more: Mapping[str, str] | None = None,  # further attributes of some
        before: str = BEFORE,
    ) -> None:
        rows: list[str] = []
        parameters = 0
        self.names: list[str] = []
        for item in spec.split():
            head, _, operands = item.partition(":")
            name, _, opcode = head.rstrip("!").partition("=")
            attributes = ""
            if head.endswith("!"):
                opcode, operands = "parameter", str(parameters)
                parameters += 1
            elif not opcode:
                opcode, attributes = "custom-call", ', custom_call_target="k"'
            if name in (more or {}):
                attributes += f", {(more or {})[name]}"
            if name in (names or {}):
                attributes += f', metadata={{op_name="{(names or {})[name]}"}}'
            shape = (shapes or {}).get(name, SHAPE)
            listed = operands.replace(",", ", ")
            rows.append(f"  {name} = {shape} {opcode}({listed}){attributes}")
            self.names.append(name)
        rows[-1] = "  ROOT" + rows[-1][1:]
        self.module = hs.read(
            "\n".join(["HloModule m", "", before, "ENTRY main {", *rows, "}", ""])
        ).module
        assert self.module.entry is not None
        self.c = self.module.entry.index
        self.first = int(self.t.first[self.c])

    @property
    def t(self) -> Table:
        return table(self.module)

    def at(self, name: str) -> int:
        """Its row in the module."""
        return self.first + self.names.index(name)

    def here(self, names: str) -> list[int]:
        """Rows in ENTRY of names with spaces between."""
        return [self.names.index(name) for name in names.split()]

    def rows(self, names: str) -> list[int]:
        return [self.at(name) for name in names.split()]

    def said(self, rows: list[int]) -> str:
        """The names of rows in the module."""
        return " ".join(self.names[row - self.first] for row in rows)
