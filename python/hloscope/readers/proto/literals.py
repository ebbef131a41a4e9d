"""LiteralProto → the text XLA prints in ``constant(…)``.

XLA elides constants of more than ten elements and all tuples as ``{...}``
(``HloConstantInstruction``; floats as in ``RoundTripFpToString``, ``xla/util.cc``).
"""

from __future__ import annotations

import itertools
import math
import operator
import struct
from collections.abc import Callable
from typing import Any

from .shapes import ELEMENT_TYPES

ELIDED = "{...}"
MAX_PRINTED_ELEMENTS = 10

# element type → (exponent bits, mantissa bits, bias, kind of specials)
_SMALL_FLOATS = {
    "f16": (5, 10, 15, "ieee"),
    "bf16": (8, 7, 127, "ieee"),
    "f8e5m2": (5, 2, 15, "ieee"),
    "f8e4m3": (4, 3, 7, "ieee"),
    "f8e3m4": (3, 4, 3, "ieee"),
    "f8e4m3fn": (4, 3, 7, "fn"),
    "f8e5m2fnuz": (5, 2, 16, "fnuz"),
    "f8e4m3fnuz": (4, 3, 8, "fnuz"),
    "f8e4m3b11fnuz": (4, 3, 11, "fnuz"),
    "f4e2m1fn": (2, 1, 1, "finite"),
}
_MANTISSA = {"f32": 23, "f64": 52, "f8e8m0fnu": 0} | {k: v[1] for k, v in _SMALL_FLOATS.items()}
_PACKED_BITS = {"s1": 1, "u1": 1, "s2": 2, "u2": 2, "s4": 4, "u4": 4}
_STRUCT = {"s8": "b", "u8": "B", "s16": "h", "u16": "H"}


def literal_text(literal: Any) -> str:
    """The text between ``constant(`` and ``)``; ``{...}`` where XLA would elide it."""
    shape = literal.shape
    kind = ELEMENT_TYPES.get(shape.element_type, "")
    dims = list(shape.dimensions)
    count = math.prod(dims)
    if count > MAX_PRINTED_ELEMENTS or count < 0 or not kind:  # of a tuple there is none
        return ELIDED
    try:
        values = _values(literal, kind, count)
    except (ValueError, struct.error, IndexError):
        return ELIDED
    if len(values) < count:
        return ELIDED
    show = _formatter(kind, scalar=not dims)
    texts = _in_order([show(v) for v in values[:count]], dims, list(shape.layout.minor_to_major))
    if not dims:
        return texts[0]
    if len(dims) == 1:
        return "{" + ", ".join(texts) + "}"
    if len(dims) > 64:
        return ELIDED
    return _nested(texts, dims)


def _in_order(texts: list[str], dims: list[int], minor_to_major: list[int]) -> list[str]:
    """The texts row by row; a literal holds its elements in memory order, by its layout."""
    if sorted(minor_to_major) != list(range(len(dims))):
        return texts
    strides, step = [0] * len(dims), 1
    for d in minor_to_major:
        strides[d] = step
        step *= dims[d]
    indices = itertools.product(*map(range, dims))
    return [texts[sum(map(operator.mul, at, strides))] for at in indices]


def _nested(texts: list[str], dims: list[int], at: tuple[int, ...] = (), rank: int = 0) -> str:
    """Braces as XLA prints them: with more than three dimensions it numbers rows."""
    rank = rank or len(dims)
    if len(dims) == 1:
        if dims[0] <= 1:
            return "{" + "".join(texts) + "}"
        return "{ " + ", ".join(texts) + " }"
    size, step = dims[0], math.prod(dims[1:])
    if size > MAX_PRINTED_ELEMENTS * 10:
        return ELIDED
    inner = [texts[k * step : (k + 1) * step] for k in range(size)]
    rows = [_nested(x, dims[1:], (*at, k), rank) for k, x in enumerate(inner)]
    number = f"/*i{len(at) - 1}={at[-1]}*/ " if rank > 3 and at else ""
    return "{ " + number + ", ".join(rows) + " }"


def _values(literal: Any, kind: str, count: int) -> list[Any]:
    if kind == "pred":
        return list(literal.preds)
    if kind in ("c64", "c128"):
        flat = list(getattr(literal, kind + "s"))
        return [complex(re, im) for re, im in zip(flat[::2], flat[1::2], strict=False)]
    data = getattr(literal, kind + "s", None)
    if data is None:
        raise ValueError(kind)
    if not isinstance(data, bytes):
        return list(data)
    if kind in _PACKED_BITS:
        return _unpack(data, _PACKED_BITS[kind], kind[0] == "s", count)
    if kind in _STRUCT:
        code = _STRUCT[kind]
        size = struct.calcsize(code)
        return list(struct.unpack(f"<{len(data) // size}{code}", data[: len(data) // size * size]))
    if kind == "f8e8m0fnu":
        return [math.nan if b == 255 else 2.0 ** (b - 127) for b in data]
    if kind == "f4e2m1fn":
        codes = _unpack(data, 4, False, count)
    elif kind in ("f16", "bf16"):
        codes = list(struct.unpack(f"<{len(data) // 2}H", data[: len(data) // 2 * 2]))
    else:
        codes = list(data)
    return [_small_float(c, kind) for c in codes]


def _unpack(data: bytes, bits: int, signed: bool, count: int) -> list[int]:
    """Small integers: one per byte in its low bits, or packed where there are fewer bytes."""
    per_byte, mask = (1 if len(data) >= count else 8 // bits), (1 << bits) - 1
    out = []
    for i in range(min(count, len(data) * per_byte)):
        v = data[i // per_byte] >> (bits * (i % per_byte)) & mask
        out.append(v - (1 << bits) if signed and v >> (bits - 1) else v)
    return out


def _small_float(code: int, kind: str) -> float:
    exponent_bits, mantissa_bits, bias, specials = _SMALL_FLOATS[kind]
    sign = -1.0 if code >> (exponent_bits + mantissa_bits) & 1 else 1.0
    exponent = code >> mantissa_bits & ((1 << exponent_bits) - 1)
    mantissa = code & ((1 << mantissa_bits) - 1)
    top = (1 << exponent_bits) - 1
    if specials == "ieee" and exponent == top:
        return sign * math.inf if mantissa == 0 else math.copysign(math.nan, sign)
    if specials == "fn" and exponent == top and mantissa == (1 << mantissa_bits) - 1:
        return math.copysign(math.nan, sign)
    if specials == "fnuz" and sign < 0 and exponent == 0 and mantissa == 0:
        return -math.nan
    if exponent == 0:
        return float(sign * mantissa * 2.0 ** (1 - bias - mantissa_bits))
    return float(sign * (1 + mantissa / (1 << mantissa_bits)) * 2.0 ** (exponent - bias))


def _formatter(kind: str, scalar: bool) -> Callable[[Any], str]:
    if kind == "pred":
        if scalar:
            return lambda v: "true" if v else "false"
        return lambda v: "1" if v else "0"
    if kind in ("c64", "c128"):
        part = "f32" if kind == "c64" else "f64"
        return lambda v: f"({float_text(v.real, part)}, {float_text(v.imag, part)})"
    if kind in _MANTISSA:
        return lambda v: float_text(v, kind)
    return str


def float_text(value: float, kind: str) -> str:
    """f32 and f64 with 6 or 15 digits where those round-trip, else with 9 or 17.

    Smaller types always have enough digits to distinguish any two of their values.
    """
    if math.isnan(value):
        return "-nan" if math.copysign(1, value) == -1 else "nan"
    if math.isinf(value):
        return str(value)
    if kind == "f32":
        text = f"{value:.6g}"
        return text if _as_float32(text) == value else f"{value:.9g}"
    if kind == "f64":
        text = f"{value:.15g}"
        return text if float(text) == value else f"{value:.17g}"
    digits = math.ceil((_MANTISSA[kind] + 1) * math.log10(2) + 1)
    return f"{value:.{digits}g}"


def _as_float32(text: str) -> float:
    return float(struct.unpack("<f", struct.pack("<f", float(text)))[0])
