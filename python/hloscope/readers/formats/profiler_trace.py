"""The HLO that a profiler trace carries."""

from __future__ import annotations

from ...hlo import Module, ReadWarning
from ..errors import ReadError
from ..recognise import is_trace

NAME = "profiler trace"
SUFFIXES = (".xplane.pb",)
IS_CERTAIN = True

accepts = is_trace


def read(data: bytes, name: str = "") -> list[Module]:
    """The modules that a trace carries, the one with the most measured time first.

    Raises ``ReadError`` when it carries none: then the program's dump is needed too.
    """
    from ..proto.proto import read_proto
    from ..xplane.xplane import read_trace

    trace = read_trace(data)
    if not trace.programs:
        cut = f" ({trace.warnings[0]})" if trace.warnings else ""
        raise ReadError(
            f"{name or 'the trace'} carries no HLO{cut}; read the program's dump together with it: "
            "read('module.hlo', profile='….xplane.pb')"
        )
    seconds: dict[tuple[str, int | None], float] = {}
    for o in trace.ops:
        if not o.beside:
            key = o.module, o.program
            own = o.seconds if o.self_seconds is None else o.self_seconds
            seconds[key] = seconds.get(key, 0.0) + own
    found = [(seconds.get((p.name, p.id), 0.0), p) for p in trace.programs]
    found.sort(key=lambda f: -f[0])
    modules = [read_proto(p.proto, name) for _, p in found]
    if len(modules) > 1:
        listed = ", ".join(f"{k}: {p.name} ({s * 1e3:.3g} ms)" for k, (s, p) in enumerate(found))
        modules[0].warnings += (
            ReadWarning(
                f"{len(modules)} modules here, the one with the most measured time was taken; "
                f"choose with module=: {listed[:600]}",
                is_note=True,
            ),
        )
    return modules
