"""MLIR's spelling of types → HLO's: ``tensor<8x4xbf16>`` → ``bf16[8,4]``."""

from __future__ import annotations

import re
from functools import lru_cache

from ...hlo.shape import ELEMENT_BITS, Shape, parse_shape
from ...hlo.texts.regex import regex

_TENSOR = regex(r"tensor<(.*)>\Z", re.S)
_DIMENSION = regex(r"(\d{1,18}|\?)x")
_INTEGER = regex(r"(s|u|)i(\d{1,3})\Z")
_TOKEN = regex(r'->|"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[<>(){}\[\]]|,')
_UNKNOWN = Shape("opaque[]", "opaque")
_OTHER_TYPES = ("!", "none", "memref<", "vector<", "(", "tuple<")
MAX_DEPTH = 50


def split_types(text: str) -> list[str]:
    """Splits at commas outside ``<> () [] {}`` and quotes; ``->`` closes nothing."""
    parts, depth, begin = [], 0, 0
    for m in _TOKEN.finditer(text):
        c = m.group()
        if c == "," and depth <= 0:
            parts.append(text[begin : m.start()].strip())
            begin = m.end()
        elif c in "<({[":
            depth += 1
        elif c in ">)}]":
            depth -= 1
    tail = text[begin:].strip()
    return [*parts, tail] if tail or parts else []


@lru_cache(maxsize=4096)
def shape_of(text: str, depth: int = 0) -> Shape:
    """The HLO shape of an MLIR type; ``opaque[]`` for a type that has none."""
    text = text.strip()
    if text == "none" or depth > MAX_DEPTH:
        return _UNKNOWN
    if text in ("!stablehlo.token", "!mhlo.token"):
        return Shape("token[]", "token")
    if text.startswith("tuple<") and text.endswith(">"):
        return tuple_of([shape_of(t, depth + 1) for t in split_types(text[6:-1])])
    m = _TENSOR.match(text)
    if m is None:
        element = _element(text)
        return _parse(f"{element}[]") if element else _UNKNOWN
    inner = split_types(m.group(1))
    if not inner:
        return _UNKNOWN
    dims: list[str] = []
    at = 0
    while (d := _DIMENSION.match(inner[0], at)) is not None:
        dims.append(d.group(1))
        at = d.end()
    element = _element(inner[0][at:])
    bounds = re.search(r"bounds<([^<>]*)>", m.group(1))
    if bounds:
        limits = [b.strip() for b in bounds.group(1).split(",")]
        dims = [
            f"<={b}" if d == "?" and b.isdecimal() else d
            for d, b in zip(dims, [*limits, *["?"] * len(dims)], strict=False)
        ]
    return _parse(f"{element}[{','.join(dims)}]") if element else _UNKNOWN


def is_type(text: str) -> bool:
    """Whether it is a type: one that HLO has a shape for, or another dialect's."""
    text = text.strip()
    if shape_of(text) is not _UNKNOWN or text.startswith(_OTHER_TYPES):
        return True
    m = _TENSOR.match(text)
    if m is None:
        return False
    inner = split_types(m.group(1))
    at = 0
    while inner and (d := _DIMENSION.match(inner[0], at)) is not None:
        at = d.end()
    return bool(inner) and (inner[0][at:].startswith(_OTHER_TYPES) or inner[0].startswith("*x"))


def tuple_of(shapes: list[Shape]) -> Shape:
    return Shape("(" + ", ".join(s.text for s in shapes) + ")", "tuple", tuple_shapes=tuple(shapes))


def _parse(text: str) -> Shape:
    try:
        return parse_shape(text)
    except ValueError:
        return _UNKNOWN


def _element(text: str) -> str:
    """``f32``, ``bf16``, ``s32``, ``pred``, ``c64``, …; '' for a type that HLO lacks."""
    text = text.strip()
    if text.startswith("!quant.uniform<"):
        text = text[15:].split(":")[0].split("<")[0]
    m = _INTEGER.match(text)
    if m:
        sign, bits = m.groups()
        name = "pred" if bits == "1" and not sign else f"{'u' if sign == 'u' else 's'}{bits}"
        return name if name in ELEMENT_BITS else ""
    if text == "index":
        return "s64"
    if text.startswith("complex<"):
        return {"complex<f32>": "c64", "complex<f64>": "c128"}.get(text, "")
    lower = text.lower()
    return lower if lower in ELEMENT_BITS else ""
