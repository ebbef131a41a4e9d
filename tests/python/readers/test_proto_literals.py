"""Literals of protos: every value of every small type, every number of dimensions, every limit."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
from google.protobuf import text_format
from hloscope.readers.proto.literals import float_text, literal_text
from hloscope.readers.proto.schema import message_class
from hloscope.readers.proto.shapes import ELEMENT_TYPES, TUPLE

NUMBERS = {name: number for number, name in ELEMENT_TYPES.items()}


def literal(
    kind: str | int, dims: list[int], layout: list[int] | None = None, **values: Any
) -> str:
    message = message_class("Literal")()
    message.shape.element_type = NUMBERS[kind] if isinstance(kind, str) else kind
    message.shape.dimensions.extend(dims)
    message.shape.layout.minor_to_major.extend(
        [*reversed(range(len(dims)))] if layout is None else layout
    )
    for name, value in values.items():
        if isinstance(value, bytes):
            setattr(message, name, value)
        else:
            getattr(message, name).extend(value)
    return literal_text(message)


def test_every_value_of_the_small_floats_is_numpys() -> None:
    """Printed with digits enough that reading the text gives the same bits again."""
    kinds = {
        "f8e5m2": "float8_e5m2", "f8e4m3": "float8_e4m3", "f8e3m4": "float8_e3m4",
        "f8e4m3fn": "float8_e4m3fn", "f8e5m2fnuz": "float8_e5m2fnuz",
        "f8e4m3fnuz": "float8_e4m3fnuz", "f8e4m3b11fnuz": "float8_e4m3b11fnuz",
        "f8e8m0fnu": "float8_e8m0fnu", "f4e2m1fn": "float4_e2m1fn",
        "bf16": "bfloat16", "f16": "float16",
    }  # fmt: skip
    for kind, name in kinds.items():
        dtype = np.dtype(getattr(ml_dtypes, name, name))
        wide = dtype.itemsize == 2
        most = 16 if kind == "f4e2m1fn" else 1 << 16 if wide else 256
        codes = np.arange(0, most, 97 if wide else 1).astype(np.uint16 if wide else np.uint8)
        codes = np.append(codes, codes[-1:] * 0 + (most - 1))
        theirs = codes.view(dtype)
        for at in range(0, len(codes), 10):
            part = codes[at : at + 10]
            shown = literal(kind, [len(part)], **{kind + "s": part.tobytes()})
            texts = shown[1:-1].split(", ")
            with np.errstate(all="ignore"):
                again = np.array([float(t) for t in texts]).astype(dtype)
            for code, want, text, back in zip(part, theirs[at:], texts, again, strict=False):
                if math.isnan(want):
                    assert text.lstrip("-") == "nan", (kind, code)
                    if kind in ("f16", "bf16", "f8e5m2", "f8e4m3", "f8e3m4", "f8e4m3fn"):
                        assert (text == "-nan") == bool(code >> (15 if wide else 7)), (kind, code)
                elif kind == "f8e8m0fnu":  # numpy rounds the smallest of them up
                    assert math.isclose(float(text), float(want), rel_tol=0.05), code
                else:
                    assert back == want, (kind, code)
                    assert text.startswith("-") == (math.copysign(1, want) < 0), (kind, code)
    negative = {k: literal(k, [], **{k + "s": b"\x80"}) for k in ("f8e5m2fnuz", "f8e4m3fnuz")}
    assert set(negative.values()) == {"-nan"}  # their only one


def test_digits_are_those_that_tell_the_values_of_a_type_apart() -> None:
    third = 1 / 3
    assert {k: float_text(third, k) for k in ("f16", "bf16", "f8e5m2", "f8e4m3", "f8e3m4")} == {
        "f16": "0.33333", "bf16": "0.3333", "f8e5m2": "0.33", "f8e4m3": "0.333", "f8e3m4": "0.333",
    }  # fmt: skip
    assert [float_text(third, k) for k in ("f4e2m1fn", "f8e8m0fnu")] == ["0.33", "0.33"]
    assert float_text(third, "f64") == "0.33333333333333331"
    assert float_text(0.1, "f64") == "0.1"
    assert float_text(0.1 + 0.2, "f64") == "0.30000000000000004"
    assert float_text(float(np.float32(third)), "f32") == "0.333333343"
    assert float_text(float(np.finfo(np.float32).max), "f32") == "3.40282347e+38"
    assert float_text(float(np.float32(0.3)), "f32") == "0.3"
    assert [float_text(x, "f16") for x in (math.inf, -math.inf, math.nan, -math.nan)] == [
        "inf", "-inf", "nan", "-nan",
    ]  # fmt: skip


def test_small_integers_are_packed_or_not() -> None:
    table = [
        ("s4", [3], b"\x0f\x07\x08", "{-1, 7, -8}"),
        ("s4", [4], b"\x7f\x81", "{-1, 7, 1, -8}"),
        ("u4", [4], b"\x7f\x81", "{15, 7, 1, 8}"),
        ("u4", [3], b"\x7f\x81", "{15, 7, 1}"),
        ("u4", [2], b"\x7f\x81", "{15, 1}"),  # one to a byte
        ("u4", [1], b"\x7f\x81", "{15}"),
        ("u4", [4], b"\x7f", "{...}"),  # there are two
        ("s2", [4], b"\xe4", "{0, 1, -2, -1}"),
        ("u2", [4], b"\xe4", "{0, 1, 2, 3}"),
        ("s1", [8], b"\x05", "{-1, 0, -1, 0, 0, 0, 0, 0}"),
        ("u1", [8], b"\x85", "{1, 0, 1, 0, 0, 0, 0, 1}"),
        ("u1", [10], b"\x85\x02", "{1, 0, 1, 0, 0, 0, 0, 1, 0, 1}"),
        ("s8", [3], b"\x00\x7f\x80", "{0, 127, -128}"),
        ("u8", [3], b"\x00\x7f\x80", "{0, 127, 128}"),
        ("s16", [2], b"\x01\x00\xff\xff", "{1, -1}"),
        ("u16", [2], b"\x01\x02\xff\xff", "{513, 65535}"),
        ("u16", [1], b"\x01\x02\xff", "{513}"),  # a byte too many
        ("u16", [2], b"\x01\x02\xff", "{...}"),
        ("f16", [1], b"\x00\x3c\xff", "{1}"),
        ("f4e2m1fn", [8], b"\x10\x32\x54\x76", "{0, 0.5, 1, 1.5, 2, 3, 4, 6}"),
        ("f4e2m1fn", [2], b"\x09\x0f", "{-0.5, -6}"),
        ("f8e8m0fnu", [4], b"\x7f\x80\x00\xff", "{1, 2, 5.9e-39, nan}"),
    ]
    for kind, dims, data, text in table:
        assert literal(kind, dims, **{kind + "s": data}) == text, (kind, dims, data)


def test_numbers_and_braces_by_how_many_dimensions() -> None:
    one = {"s32s": [7]}
    ten = list(range(10))
    table = [
        (literal("s32", [], **one), "7"),
        (literal("s32", [1], **one), "{7}"),
        (literal("s32", [1, 1], **one), "{ {7} }"),
        (literal("s32", [0]), "{}"),
        (literal("s32", [2, 0]), "{ {}, {} }"),
        (literal("s32", [10], s32s=ten), "{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}"),
        (literal("s32", [11], s32s=[*ten, 10]), "{...}"),
        (literal("s32", [2], s32s=ten), "{0, 1}"),  # more than the shape says
        (literal("s32", [2, 2], s32s=[1, 2, 3]), "{...}"),  # fewer
        (literal("s32", [2, 2], s32s=[1, 2, 3, 4]), "{ { 1, 2 }, { 3, 4 } }"),
        (literal("s32", [2, 2], [0, 1], s32s=[1, 2, 3, 4]), "{ { 1, 3 }, { 2, 4 } }"),
        (literal("s32", [2, 2], [0, 0], s32s=[1, 2, 3, 4]), "{ { 1, 2 }, { 3, 4 } }"),
        (literal("s32", [2, 2], [], s32s=[1, 2, 3, 4]), "{ { 1, 2 }, { 3, 4 } }"),
        (literal("s32", [2, 1, 2], s32s=[1, 2, 3, 4]), "{ { { 1, 2 } }, { { 3, 4 } } }"),
        (
            literal("s32", [2, 1, 2, 1], s32s=[1, 2, 3, 4]),
            "{ { /*i0=0*/ { /*i1=0*/ {1}, {2} } }, { /*i0=1*/ { /*i1=0*/ {3}, {4} } } }",
        ),
        (literal("s32", [-1], **one), "{...}"),
        (literal("s32", [2, -1], **one), "{...}"),
        (literal("s32", [100, 0]), "{ " + ", ".join(["{}"] * 100) + " }"),
        (literal("s32", [101, 0]), "{...}"),
        (literal("s32", [1] * 65, **one), "{...}"),
        (literal(TUPLE, []), "{...}"),
        (literal("token", []), "{...}"),
        (literal("opaque", []), "{...}"),
        (literal(99, []), "{...}"),
        (literal("pred", [], preds=[True]), "true"),
        (literal("pred", [], preds=[False]), "false"),
        (literal("pred", [2], preds=[True, False]), "{1, 0}"),
        (literal("c64", [], c64s=[1, -2.5]), "(1, -2.5)"),
        (literal("c64", [2], c64s=[1, 2, 3, 4, 5]), "{(1, 2), (3, 4)}"),
        (literal("c64", [], c64s=[np.float32(1 / 3), 0]), "(0.333333343, 0)"),
        (literal("c128", [], c128s=[1 / 3, 0.1]), "(0.33333333333333331, 0.1)"),
        (literal("s64", [], s64s=[-(1 << 63)]), "-9223372036854775808"),
        (literal("u64", [], u64s=[(1 << 64) - 1]), "18446744073709551615"),
        (literal("f64", [2], f64s=[0.5, -0.0]), "{0.5, -0}"),
    ]
    for found, want in table:
        assert found == want
    assert literal("s32", [1] * 64, **one).count("{") == 64


def test_elements_stand_in_the_order_of_the_indices_whatever_the_layout() -> None:
    random = np.random.default_rng(5)
    for _ in range(60):
        dims = random.permutation([1, 2, 5, 1, 1])[: random.integers(1, 6)].tolist()
        layout = random.permutation(len(dims)).tolist()
        array = random.integers(-9, 99, dims)
        stored = array.transpose(layout[::-1]).ravel()  # the most minor of them last
        text = literal("s32", dims, layout, s32s=stored.tolist())
        for index in range(8):
            for level in range(4):
                text = text.replace(f"/*i{level}={index}*/", "")
        found = [int(x) for x in text.replace("{", " ").replace("}", " ").replace(",", " ").split()]
        assert found == array.ravel().tolist(), (dims, layout)


def test_a_text_without_a_shape_is_a_scalar_of_no_type() -> None:
    assert literal_text(text_format.Parse("", message_class("Literal")())) == "{...}"
