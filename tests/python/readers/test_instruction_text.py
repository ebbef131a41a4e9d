"""What an instruction keeps in few bytes reads as it was printed."""

from __future__ import annotations

import pytest
from hloscope.readers import read_modules


@pytest.mark.parametrize(
    "arguments",
    ["%a, %b", "a, b", "%a,%b", "f32[4]{0} %a, f32[4]{0} %b", "%a, /*index=1*/%b", "%b, %missing"],
)
def test_arguments_and_place_are_those_of_the_text(arguments: str) -> None:
    text = (
        "HloModule m\n\nENTRY e {\n  %a = f32[4]{0} parameter(0)\n  %b = f32[4]{0} parameter(1)\n"
        f"  ROOT %r = f32[4]{{0}} add({arguments})\n}}\n"
    )
    (module,) = read_modules(text)
    assert module.entry is not None
    a, b, r = module.entry.instructions
    assert r.argument_text == arguments
    assert [i.argument_text for i in (a, b)] == ["0", "1"]
    assert r.text_span is not None
    begin, end = r.text_span
    assert module.text[begin:end] == f"ROOT %r = f32[4]{{0}} add({arguments})"


def test_of_two_instructions_of_one_name_the_first_is_found() -> None:
    rows = ["%a = f32[] parameter(0)", "%a = f32[] negate(%a)", "ROOT %r = f32[] abs(%a)"]
    (module,) = read_modules("HloModule m\n\nENTRY e {\n  " + "\n  ".join(rows) + "\n}\n")
    assert module.entry is not None
    assert module.entry.find("a") is module.entry.instructions[0]
    assert module.find("r") is module.entry.instructions[2]
