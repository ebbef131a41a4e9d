"""The fate of a line is that of all it wrote: also in the functions of a library that it calls."""

from __future__ import annotations

from typing import Any

import hloscope as hs
import jax
import jax.numpy as jnp
import numpy as np
import pytest


def program(x: Any, m: Any) -> Any:
    z = jnp.where(m, x, x * 2)  # chosen
    y = jax.nn.relu(z)  # first
    y = jax.nn.relu(y + 1)  # second
    return jnp.clip(y, 0, 1)  # bounded


@pytest.fixture(scope="module")
def capture() -> hs.Capture:
    shape = jax.ShapeDtypeStruct((8,), np.float32)
    return hs.capture(program, shape, jax.ShapeDtypeStruct((8,), np.bool_), passes=True)


@pytest.mark.parametrize(
    ("mark", "opcodes", "elsewhere"),
    [
        ("chosen", {"select", "multiply"}, {"maximum", "minimum"}),
        ("first", {"maximum"}, {"select", "add", "minimum"}),
        ("second", {"maximum", "add"}, {"select", "minimum"}),  # one function, two lines
        ("bounded", {"maximum", "minimum"}, {"select", "add"}),
    ],
)
def test_functions_of_a_library_belong_to_the_line_that_calls_them(
    capture: hs.Capture, mark: str, opcodes: set[str], elsewhere: set[str]
) -> None:
    with open(__file__, encoding="utf-8") as source:
        (at,) = (n for n, line in enumerate(source, 1) if line.rstrip().endswith(f"# {mark}"))
    found = capture.fates(f"{__file__}:{at}")
    done = {row.operation.opcode for row in found}
    assert opcodes <= done
    assert not elsewhere & done
