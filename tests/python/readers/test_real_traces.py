"""Traces of real devices: times to the nanosecond, and nothing of a trace unaccounted for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hloscope as hs
import numpy as np
import pytest
from hloscope.hardware import recognise
from hloscope.readers.proto.schema import message_class
from hloscope.readers.xplane.xplane import read_trace
from xplane_builder import TraceBuilder

US = 1e-6
_STREAMS = ("XLA Ops", "Stream #")


def traced(real: Path, name: str) -> Any:
    cap = hs.read(real / "traces" / f"{name}.xplane.pb")
    assert cap.measured is not None
    return cap, cap.measured


def test_tpu_v6e(real: Path) -> None:
    cap, measured = traced(real, "tpu-v6e-inference")
    assert cap.hardware == "tpu-v6e"
    assert measured.total_seconds == pytest.approx(784.1328e-3, abs=5e-8)
    assert measured.device_seconds[0] == pytest.approx(784.14219e-3, abs=5e-9)
    at = measured.module.find("copy-done.4").index
    assert measured.mean[at] == pytest.approx(194_433.039 * US, abs=5e-10)
    # device 0 alone has asynchronous events: nobody else's are 0
    assert measured.flight_seconds == pytest.approx(1.976, abs=5e-4)
    assert np.isnan(measured.flight[1:]).all()
    assert measured.row(measured.module.find("copy-start.4").index).flight_seconds == (
        pytest.approx(0.600, abs=5e-4)
    )
    assert any(
        n.startswith("1 of 4 devices recorded asynchronous operations: TPU:0")
        for n in measured.notes
    )
    assert measured.wall_seconds == pytest.approx(784.1450e-3, abs=1e-5)


def test_mi300x_convolution(real: Path) -> None:
    cap, measured = traced(real, "mi300x-convolution")
    assert cap.hardware == "mi300x"
    assert measured.total_seconds == pytest.approx(717.298 * US, abs=1e-9)
    assert sum(measured.unnamed.values()) == pytest.approx(889 * US, abs=1 * US)
    assert "1 of 8 devices recorded this program: GPU:7" in measured.notes
    assert cap.cost().total_flops == pytest.approx(32.72e9, abs=1e7)
    assert "copies that belong to no HLO operation" in repr(measured)


def test_mi300x_gemm(real: Path) -> None:
    cap, measured = traced(real, "mi300x-gemm")
    assert cap.hardware == "mi300x"
    assert measured.total_seconds == pytest.approx(611.0 * US, abs=5e-9)
    assert cap.cost().total_flops == 2 * 8192 * 8192 * 4096


@pytest.mark.parametrize("name", ["tpu-v6e-inference", "mi300x-convolution", "mi300x-gemm"])
def test_all_device_time_is_accounted_for(name: str, real: Path) -> None:
    """Every event of a stream or a core is this program's, another's, or under no operation."""
    path = real / "traces" / f"{name}.xplane.pb"
    space = message_class("XSpace")()
    space.ParseFromString(path.read_bytes())
    whole = 0
    for plane in space.planes:
        for line in plane.lines if plane.name.startswith(b"/device:") else ():
            if not line.name.decode().startswith(_STREAMS):
                continue
            until = 0  # a loop's event holds those of its body
            for begin, end in sorted(
                (e.offset_ps, e.offset_ps + e.duration_ps) for e in line.events
            ):
                whole += max(0, end - max(begin, until))
                until = max(until, end)
    _, measured = traced(real, name)
    mine = float(measured.self_seconds.sum()) * measured.steps + sum(measured.unmatched.values())
    rest = sum(measured.other_programs.values()) + sum(measured.unnamed.values())
    # a TPU's events last 15 parts in a million longer by the host's clock than by their own
    assert mine + rest == pytest.approx(whole * 1e-12, rel=2e-5)


def test_gpus_are_recognised_by_cores_and_memory() -> None:
    found = recognise("AMD", 304, 206_141_652_992)
    assert found is not None
    assert found.id == "mi300x"
    assert recognise("AMD", 304, 256e9) is None  # another chip of as many cores
    assert recognise("", 0, 0) is None


def test_the_chip_of_a_trace_never_replaces_the_one_compiled_for(real: Path) -> None:
    path = real / "traces" / "tpu-v6e-inference.xplane.pb"
    cap = hs.read(path, hardware="tpu-v5e")
    assert cap.hardware == "tpu-v5e"
    assert read_trace(path).chip.kind == "TPU v6 Lite"  # type: ignore[union-attr]


ON_POOL = """HloModule jit_f, is_scheduled=true
ENTRY main {
  x = f32[8]{0} parameter(0)
  conv = f32[8]{0} negate(x)
  ROOT tanh = f32[8]{0} tanh(conv)
}
"""


def cpu_trace() -> TraceBuilder:
    """Two steps of a convolution that a pool of threads works on, as XLA:CPU records it."""
    made = TraceBuilder()
    plane = made.plane("/host:CPU")
    for step in range(2):
        at = step * 100_000_000
        said = {"hlo_module": "jit_f", "program_id": 3, "run_id": step + 1, "device_ordinal": 0}
        plane.event(
            "main", plane.event_id("conv"), at, 1_000_000, hlo_op="conv", _p=2 * step + 1, **said
        )
        # a thread of the pool ends it at 60 µs, runs the rest, and only then says so
        execute = plane.event_id("ThunkExecutor::Execute")
        plane.event("pool", execute, at + 60_000_000, 10_000_000)
        plane.event(
            "pool",
            plane.event_id("tanh"),
            at + 60_000_000,
            9_000_000,
            hlo_op="tanh",
            _p=2 * step + 2,
            **said,
        )
        plane.event("pool", plane.event_id("end: tanh"), at + 69_000_000, 1, _c=2 * step + 2)
        plane.event("pool", plane.event_id("end: conv"), at + 70_001_000, 1_000, _c=2 * step + 1)
    return made


def test_what_a_pool_of_threads_does_is_the_operations_time() -> None:
    measured = hs.read(ON_POOL).add_profile(cpu_trace().serialized())
    seconds = {r.instruction.name: r.mean_seconds for r in measured}
    assert seconds == {"conv": pytest.approx(60 * US), "tanh": pytest.approx(9 * US)}
    assert measured.wall_seconds == pytest.approx(69 * US)
    assert measured.coverage == 1.0
    assert measured.summary()["wall_seconds_a_step"] == pytest.approx(69 * US)


def test_a_step_is_longer_than_its_operations() -> None:
    """Where the trace lacks the end of what the pool did, the wall tells."""
    made = cpu_trace()
    for line in made.space.planes[0].lines:
        names = {e.key: e.value.name for e in made.space.planes[0].event_metadata}
        kept = [e for e in line.events if not names[e.metadata_id].startswith(b"end")]
        del line.events[:]
        line.events.extend(kept)
    measured = hs.read(ON_POOL).add_profile(made.serialized())
    assert measured.total_seconds == pytest.approx(10 * US)
    assert measured.coverage == pytest.approx(10 / 69)
    assert "59 µs of it is not covered by any operation" in " ".join(measured.remarks())
