"""StableHLO texts and all that is read of them: every operand, place, type and complaint."""

from __future__ import annotations

from hloscope.readers.recognise import is_stablehlo
from hloscope.readers.stablehlo.text import MAX_DEPTH, MAX_WARNINGS, read_all
from text_tables import as_text, assert_table


def test_stablehlo_is_read_as_it_says() -> None:
    assert_table("stablehlo", lambda text: as_text(read_all(text)))


def test_what_is_said_and_how_deep_regions_go_has_a_limit() -> None:
    for extra in (0, 1, 3):
        lines = ["func.func @main(%a: tensor<f32>) -> tensor<f32> {"]
        lines += ["  nothing here"] * (MAX_WARNINGS + extra) + ["  return %a : tensor<f32>", "}"]
        (module,) = read_all("\n".join(lines))
        said = [w.message for w in module.warnings]
        assert said[:MAX_WARNINGS] == ["not an operation: 'nothing here'"] * MAX_WARNINGS
        assert said[MAX_WARNINGS:] == ([f"{extra} more warnings"] if extra else [])
    for depth in (MAX_DEPTH, MAX_DEPTH + 1):
        case = '%0 = "stablehlo.case"(%a) ({'
        lines = ["func.func @main(%a: tensor<i32>) -> tensor<i32> {", *[case] * depth]
        lines += ["stablehlo.return %a : tensor<i32>"]
        lines += ["}) : (tensor<i32>) -> tensor<i32>", "stablehlo.return %0 : tensor<i32>"] * depth
        (module,) = read_all("\n".join([*lines, "}"]))
        assert len(module.computations) == MAX_DEPTH + 1
        assert [w.message for w in module.warnings][:1] == (
            ["regions nested deeper than 100 are skipped"] if depth > MAX_DEPTH else []
        )


def test_texts_are_told_by_their_first_lines() -> None:
    table = {
        "module {": True, "module @m {": True, "module @m\n{": True,
        "  module attributes {a}": True,
        "func.func @f(": True, '"builtin.module"() ({': True, "vhlo.func_v1 @f": True,
        "HloModule m\nmodule @m {": False, "a module @m {": False, "modules {": False, "": False,
        "x" * (1 << 20) + "\nmodule {": False, "x" * ((1 << 20) - 9) + "\nmodule {": True,
    }  # fmt: skip
    for text, want in table.items():
        assert is_stablehlo(text.encode()) == want, text[:30]
