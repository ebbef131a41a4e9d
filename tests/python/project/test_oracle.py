"""Our readers against XLA's own parser and printer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hlo_snippets import SNIPPETS
from hloscope.hlo.compare import differences
from hloscope.hlo.texts.printer import to_text
from hloscope.readers import read_modules
from xla_oracle import Refused, ask_xla, assert_agrees, compare, through_xla


@pytest.mark.parametrize("name", SNIPPETS)
def test_every_attribute_agrees_with_xla(name: str) -> None:
    """Text and proto of hand-written modules, as XLA prints and serialises them itself."""
    text, proto = through_xla(SNIPPETS[name])
    from_text, from_proto = read_modules(text)[0], read_modules(proto)[0]
    assert from_text.warnings == from_proto.warnings == ()
    assert differences(from_text, from_proto) == []
    assert to_text(from_text).strip() == text.strip()
    without = text.replace(", num_partitions=8", "")  # which no proto holds
    assert to_text(from_proto).strip() == without.strip()


# XLA renames %b.0 of "control" and takes apart the async computations of "async".
@pytest.mark.parametrize("name", ["basic", "coll", "math"])
def test_hand_written_modules_agree_with_the_parser(name: str) -> None:
    module = read_modules(SNIPPETS[name])[0]
    assert module.warnings == ()
    assert compare(module, ask_xla(SNIPPETS[name])) == []


def test_random_constants_are_what_the_parser_makes_of_them() -> None:
    module = read_modules(SNIPPETS["consts"])[0]
    assert compare(module, ask_xla(SNIPPETS["consts"])) == []
    assert module.find("c3").literal == "{ { 1, 2 }, { 3, 4 } }"


@pytest.mark.parametrize(
    "name", ["nested_tuples", "switch_four", "sorting", "narrow_types", "fsdp_tp", "custom_rule"]
)
def test_compiled_programs(compiled: Callable[..., Any], name: str) -> None:
    built = compiled(name)
    assert assert_agrees(built.text, built.proto) == "text"
    assert to_text(built.module).strip() == built.text.strip()


def test_a_tpu_program(compiled: Callable[..., Any]) -> None:
    built = compiled("fsdp_scan", "v5e:2x4")
    assert assert_agrees(built.text, built.proto) in ("text", "proto")


@pytest.mark.parametrize("seed", ["000", "001", "004"])
def test_seeds(seeds: Path, seed: str) -> None:
    module = read_modules(next(seeds.glob(f"{seed}_*.txt")).read_bytes())[0]
    assert compare(module, ask_xla(module.text)) == []


def test_the_oracle_notices() -> None:
    """The judge is not blind: a wrong operand, shape or opcode is reported."""
    text = SNIPPETS["basic"]
    theirs = ask_xla(text)
    for old, new in (
        ("add(%sel, %rev)", "add(%rev, %sel)"),
        ("%z = f32[] constant(1.5)", "%z = f64[] constant(1.5)"),
        ("reverse(%dot)", "negate(%dot)"),
        ("ROOT %r", "%r"),
    ):
        assert old in text
        wrong = compare(read_modules(text.replace(old, new))[0], theirs)
        assert len(wrong) == (0 if old == "ROOT %r" else 1), old  # the last is the root anyway


def test_refusal_is_not_a_crash_of_ours() -> None:
    with pytest.raises(Refused):
        ask_xla("HloModule broken\n\nENTRY %e {\n  %x = f32[ parameter(0)\n}\n")
