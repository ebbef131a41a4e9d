"""One host's ``XSpace`` → rows: how long each op ran, on which device, in which program.

Planes, lines and stats are XLA's (``xla/tsl/profiler/utils/xplane_schema.cc``; they are
read by ``xprof/convert/``):

    /host:metadata           event metadata "jit_step(7)": stats "Hlo Proto", program_id
    /host:CPU, any line      one event per thunk: stats hlo_op, hlo_module, program_id, run_id,
                             device_ordinal
    /device:TPU:0            "XLA Modules": one event per execution, "jit_step(7)"
                             "XLA Ops": one event per op; its metadata has the op's text as
                             name, its name as display_name, and stats program_id, hlo_category, …
                             "Async XLA Ops": from start to done, beside the others
    /device:TPU:0 SparseCore 1   "Sparse Core Ops": beside the TensorCore's
    /device:GPU:0            "Stream #13(Kernel)": one event per kernel; stats hlo_op, hlo_module,
                             program_id, correlation_id, cuda_graph_id. XProf adds lines of
                             its own ("XLA Ops", …), which repeat the same time.

Events of a line nest: a while contains what its body ran. Each has its total time, and its
self time without what is inside. Times of devices come from device_offset_ps and
device_duration_ps where the event has them, as in XProf.

On CPU an op's own event may be only its dispatch: what it leaves to a pool of threads has ended
before the event "end: op", which consumes the context (_c) that the op produced (_p). The thread
that ends it first runs what was waiting for it, as one more "ThunkExecutor::Execute":

    op dispatched ├┤
    pool of threads  ├── its work ──┤├ ThunkExecutor::Execute: the next ops ┤├ "end: op"

A GPU's streams also
have copies that no op asked for (MemcpyD2H, MemcpyOther): their time counts, but under no op.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .lanes import Key, LaneBuilder, place_ps

_NAME = re.compile(r"^%?([\w.\-]+)(?:\s*=\s|$)")
_PROGRAM = re.compile(r"^(.*)\((\d+)\)$", re.DOTALL)
_PLANE = re.compile(r"^/device:(TPU|GPU):(\d+)(?: SparseCore.*)?$")
_DERIVED = frozenset(
    (
        "Steps", "XLA Modules", "XLA Ops", "Framework Name Scope", "Framework Ops",
        "TensorFlow Name Scope", "TensorFlow Ops", "Source code", "Source Code",
        "Launch Stats", "Async XLA Ops", "_counters_",
    )
)  # fmt: skip
_BESIDE = frozenset(("Async XLA Ops", "Sparse Core Ops"))
# lines that nothing else repeats
_OWN = frozenset(("Steps", "XLA Modules", "XLA Ops", *_BESIDE))
_REPEATED = "on lines that repeat what others have"
_HOST = "on the host's threads"
_WANTED = frozenset(
    (
        "hlo_op", "hlo_module", "program_id", "run_id", "device_ordinal", "device_offset_ps",
        "device_duration_ps", "kernel_details", "cuda_graph_id", "Hlo Proto", "hlo_proto",
        "_p", "_pt", "_c", "_ct",
        "device_type_string", "device_vendor", "core_count", "memory_size",
    )
)  # fmt: skip

_EXECUTE = "ThunkExecutor::Execute"
_AT_ONCE = 50_000_000  # picoseconds between what an ended op triggered and the event of its end


@dataclass(slots=True)
class OpSums:
    """Sums over the events of one op on one device; picoseconds."""

    total: float = 0.0
    own: float = 0.0
    count: int = 0


@dataclass(frozen=True, slots=True)
class Chip:
    """What a trace says about its devices; "" and 0 if it does not."""

    platform: str  # "tpu", "gpu"
    kind: str = ""  # "TPU v6 Lite"
    vendor: str = ""  # "AMD"
    cores: int = 0
    memory_bytes: int = 0


@dataclass
class PlaneContents:
    """What a host's planes hold. ``ops`` by (program, op, device, runs beside the others);
    ``spans`` from the begin to the end of a program's executions, by (program, device).
    """

    ops: dict[tuple[Key, str, int, bool], OpSums] = field(default_factory=dict)
    protos: dict[Key, bytes] = field(default_factory=dict)
    executions: dict[tuple[Key, int], int] = field(default_factory=dict)
    unnamed: dict[str, float] = field(default_factory=dict)  # kernels of no op, picoseconds
    kinds: dict[int, str] = field(default_factory=dict)  # device → "TPU:0"
    spans: dict[tuple[Key, int], float] = field(default_factory=dict)  # picoseconds
    chip: Chip | None = None
    lanes: list[LaneBuilder] = field(default_factory=lambda: [LaneBuilder()])


class _Event(NamedTuple):
    start: int
    end: int
    op: str
    key: Key
    device: int
    place: tuple[int, int]  # begin and end on the clock of all lines


def read_planes(space: Any) -> PlaneContents:
    """Rows of every device; the host's own thunks only for programs that no device ran."""
    devices, host = PlaneContents(), PlaneContents()
    for plane in space.planes:
        name = text(plane.name)
        reader = _Plane(plane)
        reader.protos(devices.protos)
        m = _PLANE.match(name)
        if m:
            device = int(m.group(2))
            devices.kinds.setdefault(device, f"{m.group(1)}:{device}")
            devices.chip = devices.chip or reader.chip(m.group(1).lower())
            if m.group(1) == "TPU":
                reader.tpu(device, devices)
            else:
                reader.gpu(device, devices)
        elif not name.startswith("/device:"):
            reader.cpu(host)
    on_devices = {key for key, _, _, _ in devices.ops}
    for row, sums in host.ops.items():
        if row[0] not in on_devices:
            devices.ops[row] = sums
            devices.kinds.setdefault(row[2], f"CPU:{row[2]}")
    for where, count in host.executions.items():
        if where[0] not in on_devices:
            devices.executions[where] = count
    for where, span in host.spans.items():
        if where[0] not in on_devices:
            devices.spans[where] = span
    devices.lanes.append(host.lanes[0].without(on_devices, _HOST))
    return devices


class _Plane:
    def __init__(self, plane: Any) -> None:
        self.plane = plane
        self.names = {e.key: text(e.value.name) for e in plane.stat_metadata}
        self.wanted = {k: n for k, n in self.names.items() if n in _WANTED}
        self.events = {e.key: e.value for e in plane.event_metadata}
        self._about: dict[int, tuple[str, dict[str, Any]]] = {}

    def stats(self, owner: Any) -> dict[str, Any]:
        out: dict[str, Any] = {}
        wanted = self.wanted
        for s in owner.stats:  # for every event: check first what is most often set
            name = wanted.get(s.metadata_id)
            if name is None:
                continue
            value: Any = s.int64_value or s.uint64_value
            if not value:
                if s.ref_value:
                    value = self.names.get(s.ref_value, "")
                elif s.str_value:
                    value = text(s.str_value)
            out[name] = value
        return out

    def chip(self, platform: str) -> Chip:
        """What the plane says about its device."""
        said = self.stats(self.plane)
        return Chip(
            platform,
            str(said.get("device_type_string") or ""),
            str(said.get("device_vendor") or ""),
            int(said.get("core_count") or 0),
            int(said.get("memory_size") or 0),
        )

    def about(self, metadata_id: int) -> tuple[str, dict[str, Any]]:
        """(op or name of a metadata entry, its stats): shared by all executions of an op."""
        found = self._about.get(metadata_id)
        if found is None:
            entry = self.events.get(metadata_id)
            stats = self.stats(entry) if entry is not None else {}
            name = text(entry.name) if entry is not None else ""
            shown = text(entry.display_name) if entry is not None else ""
            m = _NAME.match(shown) or _NAME.match(name)
            found = self._about[metadata_id] = (m.group(1) if m else "", stats)
        return found

    def protos(self, out: dict[Key, bytes]) -> None:
        """The HLO of programs, from ``/host:metadata``."""
        for key, entry in self.events.items():
            for s in entry.stats:
                if self.wanted.get(s.metadata_id) in ("Hlo Proto", "hlo_proto") and s.bytes_value:
                    name = text(entry.name) or str(key)
                    out[program_key(name)] = bytes(s.bytes_value)

    def cpu(self, out: PlaneContents) -> None:
        runs: dict[tuple[Key, int], dict[Any, tuple[int, int]]] = {}
        lines: list[list[tuple[_Event, dict[str, Any]]]] = []
        ends: dict[Any, int] = {}
        executes = {k for k, e in self.events.items() if text(e.name) == _EXECUTE}
        threads = [text(line.name) for line in self.plane.lines]
        for line in self.plane.lines:
            found = []
            followed: list[tuple[int, int]] = []  # (end, start) of what ended ops triggered
            over = []
            for e in line.events:
                stats = self.stats(e)
                if e.metadata_id in executes:
                    start, end = _span(e, stats, line)
                    followed.append((end, start))
                if "_c" in stats:  # an op's work ended before, maybe begun on another thread
                    over.append((stats, _span(e, stats, line)[0]))
                op = stats.get("hlo_op")
                if op:
                    device = int(stats.get("device_ordinal", 0))
                    start, end = _span(e, stats, line)
                    event = _Event(start, end, _innermost(op), _key(stats), device, (start, end))
                    found.append((event, stats))
            out.lanes[0].skip(_HOST, len(line.events) - len(found))
            lines.append(found)
            followed.sort()
            for stats, at in over:
                k = bisect_right(followed, (at, at)) - 1
                if k >= 0 and at - followed[k][0] < _AT_ONCE:
                    at = followed[k][1]
                ends[stats.get("_ct"), stats["_c"]] = at
        for number, found in enumerate(lines):
            _add([event for event, _ in found], out, False)
            for e, stats in found:
                done = max(e.end, ends.get((stats.get("_pt"), stats.get("_p")), e.end))
                thread = (threads[number], False, number)
                out.lanes[0].add(e.device, thread, (e.start, done), done - e.start, e.op, e.key)
                row = out.ops[e.key, e.op, e.device, False]
                row.total += done - e.end
                row.own += done - e.end
                if "run_id" in stats:
                    mine = runs.setdefault((e.key, e.device), {})
                    first, last = mine.get(stats["run_id"], (e.start, done))
                    mine[stats["run_id"]] = min(first, e.start), max(last, done)
        for where, spans in runs.items():
            out.executions[where] = len(spans)
            out.spans[where] = sum(last - first for first, last in spans.values())
            for span in spans.values():
                out.lanes[0].ran(*where, span)

    def tpu(self, device: int, out: PlaneContents) -> None:
        modules = [x for x in self.plane.lines if text(x.name) == "XLA Modules"]
        spans = []
        for line in modules:
            for e in line.events:
                entry = self.events.get(e.metadata_id)
                ran = program_key(text(entry.name) if entry is not None else "")
                span = _span(e, self.stats(e), line)
                spans.append((*span, ran))
                out.lanes[0].ran(ran, device, place_ps(e, line, span))
                out.executions[ran, device] = out.executions.get((ran, device), 0) + 1
                long = spans[-1][1] - spans[-1][0]
                out.spans[ran, device] = out.spans.get((ran, device), 0.0) + long
        spans.sort(key=lambda s: s[:2])
        ids: dict[int | None, Key] = {k[1]: k for _, _, k in spans if k[1] is not None}
        ids |= {key[1]: key for key in out.protos if key[1] is not None}
        for number, line in enumerate(self.plane.lines):
            name = text(line.name)
            if name != "XLA Ops" and name not in _BESIDE:
                self._other_line(device, number, line, out)
                continue
            where = (name, name in _BESIDE, number)
            events = []
            at = 0
            for e in sorted(line.events, key=lambda x: x.offset_ps):
                label, shared = self.about(e.metadata_id)
                stats = self.stats(e)
                named = stats.get("hlo_op") or shared.get("hlo_op")
                op = _innermost(named) if named else label
                start, end = _span(e, stats, line)
                while at + 1 < len(spans) and spans[at + 1][0] <= start:
                    at += 1
                within = spans and spans[at][0] <= start < max(spans[at][:2])
                inside = spans[at][2] if within else None
                place = place_ps(e, line, (start, end))
                if not op:
                    label = self.label(e)
                    out.lanes[0].add(device, where, place, end - start, label, None)
                    if name in _BESIDE:
                        continue
                    out.unnamed[label] = out.unnamed.get(label, 0.0) + (end - start)
                    continue
                given = stats.get("program_id", shared.get("program_id"))
                key = ids.get(unsigned(given)) if given is not None else None
                key = key or inside or _key({**shared, **stats})
                events.append(_Event(start, end, op, key, device, place))
            _add(events, out, name in _BESIDE)
            _draw(events, where, out)

    def label(self, event: Any) -> str:
        """The name of an event that is not an operation."""
        entry = self.events.get(event.metadata_id)
        return (text(entry.display_name) or text(entry.name)) if entry is not None else "?"

    def _other_line(self, device: int, number: int, line: Any, out: PlaneContents) -> None:
        """A line of executions, steps or whatever else the device wrote."""
        name = text(line.name)
        if name in _DERIVED and name not in _OWN:
            out.lanes[0].skip(_REPEATED, len(line.events))
            return
        for e in line.events:
            start, end = _span(e, self.stats(e), line)
            place = place_ps(e, line, (start, end))
            where = (name, False, number)
            out.lanes[0].add(device, where, place, end - start, self.label(e), None)

    def gpu(self, device: int, out: PlaneContents) -> None:
        derived = []
        named = False
        for number, line in enumerate(self.plane.lines):
            where = (text(line.name), False, number)
            if where[0] in _DERIVED:
                derived.append((where, line))
                continue
            events = []
            for e in line.events:
                stats = {**self.about(e.metadata_id)[1], **self.stats(e)}
                op = stats.get("hlo_op")
                start, end = _span(e, stats, line)
                place = place_ps(e, line, (start, end))
                if op:
                    event = _Event(start, end, _innermost(op), _key(stats), device, place)
                    events.append(event)
                else:
                    label = self.label(e)
                    out.unnamed[label] = out.unnamed.get(label, 0.0) + e.duration_ps
                    out.lanes[0].add(device, where, place, end - start, label, None)
            named = named or bool(events)
            _add(events, out, False)
            _draw(events, where, out)
        for where, line in derived:
            if where[0] != "XLA Ops":
                if where[0] in ("Steps", "XLA Modules"):
                    self._other_line(device, where[2], line, out)
                else:
                    out.lanes[0].skip(_REPEATED, len(line.events))
                continue
            if named:
                out.lanes[0].skip(_REPEATED, len(line.events))
                continue
            events = []  # only what XProf derived is there
            for e in line.events:
                label, shared = self.about(e.metadata_id)
                stats = {**shared, **self.stats(e)}
                op = _innermost(stats["hlo_op"]) if stats.get("hlo_op") else label
                if op:
                    start, end = _span(e, stats, line)
                    place = place_ps(e, line, (start, end))
                    events.append(_Event(start, end, op, _key(stats), device, place))
            _add(events, out, False)
            _draw(events, where, out)


def _span(event: Any, stats: dict[str, Any], line: Any) -> tuple[int, int]:
    """Where an event begins and ends, picoseconds: by the device's clock where it has one."""
    if "device_duration_ps" in stats and "device_offset_ps" in stats:
        start = int(stats["device_offset_ps"])
        return start, start + int(stats["device_duration_ps"])
    start = line.timestamp_ns * 1000 + event.offset_ps
    return start, start + event.duration_ps


def _add(events: list[_Event], out: PlaneContents, beside: bool) -> None:
    """Adds a line's events. The self time of one leaves out those that it contains."""
    for event, own in _self_times(events):
        row = out.ops.setdefault((event.key, event.op, event.device, beside), OpSums())
        row.total += event.end - event.start
        row.own += own
        row.count += 1


def _draw(events: list[_Event], where: tuple[str, bool, int], out: PlaneContents) -> None:
    for e in events:
        out.lanes[0].add(e.device, where, e.place, e.end - e.start, e.op, e.key)


def _self_times(events: list[_Event]) -> Iterator[tuple[_Event, int]]:
    events.sort(key=lambda e: (e.start, -e.end))
    open_: list[tuple[_Event, int]] = []  # (event, time of what it contains)
    for e in events:
        while open_ and open_[-1][0].end < e.end:
            held, inside = open_.pop()
            yield held, max(0, held.end - held.start - inside)
        if open_:
            held, inside = open_[-1]
            open_[-1] = (held, inside + e.end - e.start)
        open_.append((e, 0))
    for held, inside in reversed(open_):
        yield held, max(0, held.end - held.start - inside)


def _key(stats: dict[str, Any]) -> Key:
    name, number = program_key(str(stats.get("hlo_module") or ""))
    program = unsigned(stats.get("program_id"))
    return name, program if program is not None else number


def program_key(label: str) -> Key:
    """``jit_step(7)`` → ("jit_step", 7)."""
    m = _PROGRAM.match(label)
    return (m.group(1), int(m.group(2))) if m else (label, None)


def unsigned(value: Any) -> int | None:
    """A program id, which some write as signed; None for none."""
    if value is None or value == "":
        return None
    try:
        return int(value) & 0xFFFF_FFFF_FFFF_FFFF
    except (TypeError, ValueError):
        return None


def _innermost(op: Any) -> str:
    """``while.3::fusion.2`` → ``fusion.2``."""
    return str(op).rpartition("::")[2].lstrip("%")


def text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")
