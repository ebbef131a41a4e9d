"""Traces of TPUs and GPUs, built by hand around real compiles: every time must land."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hloscope as hs
import pytest
from hloscope.readers.proto.schema import message_class
from hloscope.readers.xplane.xplane import read_trace
from hloscope.show.cli import main
from hypothesis import given, settings
from hypothesis import strategies as st
from xplane_builder import BASE_NS, Expected, TraceBuilder

PS = 1e-12
STEPS = 4
OTHER = """HloModule jit_other, is_scheduled=true
ENTRY main {
  p = f32[8]{0} parameter(0)
  fusion.1 = f32[8]{0} tanh(p)
  ROOT done.1 = f32[8]{0} negate(fusion.1)
}
"""


@pytest.fixture(scope="module")
def ring(compiled: Callable[..., Any]) -> Any:
    """A real TPU program: a while with an asynchronous collective-permute in its body."""
    return compiled("ring_matmul", "v5e:2x4")


def build(ring: Any, devices: range = range(8), first: int = 0, **more: Any) -> Any:
    """(builder, expected) of STEPS executions on each device, and another program between."""
    made, expected = TraceBuilder(), Expected()
    made.metadata(ring.module.name, 7, ring.proto)
    other = hs.read(OTHER).module
    for device in devices:
        at = 5_000_000
        for step in range(STEPS):
            at = made.tpu(
                ring.module, 7, expected,
                device=first + device, ordinal=device, start=at, step=step, **more,
            )  # fmt: skip
            at = made.tpu(other, 2**63 + 11, ordinal=device, start=at + 1_000_000, **more)
            at += 1_000_000
    return made, expected


def check(measured: Any, expected: Expected, steps: int = STEPS) -> None:
    """All times of the trace are on their instructions, to a picosecond."""
    at = {d: k for k, d in enumerate(measured.devices)}
    for got, want in (
        (measured.seconds, expected.total),
        (measured.self_seconds, expected.own),
        (measured.flight, expected.flight),
    ):
        for (op, device), picoseconds in want.items():
            i = measured.module.find(op)
            assert got[at[device], i.index] * steps == pytest.approx(picoseconds * PS, rel=1e-9)
        assert got.sum() * steps == pytest.approx(sum(want.values()) * PS, rel=1e-9)


def test_a_tpu_trace_alone(ring: Any) -> None:
    made, expected = build(ring)
    cap = hs.read(made.serialized())
    assert cap.module.name == ring.module.name
    measured = cap.measured
    assert measured is not None
    assert measured.devices == tuple(range(8))
    assert measured.steps == STEPS
    assert measured.coverage == 1.0
    check(measured, expected)
    # the loop's event holds its body's: a device's total counts neither twice
    for device in range(8):
        alone = sum(v for (_, d), v in expected.own.items() if d == device)
        assert measured.device_seconds[device] * STEPS == pytest.approx(alone * PS)
    (loop,) = (r for r in measured if r.instruction.opcode == "while")
    assert loop.self_seconds == pytest.approx(50e-9)
    assert loop.mean_seconds > 10 * loop.self_seconds
    assert loop.count == 1
    assert loop.slowest == 7
    (start,) = (r for r in measured if r.instruction.opcode == "collective-permute-start")
    assert start.flight_seconds > start.mean_seconds
    assert measured.flight_seconds > 0
    assert measured.notes == ()


def test_what_does_not_land_is_named(ring: Any) -> None:
    made, expected = build(ring)
    plane = made.plane("/device:TPU:0")
    stranger = plane.event_id("%vanished.9 = f32[] add()", "vanished.9", program_id=7)
    plane.event("XLA Ops", stranger, 1_000, 250_000)
    plane.event("XLA Ops", plane.event_id("!?"), 2_000_000, 1_000)
    # a line that XProf derives, another core, a host thread: no ops of this device
    plane.event("TC Overlay", plane.event_id("overlay"), 0, 10**9)
    made.plane("/device:CUSTOM:Megascale Trace").event("x", 1, 0, 10**9, hlo_op="copy.1")
    measured = hs.read(ring.text).add_profile(made.serialized())
    check(measured, expected)
    assert measured.unmatched == {"vanished.9": pytest.approx(250e-9)}
    assert set(measured.other_programs) == {"jit_other"}
    assert measured.unnamed == {"!?": pytest.approx(1e-9)}
    landed = sum(expected.own.values()) * PS
    assert measured.coverage == pytest.approx(landed / (landed + 250e-9))
    text = repr(measured)
    for words in ("of other programs (jit_other", "vanished.9 250 ns", "!? 1 ns"):
        assert words in text


def test_times_are_of_the_devices_clock(ring: Any) -> None:
    made, expected = build(ring, range(1), skew=1.01)
    check(hs.read(made.serialized()).measured, expected)


def test_an_old_trace_has_names_only(ring: Any) -> None:
    """No program ids, no display names: "XLA Modules" says whose time it is."""
    made, expected = build(ring, range(2), modern=False)
    measured = hs.read(ring.text).add_profile(made.serialized())
    check(measured, expected)
    assert set(measured.other_programs) == {"jit_other"}


def test_sparse_cores_run_beside(ring: Any) -> None:
    made, expected = build(ring, range(1))
    core = made.plane("/device:TPU:0 SparseCore 1")
    name = next(i.name for i in ring.module.instructions if i.opcode == "copy-start")
    core.event("Sparse Core Ops", core.event_id(name, name, program_id=7), 0, 3_000_000)
    expected.flight[name, 0] += 3_000_000
    check(hs.read(made.serialized()).measured, expected)


@pytest.mark.parametrize("form", ["file", "gz", "folder", "bytes"])
def test_a_dump_and_its_trace(ring: Any, form: str, tmp_path: Path) -> None:
    made, expected = build(ring, range(2))
    dump = tmp_path / "ring.hlo"
    dump.write_text(ring.text)
    run = tmp_path / "logs" / "plugins" / "profile" / "2026_01_02"
    run.mkdir(parents=True)
    data = made.serialized()
    if form == "bytes":
        check(hs.read(dump).add_profile(data), expected)
        return
    name = "vm.xplane.pb.gz" if form == "gz" else "vm.xplane.pb"
    (run / name).write_bytes(gzip.compress(data) if form == "gz" else data)
    profile = tmp_path / "logs" if form == "folder" else run / name
    check(hs.read(dump, profile=profile).measured, expected)
    check(hs.read(profile).measured, expected)


def test_all_hosts_of_the_newest_run(ring: Any, tmp_path: Path) -> None:
    old, new = (tmp_path / "plugins" / "profile" / day for day in ("01", "02"))
    everything = Expected()
    for run in (old, new):
        run.mkdir(parents=True)
        for host in (0, 1, 10):
            made, expected = build(ring, range(4), first=4 * min(host, 2))
            file = run / f"host-{host}.xplane.pb"
            file.write_bytes(made.serialized())
            os.utime(file, (1e9, 1e9) if run is old else (2e9, 2e9))
            if run is new:
                for field in ("total", "own", "flight"):
                    getattr(everything, field).update(getattr(expected, field))
    (old / "host-99.xplane.pb").write_bytes(b"")
    os.utime(old / "host-99.xplane.pb", (1e9, 1e9))
    cap = hs.read(tmp_path)
    check(cap.measured, everything)
    assert cap.measured.devices == tuple(range(12))
    assert cap.measured.device_names[5] == "host-1 TPU:1"
    assert cap.measured.device_names[8] == "host-10 TPU:0"


def test_a_trace_that_breaks_off(ring: Any) -> None:
    made, expected = build(ring, range(3))
    data = made.serialized()
    kept = Expected(*({k: v for k, v in f.items() if k[1] < 2} for f in vars(expected).values()))
    measured = hs.read(data[:-500]).measured
    assert measured.devices == (0, 1)
    check(measured, kept)
    assert any("is cut off" in n for n in measured.notes)
    # compressed, and cut in the middle
    packed = gzip.compress(data)
    assert "is cut off" in repr(hs.read(ring.text).add_profile(packed[: len(packed) * 3 // 4]))
    with pytest.raises(hs.ReadError, match="not a profiler trace"):
        read_trace(data[:50])


def test_a_trace_without_hlo(ring: Any, tmp_path: Path) -> None:
    made, expected = TraceBuilder(), Expected()
    made.tpu(ring.module, 7, expected)
    with pytest.raises(hs.ReadError, match="carries no HLO; read the program's dump together"):
        hs.read(made.serialized())
    measured = hs.read(ring.text).add_profile(made.serialized())
    check(measured, expected, 1)
    assert "does not carry the HLO" in " ".join(measured.notes)
    with pytest.raises(hs.ReadError, match="no times for 'jit_other'"):
        hs.read(OTHER).add_profile(made.serialized())


def test_another_compile_is_joined_by_name_and_said(ring: Any) -> None:
    made, expected = TraceBuilder(), Expected()
    made.metadata(ring.module.name, 7, ring.proto)
    made.tpu(ring.module, 7, expected)
    wider = hs.read(ring.text.replace("copy.3", "copy.93").replace("[8,16]", "[8,24]"))
    measured = wider.add_profile(made.serialized())
    assert "another compile of" in measured.notes[0]
    assert "(program 7)" in measured.notes[0]
    lost = {op: v for (op, _), v in expected.own.items() if wider.module.find(op) is None}
    assert lost
    assert measured.unmatched == {op: pytest.approx(v * PS) for op, v in lost.items()}
    assert measured.coverage < 1


def test_of_two_compiles_the_one_that_ran_is_taken(ring: Any) -> None:
    """Both are called jit_…; the HLO in the trace tells them apart."""
    made, expected, elsewhere = TraceBuilder(), Expected(), Expected()
    text = ring.text.replace("[8,16]", "[8,24]")
    twin = hs.read(text)
    proto = _wider(ring.proto)
    made.metadata(ring.module.name, 7, ring.proto)
    made.metadata(ring.module.name, 8, proto)
    for device in range(2):
        at = made.tpu(ring.module, 7, expected, device=device)
        made.tpu(twin.module, 8, elsewhere, device=device, start=at, trips=9)
    first = hs.read(ring.text).add_profile(made.serialized())
    assert first.notes == ()
    check(first, expected, 1)
    label = f"{ring.module.name} (program 8)"
    assert first.other_programs == {label: pytest.approx(sum(elsewhere.own.values()) * PS)}
    # read by itself, the one with most time comes first
    alone = hs.read(made.serialized())
    check(alone.measured, elsewhere, 1)


def _wider(proto: bytes) -> bytes:
    """The program for [8,24] where it had [8,16]."""
    message = message_class("HloModule")()
    message.ParseFromString(proto)
    for c in message.computations:
        for i in c.instructions:
            for shape in (i.shape, *i.shape.tuple_shapes):
                if list(shape.dimensions) == [8, 16]:
                    shape.dimensions[1] = 24
    return bytes(message.SerializeToString())


@pytest.fixture(scope="module")
def gpu(compiled: Callable[..., Any]) -> tuple[Any, Any, Expected]:
    """(program, builder, expected): kernels of 2 GPUs over 3 executions, on two streams.

    The program is a CPU compile: only its instructions' names are used.
    """
    program = compiled("data_parallel")
    made, expected = TraceBuilder(), Expected()
    name = program.module.name
    made.metadata(name, 3, program.proto)
    for device in range(2):
        plane = made.plane(f"/device:GPU:{device}")
        at = 0
        for _ in range(3):
            for i in program.module.entry.instructions:
                if i.opcode in ("parameter", "constant", "tuple", "get-tuple-element", "bitcast"):
                    continue
                wire = i.opcode.startswith("all-")
                line = "Stream #24(Kernel)" if wire else "Stream #13(Kernel,MemcpyD2D)"
                long = (1000 + i.index) * 1000
                kernel = plane.event_id("ncclDevKernel" if wire else f"k_{i.name}")
                op = i.name if i.index % 2 else f"while.1::{i.name}"
                stats = {
                    "correlation_id": at, "kernel_details": "regs:32", "tf_op": "XlaModule:",
                    "hlo_op": op, "hlo_module": name, "program_id": 3,
                }  # fmt: skip
                if i.index % 3 == 0:  # a node of a CUDA graph
                    stats |= {"cuda_graph_id": 5, "cuda_graph_node_id": i.index + 1}
                plane.event(line, kernel, at, long, **stats)
                expected.total[i.name, device] += long
                expected.own[i.name, device] += long
                at += 300_000 if wire else long  # what follows overlaps the collective
    return program, made, expected


def test_gpu_kernels_land_by_their_hlo_op(gpu: Any) -> None:
    program, made, expected = gpu
    measured = hs.read(made.serialized()).measured
    assert measured.devices == (0, 1)
    assert measured.steps == 3  # counted: a GPU's trace does not say
    check(measured, expected, 3)
    assert measured.coverage == 1.0
    assert measured.device_names == {0: "GPU:0", 1: "GPU:1"}
    assert hs.read(program.text).add_profile(made.serialized()).notes == ()


def test_kernels_of_no_op_and_lines_that_xprof_derives(gpu: Any) -> None:
    program, made, expected = gpu
    again = TraceBuilder()
    again.space.CopyFrom(made.space)
    plane = again.space.planes[1]
    assert plane.name == b"/device:GPU:0"
    derived = plane.lines.add(name=b"XLA Ops", timestamp_ns=BASE_NS)
    first = plane.lines[0].events[0]
    derived.events.add().CopyFrom(first)
    lonely = plane.lines[0].events.add()
    lonely.CopyFrom(first)
    hlo_op = next(s.key for s in plane.stat_metadata if s.value.name == b"hlo_op")
    kept = [s for s in first.stats if s.metadata_id != hlo_op]
    del lonely.stats[:]
    lonely.stats.extend(kept)
    # the host's own events of the same program: launches, not kernels
    host = TraceBuilder()
    host.plane("/host:CPU").event(
        "thread", 1, 0, 10**9, hlo_op="dot.1", hlo_module=program.module.name, program_id=3
    )
    again.space.planes.extend(host.space.planes)
    measured = hs.read(again.serialized()).measured
    check(measured, expected, 3)
    (name,) = measured.unnamed
    assert measured.unnamed[name] == pytest.approx(first.duration_ps * PS)
    assert "kernels and copies that belong to no HLO operation" in repr(measured)


def test_a_gpu_trace_of_derived_lines_only(gpu: Any) -> None:
    program, _, _ = gpu
    made = TraceBuilder()
    plane = made.plane("/device:GPU:0")
    i = next(i for i in program.module.entry.instructions if i.opcode == "fusion")
    kind = plane.event_id(i.name, hlo_module=program.module.name, program_id=3)
    plane.event("XLA Ops", kind, 0, 7_000)
    measured = hs.read(program.text).add_profile(made.serialized())
    assert measured.seconds.sum() == pytest.approx(7e-9)


@st.composite
def nested(draw: st.DrawFn, start: int = 0, end: int = 400, depth: int = 3) -> Any:
    """Events that lie inside one another or apart, as (start, end)."""
    out = []
    at = start
    for _ in range(draw(st.integers(0, 3))):
        first = draw(st.integers(at, end))
        last = draw(st.integers(first, end))
        out.append((first, last))
        if depth and last > first:
            out += draw(nested(first, last, depth - 1))
        at = last
    return out


@settings(max_examples=150, deadline=None)
@given(nested())
def test_self_times_are_the_instants_when_nothing_inside_runs(events: Any) -> None:
    """Against a walk through every picosecond: the innermost event has it."""
    made = TraceBuilder()
    plane = made.plane("/device:TPU:0")
    for k, (start, end) in enumerate(events):
        plane.event("XLA Ops", plane.event_id(f"%op.{k} = f32[] add()"), start, end - start)
    found = {o.op: (o.seconds, o.self_seconds) for o in read_trace(made.serialized()).ops}
    # of events that begin and end alike the later one is inside
    inner = [
        max(
            (k for k, (s, e) in enumerate(events) if s <= t < e),
            key=lambda k: (events[k][0], -events[k][1], k),
            default=None,
        )
        for t in range(400)
    ]
    for k, (start, end) in enumerate(events):
        total, own = found[f"op.{k}"]
        assert total == pytest.approx((end - start) * PS)
        assert own == pytest.approx(inner.count(k) * PS)


def test_nodes_of_a_cuda_graph() -> None:
    """Kernels inside a command buffer name what is inside the call that launches it."""
    text = """HloModule jit_graph, is_scheduled=true
command_buffer {
  a = f32[8]{0} parameter(0)
  fusion.1 = f32[8]{0} tanh(a)
  ROOT fusion.2 = f32[8]{0} negate(fusion.1)
}
ENTRY main {
  p = f32[8]{0} parameter(0)
  ROOT call = f32[8]{0} call(p), to_apply=command_buffer
}
"""
    made = TraceBuilder()
    plane = made.plane("/device:GPU:0")
    for step in range(5):
        for k in (1, 2):
            kind = plane.event_id(f"loop_fusion_{k}")
            node = {"cuda_graph_id": 9, "cuda_graph_node_id": k, "kernel_details": "regs:8"}
            plane.event(
                "Stream #7(Kernel)", kind, step * 10_000 + k * 3_000, 2_000,
                hlo_op=f"fusion.{k}", hlo_module="jit_graph", program_id=1, **node,
            )  # fmt: skip
    measured = hs.read(text).add_profile(made.serialized())
    assert measured.steps == 5
    assert measured.total_seconds == pytest.approx(4e-9)
    assert measured.coverage == 1.0


def test_ids_that_the_trace_does_not_name_are_told_by_time(ring: Any) -> None:
    """Ops whose program id is in no module's name: the module that runs then has them."""
    made, expected = build(ring, range(2))
    for plane in made.space.planes[1:]:
        program = next(e.key for e in plane.stat_metadata if e.value.name == b"program_id")
        for entry in plane.event_metadata:
            for stat in entry.value.stats:
                if stat.metadata_id == program:
                    stat.ClearField("uint64_value")
                    stat.int64_value = 123456
    measured = hs.read(ring.text).add_profile(made.serialized())
    check(measured, expected)
    assert set(measured.other_programs) == {"jit_other"}


def test_the_command_joins_a_trace(gpu: Any, tmp_path: Path, capsys: Any) -> None:
    program, made, expected = gpu
    dump, trace = tmp_path / "step.hlo", tmp_path / "gpu.xplane.pb"
    dump.write_text(program.text)
    trace.write_bytes(made.serialized())
    assert main(["summary", str(dump), "--profile", str(trace), "--json"]) == 0
    measured = json.loads(capsys.readouterr().out)["measured"]
    cap = hs.read(dump)
    assert "measured" not in cap.summary
    cap.add_profile(trace)
    assert cap.summary["measured"] == measured
    seconds = sum(expected.own.values()) * PS / 3 / 2
    assert measured["seconds_a_step"] == pytest.approx(seconds)
    assert (measured["steps"], measured["devices"], measured["coverage"]) == (3, 2, 1.0)
    assert main(["summary", str(dump), "--profile", str(trace)]) == 0
    assert "on each of 2 devices, 3 steps; 100.0 % of it on" in capsys.readouterr().out
    assert main(["summary", str(dump), "--profile", str(tmp_path / "none")]) == 2
    assert capsys.readouterr().err.startswith("hloscope: no trace at ")


def test_a_binary_file_that_went_through_a_text_editor_says_so(ring: Any) -> None:
    damaged = build(ring, range(1))[0].serialized().decode("utf-8", "replace").encode()
    proto = ring.proto.decode("utf-8", "replace").encode()
    for data in (damaged, proto):
        with pytest.raises(hs.ReadError, match="saved as text"):
            hs.read(data)
