"""Whose identity an instruction shares as a part of it, after the same pass.

%s = collective-permute-start(%x)      %d = collective-permute-done(%s)      as %s
%w = while(%t), body=%b                %g = get-tuple-element(%w), index=1   as %w
%f = fusion(%x), calls=%c              as the result of %c, or as what it has its op name from
"""

from __future__ import annotations

from ....readers.hlo.pass_lines import called
from .op_names import components
from .pairs import PASSING, element
from .walk import IdentityWalk


class Wholes:
    """``of(node)``: the node with the same op name that ``node`` is a part of."""

    def __init__(self, walk: IdentityWalk) -> None:
        self.walk = walk

    def of(self, node: int, name: str) -> int:
        """-1 if it is not a part of another."""
        line, operands = self.walk.present(node), self.walk.present_operands(node)
        if line.opcode.endswith(("-done", "-update")) and operands:
            return self._if_named(operands[0], name)
        if line.opcode == "get-tuple-element" and operands:
            return self._element(operands[0], element(line), name)
        if line.opcode == "fusion":
            root = self._if_named(self._root(node), name)
            return root if root >= 0 else self._inside(node, name)
        return -1

    def _element(self, of: int, index: int, name: str) -> int:
        if self.walk.present(of).opcode != "fusion":
            return self._if_named(of, name)
        root = self._root(of)
        if root < 0 or self.walk.present(root).opcode != "tuple":
            return -1
        parts = self.walk.present_operands(root)
        return self._if_named(parts[index], name) if 0 <= index < len(parts) else -1

    def _root(self, node: int) -> int:
        walk = self.walk
        for callee in called(walk.present(node)):
            body = walk.before.get(callee)
            alive = walk.alive.get(walk.place_of.get(callee, -1), {})
            if body is not None:
                return next((alive.get(x.name, -1) for x in reversed(body.lines) if x.root), -1)
        return -1

    def _inside(self, node: int, name: str) -> int:
        """The instruction in a fusion that has the op name, if the result does not have it."""
        walk = self.walk
        frame, out = walk.present(node).frame, (-1, -1)
        for callee in called(walk.present(node)):
            alive = walk.alive.get(walk.place_of.get(callee, -1), {})
            for inner in alive.values():
                line = walk.present(inner)
                if name in components(line.op_name):
                    rank = 2 * (line.opcode not in PASSING) + (line.frame == frame)
                    out = max(out, (rank, inner))
        return out[1]

    def _if_named(self, node: int, name: str) -> int:
        return node if node >= 0 and name in self.walk.present(node).op_name else -1
