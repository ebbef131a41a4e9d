"""Lines of dumps of passes, and which is which from one dump to the next, by small texts."""

from __future__ import annotations

import pytest
from hloscope.analysis.passes.match import another, computations, instructions, stem, written_anew
from hloscope.analysis.provenance.trace_line import at_line, parse_place
from hloscope.hlo import StackFrame
from hloscope.readers.hlo.pass_lines import Body, Line, Reader, called

TEXT = r"""HloModule m, entry_computation_layout={()->f32[]} {

%inner (x: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  ROOT %n = f32[] negate(%x), metadata={op_name="f/neg" stack_frame_id=7}
}

ENTRY %e (p: f32[]) -> f32[] {
  %p = f32[2]{0} parameter(0), metadata={op_name="p"}
  %q = f32[] custom-call(f32[2]{0} %p, %p), custom_call_target="a) \" {
} b", api_version=X, metadata={op_name="x\\" source_line=3}
  t = (f32[2]{0}, f32[]) tuple(p, q), slice={[0:1]}, iota_dimension=0, sharding={}
  not an instruction
  v = f32[] add(f32[2]{0} p, f32[] q)
  %o = f32[] call(%q), to_apply=%inner
  %u = f32[] conditional(%q, %q), branch_computations={%inner, %e.1}
  ROOT %i = s32[4]{0:T(128)} iota(), iota_dimension=0
}
"""


def test_lines_of_a_dump() -> None:
    inner, e = Reader().read(TEXT)
    assert [(b.name, b.entry) for b in (inner, e)] == [("inner", False), ("e", True)]
    x, n = inner.lines
    assert (x.name, x.opcode, x.shape, x.arguments, x.operands) == (
        "x",
        "parameter",
        "f32[]",
        "0",
        (),
    )
    assert (n.op_name, n.frame, n.root, n.text) == (
        "f/neg",
        "7",
        True,
        "ROOT %n = f32[] negate(%x)",
    )
    assert (x.op_name, x.frame, x.root) == ("", "", False)
    p, q, t, v, o, u, i = e.lines
    assert (p.shape, p.dense, p.attributes, p.form) == ("f32[2]{0}", "f32[2]", "", ())
    assert (q.opcode, q.operands, q.op_name, q.frame) == ("custom-call", ("p", "p"), r"x\\", "3")
    assert q.attributes == 'custom_call_target="a) \\" {\n} b", api_version=X'
    assert (t.operands, t.form) == (("p", "q"), ("slice={[0:1]}", "iota_dimension=0"))
    assert (v.operands, v.attributes) == (("p", "q"), "")
    assert t.attributes == "slice={[0:1]}, iota_dimension=0, sharding={}"
    assert o.text == "%o = f32[] call(%q), to_apply=%inner"
    assert (called(o), called(u), called(t), called(p)) == (["inner"], ["inner", "e.1"], [], [])
    assert (i.root, i.operands, i.arguments, i.dense) == (True, (), "", "s32[4]")


def test_a_line_that_was_there_before_is_the_same_object() -> None:
    reader = Reader()
    first = [x for b in reader.read(TEXT) for x in b.lines]
    second = [x for b in reader.read(TEXT.replace("negate", "sine")) for x in b.lines]
    assert [a is b for a, b in zip(first, second, strict=True)].count(False) == 1
    assert second[1].opcode == "sine"


STEMS = {
    "fusion": "fusion", "fusion.1": "fusion", "a.12.clone": "a", "a.remat2.3": "a", "a.b": "a.b",
    "a.1b": "a.1b", ".1": "", "a.clone.b": "a.clone.b",
}  # fmt: skip


@pytest.mark.parametrize(("name", "want"), STEMS.items())
def test_stems(name: str, want: str) -> None:
    assert stem(name) == want


@pytest.mark.parametrize(
    ("before", "gone", "new", "want"),
    [
        (4, 2, 2, True), (4, 1, 2, False), (4, 2, 1, False), (4, 4, 4, True), (0, 0, 0, False),
        (1, 1, 1, True), (5, 2, 3, False), (5, 3, 3, True), (5, 3, 2, False),
    ],
)  # fmt: skip
def test_half_the_names_are_new(before: int, gone: int, new: int, want: bool) -> None:
    assert written_anew(before, gone, new) is want


def line(
    name: str, opcode: str, op_name: str = "", arguments: str = "", shape: str = "f32[]"
) -> Line:
    text = f"%{name} = {shape} {opcode}({arguments})"
    return Line(name, opcode, shape, arguments, (), "", op_name, "", False, text)


def test_instructions_that_are_paired() -> None:
    old = [
        line("a", "add", "f"),
        line("b", "add", "f"),
        line("c", "add", "g"),
        line("k", "constant", "", "1"),
    ]
    new = [
        line("k2", "constant", "", "2"),
        line("y", "add", "f"),
        line("x", "add", "f"),
        line("z", "sine", "g"),
    ]
    assert [(p.name, q.name) for p, q in instructions(old, new)] == [("a", "y"), ("b", "x")]
    assert instructions(old, new[:2]) == [], "one of two: which is not known"
    same = [line("k3", "constant", "", "1")]
    assert [(p.name, q.name) for p, q in instructions(old, same)] == [("k", "k3")]
    assert not another(old[0], new[1])
    assert another(old[0], line("a", "sine", "f"))
    assert another(old[0], line("a", "add", "g"))


def body(name: str, *lines: Line, entry: bool = False) -> Body:
    return Body(name, entry, [*lines])


def matched(before: list[Body], now: list[Body]) -> dict[str, str]:
    found = computations({b.name: b for b in before}, {b.name: b for b in now})
    assert all(any(a is b for b in before) for a in found.values())
    return {n: a.name for n, a in found.items()}


A, B, C = line("a", "add", "f/a"), line("b", "sine", "f/b"), line("c", "tanh", "f/c")


def renamed(of: Line, name: str) -> Line:
    return line(name, of.opcode, of.op_name, of.arguments, of.shape)


CASES = {
    "unchanged": ([body("x", A, B)], [body("x", A, B)], {"x": "x"}),
    "the entry has another name": (
        [body("x", A, entry=True)], [body("y", C, entry=True)], {"y": "x"},
    ),
    "another name, equal contents": (
        [body("x", A, B)], [body("y", renamed(A, "d"), renamed(B, "e"))], {"y": "x"},
    ),
    "contents before names": (
        [body("x", A), body("y", B)],
        [body("x", renamed(B, "d")), body("y", renamed(A, "e"))],
        {"x": "y", "y": "x"},
    ),
    "half the work is the same": (
        [body("x", A, B)], [body("x", renamed(A, "d"), line("e", "log", "g/log"))], {"x": "x"},
    ),
    "none of the work is the same, and all names are new": (
        [body("x", A, B)], [body("x", line("d", "exp", "g/exp"), line("e", "log", "g/log"))], {},
    ),
    "nothing is known of the work of one": (
        [body("x", line("a", "add"))], [body("x", line("d", "exp", "g/exp"))], {},
    ),
    "an instruction stays": (
        [body("x", A, B, C)], [body("x", A, *[line(f"n{k}", "log", "g/log") for k in range(1)])],
        {"x": "x"},
    ),
    "the same opcodes under the same stem": (
        [body("x.1", A, B)],
        [body("x.2", line("d", "add", "g", "%q"), line("e", "sine", "g", "%r, %s"))],
        {"x.2": "x.1"},
    ),
    "the same opcodes under another stem": (
        [body("x.1", A, B)],
        [body("y.2", line("d", "add", "g", "%q"), line("e", "sine", "g", "%r, %s"))],
        {},
    ),
    "two that are alike, and one": (
        [body("x", A), body("y", A)], [body("z", renamed(A, "d"))], {},
    ),
    "new": ([], [body("x", A)], {}),
    "gone": ([body("x", A)], [], {}),
}  # fmt: skip


@pytest.mark.parametrize("what", CASES)
def test_computations(what: str) -> None:
    before, now, want = CASES[what]
    assert matched(before, now) == want


PLACES = {"model.py:42": ("model.py", 42), "42": ("", 42), "C:\\a.py:1": ("C:\\a.py", 1)}
NO_PLACES = ["", "model.py", "model.py:", "model.py:x", "model.py:123456789", "-1"]


@pytest.mark.parametrize(("place", "want"), PLACES.items())
def test_places(place: str, want: tuple[str, int]) -> None:
    assert parse_place(place) == want


@pytest.mark.parametrize("place", NO_PLACES)
def test_what_is_no_place(place: str) -> None:
    with pytest.raises(ValueError, match="is not a line such as"):
        parse_place(place)
    assert parse_place("a:99999999") == ("a", 99999999)


@pytest.mark.parametrize(
    ("place", "there"),
    [
        ("model.py:42", True), ("./model.py:42", True), ("me/model.py:42", True), ("42", True),
        ("/me/model.py:42", True), ("me\\model.py:42", True), ("model.py:41", False), ("7", True),
        ("odel.py:42", False), ("you/model.py:42", False), ("8", False),
    ],
)  # fmt: skip
def test_which_lines_a_stack_goes_through(place: str, there: bool) -> None:
    stack = [StackFrame("/me/model.py", 42), StackFrame("/me/train.py", 7)]
    assert at_line(stack, place) is there
    assert not at_line([], place)
