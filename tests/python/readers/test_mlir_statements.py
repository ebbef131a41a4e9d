"""MLIR texts and the operations in them, wherever lines break: for ``readers/mlir_lines.py``.

Rows are a text and its statements; ``…`` after one says that it was left open.
"""

from __future__ import annotations

import pytest
from hloscope.readers.stablehlo.statements import statements

ADD = "%9 = stablehlo.add %a, %b : tensor<f32>"
# Each is read alone, after another operation, and before one.
ALONE = [
    (ADD, [ADD]),
    ('"x.y"(%a) : f32', ['"x.y"(%a) : f32']),
    ("%0 = x.y %a -> f32", ["%0 = x.y %a -> f32"]),
    ("%0 = x.y <{a = 1}> : () -> f32", ["%0 = x.y <{a = 1}> : () -> f32"]),
    # brackets and dictionaries over lines
    ("%0 = x.y %a,\n %b\n : f32", ["%0 = x.y %a, %b : f32"]),
    ("%0 = x.y dense<[[1,\n 2]]> : f32", ["%0 = x.y dense<[[1, 2]]> : f32"]),
    ("%0 = x.y( %a\n) : f32", ["%0 = x.y(%a) : f32"]),
    ('%0 = "x.y"(%a) {\n k = 1\n} : (f32)\n  -> f32', ['%0 = "x.y"(%a) { k = 1 } : (f32) -> f32']),
    ('%0 = "x.y"(%a) <{k = 1,\n m = "}"}> : f32', ['%0 = "x.y"(%a) <{k = 1, m = "}"}> : f32']),
    ('%0 = "x.y"(%a) <{\n k = 1}> : f32', ['%0 = "x.y"(%a) <{ k = 1}> : f32']),
    ("%0 = x.y %a {\n a\n} : f32", ["%0 = x.y %a { a } : f32"]),
    ("%0 = x.y %a\n{k = 1}", ["%0 = x.y %a {k = 1}"]),
    ("%0 = x.y %a {\n return = 1\n}", ["%0 = x.y %a {", "return = 1", "}"]),
    # what continues an operation
    ("%0 = x.y %a\n// c\n: f32", ["%0 = x.y %a : f32"]),
    ("%0 = x.y %a\n\n: f32", ["%0 = x.y %a : f32"]),
    ("%0 = x.y %a // {\n : f32 // c", ["%0 = x.y %a : f32"]),
    ("%0 = x.y(%a)\n k = 1", ["%0 = x.y(%a) k = 1"]),
    ("%0 = x.y(%a)\n applies x.z\n across dimensions = [0] : f32",
     ["%0 = x.y(%a) applies x.z across dimensions = [0] : f32"]),
    ("return %a :\n f32", ["return %a : f32"]),
    ("^bb0(%a: f32,\n %b: f32):", ["^bb0(%a: f32, %b: f32):"]),
    ("^bb0:", ["^bb0:"]),
    # regions
    ("module {}", ["module {}"]),
    ("module @m {\n}", ["module @m {", "}"]),
    ("module @m attributes {\n a = 1\n} {\n}", ["module @m attributes { a = 1 } {", "}"]),
    ("func.func @f() {\n}", ["func.func @f() {", "}"]),
    ("func.func @f(%a: f32\n) -> f32 {\n return\n}",
     ["func.func @f(%a: f32) -> f32 {", "return", "}"]),
    ("func.func @f() attributes {\n a = 1\n} {\n return\n}",
     ["func.func @f() attributes { a = 1 } {", "return", "}"]),
    ('"x.y"(%a) ({\n^bb0(%b: f32):\n  "x.return"(%b) : f32\n}) : f32',
     ['"x.y"(%a) ({', "^bb0(%b: f32):", '"x.return"(%b) : f32', "}) : f32"]),
    ("%0 = x.while(%a = %b) : f32\n cond {\n return %a\n} do {\n return %a\n}",
     ["%0 = x.while(%a = %b) : f32", "cond {", "return %a", "} do {", "return %a", "}"]),
    ("%0 = x.y : f32\n reducer(%a: f32)\n {\n return %a : f32\n }",
     ["%0 = x.y : f32", "reducer(%a: f32) {", "return %a : f32", "}"]),
    ("%0 = x.y %a\n{\n return %a\n}", ["%0 = x.y %a", "{", "return %a", "}"]),
    ("%0 = x.y { return %a : f32 } : f32", ["%0 = x.y {", "return %a : f32", "} : f32"]),
    ("}\n}", ["}", "}"]),
    # several operations on one line
    (f"{ADD} %1 = x.y : f32 return %1 : f32", [ADD, "%1 = x.y : f32", "return %1 : f32"]),
    (f"{ADD} }}", [ADD, "}"]),
    # damaged: each ends where the next one begins
    ("%0 = x.y(%a\n%1 = x.z %a : f32", ["%0 = x.y(%a…", "%1 = x.z %a : f32"]),
    ('%0 = x.y {b = "q\n%1 = x.z %a : f32', ['%0 = x.y {b = "q…', "%1 = x.z %a : f32"]),
    ("%0 = x.y {b = 1\n%1 = x.z %a : f32", ["%0 = x.y {b = 1…", "%1 = x.z %a : f32"]),
    ('%0 = x.y "q : f32', ['%0 = x.y "q : f32…']),
    ("return %a,\n%1 = x.z %a : f32", ["return %a,…", "%1 = x.z %a : f32"]),
    ("%0 = x.y ([%a) : f32", ["%0 = x.y ([%a) : f32"]),
    ("%0 = x.y #s<a> ] : f32", ["%0 = x.y #s<a>] : f32"]),
    # nothing
    ("// c", []),
    ("  ", []),
]  # fmt: skip
AT_THE_END = [
    ("return %a,", ["return %a,…"]),
    ("return %a,\n", ["return %a,…"]),
    ("%0 = x.y(%a", ["%0 = x.y(%a…"]),
    ("%0 = x.y(%a,\n", ["%0 = x.y(%a,…"]),
    ("%0 = x.y {", ["%0 = x.y {"]),
    ("%0 = x.y %a\n// c", ["%0 = x.y %a"]),
    ("%0 = x.y %a\n  ", ["%0 = x.y %a"]),
    ("%0 = x.y {\n", ["%0 = x.y {"]),
]


def told(text: str) -> list[str]:
    found = list(statements(text))
    ends = 0
    for s in found:
        assert ends <= s.begin < s.end <= len(text)
        assert text[s.begin] == s.text[0], "begins with its first character"
        assert not text[ends : s.begin].strip() or "//" in text[ends : s.begin]
        ends = s.end
    assert not text[ends:].strip() or "//" in text[ends:]
    return [s.text + "…" * s.open for s in found]


@pytest.mark.parametrize(("text", "want"), ALONE + AT_THE_END)
def test_operations(text: str, want: list[str]) -> None:
    assert told(text) == want
    assert told(f"  {text}\n") == want
    assert told(f"// c\n%8 = x.y : f32\n{text}") == ["%8 = x.y : f32", *want]


@pytest.mark.parametrize(("text", "want"), ALONE)
def test_operations_before_another(text: str, want: list[str]) -> None:
    assert told(f"{text}\n{ADD}\n") == [*want, ADD]


def test_where_an_operation_on_one_line_is() -> None:
    text = f"  {ADD}  \n\n {ADD} // c\n"
    first, second = statements(text)
    assert text[first.begin : first.end] == ADD
    assert text[second.begin :].startswith(ADD)
    assert not text[second.begin + len(ADD) : second.end].replace("// c", "").strip()
