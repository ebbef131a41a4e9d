"""The four stages of a live program as Modules; optimized is the default of everything."""

from __future__ import annotations

from typing import Any

from ..hlo import Module
from ..readers import ReadError, read_modules
from . import _compat, jaxpr
from .errors import CaptureError


def from_jaxpr(traced: Any) -> Module:
    """The traced program as it was written, before any lowering."""
    names, _ = _compat.debug_names(traced)
    return jaxpr.to_module(traced.jaxpr, str(getattr(traced, "fun_name", "") or "jaxpr"), names)


def from_stablehlo(lowered: Any) -> Module:
    """What jax hands to XLA, with source locations."""
    return _read(lowered.as_text("stablehlo", debug_info=True), "stablehlo")


def from_hlo(lowered: Any) -> Module:
    """HLO before any optimisation; with op names and stack frames where jaxlib keeps them."""
    proto = _compat.hlo_proto_before_optimization(lowered)
    if proto is not None:
        return _read(proto, "hlo")
    computation = lowered.compiler_ir("hlo")
    if computation is None:
        raise CaptureError("this program has no HLO before optimisation; use stage='stablehlo'")
    return _read(computation.as_hlo_text(), "hlo")


def from_executable(compiled: Any) -> Module:
    """The optimised module, from its text; from its proto where XLA cannot print it.

    ``as_text()`` fails a check on some large TPU modules with async updates.
    """
    text: str | None = None
    cause: Exception | None = None
    try:
        text = compiled.as_text()
    except Exception as error:
        cause = error
    if text:
        return _read(text, "optimized")
    proto = _compat.executable_proto(compiled)
    if proto is None:
        raise CaptureError(
            "XLA gave neither the text nor the proto of the optimised module"
            + (f" ({str(cause).splitlines()[0][:200]})" if cause else "")
            + "; dump it with XLA_FLAGS=--xla_dump_to=DIR and hs.read the folder"
        ) from cause
    return _read(proto, "optimized")


def _read(data: str | bytes, stage: str) -> Module:
    try:
        return read_modules(data)[0]
    except ReadError as error:
        raise CaptureError(f"cannot read the {stage} stage of this program: {error}") from error
