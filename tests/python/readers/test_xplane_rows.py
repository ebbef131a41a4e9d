# ruff: noqa: E501
"""Small traces of which every row, run and lane is known; cuts at every byte."""

from __future__ import annotations

import gzip
import os
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hloscope.readers import ReadError
from hloscope.readers.formats.profiler_trace import read as trace_modules
from hloscope.readers.recognise import is_trace
from hloscope.readers.xplane.lanes import LaneBuilder, joined, place_ps
from hloscope.readers.xplane.planes import Chip, program_key, unsigned
from hloscope.readers.xplane.xplane import Trace, find_traces, read_trace
from test_proto_texts import made as proto_of
from xplane_builder import TraceBuilder


def module_proto(name: str = "jit_a", operations: str = "fusion.1") -> bytes:
    body = "instructions { id: 99 name: 'p' opcode: 'parameter' shape { element_type: 11 } } "
    for k, op in enumerate(operations.split()):
        body += f"instructions {{ id: {k} name: '{op}' opcode: 'tanh' operand_ids: 99 shape {{ element_type: 11 }} }} "
    text = f"name: '{name}' entry_computation_id: 1 computations {{ id: 1 name: 'main' {body} }}"
    data: bytes = proto_of("HloModule", text).SerializeToString()
    return data


def rows(trace: Trace) -> list[Any]:
    """(program, op, device, picoseconds, its own, how many), + where it runs beside the others."""
    return [
        (o.module, o.program, o.op, o.device, round(o.seconds * 1e12), round((o.self_seconds or 0) * 1e12), o.count)
        + (("beside",) if o.beside else ())
        for o in trace.ops
    ]  # fmt: skip


def first(trace: Trace) -> int:
    return min(round(float(x.start.min()) * 1e12) for x in trace.events.lanes)


def drawn(trace: Trace) -> list[Any]:
    """Each lane's events: (begin, end, length, text, program), picoseconds from the first begin."""
    e, zero = trace.events, first(trace)
    return [
        (x.device, x.name, x.beside, [
            (round(s * 1e12) - zero, round(t * 1e12) - zero, round(n * 1e12), e.texts[k],
             e.programs[p] if p >= 0 else None)
            for s, t, n, k, p in zip(x.start, x.end, x.seconds, x.text, x.program, strict=True)
        ])
        for x in e.lanes
    ]  # fmt: skip


def ran(trace: Trace) -> list[Any]:
    zero = first(trace)
    return [
        (k, d, round(a * 1e12) - zero, round(b * 1e12) - zero) for k, d, a, b in trace.events.runs
    ]


def picoseconds(found: dict[Any, float]) -> dict[Any, int]:
    return {k: round(v * 1e12) for k, v in found.items()}


A, B, NONE = ("jit_a", 7), ("jit_b", 8), ("", None)


def tpu() -> TraceBuilder:
    """Two programs on TPU 3, one of them twice; operations that say their program and some that
    do not, on the device's clock and on the host's."""
    made = TraceBuilder()
    made.metadata("jit_a", 7, module_proto())
    plane = made.plane("/device:TPU:3")
    plane.stats(plane.plane, {
        "device_type_string": "TPU v6 Lite", "device_vendor": "G", "core_count": 2, "memory_size": 1024,
    })  # fmt: skip
    for label, at, long in (
        ("jit_b(8)", 2000, 1000),
        ("jit_a(7)", 0, 1000),
        ("jit_a(7)", 5000, 500),
    ):
        plane.event("XLA Modules", plane.event_id(label), at, long)
    plane.event("Steps", plane.event_id("0"), 0, 3000)
    fusion = plane.event_id("%fusion.1 = f32[] fusion()", "fusion.1")
    for at, long in (
        (100, 200),
        (999, 1),
        (1000, 10),
        (2000, 30),
        (2999, 1),
        (3000, 500),
        (5000, 7),
    ):
        plane.event("XLA Ops", fusion, at, long)
    plane.event("XLA Ops", plane.event_id("%said.2 = f32[] add()", program_id=8), 150, 50)
    plane.event(
        "XLA Ops", plane.event_id("loop"), 2100, 100, hlo_op="while.3::%add.4", program_id=7
    )
    plane.event("XLA Ops", plane.event_id("!?"), 2500, 40)
    plane.event("XLA Ops", plane.event_id("?!", "a copy"), 2600, 60)
    plane.event("Async XLA Ops", plane.event_id("%c.5 = f32[] copy-start()"), 200, 2000)
    plane.event("Async XLA Ops", plane.event_id("!?"), 300, 11)
    plane.event("Framework Ops", plane.event_id("!?"), 0, 10)
    plane.event("TC Overlay", plane.event_id("over"), 0, 9)
    core = made.plane("/device:TPU:3 SparseCore 1")
    core.event("Sparse Core Ops", core.event_id("%s.6 = f32[] add()", program_id=7), 0, 70)
    made.plane("/device:CUSTOM:x").event("XLA Ops", 1, 0, 5, hlo_op="no")
    made.plane("/device:TPU:3x").event("XLA Ops", 1, 0, 5, hlo_op="no")
    return made


def test_every_row_of_a_tpu() -> None:
    trace = read_trace(tpu().serialized())
    assert rows(trace) == [
        ("", None, "fusion.1", 3, 510, 510, 2),  # when no program ran
        ("jit_a", 7, "add.4", 3, 100, 100, 1),
        ("jit_a", 7, "c.5", 3, 2000, 2000, 1, "beside"),
        ("jit_a", 7, "fusion.1", 3, 208, 158, 3),
        ("jit_a", 7, "s.6", 3, 70, 70, 1, "beside"),
        ("jit_b", 8, "fusion.1", 3, 31, 31, 2),
        ("jit_b", 8, "said.2", 3, 50, 50, 1),
    ]
    assert trace.seconds == pytest.approx(899e-12)
    assert trace.executions == {(A, 3): 2, (B, 3): 1}
    assert picoseconds(trace.spans) == {(A, 3): 1500, (B, 3): 1000}
    assert picoseconds(trace.unnamed) == {"!?": 40, "a copy": 60}
    assert trace.device_names == {3: "TPU:3"}
    assert trace.chip == Chip("tpu", "TPU v6 Lite", "G", 2, 1024)
    assert [(p.name, p.id) for p in trace.programs] == [A]
    assert ran(trace) == [(A, 3, 0, 1000), (B, 3, 2000, 3000), (A, 3, 5000, 5500)]
    f = "fusion.1"
    assert drawn(trace) == [
        (3, "XLA Modules", False, [
            (0, 1000, 1000, "jit_a(7)", None), (2000, 3000, 1000, "jit_b(8)", None),
            (5000, 5500, 500, "jit_a(7)", None)]),
        (3, "Sparse Core Ops", True, [(0, 70, 70, "s.6", A)]),
        (3, "Steps", False, [(0, 3000, 3000, "0", None)]),
        (3, "XLA Ops", False, [
            (100, 300, 200, f, A), (150, 200, 50, "said.2", B), (999, 1000, 1, f, A),
            (1000, 1010, 10, f, NONE), (2000, 2030, 30, f, B), (2100, 2200, 100, "add.4", A),
            (2500, 2540, 40, "!?", None), (2600, 2660, 60, "a copy", None), (2999, 3000, 1, f, B),
            (3000, 3500, 500, f, NONE), (5000, 5007, 7, f, A)]),
        (3, "Async XLA Ops", True, [(200, 2200, 2000, "c.5", A), (300, 311, 11, "!?", None)]),
        (3, "TC Overlay", False, [(0, 9, 9, "over", None)]),
    ]  # fmt: skip
    assert trace.events.left_out == {"on lines that repeat what others have": 1}
    assert len(trace.events) == sum(map(len, trace.events.lanes)) == 19


def test_a_device_s_own_clock_is_the_length_of_events() -> None:
    """It runs twice as fast here, from another begin; lanes stand on the clock of all lines."""
    made = TraceBuilder()
    plane = made.plane("/device:TPU:0")

    def event(line: str, kind: int, at: int, long: int, **more: Any) -> None:
        clock = {"device_offset_ps": 50 + 2 * at, "device_duration_ps": 2 * long}
        plane.event(line, kind, at, long, **clock, **more)

    event("XLA Modules", plane.event_id("jit_a(7)"), 100, 100)
    event("XLA Ops", plane.event_id("%x = f32[] add()"), 110, 20)
    # only one of the two clocks: that of the host
    plane.event("XLA Ops", plane.event_id("%y = f32[] add()"), 10, 3, device_duration_ps=99)
    plane.event(
        "XLA Ops",
        plane.event_id("%z = f32[] add()"),
        95,
        0,
        device_offset_ps=300,
        device_duration_ps=4,
    )
    trace = read_trace(made.serialized())
    assert rows(trace) == [
        ("", None, "y", 0, 3, 3, 1), ("jit_a", 7, "x", 0, 40, 36, 1), ("jit_a", 7, "z", 0, 4, 4, 1),
    ]  # fmt: skip
    assert picoseconds(trace.spans) == {(A, 0): 200}
    assert ran(trace) == [(A, 0, 90, 190)]
    (lane,) = (x for x in drawn(trace) if x[1] == "XLA Ops")
    assert lane[3] == [(0, 3, 3, "y", NONE), (85, 85, 4, "z", A), (100, 120, 40, "x", A)]
    line = SimpleNamespace(timestamp_ns=3)
    for at, long, place in ((0, 0, (50, 60)), (1, 0, (3001, 3001)), (0, 2, (3000, 3002))):
        event = SimpleNamespace(offset_ps=at, duration_ps=long)
        assert place_ps(event, line, (50, 60)) == place


def gpu(named: bool) -> TraceBuilder:
    made = TraceBuilder()
    plane = made.plane("/device:GPU:1")
    kernel = plane.event_id("k1")
    for at, long, op in ((0, 50, "a.1"), (60, 40, "call.2::b.1"), (100, 5, "")):
        more = dict(hlo_op=op, hlo_module="jit_a", program_id=7) if op and named else {}
        plane.event("Stream #1(Kernel)", kernel, at, long, **more)
    plane.event("Stream #2(Memcpy)", plane.event_id("k2", "copies"), 0, 9)
    plane.event("XLA Ops", plane.event_id("%a.1 = f32[] add()"), 0, 50, hlo_module="jit_a(7)")
    plane.event(
        "XLA Ops",
        plane.event_id("%w.1 = f32[] while()"),
        0,
        200,
        hlo_op="x::w.1",
        hlo_module="jit_a(7)",
    )
    plane.event("XLA Ops", plane.event_id("!"), 0, 7)
    plane.event("XLA Modules", plane.event_id("jit_a(7)"), 0, 100)
    plane.event("Steps", plane.event_id("0"), 0, 100)
    plane.event("Launch Stats", plane.event_id("0"), 0, 100)
    return made


def test_every_row_of_a_gpu() -> None:
    trace = read_trace(gpu(True).serialized())
    assert rows(trace) == [("jit_a", 7, "a.1", 1, 50, 50, 1), ("jit_a", 7, "b.1", 1, 40, 40, 1)]
    assert picoseconds(trace.unnamed) == {"k1": 5, "copies": 9}
    assert trace.device_names == {1: "GPU:1"}
    assert trace.chip == Chip("gpu")
    assert trace.executions == {}
    assert trace.spans == {}
    assert ran(trace) == []
    assert trace.events.left_out == {"on lines that repeat what others have": 4}
    lanes = [
        (1, "Stream #1(Kernel)", False, [
            (0, 50, 50, "a.1", A), (60, 100, 40, "b.1", A), (100, 105, 5, "k1", None)]),
        (1, "Stream #2(Memcpy)", False, [(0, 9, 9, "copies", None)]),
        (1, "XLA Modules", False, [(0, 100, 100, "jit_a(7)", None)]),
        (1, "Steps", False, [(0, 100, 100, "0", None)]),
    ]  # fmt: skip
    assert drawn(trace) == lanes
    # only what XProf derived has names
    trace = read_trace(gpu(False).serialized())
    assert rows(trace) == [("jit_a", 7, "a.1", 1, 50, 50, 1), ("jit_a", 7, "w.1", 1, 200, 150, 1)]
    assert picoseconds(trace.unnamed) == {"k1": 95, "copies": 9}
    assert trace.events.left_out == {"on lines that repeat what others have": 1}
    assert drawn(trace)[2] == (
        1, "XLA Ops", False, [(0, 200, 200, "w.1", A), (0, 50, 50, "a.1", A)],
    )  # fmt: skip


def cpu(gap: int = 0) -> TraceBuilder:
    """An operation that leaves its work to a pool of threads; ``gap`` after the work its end is noted."""
    made = TraceBuilder()
    plane = made.plane("/host:CPU")
    f = dict(hlo_module="jit_a", program_id=7)
    plane.event("main", plane.event_id("a"), 0, 10, hlo_op="a", run_id=1, _p=5, _pt=1, **f)
    plane.event("main", plane.event_id("b"), 10, 10, hlo_op="b", run_id=1, **f)
    plane.event("main", plane.event_id("a"), 10_000, 10, hlo_op="a", run_id=2, _p=6, _pt=1, **f)
    plane.event("main", plane.event_id("a"), 500, 5, hlo_op="a", device_ordinal=1, **f)
    plane.event("main", plane.event_id("else"), 0, 9000)
    plane.event("pool", plane.event_id("ThunkExecutor::Execute"), 40, 20)
    plane.event("pool", plane.event_id("ThunkExecutor::Execute"), 300, 20)
    plane.event("pool", plane.event_id("end: a"), 320 + gap, 1, _c=5, _ct=1)
    plane.event("pool", plane.event_id("end: other"), 330, 1, _c=6, _ct=2)
    return made


def test_every_row_of_a_cpu() -> None:
    trace = read_trace(cpu().serialized())
    # until the thread ran what waited for it: from 0 to 300
    assert rows(trace) == [
        ("jit_a", 7, "a", 0, 310, 310, 2), ("jit_a", 7, "a", 1, 5, 5, 1), ("jit_a", 7, "b", 0, 10, 10, 1),
    ]  # fmt: skip
    assert trace.executions == {(A, 0): 2}
    assert picoseconds(trace.spans) == {(A, 0): 310}
    assert ran(trace) == [(A, 0, 0, 300), (A, 0, 10_000, 10_010)]
    assert trace.device_names == {0: "CPU:0", 1: "CPU:1"}
    assert trace.chip is None
    assert drawn(trace) == [
        (
            0,
            "main",
            False,
            [(0, 300, 300, "a", A), (10, 20, 10, "b", A), (10_000, 10_010, 10, "a", A)],
        ),
        (1, "main", False, [(500, 505, 5, "a", A)]),
    ]
    assert trace.events.left_out == {"on the host's threads": 5}
    for gap, end in ((1, 300), (49_999_999, 300), (50_000_000, 50_000_320)):
        seconds = {o.op: o.seconds for o in read_trace(cpu(gap).serialized()).ops if not o.device}
        assert round(seconds["a"] * 1e12) == end + 10, gap


def test_the_host_s_rows_are_left_out_of_programs_that_a_device_ran() -> None:
    made = cpu()
    plane = made.plane("/host:CPU")
    plane.event("main", plane.event_id("c"), 0, 3, hlo_op="c", hlo_module="jit_c", run_id=4)
    device = made.plane("/device:TPU:5")
    device.event("XLA Ops", device.event_id("%x = f32[] add()"), 0, 2, hlo_module="jit_a(7)")
    trace = read_trace(made.serialized())
    assert rows(trace) == [("jit_a", 7, "x", 5, 2, 2, 1), ("jit_c", None, "c", 0, 3, 3, 1)]
    assert trace.executions == {(("jit_c", None), 0): 1}
    assert picoseconds(trace.spans) == {(("jit_c", None), 0): 3}
    assert trace.device_names == {5: "TPU:5", 0: "CPU:0"}
    assert ran(trace) == [(("jit_c", None), 0, 0, 3)]
    assert [(x[0], x[1], len(x[3])) for x in drawn(trace)] == [(0, "main", 1), (5, "XLA Ops", 1)]
    assert trace.events.left_out == {"on the host's threads": 9}


def test_ids_and_names_of_programs() -> None:
    keys = {"jit_a(7)": A, "jit_a": ("jit_a", None), "f(g)(12)": ("f(g)", 12), "": NONE, "(3)": ("", 3),
            "a\nb(3)": ("a\nb", 3), "a(x)": ("a(x)", None)}  # fmt: skip
    for label, want in keys.items():
        assert program_key(label) == want, label
    ids = {None: None, "": None, -1: 2**64 - 1, 0: 0, "12": 12, "x": None, 2**64 + 3: 3}
    for value, number in ids.items():
        assert unsigned(value) == number, value
    # written signed by the one and unsigned by the other
    made = TraceBuilder()
    made.metadata("jit_n", 2**64 - 1, module_proto("jit_n"))
    plane = made.plane("/device:TPU:0")
    plane.event("XLA Ops", plane.event_id("%x = f32[] add()"), 0, 2, program_id=-1)
    assert rows(read_trace(made.serialized())) == [("jit_n", 2**64 - 1, "x", 0, 2, 2, 1)]


def test_hosts_are_numbered_through_and_the_newest_run_is_read() -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        with pytest.raises(ReadError, match=r"^no \*\.xplane\.pb under "):
            find_traces(root)
        with pytest.raises(ReadError, match="no trace at"):
            find_traces(root / "none.xplane.pb")
        for run, age in (("old", 100), ("new", 50)):
            for host in ("h10", "h9"):
                path = root / "plugins/profile" / run / f"{host}.xplane.pb"
                path.parent.mkdir(parents=True, exist_ok=True)
                data = tpu().serialized() if host == "h9" else gpu(True).serialized()
                path.write_bytes(data)
                os.utime(path, (10**9 - age, 10**9 - age))
        assert [p.name for p in find_traces(root)] == ["h9.xplane.pb", "h10.xplane.pb"]
        assert {p.parent.name for p in find_traces(str(root))} == {"new"}
        packed = root / "plugins/profile/new/h9.xplane.pb"
        packed.with_suffix(".pb.gz").write_bytes(gzip.compress(packed.read_bytes()))
        packed.unlink()
        os.utime(packed.with_suffix(".pb.gz"), (10**9 - 50, 10**9 - 50))
        trace = read_trace(root)
        assert trace.device_names == {3: "h9 TPU:3", 5: "h10 GPU:1"}
        assert {(o.device, o.program) for o in trace.ops} == {(3, None), (3, 7), (3, 8), (5, 7)}
        assert trace.executions == {(A, 3): 2, (B, 3): 1}
        assert picoseconds(trace.unnamed) == {"!?": 40, "a copy": 60, "k1": 5, "copies": 9}
        assert sorted({x.device for x in trace.events.lanes}) == [3, 5]
        assert trace.chip is not None
        assert trace.chip.platform == "tpu"
        assert trace.events.left_out == {"on lines that repeat what others have": 5}
        alone = root / "plugins/profile/new/h10.xplane.pb"
        assert find_traces(alone) == [alone]
        assert read_trace(alone).device_names == {1: "GPU:1"}


def test_a_trace_cut_at_any_byte_keeps_the_planes_before_it() -> None:
    made = TraceBuilder()
    for k in range(3):
        plane = made.plane(f"/device:GPU:{k}")
        plane.event("Stream #1", plane.event_id("k"), 0, 9, hlo_op="x" * (1 + 90 * k), program_id=7)
    data = made.serialized()
    ends, at = [], 0
    for plane in made.space.planes:
        size = plane.ByteSize()
        at += 1 + (1 if size < 128 else 2) + size
        ends.append(at)
    assert ends[-1] == len(data)
    assert made.space.planes[2].ByteSize() > 127
    for end in range(len(data)):
        whole = sum(e <= end for e in ends)
        if end == 0 or end < ends[0]:
            with pytest.raises(ReadError, match=r"^not a profiler|^the trace has no planes"):
                read_trace(data[:end])
            continue
        trace = read_trace(data[:end])
        names = [f"/device:GPU:{k}" for k in range(whole)]
        said = (
            []
            if end in ends
            else [f"the trace is cut off; these planes are complete: {', '.join(names)}"]
        )
        assert [w.message for w in trace.warnings] == said, end
        assert set(trace.device_names) == set(range(whole))
    made.space.errors.append(b"bad")
    made.space.warnings.append(b"odd")
    assert [w.message for w in read_trace(made.serialized()).warnings] == [
        "the trace: bad",
        "the trace: odd",
    ]
    # damage in the second plane
    spoilt = bytearray(data)
    spoilt[ends[0] + 1] = 3
    assert set(read_trace(bytes(spoilt)).device_names) == {0}


def test_traces_are_told_by_their_first_plane() -> None:
    table = {
        b"\x0a\x10\x12\x09/host:CPU": True,
        b"\x0a\x80\x10\x08\x01\x12\x09/host:CPU": True,
        b"\x0a\x10\x08\x80\x01\x12\x09/device:TPU:0": True,
        b"\x0a\x10\x12\x09/elsewhere": False,
        b"\x0a\x10\x12\x10Task Environment": True,
        b"\x12\x09/host:CPU": False,
        b"": False,
    }
    for data, want in table.items():
        assert is_trace(data) == want == is_trace(gzip.compress(data)), data
    assert not is_trace(b"\x1f\x8bno gzip at all")
    assert is_trace(tpu().serialized())


def test_modules_of_a_trace_the_one_with_most_time_first() -> None:
    made = TraceBuilder()
    for name, program in (("jit_a", 7), ("jit_b", 8), ("jit_c", 9)):
        made.metadata(name, program, module_proto(name))
    plane = made.plane("/device:TPU:0")
    for k, (program, at, long) in enumerate(
        ((7, 0, 10), (7, 10, 4), (8, 20, 6), (8, 30, 7), (9, 40, 1))
    ):
        kind = plane.event_id(f"%op.{k} = f32[] add()", program_id=program)
        plane.event("XLA Ops", kind, at * 10**9, long * 10**9)
    kind = plane.event_id("%c = f32[] copy-start()", program_id=9)
    plane.event("Async XLA Ops", kind, 0, 10**15)  # beside the others
    modules = trace_modules(made.serialized(), "t")
    assert [m.name for m in modules] == ["jit_a", "jit_b", "jit_c"]
    assert modules[0].warnings[-1].message == (
        "3 modules here, the one with the most measured time was taken; choose with module=: "
        "0: jit_a (14 ms), 1: jit_b (13 ms), 2: jit_c (1 ms)"
    )
    assert [m.warnings for m in modules[1:]] == [(), ()]
    one = TraceBuilder()
    one.metadata("jit_a", 7, module_proto())
    assert trace_modules(one.serialized())[0].warnings == ()
    with pytest.raises(ReadError, match=r"^t carries no HLO; read"):
        trace_modules(gpu(True).serialized(), "t")
    with pytest.raises(ReadError, match=r"^the trace carries no HLO \(.*is cut off.*\); read"):
        trace_modules(gpu(True).serialized() + b"\x0a\x05")


def test_lanes_keep_their_order_and_their_limits() -> None:
    most = 2**61
    builder, other = LaneBuilder(), LaneBuilder()
    builder.add(1, ("late", False, 4), (10**9, 10**9 + 5), 5, "x", A)
    builder.add(0, ("long", False, 2), (10**9 + 7, 10**9 + 9), 2, "y", None)
    builder.add(0, ("long", False, 2), (10**9 + 7, 10**9 + 12), 5, "x", B)
    builder.add(0, ("first", True, 1), (most * 4, -most * 4), -3, "z", B)
    builder.add(0, ("first", True, 1), (10**9, 10**9), most * 2, "z", B)
    builder.ran(B, 0, (10**9, 10**9 + 3))
    builder.skip("why", 2)
    builder.skip("not", 0)
    other.add(0, ("z", False, 0), (10**9 - 10, 10**9), 10, "x", B)
    other.ran(A, 0, (10**9 - 10, 10**9))
    other.skip("why", 3)
    events = joined([([builder], 0), ([other], 2)])
    ps = 1e12
    assert [(x.device, x.name) for x in events.lanes] == [
        (0, "first"),
        (0, "long"),
        (1, "late"),
        (2, "z"),
    ]
    first, long, late, z = events.lanes
    assert first.start.tolist() == [10e-12, (most + 10) * 1e-12]
    assert first.end.tolist()[1] == (10 - most) * 1e-12
    assert first.seconds.tolist() == [most * 1e-12, 0]
    assert (long.start * ps).round().tolist() == [17, 17]
    assert (long.end * ps).round().tolist() == [
        22,
        19,
    ]
    assert [events.texts[k] for k in long.text] == ["x", "y"]
    assert [events.programs[k] if k >= 0 else k for k in long.program] == [B, -1]
    assert events.programs[late.program[0]] == A
    assert events.programs[z.program[0]] == B
    assert events.texts[z.text[0]] == "x"
    assert [(k, d, round(a * ps), round(b * ps)) for k, d, a, b in events.runs] == [
        (B, 0, 10, 13),
        (A, 2, 0, 10),
    ]
    assert events.left_out == {"why": 5}
    assert len(events) == 6
    assert [len(x) for x in events.lanes] == [2, 2, 1, 1]
    kept = builder.without([B, ("no", 1)], "b")
    assert kept.left_out == {"why": 2, "b": 3}
    assert kept.runs == []
    assert {k[1]: len(lane.start) for k, lane in kept.lanes.items()} == {"late": 1, "long": 1}
    assert joined([]).lanes == ()
    assert joined([([LaneBuilder()], 0)]).runs == ()
