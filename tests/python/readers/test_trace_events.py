"""A trace event by event: nothing missing, and its times add up to the measured figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hloscope as hs
import numpy as np
import pytest
from hloscope.readers.proto.schema import message_class
from hloscope.readers.xplane.xplane import read_trace
from hloscope.show import blocks
from hloscope.view.schema import joined
from hloscope.view.sections import trace as section
from test_real_traces import ON_POOL, cpu_trace
from xplane_builder import TraceBuilder

US = 1e-6


def drawn(cap: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """(extras.trace, columns) of its View, texts spelled out."""
    header, columns = joined(blocks.view(cap), blocks.analyses(cap))
    return header["extras"].get("trace"), columns


@pytest.mark.parametrize("name", ["tpu-v6e-inference", "mi300x-convolution", "mi300x-gemm"])
def test_every_event_of_every_device_is_there(name: str, real: Path) -> None:
    path = real / "traces" / f"{name}.xplane.pb"
    space = message_class("XSpace")()
    space.ParseFromString(path.read_bytes())
    devices = {
        plane.name.decode().removeprefix("/device:"): {
            line.name.decode(): len(line.events) for line in plane.lines if line.events
        }
        for plane in space.planes
        if plane.name.startswith(b"/device:")
    }
    host = sum(
        len(x.events) for p in space.planes if p.name.startswith(b"/host:CPU") for x in p.lines
    )
    events = read_trace(path).events
    names = read_trace(path).device_names
    found: dict[str, dict[str, int]] = {n: {} for n in devices}
    for lane in events.lanes:
        found[names[lane.device]][lane.name] = len(lane)
    assert found == devices
    assert events.left_out == {"on the host's threads": host}
    assert len(events) == sum(sum(lines.values()) for lines in devices.values())


def test_a_tpu_trace_adds_up(real: Path) -> None:
    cap = hs.read(real / "traces" / "tpu-v6e-inference.xplane.pb")
    said, columns = drawn(cap)
    assert said["events"] == len(columns["trace.start"]) == 7453
    assert said["shortest"] is None
    assert said["runs"] == len(columns["trace_run.start"]) == 4 * 100
    events = cap.measured.events
    steps = cap.measured.steps
    seconds = {}
    for n, lane in enumerate(events.lanes):
        rows = columns["trace.lane"] == n
        assert (columns["trace.seconds"][rows] == lane.seconds).all()
        # no loops in this program: nothing holds another
        seconds[lane.device_name, lane.name] = lane.seconds[lane.instruction >= 0].sum() / steps
    assert seconds["TPU:0", "XLA Ops"] == pytest.approx(784.14219e-3, abs=5e-9)
    mean = np.mean([s for (_, name), s in seconds.items() if name == "XLA Ops"])
    assert mean == pytest.approx(784.1328e-3, abs=5e-8)
    flying = next(x for x in events.lanes if x.name == "Async XLA Ops")
    assert flying.beside
    assert flying.seconds.sum() / steps == pytest.approx(1.976, abs=5e-4)
    # of an asynchronous operation all of its way is at the start
    start = cap.module.find("copy-start.4").index
    assert flying.seconds[flying.instruction == start].sum() / steps == pytest.approx(
        0.600, abs=5e-4
    )
    done = cap.module.find("copy-done.4").index
    ops = [x for x in events.lanes if x.name == "XLA Ops"]
    waited = np.mean([x.seconds[x.instruction == done].sum() / steps for x in ops])
    assert waited == pytest.approx(194_433.039 * US, abs=5e-10)


def test_a_gpu_trace_adds_up(real: Path) -> None:
    cap = hs.read(real / "traces" / "mi300x-convolution.xplane.pb")
    events = cap.measured.events
    kernels = [x for x in events.lanes if x.device_name == "GPU:7"]
    total = sum(x.seconds[x.instruction >= 0].sum() for x in kernels)
    assert total / cap.measured.steps == pytest.approx(717.298 * US, abs=1e-9)
    copies = sum(x.seconds.sum() for x in events.lanes if x.device_name == "GPU:0")
    assert copies == pytest.approx(889 * US, abs=1 * US)
    assert all((x.instruction < 0).all() for x in events.lanes if x.device_name == "GPU:0")


def test_on_cpu_lanes_are_threads_and_work_of_a_pool_is_the_operations() -> None:
    cap = hs.read(ON_POOL)
    cap.add_profile(cpu_trace().serialized())
    said, columns = drawn(cap)
    events = cap.measured.events
    assert [(x.device_name, x.name, len(x)) for x in events.lanes] == [
        ("CPU:0", "main", 2),
        ("CPU:0", "pool", 2),
    ]
    assert events.lanes[0].seconds == pytest.approx([60 * US, 60 * US])
    assert [(d, pytest.approx(t)) for d, _, t in events.runs] == [(0, 69 * US), (0, 69 * US)]
    assert said["elsewhere"] == [{"where": "on the host's threads", "events": 6}]
    assert len(columns["trace.start"]) == 4


def test_of_very_many_the_longest_are_kept_and_the_rest_is_said(monkeypatch: Any) -> None:
    monkeypatch.setattr(section, "MOST_EVENTS", 3)
    cap = hs.read(ON_POOL)
    cap.add_profile(cpu_trace().serialized())
    said, columns = drawn(cap)
    assert said["events"] == 4
    assert len(columns["trace.start"]) == 3
    assert said["shortest"] == columns["trace.seconds"].min() == pytest.approx(9 * US)
    assert columns["trace_lane.events"].tolist() == [2, 2]


def test_lanes_of_a_clock_since_1970_keep_their_picoseconds() -> None:
    made = TraceBuilder()
    plane = made.plane("/device:GPU:0")
    for k in range(2):
        line = dict(hlo_op="tanh", hlo_module="jit_f", program_id=3)
        plane.event("Stream #1(Kernel)", plane.event_id("k"), k * 5_000_000, 1_234_567, **line)
    for line in made.space.planes[0].lines:
        line.timestamp_ns = 1_790_000_000_000_000_000
    (lane,) = read_trace(made.serialized()).events.lanes
    assert lane.seconds == pytest.approx([1.234567e-6] * 2, rel=1e-12)
    assert lane.start[1] - lane.start[0] == pytest.approx(5e-6, rel=1e-9)
