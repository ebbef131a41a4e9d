"""Lines of each stage, and where an instruction is in them: ``linked_texts.py``; which equation
an operation was made for: ``linked_equations.py``."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hloscope.analysis.provenance.linked import texts as linked_texts
from hloscope.analysis.provenance.linked.equations import (
    _key,
    _match,
    _pairs,
    _parts,
    _row,
    match_equations,
)
from hloscope.analysis.provenance.linked.texts import jaxpr_text, mlir_text, python_text
from hloscope.hlo import Module, Operation, StackFrame
from hloscope.readers.hlo.text import read_hlo_text

MLIR = """module {
#loc1 = loc("f.py":3:4)
  %a = op loc(#loc1)
  %b = op {x = "loc"} loc("f.py":3:4 to :9)
}
#loc2 = loc(unknown)

"""


def mlir(text: str, *at: int | None) -> Any:
    rows = enumerate(at, 10)
    spans = [SimpleNamespace(index=k, text_span=None if a is None else (a, a + 1)) for k, a in rows]
    return SimpleNamespace(text=text, instructions=spans)


def test_mlir_without_locations() -> None:
    at = [MLIR.index(x) for x in ("module", "#loc1", "%a", "%b", "\n}")]
    found = mlir_text(mlir(MLIR, *at, at[4] + 1, None, len(MLIR) - 1, MLIR.index("  %a")))
    assert found.lines == ("module {", "  %a = op", '  %b = op {x = "loc"}', "}")
    # the new line before "}" is the end of the line of %b
    assert found.line_of == {10: 0, 12: 1, 13: 2, 14: 2, 15: 3, 18: 1}
    assert mlir_text(mlir("\n\n", 0)).lines == ()
    assert mlir_text(mlir("\na\n\n", 0, 1)).line_of == {10: 0, 11: 1}


def read(text: str) -> Module:
    (module,) = read_hlo_text(text)
    return module


JAXPR = """HloModule step

inner { u = f32[4] parameter(0) ROOT v = f32[4] sin(u) }

ENTRY main {
  x = f32[4] parameter(0)
  y = f32[4] parameter(1)
  literal.1 = f32[] constant(2.5)
  c = f32[] constant(7)
  literal.2 = f32[] mul(c, c)
  a = f32[4] mul(x, literal.1), on="None", axis="3", mesh="(None, Mesh())", name="twice"
  s = (f32[4], f32[4]) split(a, y)
  s0 = f32[4] get-tuple-element(s), index=0
  s1 = f32[4] get-tuple-element(s), index=1
  t0 = (f32[4], f32[4]) tuple(s0, s1)
  ROOT t = (f32[4], f32[4]) tuple(s0, s1)
}
"""


def test_jaxpr() -> None:
    module = read(JAXPR)
    found = jaxpr_text(module)
    assert found.lines == (
        "step = { lambda ; x:f32[4] y:f32[4]. let",
        "    c:f32[] = constant",
        "    literal.2:f32[] = mul c c",
        "    a:f32[4] = mul[name=twice axis=3] x 2.5:f32[]",
        "    s0:f32[4] s1:f32[4] = split a y",
        "    t0:(f32[4], f32[4]) = tuple s0 s1",
        "  in (s0, s1) }",
        "",
        "inner = { lambda ; u:f32[4]. let",
        "    v:f32[4] = sin u",
        "  in (v,) }",
    )
    lines = {i.name: found.line_of.get(i.index) for i in module.instructions}
    assert lines == {
        **{"u": 8, "v": 9, "x": 0, "y": 0, "literal.1": None, "c": 1, "literal.2": 2},
        **{"a": 3, "s": 4, "s0": 4, "s1": 4, "t0": 5, "t": 6},
    }


@pytest.mark.parametrize(
    ("most", "lines", "note"),
    [
        (6, 2, ""),
        (5, 1, "The jaxpr is cut after 1 of 2 lines."),
        (3, 1, "The jaxpr is cut after 1 of 2 lines."),
        (2, 0, "The jaxpr is cut after 0 of 2 lines."),
    ],
)
def test_limit(monkeypatch: pytest.MonkeyPatch, most: int, lines: int, note: str) -> None:
    monkeypatch.setattr(linked_texts, "MOST_TEXT", most)
    found = linked_texts._limited(["ab", "cd"], {7: 0, 8: 1}, "the jaxpr")
    assert found.lines == ("ab", "cd")[:lines]
    assert found.line_of == {k: v for k, v in {7: 0, 8: 1}.items() if v < lines}
    assert found.note == note


CUT = "Files that are too long here show only the lines that the program names."
UNREAD = "Files that could not be read show only the lines that the program names."
PLACES = [("a.py", 2, "f"), ("a.py", 2, "g"), ("b.py", 3, ""), ("b.py", 1, "h")]


def test_python_files() -> None:
    text, row_of = python_text(PLACES, {"a.py": "one\r\ntwo\n \n\n", "b.py": "x\ny"})
    # b.py is named by more lines; its third is not in what was read
    assert text.lines == ("b.py", "x", "y", "", "a.py", "one", "two")
    assert text.numbers == (0, 1, 2, 3, 0, 1, 2)
    assert text.files == (("b.py", 0, True), ("a.py", 4, True))
    assert row_of == {("b.py", n): n for n in (1, 2, 3)} | {("a.py", 1): 5, ("a.py", 2): 6}
    assert text.note == ""


def test_a_line_that_no_file_has_is_linked_to_the_file() -> None:
    text, row_of = python_text([("a.py", n, "f") for n in (0, -1, 2, 10**10)], {})
    assert text.lines == ("a.py", "in f")
    assert text.numbers == (0, 2)
    assert row_of == {("a.py", 0): 0, ("a.py", -1): 0, ("a.py", 2): 1, ("a.py", 10**10): 0}


@pytest.mark.parametrize(
    ("a", "b", "file", "files", "known", "note"),
    [
        ("12345", "12345", 5, 10, (True, True), ""),
        ("123456", "12345", 5, 20, (True, False), CUT),
        ("12345", "123456", 5, 20, (False, True), CUT),
        ("12345", "12345", 5, 9, (True, False), CUT),
        ("12345", None, 5, 10, (False, True), UNREAD),
        ("12345", "", 5, 10, (True, True), ""),
        ("123456", None, 5, 10, (False, False), CUT),
    ],
)
def test_python_files_that_are_left_out(
    monkeypatch: pytest.MonkeyPatch,
    a: str,
    b: str | None,
    file: int,
    files: int,
    known: tuple[bool, bool],
    note: str,
) -> None:
    monkeypatch.setattr(linked_texts, "MOST_FILE", file)
    monkeypatch.setattr(linked_texts, "MOST_FILES", files)
    given = {"a.py": a} | ({"b.py": b} if b is not None else {})
    text, row_of = python_text(PLACES, given)
    assert tuple(k for _, _, k in text.files) == known
    assert text.note == note
    if not known[0]:
        assert text.lines[:3] == ("b.py", "in h", "")
        assert text.numbers[:3] == (0, 1, 3)
        assert (row_of["b.py", 1], row_of["b.py", 3]) == (1, 2)
    if not known[1]:
        assert text.lines[-1] == "in f"


def test_keys() -> None:
    at = StackFrame("f.py", 4)
    assert _key("add", at) == ("add", "f.py", 4, 0)
    assert _key("add", StackFrame("f.py", 4, column=8)) == ("add", "f.py", 4, 8)
    a, b = _key("add", at), _key("mul", at)
    assert _row([a, a, b, a]) == (a, b, a)


@pytest.mark.parametrize(
    ("opcodes", "count", "expected"),
    [
        ("add add", 2, [[0], [1]]),
        ("broadcast add broadcast add", 2, [[0, 1], [2, 3]]),
        ("broadcast add add broadcast", 2, None),
        ("broadcast add add", 2, None),
        ("broadcast add add", 1, [[0, 1, 2]]),
    ],
)
def test_parts(opcodes: str, count: int, expected: list[list[int]] | None) -> None:
    rows = [Operation(k, o) for k, o in enumerate(opcodes.split())]
    found = _parts(rows, count)
    assert (found and [[o.number for o in p] for p in found]) == expected
    key = _key("add", StackFrame("f.py", 4))
    out: dict[int, list[int]] = {}
    _match([(key, 50 + k) for k in range(count)], [(key, o) for o in rows], out)
    everything = [[o.number for o in rows]] * count
    assert out == {50 + k: p for k, p in enumerate(expected or everything)}


def test_pairs() -> None:
    a, b = (_key(name, StackFrame("f.py", 4)) for name in ("add", "mul"))
    o = Operation(0, "add")
    lowered = {"main": [(b, o)], "f": [(a, o), (a, o)], "g": [(a, o)]}
    two = _pairs({"m": [(b, 0)], "x": [(a, 1)], "y": [(a, 2)]}, lowered)
    assert two == [(["m"], ["main"]), (["x"], ["f"]), (["y"], ["g"]), ([], [])]
    one = _pairs({"m": [(b, 0), (a, 9)], "x": [(a, 1)]}, lowered)
    assert one == [(["x"], ["f", "g"]), (["m"], ["main"])]


def equation(k: int, opcode: str, line: int, *called: Any) -> Any:
    """Without a line if it is 0."""
    return SimpleNamespace(
        index=k,
        opcode=opcode,
        frames=(StackFrame("f.py", line),) if line else (),
        called=tuple(("body", c) for c in called),
        computation=SimpleNamespace(name="main"),
    )


@pytest.mark.parametrize(
    ("opcode", "name", "owner", "line", "expected"),
    [
        ("add", "f/add", -1, 4, {0: (5,)}),
        ("broadcast", "f/add", -1, 4, {0: (5,)}),
        ("add", "f/mul", -1, 4, {}),
        ("add", "f/add", -1, 5, {}),
        ("while", "f/while", -1, 7, {1: (5,)}),
        ("add", "f/while", 0, 7, {1: (5,)}),  # the counter of a loop
        ("add", "f/while", 3, 7, {1: (5,)}),
        ("add", "f/while", -1, 7, {}),
        ("add", "f/add", 0, 4, {0: (5,)}),
        ("add", "f/add", 0, 0, {}),
    ],
)
def test_equations(
    opcode: str, name: str, owner: int, line: int, expected: dict[int, tuple[int, ...]]
) -> None:
    body: Any = SimpleNamespace(index=1, instructions=())
    rows = (equation(0, "add", 4), equation(1, "scan", 7, body), equation(2, "neg", 0))
    jaxpr: Any = SimpleNamespace(entry=SimpleNamespace(index=0, instructions=rows))
    frames = {5: (StackFrame("f.py", line),)} if line else {}
    operation = Operation(5, opcode, name, owner=owner)
    assert match_equations(jaxpr, (operation,), frames) == expected
