"""Statements of HLO text, each with all that is read of it and where it ends.

For ``readers/hlo_statements.py``; every row is one call, without a compile.
"""

from __future__ import annotations

import itertools

import pytest
from hloscope.readers.hlo import statements as read

TWO = "a = f32[] add(\nx,\n}\ny)\n  b = f32[] cosine(a)\n}\nc = f32[] sine(b)\n"


def test_how_far_a_statement_may_extend() -> None:
    first, brace, second, last = 14, 17, 22, len(TWO)
    assert read.Limits(TWO).after(first) == [first, brace, second]
    assert read.Limits(TWO).after(brace) == [brace, second], "a limit is named once"
    assert read.Limits(TWO).after(last) == [last]
    ends = [first, brace, 0, last - 1, second, last]
    for order in itertools.permutations(ends, 3):  # what it remembers changes nothing
        limits = read.Limits(TWO)
        assert [limits.after(e) for e in order] == [read.Limits(TWO).after(e) for e in order]


# text, then: name, whether it is the root, shape, opcode, arguments, attributes, the rest of the
# text after it, what is at the problem
INSTRUCTIONS = [
    ("ROOT a = f32[2] add(x, y), k=1", "a", True, "f32[2]", "add", "x, y", "k=1", "", ""),
    ("rooted = f32[] add(x)", "rooted", False, "f32[]", "add", "x", "", "", ""),
    ("%a\n= f32[] add(x)", "a", False, "f32[]", "add", "x", "", "", ""),
    ("a = add(x)", "a", False, None, "add", "x", "", "", ""),
    ("a = f32[] add (x) ", "a", False, "f32[]", "add", "x", "", " ", ""),
    ("a =\n f32[2]\n add(x,\ny), k=1\n, m=2\n", "a", False, "f32[2]", "add", "x,\ny", "k=1, m=2",
     "\n", ""),
    ("a = f32[] add(x)\n// c\n, k=1\nb = f32[] sine(a)\n", "a", False, "f32[]", "add", "x", "k=1",
     "\nb = f32[] sine(a)\n", ""),
    ("a = f32[2] add(x), k=1 ?", "a", False, "f32[2]", "add", "x", "k=1", " ?", ""),
    ("a = (f32[2],\n f32[]) tuple(x)", "a", False, "(f32[2],\n f32[])", "tuple", "x", "", "", ""),
    ("a = f32[] add(x), k={1\n2}\nb = f32[] sine(a)", "a", False, "f32[]", "add", "x", "k={1\n2}",
     "\nb = f32[] sine(a)", ""),
    ("a = f32[] add(x), k={1\nb = f32[] sine(a)", "a", False, "f32[]", "add", "x", "k={1",
     "\nb = f32[] sine(a)", "k={1"),
    ("a = f32[] add(x),\nb = f32[] sine(a)", "a", False, "f32[]", "add", "x", "",
     "\nb = f32[] sine(a)", ","),
    ("a = f32[2] add(x, k=1\nb = f32[] sine(a)", "a", False, "f32[2]", "add", "x, k=1", "",
     "\nb = f32[] sine(a)", "(x, k=1"),
    ("a = f32[2] add(", "a", False, "f32[2]", "add", "", "", "", "("),
]  # fmt: skip


def first_line(text: str) -> int:
    return (text + "\n").index("\n")


@pytest.mark.parametrize("row", INSTRUCTIONS, ids=lambda row: row[0])
@pytest.mark.parametrize("before", ["", "// b\n"])
def test_instructions(row: tuple[str, ...], before: str) -> None:
    text, *want = row
    at = len(before)
    s = read.instruction(read.Limits(before + text), at, at + first_line(text))
    assert isinstance(s, read.Statement)
    rest = (before + text)[s.end :]
    problem = (before + text)[s.problems[0][1] :].split("\n")[0] if s.problems else ""
    found = [s.name, s.is_root, s.shape, s.opcode, s.arguments, s.attributes, rest, problem]
    assert found == want
    assert s.begin == at
    assert (before + text)[s.arguments_at :].startswith(s.arguments)
    assert (before + text)[s.shape_at :].startswith(s.shape or s.opcode)


@pytest.mark.parametrize("text", ["x", "a = f32[2]", "a = f32[2] add", "= f32[] add(x)"])
def test_what_is_no_instruction(text: str) -> None:
    assert read.instruction(read.Limits(text), 0, len(text)) is None


def test_an_instruction_without_an_opcode_is_said() -> None:
    text = "a = f32[2] ?(x)\nb = f32[] sine(a)"
    found = read.instruction(read.Limits(text), 0, text.index("\n"))
    assert found == "no opcode after the shape of 'a'"
    later = "a = f32[2]\nb = f32[] sine(a)"
    assert read.instruction(read.Limits(later), 0, later.index("\n")) is None


NESTED = {
    "f32[] constant(2)": ("f32[]", "constant", "2", ""),
    " f32[] constant(2) ": ("f32[]", "constant", "2", ""),
    "f32[] constant(2), a=1": ("f32[]", "constant", "2", "a=1"),
    "constant(2)": (None, "constant", "2", ""),
    "f32[] constant(2) x": None,
    "%a": None,
    "f32[] add(%a, %b": None,
    "f32[] add(%a), a=1, ?": None,
}


@pytest.mark.parametrize(("text", "want"), NESTED.items())
def test_operands_written_out(text: str, want: tuple[str | None, ...] | None) -> None:
    s = read.nested(text)
    assert (s and (s.shape, s.opcode, s.arguments, s.attributes)) == want
    assert s is None or (s.name, s.is_root) == ("", False)


# text, name and whether it is ENTRY; what follows the brace
HEADERS = [
    ("e {", "e", False, ""),
    ("ENTRY %e (a: f32[]) -> f32[] {", "e", True, ""),
    ("e (a: f32[],\n b: f32[2]) -> (f32[],\n f32[2]) { x", "e", False, " x"),
    ("e(a: f32[])->f32[]{0} {", "e", False, ""),
    ("e (a: f32[]\n) ->\n f32[2]{0}\n {\n", "e", False, "\n"),
    ("e (a) -> b(f32[]) {", "e", False, ""),
    ("e { a = f32[] add(x)", "e", False, " a = f32[] add(x)"),
    ("e { ROOT a", "e", False, " ROOT a"),
    ("e {\n}", "e", False, "\n}"),
    ("e {}", "e", False, "}"),
    ("e\n{\n a = f32[] add(b)\n}", "e", False, "\n a = f32[] add(b)\n}"),
]
NO_HEADERS = [
    "HloModule {", "e { prose", "e\n{ prose", "e (a) {", "e (a: f32[]) -> f32[]", "e (a {",
    "e (a) -> (f32[] {", "e (a: f32[]) -> f32[]\nb = f32[] add(x)\n{",
]  # fmt: skip


@pytest.mark.parametrize(("text", "name", "is_entry", "body"), HEADERS)
def test_headers(text: str, name: str, is_entry: bool, body: str) -> None:
    found = read.header(read.Limits(text), 0, first_line(text))
    assert found == read.Header(name, is_entry, len(text) - len(body))


@pytest.mark.parametrize("text", NO_HEADERS)
def test_what_is_no_header(text: str) -> None:
    assert read.header(read.Limits(text), 0, first_line(text)) is None


IN_PLACE = {
    ", to_apply={ a = x(0) ROOT b = y(a) }, k=1": ("to_apply", [" a = x(0) ROOT b = y(a) "]),
    ", branch_computations={ { a = x(0) }, {ROOT b = x(0)} }, k={2}": (
        "branch_computations",
        [" a = x(0) ", "ROOT b = x(0)"],
    ),
    ", branch_computations={ { a = x(0) } }": ("branch_computations", [" a = x(0) "]),
    ", branch_computations={ { a = x(0) }, { b = x(0": ("branch_computations", [" a = x(0) "]),
    # one that is not a list has no second
    ", to_apply={ a = x(0) }, { b = x(0) }": ("to_apply", [" a = x(0) "]),
    ', x="to_apply={ a = b }", calls={ c = x(1) }': ("calls", [" c = x(1) "]),
    ', x="to_apply={ a = b }"': None,
    ', x="", to_apply={ c = x(1)': None,
    ", to_apply=%a": None,
}


@pytest.mark.parametrize(("text", "want"), IN_PLACE.items())
def test_computations_in_place(text: str, want: tuple[str, list[str]] | None) -> None:
    for before in ("", '"'):  # what is before the beginning does not count
        found = read.computations_in_place(before + text, len(before), len(before + text))
        got = found and (found.role, [(before + text)[b:e] for b, e in found.bodies])
        assert got == want
        assert found is None or found.end == found.bodies[-1][1]
