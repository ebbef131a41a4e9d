"""The sentences about pieces of the source: each rule of ``linked_told.py``, by hand.

An operation is written as its opcode, where it is in ``SOURCE`` (line:column-end), its op name and
the function of the program that holds it; dumps are as in ``numbered_hlo.py``.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hloscope.analysis.provenance.fates.fate import (
    Fate,
    FateCause,
    FateKind,
    Fates,
    InstructionName,
)
from hloscope.analysis.provenance.linked.sentences import LinkedProgram, Teller, _counted, _list
from hloscope.hlo import Operation, StackFrame
from hloscope.hlo.origins.operations import Frame
from numbered_hlo import read

SOURCE = """def f(x, w):
    h = x @ w.T
    return jnp.tanh(h) * 2.0 + 1
"""
# where expressions of it are
DOT, T, X = "2:8-15", "2:12-15", "2:8-9"  # x @ w.T, w.T, x
TANH, ALL = "3:11-22", "3:11-28"  # jnp.tanh(h), jnp.tanh(h) * 2.0


def frame(place: str, file: str = "f.py", function: str | None = "f") -> StackFrame | None:
    if not place:
        return None
    line, _, columns = place.partition(":")
    column, _, end = columns.partition("-")
    end_line, _, end_column = end.rpartition(":")
    at = int(line)
    if not columns:
        return StackFrame(file, at, function)
    return StackFrame(file, at, function, int(column), int(end_line or at), int(end_column))


def op(
    opcode: str,
    place: str = "",
    name: str = "",
    function: str = "main",
    callee: str = "",
    frames: tuple[Frame, ...] = (),
) -> tuple[Operation, StackFrame | None]:
    return Operation(0, opcode, name, function, callee=callee, frames=frames), frame(place)


def teller(
    rows: Sequence[tuple[Operation, StackFrame | None]],
    hlo: str = "",
    fates: dict[int, Fate] | None = None,
    more: Sequence[StackFrame | None] = (),
    names: dict[int, str] | None = None,
    source: str = SOURCE,
    inner: str = "",
) -> Teller:
    """``more`` and ``names``: lines and op names of strands that are no operations; ``inner``:
    another computation."""
    made = tuple(
        Operation(k, o.opcode, o.name, o.function, callee=o.callee, frames=o.frames)
        for k, (o, _) in enumerate(rows)
    )
    kept = {o.number: Fate(o, FateKind.KEPT) for o in made}
    told = None if fates is None else Fates(tuple((kept | fates).values()))
    lines = [*(at for _, at in rows), *more]
    module = read(f"{inner}p = f32[4] parameter(0)" + (f"; {hlo}" if hlo else ""), made)
    return Teller(LinkedProgram(module, made, lines, names or {}, {"f.py": source}, told))


# -- of what a sentence is ---------------------------------------------------------------------

SUBJECTS = {
    "code": (op("dot_general", DOT), "`x @ w.T` in `f` (line 2) is gone."),
    "a whole line": (op("dot_general", "2"), "`h = x @ w.T` in `f` (line 2) is gone."),
    "the first line": (op("tanh", "1:4-8"), "`f(x,` in `f` (line 1) is gone."),
    "the first column": (op("tanh", "1:0-3"), "`def` in `f` (line 1) is gone."),
    "several lines": (op("tanh", "2:8-3:22"), "`x @ w.T …` in `f` (line 2) is gone."),
    "several lines from the first column": (
        op("tanh", "1:0-3:22"), "`def f(x, w): …` in `f` (line 1) is gone.",
    ),
    "the empty last line": (op("tanh", "4"), "The tanh in `f` (line 4) is gone."),
    "no such line": (op("tanh", "5"), "The tanh in `f` (line 5) is gone."),
    "line 0": (op("tanh", "0"), "The tanh in `f` (line 0) is gone."),
    "backward": (
        op("tanh", TANH, "jit(f)/transpose(jvp(f))/tanh"),
        "`jnp.tanh(h)` in `f` (line 3, backward) is gone.",
    ),
    "a transposition is not backward": (
        op("transpose", T, "jit(f)/transpose"), "`w.T` in `f` (line 2) is gone.",
    ),
    "only its op name is known": (
        op("dot_general", "", "jit(f)/dot"), "Matmul `jit(f)/dot` is gone.",
    ),
    "nothing is known": (op("dot_general"), ""),
}  # fmt: skip


@pytest.mark.parametrize("what", SUBJECTS)
def test_subjects(what: str) -> None:
    row, said = SUBJECTS[what]
    assert teller([row]).of_operations([0]) == said


@pytest.mark.parametrize(
    ("file", "function", "said"),
    [
        ("f.py", None, "`x @ w.T` (line 2) is gone."),
        ("f.py", "<module>", "`x @ w.T` (line 2) is gone."),
        ("me/g.py", "f", "The dot in `f` (g.py:2) is gone."),
    ],
)
def test_where_it_is(file: str, function: str | None, said: str) -> None:
    made = Operation(0, "dot"), frame(DOT, file, function)
    other = Operation(1, "tanh"), frame(TANH, file if function != "f" else "f.py")
    assert teller([made, other]).of_operations([0]) == said.replace("The dot", "The matmul")


@pytest.mark.parametrize(("length", "shown"), [(60, "x" * 60), (61, "x" * 59 + "…")])
def test_sixty_characters_are_shown(length: int, shown: str) -> None:
    assert teller([op("tanh", "1")], source="x" * length).of_operations([0]) == (
        f"`{shown}` in `f` (line 1) is gone."
    )


def test_columns_are_bytes() -> None:
    found = teller([op("tanh", "1:5-10")], source="é = tanh(é)")
    assert found.of_operations([0]) == "`tanh(` in `f` (line 1) is gone."


@pytest.mark.parametrize(
    ("at", "name", "count", "said"),
    [
        ("", "f/copy", 1, "`f/copy` is named in the metadata of 1 instruction."),
        ("", "f/copy", 2, "`f/copy` is named in the metadata of 2 instructions."),
        ("", "f/copy", 0, ""),
        ("9", "f/copy", 1, "`copy` in `f` (line 9) is named in the metadata of 1 instruction."),
        ("9", "", 1, "What in `f` (line 9) is named in the metadata of 1 instruction."),
        (
            "9",
            "transpose(jvp(f))/copy",
            1,
            "`copy` in `f` (line 9, backward) is named in the metadata of 1 instruction.",
        ),
    ],
)
def test_what_is_no_operation(at: str, name: str, count: int, said: str) -> None:
    found = teller([op("tanh", TANH)], more=[frame(at)], names={1: name})
    for k in range(count):
        found.place(1, k)
    assert found.of_operations([1]) == said


def test_an_instruction_whose_strand_is_no_operation() -> None:
    found = teller([op("tanh", TANH)], "a = f32[4] copy(p)", more=[frame("9")], names={1: "f/copy"})
    a = found.program.module.find("a")
    assert a is not None
    found.place(1, a.index)
    said = "`copy` in `f` (line 9) is named in the metadata of 1 instruction"
    assert found.of_instruction(a, [1]) == f"{said}."
    assert (
        found.of_instruction(a, [1, 0]) == f"{said}. `a` also does `jnp.tanh(h)` in `f` (line 3)."
    )
    assert found.of_instruction(a, [0, 1]) == (
        "`jnp.tanh(h)` in `f` (line 3) is gone. `a` also does `copy` in `f` (line 9)."
    )


def test_operations_come_before_what_is_none() -> None:
    found = teller([op("convert", "9")], more=[frame("9")], names={1: "f/copy"})
    assert found.of_line([1, 0]) == "The convert in `f` (line 9) is gone."


# -- what became of it -------------------------------------------------------------------------

BECAME = {
    "nothing": ("", "is gone"),
    "one": ("d = f32[4] dot(p, p)@0", "became the matmul `d`"),
    "two": ("d = f32[4] dot(p, p)@0; e = f32[4] dot(p, p)@0", "became 2 matmuls, `d` and `e`"),
    "three": ("; ".join(f"d{k} = f32[4] dot(p, p)@0" for k in range(3)),
              "became 3 matmuls, `d0`, `d1` and `d2`"),
    "four": ("; ".join(f"d{k} = f32[4] dot(p, p)@0" for k in range(4)),
             "became 4 matmuls, `d0` and 3 others"),
    "one and its helpers": ("c = f32[4] copy(p)@0; d = f32[4] dot(c, c)@0",
                            "became the matmul `d`"),
    "a convolution": ("d = f32[4] convolution(p, p)@0", "became the matmul `d`"),
}  # fmt: skip


@pytest.mark.parametrize("what", BECAME)
def test_what_a_matmul_became(what: str) -> None:
    hlo, said = BECAME[what]
    assert teller([op("dot_general", DOT)], hlo).of_operations([0]) == (
        f"`x @ w.T` in `f` (line 2) {said}."
    )


TANH_BECAME = {
    "another opcode": ("n = f32[4] negate(p)@0", "became the negate `n`"),
    "two of another opcode": (
        "n = f32[4] negate(p)@0; o = f32[4] negate(n)@0", "became 2 negates, `n` and `o`"),
    "two opcodes": ("n = f32[4] negate(p)@0; o = f32[4] sine(n)@0",
                    "became 2 instructions, `n` and `o`"),
    "elements of what is told": (
        "n = (f32[4], f32[4]) custom-call(p)@0; o = f32[4] get-tuple-element(n), index=0@0",
        "became the custom-call `n`"),
    "only an element": (
        "n = (f32[4], f32[4]) custom-call(p); o = f32[4] get-tuple-element(n), index=0@0",
        "became the get-tuple-element `o`"),
    "an asynchronous one": (
        "n = f32[4] tanh-start(p)@0; o = f32[4] tanh-done(n)@0", "became 2 tanhs, `n` and `o`"),
}  # fmt: skip


@pytest.mark.parametrize("what", TANH_BECAME)
def test_what_a_tanh_became(what: str) -> None:
    hlo, said = TANH_BECAME[what]
    assert teller([op("tanh", TANH)], hlo).of_operations([0]) == (
        f"`jnp.tanh(h)` in `f` (line 3) {said}."
    )


FUSED = "inner: u = f32[4] parameter(0); v = f32[4] tanh(u)@0 | "
FUSION = "g = f32[4] fusion(p), kind=kLoop, calls=inner"
IN_FUSIONS = {
    "one": (f"{FUSION}@0", "became one tanh in `g`"),
    "and outside": (f"{FUSION}; a = f32[4] tanh(p)@0",
                    "became 2 tanhs in `g`, 1 of them on their own"),
    "twice": (f"{FUSION}; k = f32[4] negate(g)", "became one tanh in `g`"),
}  # fmt: skip


@pytest.mark.parametrize("what", IN_FUSIONS)
def test_in_fusions(what: str) -> None:
    hlo, said = IN_FUSIONS[what]
    found = teller([op("tanh", TANH)], hlo, inner=FUSED)
    assert found.of_operations([0]) == f"`jnp.tanh(h)` in `f` (line 3) {said}."


def test_a_fusion_of_which_nothing_inside_is_known_stands_for_itself() -> None:
    found = teller([op("tanh", TANH)], f"{FUSION}@0", inner=FUSED.replace("@0", ""))
    assert found.of_operations([0]) == ("`jnp.tanh(h)` in `f` (line 3) became the fusion `g`.")


A = "a = f32[4] tanh(p)@0"


@pytest.mark.parametrize(
    ("kind", "hlo", "said"),
    [
        ("kept", A, "became the tanh `a`"),
        ("rewritten", A, "became the tanh `a`"),
        ("merged", A, "was merged by dce"),
        ("folded", A, "was folded by dce"),
        ("dead", A, "was removed by dce: nothing used its result"),
        ("dead", "", "was removed by dce: nothing used its result"),
        ("rewritten", "", "was rewritten by dce"),
    ],
)
def test_fates(kind: str, hlo: str, said: str) -> None:
    row = op("tanh", TANH)
    fates = {0: Fate(row[0], FateKind(kind), by="dce")}
    assert teller([row], hlo, fates).of_operations([0]) == f"`jnp.tanh(h)` in `f` (line 3) {said}."


@pytest.mark.parametrize(
    ("fate", "said"),
    [
        (None, "was inlined"),
        ("dead", "was inlined"),
        ("inlined", "was inlined: 3 instructions came from it"),
    ],
)
def test_calls_were_inlined(fate: str | None, said: str) -> None:
    row = op("call", TANH, callee="g")
    cause = FateCause.CAME_THROUGH if fate == "inlined" else None
    fates = None if fate is None else {0: Fate(row[0], FateKind(fate), cause=cause, count=3)}
    assert teller([row], A, fates).of_operations([0]) == f"`jnp.tanh(h)` in `f` (line 3) {said}."


# -- the rest of an expression -----------------------------------------------------------------

MAIN = op("dot_general", DOT)
BESIDE = "`x @ w.T` in `f` (line 2) became the matmul `d`"
D = "d = f32[4] dot(p, p)@0"


def gone(opcode: str, kind: str, by: str = "", became: str = "") -> Fate:
    cause = FateCause.AS_OPCODES if became else None
    names = (InstructionName(became, "r"),) if became else ()
    return Fate(Operation(1, opcode), FateKind(kind), by=by, cause=cause, names=names)


REST: dict[str, tuple[list[str], str, dict[int, Fate], str]] = {
    "elsewhere": (["transpose"], "t = f32[4] transpose(p)@1", {},
                  "; with its transpose (`t`)"),
    "two elsewhere": (["transpose", "reshape"],
                      "t = f32[4] transpose(p)@1; u = f32[4] reshape(p)@2", {},
                      "; with its transpose (`t`) and reshape (`u`)"),
    "a constant is not worth a word": (["constant", "iota"],
                                       "t = f32[4] constant(1)@1; u = f32[4] iota()@2", {}, ""),
    "rewritten and still there": (["transpose"], "t = f32[4] copy(p)@1",
                                  {1: gone("transpose", "rewritten", by="x")},
                                  "; with its transpose (`t`)"),
    "a different fate in this call": (["transpose"], "", {}, ""),
    "a call": (["call"], "t = f32[4] tanh(p)@1", {}, ""),
    "removed": (["transpose"], "", {1: gone("transpose", "rewritten", by="x", became="copy")},
                "; its transpose was rewritten by x as copy"),
    "merged though it has an instruction": (["transpose"], "t = f32[4] transpose(p)@1",
                                            {1: gone("transpose", "merged", by="x")},
                                            "; its transpose was merged by x"),
    "a constant that was folded": (["constant"], "", {1: gone("constant", "folded", by="x")},
                                   "; its constant was folded by x"),
    "two the same way": (["transpose", "transpose"], "",
                         {k: gone("transpose", "rewritten", by="x", became="copy")
                          for k in (1, 2)},
                         "; its 2 transposes were rewritten by x as copy"),
    "two almost the same way": (["transpose", "transpose"], "",
                                {k: gone("transpose", "rewritten", by="x", became=f"c{k}")
                                 for k in (1, 2)},
                                "; its 2 transposes were rewritten by x"),
    "since which pass": (["transpose"], "", {1: gone("transpose", "unknown", by="x")},
                         "; its transpose is gone since x; how is unknown"),
    "unknown": (["transpose"], "", {1: gone("transpose", "unknown")},
                "; its transpose is gone; the passes were not kept, so which one removed it is"
                " unknown"),
    "two unknown": (["transpose", "reshape"], "",
                    {1: gone("transpose", "unknown"), 2: gone("reshape", "unknown")},
                    "; its transpose and reshape are gone; the passes were not kept, so which one"
                    " removed them is unknown"),
    "two unknown of one kind": (["transpose", "transpose"], "",
                    {1: gone("transpose", "unknown"), 2: gone("transpose", "unknown")},
                    "; its 2 transposes are gone; the passes were not kept, so which one"
                    " removed them is unknown"),
    "an unknown constant": (["constant", "iota"], "",
                            {1: gone("constant", "unknown"), 2: gone("iota", "unknown")}, ""),
    "three ways are told, constants last": (
        ["constant", "transpose", "reshape", "slice", "convert"], "",
        {1: gone("constant", "folded", by="x"), 2: gone("transpose", "dead", by="x"),
         3: gone("reshape", "dead", by="x"), 4: gone("slice", "dead", by="x"),
         5: gone("convert", "dead", by="x")},
        "; its transpose was removed by x: nothing used its result; its reshape was removed by x:"
        " nothing used its result; its slice was removed by x: nothing used its result; 2 more"
        " went the same way or others"),
    "three ways and a constant": (
        ["constant", "transpose", "reshape"], "",
        {1: gone("constant", "folded", by="x"), 2: gone("transpose", "dead", by="x"),
         3: gone("reshape", "dead", by="x")},
        "; its transpose was removed by x: nothing used its result; its reshape was removed by x:"
        " nothing used its result; its constant was folded by x"),
}  # fmt: skip


@pytest.mark.parametrize("what", REST)
def test_the_rest_of_an_expression(what: str) -> None:
    opcodes, hlo, fates, said = REST[what]
    rows = [MAIN, *(op(o, DOT, o, callee="g" if o == "call" else "") for o in opcodes)]
    found = teller(rows, f"{D}; {hlo}" if hlo else D, fates)
    assert found.of_operations(range(len(rows))) == f"{BESIDE}{said}."


def test_without_fates_what_is_gone_is_unknown() -> None:
    rows = [MAIN, op("transpose", DOT), op("reshape", DOT)]
    assert teller(rows, f"{D}; t = f32[4] transpose(p)@1").of_operations([0, 1, 2]) == (
        f"{BESIDE}; with its transpose (`t`); its reshape is gone; the passes were not kept, so"
        " which one removed it is unknown."
    )


def test_what_is_in_the_same_fusion_is_told_in_one_word() -> None:
    inner = "inner: u = f32[4] parameter(0); v = f32[4] dot(u, u)@0; w = f32[4] transpose(v)@1 | "
    found = teller([MAIN, op("transpose", DOT)], FUSION, inner=inner)
    assert found.of_operations([0, 1]) == (
        "`x @ w.T` in `f` (line 2) became one matmul in `g`; with its transpose."
    )


def test_a_gather_is_more_than_the_arithmetic_of_its_indices() -> None:
    found = teller([op("add", DOT), op("gather", DOT)], "a = f32[4] gather(p)@1")
    assert found.of_operations([0, 1]) == (
        "`x @ w.T` in `f` (line 2) became the gather `a`; its add is gone; the passes were not"
        " kept, so which one removed it is unknown."
    )


SAME = {
    "matmuls are one whatever their names": ("dot_general", "a/x", "dot_general", "b/y",
                                             "became 2 matmuls, `d` and `e`"),
    "others if their names end alike": ("tanh", "a/x", "tanh", "b/x",
                                        "became 2 tanhs, `d` and `e`"),
    "others with other names": ("tanh", "a/x", "tanh", "a/y",
                                "became the tanh `d`; with its tanh (`e`)"),
    "two opcodes": ("tanh", "a/x", "sine", "a/x", "became the tanh `d`; with its sine (`e`)"),
}  # fmt: skip


@pytest.mark.parametrize("what", SAME)
def test_the_same_again(what: str) -> None:
    one, name, other, another, said = SAME[what]
    opcodes = [o.removesuffix("_general") for o in (one, other)]
    hlo = f"d = f32[4] {opcodes[0]}(p, p)@0; e = f32[4] {opcodes[1]}(p, p)@1"
    found = teller([op(one, DOT, name), op(other, DOT, another)], hlo)
    assert found.of_operations([0, 1]) == f"`x @ w.T` in `f` (line 2) {said}."


def test_an_instruction_of_both_counts_once() -> None:
    rows = [op("dot_general", DOT, "a"), op("dot_general", DOT, "b")]
    found = teller(rows, "d = f32[4] dot(p, p)@0,1")
    assert found.of_operations([0, 1]) == f"{BESIDE}."


# -- expressions -------------------------------------------------------------------------------


def test_lines() -> None:
    rows = [
        op("tanh", TANH), op("multiply", ALL), op("dot_general", "3:0-4"), op("reshape", "3:5-6"),
        op("dot_general", DOT),
    ]  # fmt: skip
    found = teller(rows)
    assert found.of_line([0, 1]) == (
        "`jnp.tanh(h)` in `f` (line 3) is gone; `jnp.tanh(h) * 2.0` in `f` (line 3) is gone."
    )
    assert found.of_line([0, 4, 1]) == (
        "`x @ w.T` in `f` (line 2) is gone; `jnp.tanh(h)` in `f` (line 3) is gone;"
        " `jnp.tanh(h) * 2.0` in `f` (line 3) is gone."
    )
    assert found.of_line([0, 1, 3, 4]).endswith(
        "`jnp.tanh(h) * 2.0` in `f` (line 3) is gone; and 1 more expressions on this line."
    )
    assert found.of_line([0, 0, 0]) == "`jnp.tanh(h)` in `f` (line 3) is gone."
    assert found.of_line([]) == ""


def test_one_operation_of_an_expression_is_told_as_its_part() -> None:
    rows = [MAIN, op("add", DOT, "f/add"), op("dot_general", DOT, "f/dot"), op("tanh", TANH)]
    found = teller(rows)
    assert found.of_operations([1]) == "The add of `x @ w.T` in `f` (line 2) is gone."
    assert found.of_operations([2]) == "`x @ w.T` in `f` (line 2) is gone.", "a matmul, as is 0"
    assert found.of_operations([3]) == "`jnp.tanh(h)` in `f` (line 3) is gone."
    nowhere = teller([op("tanh", "", "f/tanh"), op("add", "", "f/add")])
    assert nowhere.of_operations([1]) == "Add `f/add` is gone."


INNER = {
    "preparation inside": (op("transpose", T), "; with its transpose (`t`)"),
    "as wide as the expression": (op("reshape", "2:8-15"), "; with its reshape (`t`)"),
    "from its first column": (op("transpose", X), "; with its transpose (`t`)"),
    "begins before": (op("transpose", "2:7-15"), ""),
    "ends behind": (op("transpose", "2:8-16"), ""),
    "another line": (op("transpose", "3:12-15"), ""),
    "several lines": (op("transpose", "2:12-3:14"), ""),
    "no columns": (op("transpose", "2"), ""),
    "nowhere": (op("transpose"), ""),
    "another function": (op("transpose", T, function="g"), ""),
    "backward": (op("transpose", T, "transpose(jvp(f))/transpose"), ""),
    "more than preparation": (op("tanh", T), ""),
}  # fmt: skip


@pytest.mark.parametrize("what", INNER)
def test_preparation_of_operands_belongs_to_an_expression(what: str) -> None:
    row, said = INNER[what]
    hlo = f"{D}; t = f32[4] {row[0].opcode}(p)@1"
    found = teller([MAIN, row], hlo)
    d = found.program.module.find("d")
    assert d is not None
    assert found.of_instruction(d, [0]) == f"{BESIDE}{said}."


@pytest.mark.parametrize(
    ("outer", "inner", "inside"),
    [("1:0-8", "1:0-3", True), ("1:1-8", "1:0-3", False), ("1:1-8", "1:1-3", True)],
)
def test_the_first_column_is_0(outer: str, inner: str, inside: bool) -> None:
    found = teller([op("dot_general", outer), op("transpose", inner)])
    assert found._with(0) == ((0, 1) if inside else (0,))


def test_an_expression_without_columns_has_no_inside() -> None:
    found = teller([op("dot_general", "2"), op("transpose", T)], f"{D}; t = f32[4] transpose(p)@1")
    d = found.program.module.find("d")
    assert d is not None
    assert found.of_instruction(d, [0]) == ("`h = x @ w.T` in `f` (line 2) became the matmul `d`.")


def instruction(rows: list[tuple[Operation, StackFrame | None]], hlo: str, name: str,
                strands: list[int]) -> str:  # fmt: skip
    found = teller(rows, hlo)
    i = found.program.module.find(name)
    assert i is not None
    return found.of_instruction(i, strands)


def test_what_else_an_instruction_does() -> None:
    rows = [
        MAIN, op("tanh", TANH), op("multiply", ALL), op("add", "3:11-32"), op("sine", "1:0-3"),
        op("call", "1:4-5", callee="g"), op("cosine"), op("add", DOT, "f/add"),
    ]  # fmt: skip
    both = "d = f32[4] dot(p, p)@0"
    tanh, product = "`jnp.tanh(h)` in `f` (line 3)", "`jnp.tanh(h) * 2.0` in `f` (line 3)"
    plus = "`jnp.tanh(h) * 2.0 + 1` in `f` (line 3)"
    assert instruction(rows, both, "d", [0]).startswith(f"{BESIDE}; its add is gone")
    rows.pop()
    assert instruction(rows, both, "d", [0]) == f"{BESIDE}."
    assert instruction(rows, both, "d", []) == ""
    assert instruction(rows, both, "d", [0, 1]) == f"{BESIDE}. `d` also does {tanh}."
    assert instruction(rows, both, "d", [0, 5, 6]) == f"{BESIDE}.", "a call, and what has no line"
    assert instruction(rows, both, "d", [0, 1, 2, 3]) == (
        f"{BESIDE}. `d` also does {tanh}, {product}, {plus}."
    )
    assert instruction(rows, both, "d", [0, 1, 2, 3, 4]) == (
        f"{BESIDE}. `d` also does {tanh}, {product}, {plus} and 1 more."
    )
    assert instruction(rows, "d = f32[4] dot(p, p)", "d", [0, 1]) == (
        f"`x @ w.T` in `f` (line 2) is gone. `d` also does {tanh}."
    )


def test_a_helper_stands_for_its_expression_and_others_for_a_part() -> None:
    rows = [MAIN, op("transpose", DOT), op("add", DOT, "f/add")]
    hlo = f"{D}; t = f32[4] transpose(p)@1; s = f32[4] add(p, p)@2"
    rest = "; with its transpose (`t`) and add (`s`)."
    assert instruction(rows, hlo, "t", [1]) == f"{BESIDE}{rest}"
    assert instruction(rows, hlo, "d", [0]) == f"{BESIDE}{rest}"
    assert instruction(rows, hlo, "s", [2]) == (
        "The add of `x @ w.T` in `f` (line 2) became the add `s`."
    )


@pytest.mark.parametrize(
    ("names", "backward"),
    [
        (["f/transpose(jvp(f))/call"], True),
        (["f/transpose(jvp(f))/call", "f/call"], False),
        (["f/call"], False),
    ],
)
def test_functions_that_only_the_backward_pass_calls(names: list[str], backward: bool) -> None:
    """``g`` is called by them and calls ``h``."""
    rows = [
        *(op("call", "1", n, callee="g") for n in names),
        op("call", "1", "call", "g", callee="h"),
        op("tanh", TANH, "tanh", "h"),
    ]
    said = ", backward" if backward else ""
    assert teller(rows).of_operations([len(rows) - 1]) == (
        f"`jnp.tanh(h)` in `f` (line 3{said}) is gone."
    )


# -- calls of Python functions -----------------------------------------------------------------

LAYERS = [
    op("dot_general", DOT, frames=(Frame(k, "f", "f.py", 1, 9),)) for k in range(2)
]  # fmt: skip


def test_calls_are_told_apart() -> None:
    hlo = "d = f32[4] dot(p, p)@0; e = f32[4] dot(d, d)@1"
    assert instruction(LAYERS, hlo, "e", [1]) == (
        "`x @ w.T` in `f` (call 2 of 2, line 2) became the matmul `e`."
    )
    assert instruction(LAYERS[:1], "d = f32[4] dot(p, p)@0", "d", [0]) == f"{BESIDE}."
    other = [op("dot_general", DOT, frames=(Frame(k, "g", "f.py", 1, 9),)) for k in range(2)]
    assert instruction(other, hlo, "e", [1]) == f"{BESIDE}.".replace("`d`", "`e`"), (
        "the function of the line was not called"
    )
    inside = [op("dot_general", DOT, frames=(Frame(k, "a.f", "f.py", 1, 9),)) for k in range(2)]
    assert "(call 2 of 2, line 2)" in instruction(inside, hlo, "e", [1])
    assert teller(LAYERS, hlo).of_operations([1]) == (
        "`x @ w.T` in `f` (line 2) became the matmul `e`."
    ), "in all calls"


def test_a_fusion_is_of_the_call_of_what_is_inside() -> None:
    found = teller(LAYERS, FUSION, inner=FUSED.replace("tanh(u)@0", "dot(u, u)@1"))
    g = found.program.module.find("g")
    assert g is not None
    assert found.of_instruction(g, [1]) == (
        "`x @ w.T` in `f` (call 2 of 2, line 2) became one matmul in `g`."
    )
    assert found.of_instruction(g, [0]) == "`x @ w.T` in `f` (line 2) became one matmul in `g`."


def test_one_call_of_a_function_that_is_shared() -> None:
    rows = [op("call", "1", callee="layer"), op("call", "1", callee="layer"),
            op("tanh", TANH, function="layer")]  # fmt: skip
    hlo = "a = f32[4] tanh(p)@2<0; b = f32[4] tanh(a)@2<1; c = f32[4] tanh(b)@2<1"
    assert instruction(rows, hlo, "a", [2]) == "`jnp.tanh(h)` in `f` (line 3) became the tanh `a`."
    assert instruction(rows, hlo, "b", [2]) == (
        "`jnp.tanh(h)` in `f` (line 3) became 2 tanhs, `b` and `c`."
    )


# -- words -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nouns", "said"),
    [
        ({"copy": 1}, "copy"),
        ({"copy": 2}, "2 copies"),
        ({"array": 2}, "2 arrays"),
        ({"copy": 1, "tanh": 3}, "copy and 3 tanhs"),
        ({"a": 1, "b": 1, "c": 1}, "a, b and c"),
        ({"a": 1, "b": 1, "c": 1, "d": 1}, "a, b, c and 1 more"),
    ],
)
def test_nouns_are_counted(nouns: dict[str, int], said: str) -> None:
    assert _counted(nouns) == said


@pytest.mark.parametrize(
    ("kind", "by", "cause", "said"),
    [
        ("rewritten", "x", FateCause.SIMPLIFIED_TO_OPERAND, "was simplified away by x"),
        ("rewritten", "x", FateCause.UNROLLED, "was simplified away by x"),
        ("rewritten", "x", FateCause.AS_OPCODES, "was rewritten by x"),
        ("rewritten", "", FateCause.AS_OPCODES, "was rewritten"),
        ("merged", "x", FateCause.WITH_EQUAL, "was merged by x"),
        ("folded", "x", FateCause.TO_CONSTANT, "was folded by x"),
        ("dead", "x", FateCause.LOOP_REMOVED, "was removed by x"),
        ("inlined", "x", FateCause.NOTHING_CAME_THROUGH, "was inlined: nothing of it is left"),
    ],
)
def test_fates_in_short(kind: str, by: str, cause: FateCause, said: str) -> None:
    assert Fate(Operation(0, "tanh"), FateKind(kind), by=by, cause=cause).short == said


def test_lists() -> None:
    found = read("; ".join(f"a{k} = f32[] constant(1)" for k in range(5))).instructions
    assert [_list(found[:k]) for k in range(1, 6)] == [
        "`a0`", "`a0` and `a1`", "`a0`, `a1` and `a2`", "`a0` and 3 others", "`a0` and 4 others",
    ]  # fmt: skip
