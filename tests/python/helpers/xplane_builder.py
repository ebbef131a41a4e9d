"""Profiler traces made by hand in XLA's layout, so that the expected times are known exactly.

There is no TPU or GPU to trace on: planes, lines, names and stats are those of
``xla/tsl/profiler/utils/xplane_schema.cc``, ``xla/backends/profiler/gpu/cupti_collector.cc``
and the tests of ``xprof/convert``; the programs in them are real compiles.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from hloscope.hlo import Computation, Instruction, Module
from hloscope.readers.proto.schema import message_class

FREE = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all"}
BASE_NS = 1_700_000_000_000_000_000


class Plane:
    """A plane under construction; metadata is shared by name, as in XPlaneBuilder."""

    def __init__(self, space: Any, name: str) -> None:
        self.plane = space.planes.add(id=len(space.planes), name=name.encode())
        self._stats: dict[str, int] = {}
        self._events: dict[tuple[str, Any], int] = {}

    def stat_id(self, name: str) -> int:
        if name not in self._stats:
            self._stats[name] = len(self._stats) + 1
            entry = self.plane.stat_metadata.add(key=self._stats[name])
            entry.value.id, entry.value.name = self._stats[name], name.encode()
        return self._stats[name]

    def stats(self, owner: Any, values: dict[str, Any], by_reference: bool = False) -> None:
        for name, value in values.items():
            stat = owner.stats.add(metadata_id=self.stat_id(name))
            if isinstance(value, bytes):
                stat.bytes_value = value
            elif isinstance(value, str) and by_reference:
                stat.ref_value = self.stat_id(value)
            elif isinstance(value, str):
                stat.str_value = value.encode()
            elif value >= 2**63:
                stat.uint64_value = value
            else:
                stat.int64_value = value

    def event_id(self, name: str, shown: str = "", **stats: Any) -> int:
        key = name, stats.get("program_id")
        if key not in self._events:
            self._events[key] = len(self._events) + 1
            entry = self.plane.event_metadata.add(key=self._events[key])
            entry.value.id, entry.value.name = self._events[key], name.encode()
            if shown:
                entry.value.display_name = shown.encode()
            self.stats(entry.value, stats)
        return self._events[key]

    def line(self, name: str) -> Any:
        for line in self.plane.lines:
            if line.name == name.encode():
                return line
        return self.plane.lines.add(
            id=len(self.plane.lines), name=name.encode(), timestamp_ns=BASE_NS
        )

    def event(self, line: str, metadata: int, start: int, long: int, **stats: Any) -> None:
        made = self.line(line).events.add(metadata_id=metadata, offset_ps=start, duration_ps=long)
        self.stats(made, stats, by_reference=True)


@dataclass
class Expected:
    """Picoseconds by (op, device): in total, without what is inside, from start to done."""

    total: dict[tuple[str, int], int] = field(default_factory=lambda: defaultdict(int))
    own: dict[tuple[str, int], int] = field(default_factory=lambda: defaultdict(int))
    flight: dict[tuple[str, int], int] = field(default_factory=lambda: defaultdict(int))


class TraceBuilder:
    """One host's XSpace."""

    def __init__(self, hostname: str = "") -> None:
        self.space = message_class("XSpace")()
        if hostname:
            self.space.hostnames.append(hostname.encode())
        self._planes: dict[str, Plane] = {}

    def plane(self, name: str) -> Plane:
        if name not in self._planes:
            self._planes[name] = Plane(self.space, name)
        return self._planes[name]

    def serialized(self) -> bytes:
        return bytes(self.space.SerializeToString())

    def metadata(self, name: str, program: int, module_proto: bytes) -> None:
        """The HLO of a program, on ``/host:metadata``."""
        plane = self.plane("/host:metadata")
        proto = message_class("HloProto")()
        proto.hlo_module.ParseFromString(module_proto)
        label = f"{name}({program})"
        plane.event_id(
            label, label, **{"Hlo Proto": proto.SerializeToString(), "program_id": program}
        )

    def tpu(
        self,
        module: Module,
        program: int,
        expected: Expected | None = None,
        *,
        device: int = 0,
        ordinal: int | None = None,
        start: int = 0,
        step: int = 0,
        trips: int = 3,
        modern: bool = True,
        skew: float = 1.0,
    ) -> int:
        """One execution on ``/device:TPU:<ordinal>`` from ``start``; returns where it ends, ps.

        Instruction k takes (200 + 7k + 3·device + step) ns, a loop's own overhead is 50 ns, a
        done waits 20 ns. ``modern`` writes display names and stats of metadata, which older
        traces lack. ``skew`` is the host's clock divided by the device's. ``expected`` gets the
        device's times under ``device``.
        """
        plane = self.plane(f"/device:TPU:{device if ordinal is None else ordinal}")
        run = _TpuRun(plane, program, expected or Expected(), device, step, trips, modern, skew)
        assert module.entry is not None
        end = run.computation(module.entry, start)
        label = plane.event_id(f"{module.name}({program})")
        run.event("XLA Modules", label, start, end - start)
        run.event("Steps", plane.event_id(str(step)), start, end - start)
        return end


@dataclass
class _TpuRun:
    plane: Plane
    program: int
    expected: Expected
    device: int
    step: int
    trips: int
    modern: bool
    skew: float
    began: dict[str, int] = field(default_factory=dict)

    def event(self, line: str, kind: int, start: int, long: int) -> None:
        clock = {"device_offset_ps": start, "device_duration_ps": long} if self.modern else {}
        self.plane.event(line, kind, round(start * self.skew), round(long * self.skew), **clock)

    def op(self, line: str, i: Instruction, start: int, long: int) -> None:
        text = f"%{i.name} = {i.shape.dense_text} {i.opcode}()"
        if self.modern:
            kind = self.plane.event_id(text, i.name, program_id=self.program, hlo_category=i.opcode)
        else:
            kind = self.plane.event_id(text)
        self.event(line, kind, start, long)

    def computation(self, c: Computation, at: int) -> int:
        where = self.device
        for i in c.instructions:
            if i.opcode in FREE:
                continue
            first, inside = at, 0
            if i.opcode == "while":
                at += 50_000
                for _ in range(self.trips):
                    for role in ("condition", "body"):
                        before = at
                        at = self.computation(dict(i.called)[role], at)
                        inside += at - before
            elif i.opcode.endswith("-done"):
                at += 20_000
                opener = i.operands[0]
                flight = at - self.began[opener.name]
                self.op("Async XLA Ops", opener, at - flight, flight)
                self.expected.flight[opener.name, where] += flight
            else:
                at += (200 + 7 * i.index + 3 * where + self.step) * 1000
                self.began[i.name] = first
            self.op("XLA Ops", i, first, at - first)
            self.expected.total[i.name, where] += at - first
            self.expected.own[i.name, where] += at - first - inside
        return at
