"""Damaged dumps: only ReadError leaves the readers, nothing hangs, what is whole is read.

``scripts/fuzz.py`` runs the same mutations by the ten thousand.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from hlo_snippets import SNIPPETS
from hloscope.hlo.shape import parse_shape, split_top
from hloscope.readers import ReadError, read_modules
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mutations import MUTATIONS, read_every_way
from token_accounting import unaccounted

SLOW_OK = settings(
    max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)


@pytest.fixture(scope="module")
def dumps(compiled: Callable[..., Any]) -> dict[str, bytes]:
    built = compiled("switch_four")
    return {
        "text": built.text.encode(),
        "proto": built.proto,
        "stablehlo": built.lowered.as_text(debug_info=True).encode(),
        **{name: text.encode() for name, text in SNIPPETS.items()},
    }


@pytest.mark.parametrize("kind", MUTATIONS)
def test_mutations(dumps: dict[str, bytes], kind: str) -> None:
    read = 0
    for n in range(40):
        r = random.Random(n)
        name = r.choice(list(dumps))
        modules = read_every_way(MUTATIONS[kind](r, dumps[name]))
        read += any(m.instructions for m in modules)
    assert read >= 10  # damage must not hide what is still there


@SLOW_OK
@given(st.binary(max_size=300))
def test_any_bytes(data: bytes) -> None:
    read_every_way(data)


_PIECES = st.sampled_from(
    ["HloModule m", "ENTRY %e", "{", "}", "(", ")", "[", "]", " = ", "f32[2]{0}", "%a", "add",
     "add(%a)", "\n", '"', "\\", ",", "/*", "*/", "constant(", "metadata={", "->", "ROOT ", "=",
     "FileNames", '1 "a"', "StackFrames", "1 {parent_frame_id=1}", "calls=%e", "\u00b2", "9" * 30,
     "module @m {", "func.func @main(", "stablehlo.add %a : ", "tensor<", "loc(", "^bb0(",
     "#loc1 = loc(#loc1)", "stablehlo.while(", "cond {", "} do {", "}) : (", ") {", "({", "%0:2 = "]
)  # fmt: skip


@SLOW_OK
@given(st.lists(_PIECES, max_size=60).map("".join))
def test_pieces_of_hlo_in_any_order(text: str) -> None:
    read_every_way(text.encode())


@SLOW_OK
@given(st.text(alphabet='f32[](){},:TSE/*"<=?0 ', max_size=40))
def test_shapes(text: str) -> None:
    try:
        shape = parse_shape(text)
    except ValueError:
        return
    assert shape.byte_size >= 0
    assert parse_shape(shape.text) == shape


@pytest.mark.some(9)
@pytest.mark.parametrize("opening", ["(", "{", "[", '"', "((", "({", "tuple<", "loc(", "f32[2], ("])
@pytest.mark.parametrize(
    "line", ["%x = {} add()", "%x = f32[] add({}", "%x = f32[] add(), a={}", "{}", "}} {}"]
)
def test_deep_nesting(opening: str, line: str) -> None:
    """100,000 open brackets anywhere: no recursion error, no crash, linear time."""
    body = line.format(opening * (100_000 // len(opening)))
    text = f"HloModule m\n\nENTRY %e () -> f32[] {{\n  {body}\n  ROOT %r = f32[] constant(1)\n}}\n"
    read_every_way(text.encode())
    mlir = f"module @m {{\n  func.func @main() {{\n    {body}\n    return\n  }}\n}}\n"
    read_every_way(mlir.encode())


def test_deep_shapes_are_refused_by_depth() -> None:
    with pytest.raises(ValueError, match="nested deeper"):
        parse_shape("(" * 200 + "f32[]" + ")" * 200)
    assert split_top("(" * 100_000 + ")" * 100_000 + ", x")[1] == "x"


def test_gzip_bomb_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    import gzip

    from hloscope.readers.files import gzipped

    bomb = gzip.compress(bytes(5_000_000))
    with pytest.raises(ReadError, match="more than 1,000,000 bytes when unpacked"):
        gzipped.unwrap(bomb, "x.gz", limit=1_000_000)
    with pytest.raises(ReadError):
        read_modules(bomb)


def test_the_count_of_tokens_sees_every_kind_of_loss() -> None:
    """The judge judged: what is taken out of a module behind its back is missed."""
    text = SNIPPETS["basic"]
    (module,) = read_modules(text)
    assert unaccounted(text, [module]) == []
    lines = text.split("\n")
    at = next(n for n, line in enumerate(lines) if " dynamic-slice(" in line)
    changed = lines[at].replace("%idx, %idx", "%idx").replace(", dynamic_slice_sizes={1,4}", "")
    for short in (lines[:at] + lines[at + 1 :], [*lines[:at], changed, *lines[at + 1 :]]):
        (less,) = read_modules("\n".join(short))
        less.warnings = ()
        same = [i for i in less.instructions if i.name == "ds"]
        found = unaccounted(text, [less]) if not same else _of_line(text, less, same[0])
        assert found


def _of_line(text: str, less: Any, i: Any) -> list[str]:
    """As if the line of the whole text had given this instruction."""
    less.source_text = text
    begin = text.index("%ds = ")
    i.text_span = (begin, text.index("\n", begin))
    return [x for x in unaccounted(text, [less]) if "ds" in x]


LOST_IN_MLIR = {
    "a block's arguments": (
        "    ^bb0(%a: tensor<f32tensor<f32>",
        "a bracket or a quote is not closed",
    ),
    "operands": (
        "    %1 = stablehlo.add(%0, %0 : tensor<f32>",
        "a bracket or a quote is not closed",
    ),
    "a quote": (
        '    %1 = stablehlo.add %0,"%0 : tensor<f32>',
        "a bracket or a quote is not closed",
    ),
    "what is returned": ("    stablehlo.return %0, %0,", "more was to come"),
    "a type": ("    %1 = stablehlo.negate %0 : tensor<f3232>", "not a type"),
}


@pytest.mark.parametrize("what", LOST_IN_MLIR)
def test_a_bracket_left_open_in_mlir_costs_its_line_and_is_said(what: str) -> None:
    line, said = LOST_IN_MLIR[what]
    text = (
        "module @m {\n  func.func public @main(%arg0: tensor<f32>) -> tensor<f32> {\n"
        f"    %0 = stablehlo.abs %arg0 : tensor<f32>\n{line}\n"
        "    %2 = stablehlo.sine %0 : tensor<f32>\n    return %2 : tensor<f32>\n  }\n}\n"
    )
    (m,) = read_modules(text)
    assert [i.opcode for i in m.instructions if i.opcode != "negate"][1:2] == ["abs"]
    assert {"sine", "return"} <= {i.opcode for i in m.instructions}
    assert [w.line for w in m.warnings][:1] == [4]
    assert said in str(m.warnings[0])
    assert unaccounted(text, [m]) == []


@pytest.mark.parametrize("opening", ["{devices=[2,1}<=[2]}", "{a={b)}", "(0, {}, may-alias}"])
def test_a_bracket_that_another_kind_closes_is_said(opening: str) -> None:
    text = (
        f"HloModule m, input_output_alias={opening}\n\nENTRY %e (a: f32[4]) -> f32[4] {{\n"
        f"  %a = f32[4]{{0}} parameter(0), sharding={opening}\n"
        "  ROOT %r = f32[4]{0} negate(%a)\n}\n"
    )
    (m,) = read_modules(text)
    assert [i.name for i in m.instructions] == ["a", "r"]
    assert {w.line for w in m.warnings} == {1, 4}


def test_lines_before_the_first_instruction_of_a_cut_dump_are_said() -> None:
    (m,) = read_modules(
        "HloModule m, is_scheduled=true\n\n} what was cut off\n  %b = f32[4]{0} negate(%a)\n"
    )
    assert [w.line for w in m.warnings][:2] == [3, 4]


def test_an_instruction_after_a_damaged_end_of_its_computation_is_said() -> None:
    """What stands before a module may be anybody's log; what stands after one may be lost."""
    head = "%f (a: f32[4]) -> f32[4] {\n  %a = f32[4]{0} parameter(0)\n"
    lost = '1,0} tanh(%a)\n  ROOT %b = f32[4]{0} negate(%t), \tmetadata={op_name="b"}\n}\n'
    text = f"{head}  %t = f32[4]{{\n}}\n{lost}"
    for following in ("", "\n" + head + "  ROOT %c = f32[4]{0} negate(%a)\n}\n"):
        (m,) = read_modules(text + following)
        assert any(w.line == 6 and "skipped" in w.message for w in m.warnings)
        assert unaccounted(text + following, [m]) == []
    (whole,) = read_modules(
        f"{head}  ROOT %c = f32[4]{{0}} negate(%a)\n}}\nI am = done (with it)\n"
    )
    assert not any("skipped" in w.message for w in whole.warnings)


def test_a_damaged_comma_between_the_shapes_of_a_tuple_is_said() -> None:
    """Two arrays must not become one with a strange layout."""
    text = (
        "HloModule m\n\nENTRY %e (a: f32[4], b: f32[8]) -> (f32[4], f32[8]) {\n"
        "  %a = f32[4]{0} parameter(0)\n  %b = f32[8]{0} parameter(1)\n"
        "  ROOT %t = (f32[4]{0}k f32[8]{0}) tuple(%a, %b)\n}\n"
    )
    (m,) = read_modules(text)
    assert any(w.line == 6 for w in m.warnings)
    assert unaccounted(text, [m]) == []


def test_a_damaged_row_of_a_frame_table_is_said() -> None:
    """Its other fields are kept; blanks of any kind between the parts are no damage."""
    head = "HloModule m\n\nFileLocations\n1\x0c{file_name_id=1 line=7 end_line=7}\n"
    body = "\nENTRY %e () -> f32[] {\n  ROOT %r = f32[] constant(1)\n}\n"
    (whole,) = read_modules(head + body)
    assert whole.warnings == ()
    assert unaccounted(head + body, [whole]) == []
    text = head + "2 {file_name_id=1 l\x1fne=8 end_line=9}\nStackFrames\n" + body
    (m,) = read_modules(text)
    assert [w.line for w in m.warnings] == [5]
    assert unaccounted(text, [m]) == []
    assert m.frames.locations[1][3] == 9
