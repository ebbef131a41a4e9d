"""ShapeProto → XLA's text form → the interned Shape."""

from __future__ import annotations

from typing import Any

from ...hlo.shape import MAX_TUPLE_DEPTH, Shape, parse_shape
from .schema import message_class

# PrimitiveType of xla_data.proto
ELEMENT_TYPES = {
    1: "pred", 30: "s1", 26: "s2", 21: "s4", 2: "s8", 3: "s16", 4: "s32", 5: "s64",
    31: "u1", 27: "u2", 22: "u4", 6: "u8", 7: "u16", 8: "u32", 9: "u64",
    10: "f16", 11: "f32", 16: "bf16", 12: "f64", 15: "c64", 18: "c128",
    19: "f8e5m2", 28: "f8e4m3", 20: "f8e4m3fn", 23: "f8e4m3b11fnuz", 29: "f8e3m4",
    24: "f8e5m2fnuz", 25: "f8e4m3fnuz", 32: "f4e2m1fn", 33: "f8e8m0fnu",
    35: "f6e3m2fn", 36: "f6e2m3fn", 14: "opaque", 17: "token",
}  # fmt: skip
TUPLE, BUFFER, TOKEN, OPAQUE = 13, 34, 17, 14
_LEVELS = {0: "D", 1: "C", 2: "S", 3: "L"}
UNBOUNDED = -(1 << 63)


def joined(parts: list[str]) -> str:
    """``a, b, …`` with XLA's ``/*index=5*/`` before every fifth part."""
    return ", ".join(f"/*index={i}*/{p}" if i and i % 5 == 0 else p for i, p in enumerate(parts))


def shape_text(shape: Any, comments: bool = False, depth: int = 0) -> str:
    """The shape with its layout, as XLA prints it (``comments``: with ``/*index=5*/``)."""
    kind = shape.element_type
    if depth > MAX_TUPLE_DEPTH:
        return "opaque[]"
    if kind == TUPLE:
        parts = [shape_text(s, comments, depth + 1) for s in shape.tuple_shapes]
        return "(" + (joined(parts) if comments else ", ".join(parts)) + ")"
    if kind == BUFFER:
        return f"b({', '.join(shape_text(s, comments, depth + 1) for s in shape.tuple_shapes)})"
    name = ELEMENT_TYPES.get(kind)
    if name is None:
        name = "invalid" if kind == 0 else f"type{kind}"
    dynamic = list(shape.is_dynamic_dimension)
    sizes = []
    for i, d in enumerate(shape.dimensions):
        is_dynamic = i < len(dynamic) and dynamic[i]
        size = "?" if d == UNBOUNDED else str(d)
        sizes.append(f"<={size}" if is_dynamic and size != "?" else size)
    text = f"{name}[{','.join(sizes)}]"
    if kind in (TOKEN, OPAQUE) or not shape.HasField("layout"):
        return text
    layout = layout_text(shape.layout, depth)
    return text if layout == "{}" else text + layout


def layout_text(layout: Any, depth: int = 0) -> str:
    """``{1,0:T(8,128)(2,1)S(1)}``."""
    rest = ""
    if layout.dim_level_types:
        rest += f"D({','.join(_LEVELS.get(t, '?') for t in layout.dim_level_types)})"
    if layout.tiles:
        rest += "T" + "".join(
            "(" + ",".join("*" if d == UNBOUNDED else str(d) for d in t.dimensions) + ")"
            for t in layout.tiles
        )
    if layout.tail_padding_alignment_in_elements not in (0, 1):
        rest += f"L({layout.tail_padding_alignment_in_elements})"
    if layout.index_primitive_type:
        rest += f"#({ELEMENT_TYPES.get(layout.index_primitive_type, '?')})"
    if layout.pointer_primitive_type:
        rest += f"*({ELEMENT_TYPES.get(layout.pointer_primitive_type, '?')})"
    if layout.element_size_in_bits:
        rest += f"E({layout.element_size_in_bits})"
    if layout.memory_space:
        rest += f"S({layout.memory_space})"
    if layout.split_configs:
        rest += "SC" + "".join(
            f"({c.dimension}:{','.join(map(str, c.split_indices))})" for c in layout.split_configs
        )
    if layout.HasField("physical_shape"):
        rest += f"P({shape_text(layout.physical_shape, depth=depth + 1)})"
    if layout.dynamic_shape_metadata_prefix_bytes:
        rest += f"M({layout.dynamic_shape_metadata_prefix_bytes})"
    order = ",".join(map(str, layout.minor_to_major))
    return "{" + order + (":" + rest if rest else "") + "}"


def shape_of(own: Any) -> Any:
    """The ShapeProto of an instruction's ``Own``."""
    return message_class("Shape").FromString(own.shape)


class ShapeCache:
    """Interns shapes by their serialized bytes: 100,000 instructions have a few hundred."""

    def __init__(self) -> None:
        self._seen: dict[bytes, Shape] = {}
        self.bad: list[str] = []

    @property
    def unknown_elements(self) -> tuple[str, ...]:
        """Element types of the shapes so far whose size is not known, each once."""
        return tuple(dict.fromkeys(t for s in self._seen.values() for t in s.unknown_elements))

    def get(self, data: bytes) -> Shape:
        found = self._seen.get(data)
        if found is None:
            text = shape_text(message_class("Shape").FromString(data))
            try:
                found = parse_shape(text)
            except ValueError:
                self.bad.append(text[:80])
                found = Shape(text, "opaque")
            self._seen[data] = found
        return found
