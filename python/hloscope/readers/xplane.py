"""Profiler traces (``*.xplane.pb``) → the time of each HLO op on each device.

What an op's event looks like depends on the platform:

    CPU   /host:CPU, any line      stats hlo_op, hlo_module, device_ordinal
    GPU   /device:GPU:0            stats hlo_op, hlo_module; the device is the plane's number
    TPU   /device:TPU:0, "XLA Ops" the event's name begins with the instruction, "%fusion.3 = …"

Events of one device that nest (a while and what it runs) each count their whole duration,
as the trace has it. The HLO protos that a trace carries are in ``Trace.modules``.
"""

from __future__ import annotations

import gzip
import re
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError

from ..hlo import Module, ReadWarning
from .errors import ReadError
from .proto import read_proto
from .proto_schema import message_class

_DEVICE = re.compile(r"^/device:[^:]+:(\d+)")
_NAME = re.compile(r"^%?([\w.\-]+)")


@dataclass(frozen=True, slots=True)
class OpTime:
    """All events of one op on one device: ``seconds`` in total, over ``count`` events."""

    module: str  # "" when the trace does not say
    op: str
    device: int
    seconds: float
    count: int


@dataclass(frozen=True)
class Trace:
    """Times of ops by device, and the HLO that the trace carries, by module name."""

    ops: tuple[OpTime, ...]
    modules: dict[str, bytes]  # serialised HloProto

    @property
    def seconds(self) -> float:
        """Sum over all ops and devices."""
        return sum(o.seconds for o in self.ops)


_PLANE = re.compile(
    rb"\x0a[\x80-\xff]*[\x00-\x7f](\x08[\x80-\xff]*[\x00-\x7f])?"
    rb"\x12[\x00-\x7f](/host:|/device:|Task Environment|#)"
)


def is_trace(data: bytes) -> bool:
    """Whether the bytes begin with a plane of a trace: its number, then its name."""
    if data[:2] == b"\x1f\x8b":
        try:
            data = zlib.decompressobj(31).decompress(data, 256)
        except zlib.error:
            return False
    return _PLANE.match(data[:256]) is not None


def trace_modules(data: bytes, name: str = "") -> list[Module]:
    """The modules that a trace carries, the one with most measured time first.

    Raises ``ReadError`` when it carries none: then the program's dump is needed too.
    """
    trace = read_trace(data)
    seconds: dict[str, float] = {}
    for o in trace.ops:
        seconds[o.module] = seconds.get(o.module, 0.0) + o.seconds
    modules = []
    for proto in trace.modules.values():
        modules.append(read_proto(proto, name))
    if not modules:
        raise ReadError(
            f"{name or 'the trace'} carries no HLO; read the program's dump together with it: "
            "read('module.hlo', profile='….xplane.pb')"
        )
    modules.sort(key=lambda m: -seconds.get(m.name, 0.0))
    if len(modules) > 1:
        listed = ", ".join(
            f"{k}: {m.name} ({seconds.get(m.name, 0.0) * 1e3:.3g} ms)"
            for k, m in enumerate(modules[:10])
        )
        modules[0].warnings += (
            ReadWarning(
                f"{len(modules)} modules here, the one with most measured time was taken; "
                f"choose with module=: {listed}"
            ),
        )
    return modules


def find_trace(path: str | Path) -> Path:
    """The file itself, or the newest ``*.xplane.pb`` under a folder such as XProf's.

    Raises ``ReadError`` when there is none.
    """
    given = Path(path)
    if given.is_dir():
        found = sorted(given.rglob("*.xplane.pb"), key=lambda p: (p.stat().st_mtime, str(p)))
        if not found:
            raise ReadError(f"no *.xplane.pb under {given}")
        return found[-1]
    if not given.is_file():
        raise ReadError(f"no trace at {given}")
    return given


def read_trace(source: str | Path | bytes) -> Trace:
    """Reads a trace file, a folder that holds one, or its bytes. Raises ``ReadError``."""
    data = source if isinstance(source, bytes) else find_trace(source).read_bytes()
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    space = message_class("XSpace")()
    try:
        space.ParseFromString(data)
    except DecodeError as error:
        raise ReadError(f"not a profiler trace (xplane.pb): {error}") from None
    if not space.planes:
        raise ReadError("the trace has no planes: it is empty or not an xplane.pb")
    sums: dict[tuple[str, str, int], list[float]] = {}
    modules: dict[str, bytes] = {}
    for plane in space.planes:
        _plane(plane, sums, modules)
    ops = tuple(
        OpTime(module, op, device, picoseconds * 1e-12, int(count))
        for (module, op, device), (picoseconds, count) in sorted(sums.items())
    )
    return Trace(ops, modules)


def _plane(plane: Any, sums: dict[tuple[str, str, int], list[float]], modules: Any) -> None:
    stats = {e.key: _text(e.value.name) for e in plane.stat_metadata}
    events = {e.key: e.value for e in plane.event_metadata}
    for key, event in events.items():
        for stat in event.stats:
            name = stats.get(stat.metadata_id, "")
            if name in ("hlo_proto", "Hlo Proto") and stat.bytes_value:
                modules[_text(event.name) or str(key)] = bytes(stat.bytes_value)
    m = _DEVICE.match(_text(plane.name))
    device = int(m.group(1)) if m else None
    for line in plane.lines:
        by_name = device is not None and _text(line.name) == "XLA Ops"
        for event in line.events:
            found = _stats(event, stats)
            op = found.get("hlo_op")
            if op is None and by_name:
                named = _NAME.match(_text(events[event.metadata_id].name))
                op = named.group(1) if named else None
            if not op:
                continue
            ordinal = found.get("device_ordinal")
            where = int(ordinal) if ordinal is not None else device if device is not None else 0
            module = str(found.get("hlo_module", "")).partition("(")[0]
            row = sums.setdefault((module, str(op).lstrip("%"), where), [0.0, 0])
            row[0] += event.duration_ps
            row[1] += 1


def _stats(event: Any, names: dict[int, str]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for s in event.stats:
        name = names.get(s.metadata_id, "")
        if name not in ("hlo_op", "hlo_module", "device_ordinal"):
            continue
        if s.HasField("str_value"):
            out[name] = _text(s.str_value)
        elif s.HasField("ref_value"):
            out[name] = names.get(s.ref_value, "")
        elif s.HasField("int64_value"):
            out[name] = s.int64_value
        elif s.HasField("uint64_value"):
            out[name] = s.uint64_value
    return out


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")
