"""Array, tuple, token and opaque shapes with layouts, in XLA's own text form.

Shapes are interned: a module of 100,000 instructions has a few hundred distinct
shape texts, so ``parse_shape`` is cached and equal texts are the same object.

    bf16[2048,1024]{1,0:T(8,128)(2,1)S(1)}
    │    │          │   │             └ memory space
    │    │          │   └ tiles
    │    │          └ minor_to_major
    │    └ dimensions ("<=8" marks a dynamic bound, "?" an unbounded one)
    └ element type
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from .limits import MOST_BYTES
from .texts.regex import regex

# bits per element, xla/primitive_util.h and xla_data.proto
ELEMENT_BITS: dict[str, int] = {
    "pred": 8, "s1": 1, "u1": 1, "s2": 2, "u2": 2, "s4": 4, "u4": 4, "f4e2m1fn": 4,
    "s8": 8, "u8": 8, "s16": 16, "u16": 16, "s32": 32, "u32": 32, "s64": 64, "u64": 64,
    "f8e3m4": 8, "f8e4m3": 8, "f8e4m3fn": 8, "f8e4m3b11fnuz": 8, "f8e4m3fnuz": 8,
    "f8e5m2": 8, "f8e5m2fnuz": 8, "f8e8m0fnu": 8,
    "f6e2m3fn": 6, "f6e3m2fn": 6,
    "f16": 16, "bf16": 16, "f32": 32, "f64": 64, "c64": 64, "c128": 128,
}  # fmt: skip

# Shapes that hold no elements of their own; XLA prints a shape that was never set as "invalid".
_NO_ELEMENTS = frozenset(["tuple", "token", "opaque", "buffer", "invalid"])


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of an array in memory; ``text`` is the whole ``{…}`` as printed."""

    text: str
    minor_to_major: tuple[int, ...] = ()
    tiles: tuple[tuple[int, ...], ...] = ()
    memory_space: int = 0
    element_size_bits: int | None = None


@dataclass(frozen=True, slots=True)
class Shape:
    """An array (``element_type`` f32, …), a ``tuple``, a ``token`` or an ``opaque``.

    ``dimensions`` holds the bounds of dynamic dimensions; ``dynamic`` marks them. ``elements`` is
    the number of an array's, 0 for tuples and tokens. ``byte_size`` is dense, without tile padding,
    and summed over tuple leaves: packed sub-byte types (``s4`` with ``E(4)`` in the layout, as XLA
    marks them) count their packed bits, unpacked ones a byte an element, tokens and opaque 0; index
    tables of tuples are not counted.
    """

    text: str = field(compare=True)
    element_type: str = field(compare=False)
    dimensions: tuple[int, ...] = field(default=(), compare=False)
    dynamic: tuple[bool, ...] = field(default=(), compare=False)
    layout: Layout | None = field(default=None, compare=False)
    tuple_shapes: tuple[Shape, ...] = field(default=(), compare=False)
    # Worked out once: shapes are few, and these are asked of every instruction again and again.
    is_tuple: bool = field(init=False, compare=False, repr=False)
    is_array: bool = field(init=False, compare=False, repr=False)
    elements: int = field(init=False, compare=False, repr=False)
    byte_size: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        bits = ELEMENT_BITS.get(self.element_type, 0)
        elements = math.prod(self.dimensions) if bits else 0
        if 0 < bits < 8:
            bits = (self.layout is not None and self.layout.element_size_bits) or 8
        parts = sum(s.byte_size for s in self.tuple_shapes)
        object.__setattr__(self, "is_tuple", self.element_type == "tuple")
        object.__setattr__(self, "is_array", self.element_type in ELEMENT_BITS)
        object.__setattr__(self, "elements", elements)
        object.__setattr__(self, "byte_size", parts or (elements * bits + 7) // 8)

    @property
    def rank(self) -> int:
        return len(self.dimensions)

    @property
    def dense_text(self) -> str:
        """The shape without layout: ``bf16[2048,1024]`` or ``(f32[], s32[4])``."""
        return _dense_text(self)

    @property
    def unknown_elements(self) -> tuple[str, ...]:
        """Element types inside whose size is unknown: they count 0 bytes."""
        if self.tuple_shapes:
            return tuple(t for s in self.tuple_shapes for t in s.unknown_elements)
        known = self.is_array or self.element_type in _NO_ELEMENTS
        return () if known else (self.element_type,)

    def leaves(self) -> Iterator[Shape]:
        """The non-tuple shapes inside, left to right; an array yields itself."""
        if not self.is_tuple:
            yield self
        for s in self.tuple_shapes:
            yield from s.leaves()

    def __str__(self) -> str:
        return self.text


@lru_cache(maxsize=65536)
def _dense_text(shape: Shape) -> str:
    if shape.is_tuple:
        return "(" + ", ".join(s.dense_text for s in shape.tuple_shapes) + ")"
    brace = shape.text.find("{")
    return shape.text if brace < 0 else shape.text[:brace]


# A layout may hold a shape of its own: {1,0:P(s32[8]{0})}.
_LAYOUT = r"\{[^{}]*+(?:\{[^{}]*+\}[^{}]*+)*+\}"
_ARRAY = regex(rf"([a-z][a-z0-9]*)(?:\[([^\]]*)\])?({_LAYOUT})?\Z", re.S)
_BLANK = regex(r"\s+")
_LAYOUT_TILE = regex(r"(?<![A-Z])([A-Z]++)((?:\([^()]*+\))++)")


_SPLIT = regex(r'[,;()\[\]{}]|"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.S)


def split_top(text: str, separator: str = ",") -> list[str]:
    """Splits at ``separator`` (``,`` or ``;``) outside brackets and quotes, and strips."""
    parts: list[str] = []
    depth = begin = 0
    for m in _SPLIT.finditer(text):
        c = m.group()
        if c == separator:
            if depth <= 0:
                parts.append(text[begin : m.start()].strip())
                begin = m.end()
        elif c in _OPENING:
            depth += 1
        elif c in _CLOSING:
            depth -= 1
    tail = text[begin:].strip()
    if tail or parts:
        parts.append(tail)
    return parts


_OPENING = frozenset("([{")
_CLOSING = frozenset(")]}")


def _parse_layout(text: str) -> Layout:
    order, _, rest = text[1:-1].partition(":")
    minor = tuple(int(d) for d in order.split(",") if _is_small(d.strip()))
    tiles: tuple[tuple[int, ...], ...] = ()
    space = 0
    bits: int | None = None
    for letter, groups in _LAYOUT_TILE.findall(rest):
        first = groups[1 : groups.index(")")]
        if letter == "T":
            tiles = tuple(
                tuple(int(d) if _is_small(d.strip()) else -1 for d in g.split(","))
                for g in groups[1:-1].split(")(")
            )
        elif letter == "S" and _is_small(first):
            space = int(first)
        elif letter == "E" and _is_small(first):
            bits = int(first)
    return Layout(text, minor, tiles, space, bits)


def _is_small(text: str) -> bool:
    """Whether it is a number that a layout can have."""
    return text.isdecimal() and len(text) < 10


def without_comments(text: str) -> str:
    """The text without ``/*index=5*/`` and ``// …``; one that never ends is kept."""
    if "//" in text:
        text = _LINE_COMMENT.sub("", text)
    if "/*" not in text:
        return text
    parts, at = [], 0
    while (begin := text.find("/*", at)) >= 0 and (end := text.find("*/", begin + 2)) >= 0:
        parts.append(text[at:begin])
        at = end + 2
    parts.append(text[at:])
    return "".join(parts)


_LINE_COMMENT = regex(r"//[^\n]*")


def parse_shape(text: str) -> Shape:
    """Parses a shape as XLA prints it; raises ``ValueError`` with the bad text."""
    return _parse_shape(text, 0)


MAX_TUPLE_DEPTH = 100


@lru_cache(maxsize=65536)
def _parse_shape(text: str, depth: int) -> Shape:
    clean = without_comments(text).strip()
    if clean.startswith("("):
        if depth > MAX_TUPLE_DEPTH:
            raise ValueError(f"tuple shape nested deeper than {MAX_TUPLE_DEPTH}")
        if not clean.endswith(")"):
            raise ValueError(f"tuple shape is not closed: {text[:80]!r}")
        parts = tuple(_parse_shape(p, depth + 1) for p in split_top(clean[1:-1]) if p)
        return Shape("(" + ", ".join(p.text for p in parts) + ")", "tuple", tuple_shapes=parts)
    if clean.startswith("b(") and clean.endswith(")") and depth <= MAX_TUPLE_DEPTH:
        inner = _parse_shape(clean[2:-1], depth + 1)
        return Shape(f"b({inner.text})", "buffer", tuple_shapes=(inner,))
    if _BLANK.search(clean):
        clean = _BLANK.sub("", clean)
    m = _ARRAY.match(clean)
    if m is None:
        raise ValueError(f"not a shape: {text[:80]!r}")
    kind, dims, layout = m.groups()
    sizes: list[int] = []
    dynamic: list[bool] = []
    for d in (dims or "").split(","):
        d = d.strip()
        if not d:
            continue
        dynamic.append(d.startswith("<=") or d == "?")
        number = d.removeprefix("<=")
        if number == "?":
            sizes.append(0)
        elif number.isdecimal() and len(number) < 20:
            sizes.append(int(number))
        else:
            raise ValueError(f"not a dimension: {d[:40]!r} in {text[:80]!r}")
    found = Shape(
        clean, kind, tuple(sizes), tuple(dynamic), _parse_layout(layout) if layout else None
    )
    if found.byte_size > MOST_BYTES:
        raise ValueError(f"an array larger than any machine: {text[:80]!r}")
    return found
