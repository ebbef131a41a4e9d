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

    from hloscope.readers import gzipped

    bomb = gzip.compress(bytes(5_000_000))
    with pytest.raises(ReadError, match="more than 1,000,000 bytes when unpacked"):
        gzipped.unwrap(bomb, "x.gz", limit=1_000_000)
    with pytest.raises(ReadError):
        read_modules(bomb)
