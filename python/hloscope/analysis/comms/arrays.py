"""One sharded array: its shardings, shapes and bytes, from an annotation and the target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...hlo import Argument, Instruction, Mesh, Module, Shape, Target, parse_shape
from ...hlo.shardings.sharding import Sharding
from ...hlo.shardings.sharding_text import parse_sharding
from ..base.operands import given_name
from ..text.results import Row


@dataclass(frozen=True, eq=False, repr=False)
class ShardedArray(Row):
    """One array with a sharding. ``role`` is parameter, output or value.

    ``is_padded_shape``: the global shape is local × tiles, as the dump lacks the true one.
    """

    role: str
    name: str  # "params['w1']", or the instruction's name
    instruction: Instruction | None
    leaf: int  # index of the leaf in a tuple; 0 for an array
    sharding: Sharding
    text: str  # "P('data', None)" if mesh axes can express it
    global_shape: tuple[int, ...]
    local_shape: tuple[int, ...]
    element_type: str
    bytes_per_device: int  # of the local shape, padding included
    global_bytes: int
    replicas: int  # devices that hold each tile
    is_padded_shape: bool = False
    parameter: int | None = None

    def to_dict(self) -> dict[str, Any]:
        return {
            "role": self.role,
            "name": self.name,
            "sharding": self.text,
            "global_shape": list(self.global_shape),
            "local_shape": list(self.local_shape),
            "element_type": self.element_type,
            "tiles": list(self.sharding.tiles),
            "replicas": self.replicas,
            "bytes_per_device": self.bytes_per_device,
            "global_bytes": self.global_bytes,
        }


class ArrayMaker:
    """Makes the rows of one module's arrays; ``is_local``: its shapes are one device's part."""

    def __init__(self, target: Target, mesh: Mesh | None, num_devices: int, is_local: bool):
        self.target, self.mesh, self.num_devices = target, mesh, num_devices
        self.is_local = is_local
        # Shardings repeat: hundreds of parameters share a handful of them.
        self._parsed: dict[str, Sharding] = {}
        self._words: dict[tuple[str, str, int], str] = {}
        self.arguments = {a.parameter: a for a in target.arguments if a.parameter is not None}

    def parameter(self, p: Instruction) -> list[ShardedArray]:
        argument = self.arguments.get(p.parameter_number or 0)
        name = argument.name if argument is not None else given_name(p) or p.name
        text = p.sharding_text
        if text is None:
            if self.num_devices > 1 and not (argument and argument.sharding):
                return []
            text = (argument.sharding if argument else None) or "{replicated}"
        return self.leaves("parameter", name, p, text, argument, p.parameter_number)

    @property
    def several(self) -> bool:
        """Whether the program is for several devices."""
        return max(self.num_devices, len(self.target.devices)) > 1

    def outputs(self, module: Module) -> list[ShardedArray]:
        """Rows of the outputs, from the target's results if any: dumps rarely annotate the root."""
        root = module.entry.root if module.entry is not None else None
        if root is None:
            return []
        shapes = list(root.shape.leaves())
        text = root.sharding_text or _of_marked(root)
        if len(self.target.results) != len(shapes):
            return self.leaves("output", root.name, root, text) if text else []
        whole = parse_sharding(text) if text else None
        parts = whole.parts if whole is not None and len(whole.parts) == len(shapes) else ()
        out = []
        for leaf, (result, shape) in enumerate(zip(self.target.results, shapes, strict=True)):
            own = parts[leaf] if parts else (whole if whole and len(shapes) == 1 else None)
            if own is None and result.sharding is None and not self.is_local and self.several:
                continue  # the compiler has yet to choose
            sharding = own or self._parse(result.sharding or "{replicated}")
            made = root if root.opcode != "tuple" else root.operands[leaf]
            name = result.name or "result"
            out.append(self.array("output", name, made, leaf, sharding, shape, result))
        return out

    def leaves(
        self,
        role: str,
        name: str,
        i: Instruction,
        text: str,
        argument: Argument | None = None,
        parameter: int | None = None,
    ) -> list[ShardedArray]:
        whole = self._parse(text)
        shapes = list(i.shape.leaves())
        parts = whole.parts if len(whole.parts) == len(shapes) else (whole,) * len(shapes)
        many = len(shapes) > 1
        return [
            self.array(
                role, f"{name}[{k}]" if many else name, i, k, part, shape,
                None if many else argument, parameter,
            )
            for k, (part, shape) in enumerate(zip(parts, shapes, strict=True))
            if shape.is_array and part.is_known
        ]  # fmt: skip

    def _parse(self, text: str) -> Sharding:
        found = self._parsed.get(text)
        if found is None:
            meshes = {"": self.mesh} if self.mesh is not None else None
            found = self._parsed[text] = parse_sharding(text, meshes)
        return found

    def _described(self, sharding: Sharding, rank: int) -> str:
        key = (sharding.kind, sharding.text, rank)
        found = self._words.get(key)
        if found is None:
            found = self._words[key] = sharding.describe(self.mesh, rank)
        return found

    def array(
        self,
        role: str,
        name: str,
        i: Instruction | None,
        leaf: int,
        sharding: Sharding,
        shape: Shape,
        argument: Argument | None = None,
        parameter: int | None = None,
    ) -> ShardedArray:
        rank = shape.rank
        known = argument is not None and len(argument.shape) == rank
        if known and argument is not None:
            whole = tuple(argument.shape)
        else:
            whole = sharding.global_shape(shape.dimensions) if self.is_local else shape.dimensions
        local = shape.dimensions if self.is_local else sharding.tile_shape(whole)
        element = shape.element_type
        return ShardedArray(
            role=role,
            name=name,
            instruction=i,
            leaf=leaf,
            sharding=sharding,
            text=self._described(sharding, rank),
            global_shape=whole,
            local_shape=local,
            element_type=element,
            bytes_per_device=shape.byte_size if self.is_local else _size(element, local),
            global_bytes=_size(element, whole),
            replicas=sharding.replicas(self.num_devices),
            is_padded_shape=self.is_local and not known and sharding.is_sharded,
            parameter=parameter,
        )


_MARKERS = ("xla.sdy.FuncResultSharding", "Sharding")


def _of_marked(root: Instruction) -> str | None:
    """The sharding text of a tuple whose elements are marked individually; None without marks."""
    if root.opcode != "tuple" or not root.operands:
        return None
    texts = [o.sharding_text if o.custom_call_target in _MARKERS else None for o in root.operands]
    if not any(texts):
        return None
    return "{" + ", ".join(t or "{unknown}" for t in texts) + "}"


def _size(element_type: str, dimensions: tuple[int, ...]) -> int:
    return parse_shape(f"{element_type}[{','.join(map(str, dimensions))}]").byte_size
