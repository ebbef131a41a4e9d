"""Profiler traces (``*.xplane.pb``) → the time of each HLO op on each device.

    file, folder or bytes ─▶ one XSpace per host ─▶ xplane_planes.py: rows ─▶ Trace
    plugins/profile/<run>/<host>.xplane.pb        devices of all hosts numbered in sequence

Which of a trace's programs a Module is: ``xplane_match.py``. A file that breaks off is read
as far as its planes are whole, with a warning.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...hlo import ReadWarning
from ..errors import ReadError
from ..files.decode import saved_as_text
from ..files.gzipped import is_gzip, unwrap
from ..proto.schema import decode_error, message_class
from .lanes import Key, LaneBuilder, TraceEvents
from .lanes import joined as lanes_joined
from .planes import Chip, PlaneContents, read_planes, text


@dataclass(frozen=True, slots=True)
class OpTime:
    """All events of one op on one device: ``seconds`` in total, over ``count`` events.

    ``self_seconds`` leaves out nested events (None: there are none). ``beside`` marks time
    from start to done of an asynchronous op, during which others run.
    """

    module: str  # "" if not in the trace
    op: str
    device: int
    seconds: float
    count: int
    self_seconds: float | None = None
    program: int | None = None  # XLA's id of the compiled program, unsigned
    beside: bool = False


@dataclass(frozen=True, slots=True)
class TracedProgram:
    """A program whose HLO the trace carries."""

    name: str
    id: int | None
    proto: bytes  # serialised HloProto


@dataclass(frozen=True)
class Trace:
    """Times of ops by device, and the programs whose HLO the trace carries.

    ``executions`` counts, by (program, device), how often it ran, where the trace says so;
    ``unnamed`` is seconds of kernels and copies that belong to no HLO op; ``spans`` is seconds
    from the begin to the end of a program's executions, by (program, device); ``chip`` what the
    devices are; ``events`` every event of the devices.
    """

    ops: tuple[OpTime, ...]
    programs: tuple[TracedProgram, ...]
    executions: dict[tuple[Key, int], int]
    unnamed: dict[str, float]
    device_names: dict[int, str]  # "TPU:0", with several hosts "host-1 TPU:0"
    warnings: tuple[ReadWarning, ...] = ()
    spans: dict[tuple[Key, int], float] = field(default_factory=dict)
    chip: Chip | None = None
    events: TraceEvents = field(default_factory=TraceEvents, compare=False)

    @property
    def seconds(self) -> float:
        """Sum over all ops and devices, without asynchronous ops, which run beside others."""
        return sum(o.seconds for o in self.ops if not o.beside)


def find_traces(path: str | Path) -> list[Path]:
    """The file itself, or every host's file of the newest run under a folder such as XProf's.

    A run is the files of one folder, ``plugins/profile/<run>/<host>.xplane.pb``. Raises
    ``ReadError`` when there is none.
    """
    given = Path(path).expanduser()
    if given.is_dir():
        found = [p for end in ("pb", "pb.gz") for p in given.rglob(f"*.xplane.{end}")]
        if not found:
            raise ReadError(f"no *.xplane.pb under {given}")
        newest = max(found, key=lambda p: (p.stat().st_mtime, str(p)))
        return sorted((p for p in found if p.parent == newest.parent), key=_natural)
    if not given.is_file():
        raise ReadError(f"no trace at {given}")
    return [given]


def _natural(path: Path) -> list[Any]:
    return [int(x) if x.isdecimal() else x for x in re.split(r"(\d+)", path.name)]


def read_trace(source: str | Path | bytes) -> Trace:
    """Reads a trace file, all hosts of a folder's newest run, or bytes. Raises ``ReadError``.

    Devices of several hosts are numbered in sequence, host after host by name.
    """
    if isinstance(source, bytes):
        return _joined([("", *_read_host(source, "the trace"))])
    hosts = []
    for path in find_traces(source):
        try:
            data = path.read_bytes()
        except OSError as error:
            raise ReadError(f"cannot read {path}: {error.strerror or error}") from None
        hosts.append((re.sub(r"\.xplane\.pb(\.gz)?$", "", path.name), *_read_host(data, path.name)))
    return _joined(hosts)


def _read_host(data: bytes, name: str) -> tuple[PlaneContents, list[ReadWarning]]:
    warnings: list[ReadWarning] = []
    if is_gzip(data):
        data, warnings = unwrap(data, name)
    space = message_class("XSpace")()
    try:
        space.ParseFromString(data)
    except decode_error() as error:
        whole = _whole_planes(data)
        space.ParseFromString(whole)
        if not space.planes:
            lost = saved_as_text(data)
            raise ReadError(f"not a profiler trace (xplane.pb): {error}{lost}") from None
        names = ", ".join(text(p.name) for p in space.planes)
        warnings.append(ReadWarning(f"{name} is cut off; these planes are complete: {names}"))
    if not space.planes:
        raise ReadError(f"{name} has no planes: it is empty or not an xplane.pb")
    warnings += [ReadWarning(f"{name}: {text(e)}") for e in (*space.errors, *space.warnings)]
    return read_planes(space), warnings


def _whole_planes(data: bytes) -> bytes:
    """The leading fields of a cut XSpace that are complete."""
    at = 0
    while at < len(data) and data[at] & 7 == 2:
        size = shift = 0
        k = at + 1
        while k < len(data):
            size |= (data[k] & 127) << shift
            shift += 7
            k += 1
            if data[k - 1] < 128:
                break
        if k + size > len(data) or k + size <= at:
            break
        try:
            message_class("XSpace")().ParseFromString(data[at : k + size])
        except decode_error():
            break
        at = k + size
    return data[:at]


def _joined(hosts: Iterable[tuple[str, PlaneContents, list[ReadWarning]]]) -> Trace:
    hosts = list(hosts)
    ops: list[OpTime] = []
    programs: dict[Key, bytes] = {}
    executions: dict[tuple[Key, int], int] = {}
    unnamed: dict[str, float] = {}
    names: dict[int, str] = {}
    spans: dict[tuple[Key, int], float] = {}
    lanes: list[tuple[list[LaneBuilder], int]] = []
    first = 0
    for host, found, _ in hosts:
        lanes.append((found.lanes, first))
        for (key, op, device, beside), row in found.ops.items():
            seconds, own = row.total * 1e-12, row.own * 1e-12
            ops.append(OpTime(key[0], op, first + device, seconds, row.count, own, key[1], beside))
        programs |= found.protos
        executions |= {(key, first + d): n for (key, d), n in found.executions.items()}
        for kernel, picoseconds in found.unnamed.items():
            unnamed[kernel] = unnamed.get(kernel, 0.0) + picoseconds * 1e-12
        spans |= {(key, first + d): x * 1e-12 for (key, d), x in found.spans.items()}
        for device, kind in found.kinds.items():
            names[first + device] = f"{host} {kind}" if len(hosts) > 1 else kind
        first += 1 + max(found.kinds, default=-1)
    ops.sort(key=lambda o: (o.module, o.program or 0, o.op, o.device, o.beside))
    return Trace(
        tuple(ops),
        tuple(TracedProgram(name, number, proto) for (name, number), proto in programs.items()),
        executions,
        unnamed,
        names,
        tuple(w for _, _, warnings in hosts for w in warnings),
        spans,
        next((found.chip for _, found, _ in hosts if found.chip is not None), None),
        lanes_joined(lanes),
    )
