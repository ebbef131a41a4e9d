"""Printing a Module: XLA's layout, and a fixed point with the reader."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hlo_snippets import SNIPPETS
from hloscope.hlo.compare import differences
from hloscope.hlo.texts.printer import to_text
from hloscope.readers import read_modules


@pytest.mark.parametrize("name", SNIPPETS)
def test_fixed_point(name: str) -> None:
    module = read_modules(SNIPPETS[name])[0]
    printed = to_text(module)
    again = read_modules(printed)[0]
    assert differences(module, again) == []
    assert to_text(again) == printed


def test_old_dialect_is_printed_in_todays(seeds: Path) -> None:
    old = read_modules(next(seeds.glob("000_*.txt")).read_bytes())[0]
    printed = to_text(old)
    assert "add(%x, %y)" in printed  # the dump says add(f32[] %x, f32[] %y)
    assert differences(old, read_modules(printed)[0]) == []


def test_same_bytes_as_xla(compiled: Callable[..., Any]) -> None:
    """Header, frame tables, /*index=5*/ marks: all as XLA prints them."""
    built = compiled("fsdp_tp")
    module = read_modules(built.text)[0]
    module.source_text = None
    assert module.text.strip() == built.text.strip()


def test_proto_text_has_no_source_of_its_own(compiled: Callable[..., Any]) -> None:
    built = compiled("switch_four")
    module = read_modules(built.proto)[0]
    assert module.source_text is None
    assert module.text.startswith("HloModule ")
    assert differences(module, read_modules(module.text)[0]) == []
