"""The four stages of a live program as Modules; optimized is the default everywhere."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from ..hlo import Module
from ..hlo.buffers import BufferAssignment
from ..readers import ReadError, read_modules
from ..readers.proto.proto import buffer_assignment_of, read_buffer_assignment, read_proto
from . import jaxpr
from .cells import NONE, Cells
from .compat import jax_api as _compat
from .dumps.stderr import stderr_held
from .errors import CaptureError
from .marks import marks
from .marks.marks import Marked


def from_jaxpr(traced: Any, cells: Cells = NONE) -> Module:
    """The traced program as it was written, before any lowering."""
    names, _ = _compat.debug_names(traced)
    name = str(getattr(traced, "fun_name", "") or "jaxpr")
    return cells.module(jaxpr.to_module(traced.jaxpr, name, names))


def from_stablehlo(lowered: Any, marked: Marked | None = None, cells: Cells = NONE) -> Module:
    """What jax hands to XLA, with source locations; operations numbered as ``marked`` does."""

    def read(text: str) -> Module:
        return _read(cells.text(text), "stablehlo")

    module = read(lowered.as_text("stablehlo", debug_info=True))
    return module if marked is None else marks.of_stablehlo(marked, module, read)


def from_hlo(lowered: Any, marked: Marked | None = None, cells: Cells = NONE) -> Module:
    """HLO before any optimisation; with op names and stack frames where jaxlib keeps them."""
    proto = _compat.hlo_proto_before_optimization(lowered if marked is None else marked.lowered)
    if proto is not None:
        module = cells.module(_read(proto, "hlo"))
        return module if marked is None else marks.take_out_of_proto(marked, module)
    computation = lowered.compiler_ir("hlo")
    if computation is None:
        raise CaptureError("this program has no HLO before optimisation; use stage='stablehlo'")
    return _read(cells.text(computation.as_hlo_text()), "hlo")


def from_executable(
    compiled: Any,
    dumped: Callable[[], str | None],
    marked: Marked | None = None,
    cells: Cells = NONE,
) -> Module:
    """The optimised module: from its text, else its proto, else from what XLA ``dumped``.

    ``marked``: what was compiled is this program, and its marks are taken out.
    Both ``as_text()`` and the proto fail a check on some TPU modules with async updates.
    """
    cause: Exception | None = None
    text: str | None = None
    proto: bytes | None = None
    try:
        with stderr_held():  # a failed check also prints its C++ stack
            text = compiled.as_text()
    except Exception as error:
        cause = error
    if text:
        return optimized(text, marked, cells)
    with contextlib.suppress(Exception), stderr_held():
        proto = _compat.executable_proto(compiled)
    if proto is not None:
        module = cells.module(_read(proto, "optimized"))
        return module if marked is None else marks.take_out_of_proto(marked, module)
    text = dumped()
    if text is None:
        said = f" ({str(cause).splitlines()[0][:200]})" if cause else ""
        raise CaptureError(
            f"XLA gives neither the text nor the proto of this optimised module{said}; "
            "capture the function itself, or dump it with XLA_FLAGS=--xla_dump_to=DIR and "
            "hs.read the folder"
        ) from cause
    return optimized(text, marked, cells)


def optimized(text: str, marked: Marked | None, cells: Cells = NONE) -> Module:
    """The optimised module from its text, without its marks."""
    text = cells.text(text)
    if marked is None:
        return _read(text, "optimized")
    return marks.take_out(marked, text, lambda clean: _read(clean, "optimized"))


def buffer_assignment(compiled: Any, dumped: bytes | None) -> BufferAssignment | None:
    """XLA's allocations with offsets: from the executable (CPU), else from its dump (TPU)."""
    buffers = _compat.buffer_assignment_proto(compiled) if compiled is not None else None
    try:
        if buffers:
            return read_buffer_assignment(buffers, _compat.executable_proto(compiled))
        return buffer_assignment_of(dumped) if dumped else None
    except ReadError:
        return None


def _read(data: str | bytes, stage: str) -> Module:
    try:
        return read_modules(data)[0] if isinstance(data, str) else read_proto(data)
    except ReadError as error:
        raise CaptureError(f"cannot read the {stage} stage of this program: {error}") from error
