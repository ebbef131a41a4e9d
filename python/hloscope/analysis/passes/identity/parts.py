"""Whose identity an instruction shares as a part of it, after the same pass.

%s = collective-permute-start(%x)      %d = collective-permute-done(%s)      as %s
%w = while(%t), body=%b                %g = get-tuple-element(%w), index=1   as %w
%f = fusion(%x), calls=%c              as the result of %c, or as what it has its op name from
%sub.2 in %c                           %sub.2.clone.1 in %d                  as %sub.2
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ....readers.hlo.pass_lines import called
from .op_names import components
from .pairs import PASSING, element

if TYPE_CHECKING:
    from .walk import IdentityWalk

_CLONE = re.compile(r"\.clone(?:\.\d+)*\Z")


class Wholes:
    """``of(n)``: the node with the same op name that ``n`` is a part or a copy of.

    ``named``: nodes of this row in all computations, by name.
    """

    def __init__(self, walk: IdentityWalk, named: Mapping[str, int]) -> None:
        self.w, self.named = walk, named

    def of(self, n: int, c: str) -> int:
        """-1 if it is not a part of another."""
        line, operands = self.w.present(n), self.w.present_operands(n)
        if line.opcode.endswith(("-done", "-update")) and operands:
            return self._if_named(operands[0], c)
        if line.opcode == "get-tuple-element" and operands:
            return self._element(operands[0], element(line), c)
        if line.opcode == "fusion":
            root = self._if_named(self._root(n), c)
            return root if root >= 0 else self._inside(n, c)
        source = _CLONE.sub("", line.name)
        if source != line.name:
            found = self.named.get(source, -1)
            if found >= 0 and self.w.present(found).opcode == line.opcode:
                return self._if_named(found, c)
        return -1

    def _element(self, of: int, k: int, c: str) -> int:
        if self.w.present(of).opcode != "fusion":
            return self._if_named(of, c)
        root = self._root(of)
        if root < 0 or self.w.present(root).opcode != "tuple":
            return -1
        parts = self.w.present_operands(root)
        return self._if_named(parts[k], c) if 0 <= k < len(parts) else -1

    def _root(self, n: int) -> int:
        w = self.w
        for name in called(w.present(n)):
            body = w.before.get(name)
            alive = w.alive.get(w.place_of.get(name, -1), {})
            if body is not None:
                return next((alive.get(x.name, -1) for x in reversed(body.lines) if x.root), -1)
        return -1

    def _inside(self, n: int, c: str) -> int:
        """The instruction in a fusion that has the op name, if the result does not have it."""
        w = self.w
        frame, out = w.present(n).frame, (-1, -1)
        for name in called(w.present(n)):
            alive = w.alive.get(w.place_of.get(name, -1), {})
            for k in alive.values():
                line = w.present(k)
                if c in components(line.op_name):
                    rank = 2 * (line.opcode not in PASSING) + (line.frame == frame)
                    out = max(out, (rank, k))
        return out[1]

    def _if_named(self, n: int, c: str) -> int:
        return n if n >= 0 and c in self.w.present(n).op_name else -1
