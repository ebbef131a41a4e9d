"""Source lines of what is live at the peak: of kept activations, compiler's copies, arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import hloscope as hs
import pytest
from hloscope.analysis.base.lines.frames import own_line


# jax.numpy's functions are jitted: one traced before keeps the lines of who called it first
def layer(c: Any, w: Any) -> Any:
    import jax

    h = jax.lax.sin(jax.lax.dot(c, w))  # kept for the backward pass
    return jax.lax.tanh(h), None


def loss(ws: Any, x: Any) -> Any:
    import jax

    y, _ = jax.lax.scan(layer, x, ws)
    return (y * y).sum()


@pytest.fixture(scope="module")
def scanned() -> Any:
    import jax
    import jax.numpy as jnp

    shapes = (8, 64, 64), (32, 64)
    args = [jax.ShapeDtypeStruct(s, jnp.float32) for s in shapes]
    return hs.capture(jax.jit(jax.grad(loss)), *args)


def line_of(function: Callable[..., Any], text: str) -> str:
    lines, first = inspect.getsourcelines(function)
    (at,) = [k for k, line in enumerate(lines) if text in line]
    return f"{__file__}:{first + at}"


def test_what_a_scan_keeps_has_the_line_of_what_is_kept(scanned: Any) -> None:
    memory = scanned.memory
    stacked = {r.buffer for r in memory.residuals}
    assert stacked
    lines = {memory.value(b).line for b in stacked}
    assert line_of(layer, "jax.lax.sin(") in lines
    # the loop's own line says nothing about which array it is
    assert line_of(loss, "jax.lax.scan") not in lines


def test_every_value_live_at_the_peak_but_arguments_has_a_line(scanned: Any) -> None:
    memory = scanned.memory
    for v in memory.live_at_peak:
        assert bool(v.line) == (v.kind != "argument"), v.name
    assert sum(memory.by_line.values()) == sum(v.bytes for v in memory)
    assert memory.by_line[""] == sum(v.bytes for v in memory if v.kind == "argument")
    assert list(memory.by_line.values()) == sorted(memory.by_line.values(), reverse=True)
    assert sum(memory.by_scope.values()) == sum(memory.by_line.values())


def test_the_source_counts_the_same_bytes_at_the_same_lines(scanned: Any) -> None:
    memory, source = scanned.memory, scanned.source
    own = {f"{x.file}:{x.line}": x.own.live_bytes for x in source.lines if x.own.live_bytes}
    assert own == {k: v for k, v in memory.by_line.items() if k}
    assert source.unattributed.live_bytes == memory.by_line[""]
    # a line's operations include what makes the values it holds
    at = line_of(layer, "jax.lax.sin(")
    (line,) = [x for x in source.lines if f"{x.file}:{x.line}" == at]
    makers = {v.instruction.index for v in memory if v.line == at}
    assert makers
    assert makers <= set(line.instructions)


COPIES = """HloModule m, is_scheduled=true
ENTRY main {
  w = f32[64,64]{1,0} parameter(0)
  x = f32[64,64]{1,0} parameter(1)
  fetched = f32[64,64]{0,1} copy(w)
  made = f32[64,64]{1,0} dot(x, fetched), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={source_file="model.py" source_line=7}
  moved = f32[64,64]{0,1} copy(made)
  turned = f32[64,64]{1,0} transpose(moved), dimensions={1,0}
  ROOT s = f32[8,8]{1,0} slice(turned), slice={[0:8],[0:8]}, metadata={source_file="model.py" source_line=9}
}
"""  # noqa: E501


def test_a_compilers_copy_has_the_line_of_what_it_is_for() -> None:
    memory = hs.read(COPIES).memory
    lines = {v.name: v.line for v in memory.values()}
    assert lines == {
        "w": "",
        "x": "",
        "fetched": "model.py:7",
        "made": "model.py:7",
        "moved": "model.py:9",
        "turned": "model.py:9",
        "s": "model.py:9",
    }


def test_a_stack_of_libraries_alone_gives_its_innermost_line() -> None:
    from hloscope.hlo import StackFrame

    library = StackFrame("/env/lib/python3.11/site-packages/flax/linen.py", 3)
    mine = StackFrame("/home/me/model.py", 5)
    assert own_line((library, mine)) is mine
    assert own_line((library,)) is library
    assert own_line(()) is None


@pytest.mark.parametrize("name", ["gpt_unrolled", "gpt_remat", "fsdp", "cnn_step"])
def test_lines_of_the_corpus(name: str, compiled: Callable[..., Any]) -> None:
    memory = compiled(name).capture.memory
    lost = [v.name for v in memory if not v.line and v.kind != "argument"]
    assert lost == []
