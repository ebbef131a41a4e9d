"""Memories are told apart: HBM, VMEM, host, each with its own peak and budget."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import hloscope as hs
import numpy as np
import pytest
from hloscope.show.cli import main

MIB = 2**20
OFFLOADED = """HloModule jit_step, is_scheduled=true, entry_computation_layout={(f32[512,1024]{1,0:T(8,128)S(5)}, f32[512,1024]{1,0:T(8,128)})->f32[512,1024]{1,0:T(8,128)}}

ENTRY main {
  state = f32[512,1024]{1,0:T(8,128)S(5)} parameter(0)
  x = f32[512,1024]{1,0:T(8,128)} parameter(1)
  copy-start = (f32[512,1024]{1,0:T(8,128)}, f32[512,1024]{1,0:T(8,128)S(5)}, u32[]{:S(2)}) copy-start(state)
  tanh = f32[512,1024]{1,0:T(8,128)S(1)} tanh(x)
  copy-done = f32[512,1024]{1,0:T(8,128)} copy-done(copy-start)
  ROOT add = f32[512,1024]{1,0:T(8,128)} add(tanh, copy-done)
}
"""  # noqa: E501
ON_GPU = """HloModule jit_step, is_scheduled=true

ENTRY main {
  x = f32[512,1024]{1,0} parameter(0)
  scaled = f32[512,1024]{1,0:S(1)} tanh(x)
  all-reduce = f32[512,1024]{1,0:S(1)} custom-call(scaled), custom_call_target="__cublas$gemm"
  ROOT y = f32[512,1024]{1,0} negate(all-reduce)
}
"""


def peaks(memory: Any) -> dict[str, int]:
    return {s.name: s.peak_bytes for s in memory.spaces}


def test_host_memory_is_not_the_devices() -> None:
    memory = hs.read(OFFLOADED).memory
    assert memory.platform == "tpu"
    # x and the result throughout, and the copy: XLA:TPU places it beside the result, not there
    assert memory.timeline.max() == 6 * MIB
    assert peaks(memory) == {
        "HBM": memory.peak_bytes, "VMEM": 2 * MIB, "sync flags": 4, "host": 2 * MIB,
    }  # fmt: skip
    assert memory.memory_spaces == {0: 6 * MIB, 1: 2 * MIB, 2: 4, 5: 2 * MIB}
    shown = repr(memory)
    assert "peak of HBM 6.02 MiB" in shown  # with the place of a tuple's table
    assert "host 2 MiB" in shown
    assert {v.name for v in memory} == {"x", "add", "copy-start"}
    assert sum(v.bytes for v in memory) == sum(memory.by_category.values()) == 6 * MIB


def test_on_gpu_buffers_of_collectives_lie_in_device_memory() -> None:
    memory = hs.read(ON_GPU).memory
    assert memory.platform == "gpu"
    assert list(peaks(memory)) == ["device memory"]
    assert memory.timeline.max() == max(memory.liveness.timeline((0, 1)))


def test_every_memory_has_its_budget(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cap = hs.read(OFFLOADED)
    assert hs.check(cap, max_peak="6.1MiB")
    assert hs.check(cap, max_peak={"HBM": "6.1MiB", "host": "2MiB", "SMEM": 0})
    over = hs.check(cap, max_peak={"device": "6.1MiB", "host": "1MiB", "vmem": 1})
    assert [b.budget for b in over.breaches] == ["max_peak[host]", "max_peak[vmem]"]
    odd = hs.check(cap, max_peak={"CMEM": "1MiB"})
    assert "there is no memory called CMEM; there are HBM, VMEM" in str(odd.problems[0])
    dump = tmp_path / "step.hlo"
    dump.write_text(OFFLOADED)
    status = main(["check", str(dump), "--max-peak", "6.1MiB", "--max-peak", "host=1MiB"])
    assert status == 1
    said = capsys.readouterr().out
    assert "max_peak[host]: 2 MiB of 1 MiB" in said
    assert "ok: max_peak: 6.02 MiB of 6.1 MiB" in said


@pytest.mark.parametrize("name", ["gpt_scan", "fsdp", "decode_cache", "sorting"])
def test_parts_add_up_to_the_peak(name: str, libtpu: None, compiled: Callable[..., Any]) -> None:
    """In every memory, at every point: the values that live there are its timeline."""
    memory = compiled(name, "v5e:2x4").capture.memory
    live = memory.liveness
    for space in memory.spaces:
        spaces = memory.main_spaces if space.number == 0 else (space.number,)
        line = live.timeline(spaces)
        for point in np.linspace(0, len(line) - 1, 7).astype(int).tolist():
            assert live.size[live.live_at(point, spaces)].sum() == line[point]
    assert sum(v.bytes for v in memory) == memory.timeline.max()
    for parts in (memory.by_category, memory.by_line, memory.by_scope):
        assert sum(parts.values()) == memory.timeline.max()


def test_a_real_trace_with_parameters_on_the_host(real: Path) -> None:
    memory = hs.read(real / "traces" / "tpu-v6e-inference.xplane.pb").memory
    named = {s.name: s for s in memory.spaces}
    assert round(named["HBM"].peak_bytes / 2**30, 3) == 20
    assert round(named["host"].peak_bytes / 2**30, 3) == 15
    assert memory.peak_bytes == named["HBM"].peak_bytes


def test_a_space_without_a_name_is_called_by_its_number():
    from hloscope.analysis.base.memory_spaces import space_name

    assert [space_name(n, "tpu") for n in (0, 1, 4)] == ["HBM", "VMEM", "memory space 4"]
    assert [space_name(n, "cpu") for n in (0, 1, 5)] == ["device memory", "memory space 1", "host"]
