"""A captured call for another process: function, shapes and sources, without anything compiled."""

from __future__ import annotations

import io
import linecache
from collections.abc import Mapping
from typing import Any

import cloudpickle
import jax

from ...api.capture import Capture
from ...hlo.changes import CannotChange
from .. import topology
from ..compat import jax_api as _compat
from .call import GivenCall


def call_of(cap: Capture) -> GivenCall:
    """Raises ``CannotChange`` for a program without its function."""
    program: Any = cap.for_hosts.program
    call: GivenCall | None = getattr(getattr(program, "options", None), "call", None)
    if call is None:
        raise CannotChange(f"{cap.title} was captured without its function: capture the function")
    return call


def has_checkpoints(cap: Capture) -> bool:
    """Whether there is a ``jax.checkpoint`` in the program. Raises as ``call_of`` does."""
    call_of(cap)
    program: Any = cap.for_hosts.program
    return bool(_compat.checkpointed(program.traced.jaxpr))


def packed(cap: Capture, *, explains: bool = True) -> bytes:
    """What ``captured`` needs. Raises ``CannotChange`` for what cannot be sent.

    ``explains``: where its instructions come from is known there, which some changes need.
    """
    program: Any = cap.for_hosts.program
    call = call_of(cap)
    sources = {program.cells.file(name): text for name, text in cap.target.sources.items()}
    options = {**call.options, "hardware": cap.target.hardware or call.options["hardware"]}
    if not explains:
        options |= {"provenance": False, "exact": False}
    pack = *_apart(call.fn), call.args, dict(call.kwargs), options, sources
    data = io.BytesIO()
    try:
        _Pickler(data, str(options.get("topology") or "")).dump(pack)
    except Exception as error:
        first = (str(error).splitlines() or [""])[0][:200]
        raise CannotChange(
            f"the function cannot be sent to another process ({first}); without isolate and "
            "executor, this one compiles"
        ) from None
    return data.getvalue()


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Sends devices by their number: another process has its own."""

    def __init__(self, file: Any, topology: str) -> None:
        super().__init__(file)
        self.topology = topology

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, jax.Device):
            if _compat.attached((obj,)):
                return _attached, (obj.platform, obj.id)
            if self.topology:
                devices = topology.topology_devices(self.topology)
                return _of_topology, (self.topology, devices.index(obj))
        return super().reducer_override(obj)


def _attached(platform: str, number: int) -> Any:
    return next(d for d in jax.devices(platform) if d.id == number)


def _of_topology(name: str, index: int) -> Any:
    return topology.topology_devices(name)[index]


def _apart(fn: Any) -> tuple[Any, dict[str, Any] | None]:
    """A jitted function as the plain one and its options: by itself it cannot be sent."""
    if not hasattr(fn, "lower"):
        return fn, None
    given = _compat.jit_options(fn) or _compat.jit_flags(fn)
    if given is None:
        raise CannotChange(f"a {type(fn).__name__} cannot be sent to another process")
    return fn.__wrapped__, given


def captured(pack: bytes) -> Capture:
    """The program before it is compiled, which ``what_if`` can change."""
    from ..entry import capture

    fn, jitted, args, kwargs, options, sources = cloudpickle.loads(pack)
    _remember(sources)
    fn = fn if jitted is None else jax.jit(fn, **jitted)
    return capture(fn, *args, stage="stablehlo", **options, **kwargs)


def _remember(sources: Mapping[str, str]) -> None:
    """Cells of a notebook, which are no files."""
    for file, text in sources.items():
        if file not in linecache.cache:
            linecache.cache[file] = (len(text), None, text.splitlines(True), file)
