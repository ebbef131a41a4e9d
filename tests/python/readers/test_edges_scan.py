"""Small facts at the edges of scanning: each would be wrong after a change of one character.

As ``test_edges_reading.py``, for ``readers/scan.py``: every row is one call.
"""

from __future__ import annotations

import pytest
from hloscope.readers import scan

# text, where what begins at its first character ends
CLOSINGS = {
    "(a)": 2,
    "((a)[b]{c})d": 10,
    '(")")': 4,
    r'("\")")': 6,
    "(/*)*/)": 6,
    "(/**/)": 5,
    "(//)\n)": 5,
    "(": -1,
    "(a": -1,
    "([)]": -1,
    ")": -1,
    '("': -1,
    "(/*)": -1,
    "(//)": -1,
}
SHAPES = {
    "f32[8]{0} x": 9,
    "f32[] x": 5,
    "token x": 5,
    "(f32[2], s32[]) x": 15,
    "(f32[2]){1} x": 11,
    "b(f32[8]) x": 9,
    "add(x)": 0,
    "f32[2](x)": 0,
    "(f32[2": 6,
    "(f32[2]){1": 10,
    "(f32[2]) {1}": 8,
}
# key, text, where the attribute's value ends
VALUES = [
    ("a", "1, b", 1),
    ("a", "{1}, b", 3),
    ("a", "{1}", 3),
    ("a", "{1} ", 3),
    ("a", '"x, y", b', 6),
    ("a", "'x{, ', b", 6),
    ("a", "a(b)c[d], e", 8),
    ("a", "{1} {2}", 3),
    ("literal", "{1} {2}", 7),
    ("literal", "f32[2] {1}, a", 10),
    ("literal", "f32 {1}", 3),
    ("literal", "{1} , a", 3),
    ("device_ids", "[2] {'x'}, a", 9),
    ("device_ids", "[2] 'x'", 3),
    ("axes", "mesh['x'=2] {'x'}, a", 17),
    ("axes", "mash['x'=2] {'x'}, a", 11),
    ("devices", "[4,2] <= [8], a", 12),
    ("devices", "[4,2] <=[8], a", 11),
    ("devices", "[4,2]<= [8], a", 11),
    ("devices", "[4,2]<= 8", 7),
    ("devices", "[4,2] < [8]", 5),
    ("devices", "[4,2] [8]", 5),
    ("a", "", 0),
    ("a", ", b", 0),
    ("a", "{1", -1),
    ("a", "1{2", -1),
    ("a", '"x', -1),
    ("a", "'x", -1),
    ("a", "1'x", -1),
]
# text, the attributes in it, where they end, where something is that is none
ATTRIBUTES = [
    ("", "", 0, -1),
    (" x", "", 0, -1),
    (", a=1, b={2}", "a=1, b={2}", 12, -1),
    (" , a=1 ,\n b=2 c", "a=1, b=2", 13, -1),
    (", a= 1", "a=1", 6, -1),
    (", a={/*1*/2}", "a={/*1*/2}", 12, -1),
    (", a={/*}*/2}", "a={2}", 12, -1),
    (", a=1,", "a=1", 6, 5),
    (", a=1, \n", "a=1", 6, 5),
    (", a=1, ?x\nb", "a=1, ?x", 9, 7),
    (", a=1, ?x ", "a=1, ?x", 10, 7),
    (", a=1, b=", "a=1, b=", 9, 7),
    (", a=1, b={2\n}{", "a=1, b={2", 11, 7),
]


@pytest.mark.parametrize(("text", "end"), CLOSINGS.items())
def test_which_bracket_closes(text: str, end: int) -> None:
    assert scan.closing(text, 0, len(text)) == end
    assert scan.closing("([" + text, 2, len(text) + 2) == (end + 2 if end >= 0 else -1)
    if end > 0:
        assert scan.closing(text, 0, end) == -1, "past its limit"


@pytest.mark.parametrize(("text", "end"), SHAPES.items())
def test_where_a_shape_ends(text: str, end: int) -> None:
    assert scan.shape_end(text, 0, len(text)) == end
    assert scan.shape_end("= " + text, 2, len(text) + 2) == end + 2


@pytest.mark.parametrize(("key", "text", "end"), VALUES)
def test_where_a_value_ends(key: str, text: str, end: int) -> None:
    assert scan.value_end(text, 0, len(text), key) == end
    shifted = scan.value_end("a=" + text, 2, len(text) + 2, key)
    assert shifted == (end + 2 if end >= 0 else -1)


@pytest.mark.parametrize(("text", "found", "end", "strange"), ATTRIBUTES)
def test_where_attributes_end(text: str, found: str, end: int, strange: int) -> None:
    assert scan.attributes(text, 0, len(text)) == scan.Attributes(found, end, strange)


def test_where_a_quote_ends() -> None:
    assert scan.quote_end('a"b', 0, 3) == 2
    assert scan.quote_end('a\\"b"', 0, 5) == 5
    assert scan.quote_end('a"', 0, 1) == -1
    assert scan.skip_inline("  /* x */ y", 0) == 10
    assert scan.skip_inline(" \n y", 0) == 1
