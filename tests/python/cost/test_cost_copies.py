"""Copies beside everything else, assumed slices: what is modelled stays a lower bound."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import hloscope as hs
import numpy as np
import pytest
from corpus.programs import PROGRAMS
from hloscope.analysis.cost.cost import estimate
from hloscope.analysis.cost.moves import moves
from hloscope.analysis.cost.roofline.torus import assumed_axes, assumed_slice
from hloscope.hardware import find, load
from hloscope.hlo import Target
from some import some_of

V5E = find("tpu-v5e")
MIB = 2**20
PREFETCHED = """HloModule jit_f, is_scheduled=true

ENTRY main {
  w = f32[2048,2048]{1,0:T(8,128)} parameter(1)
  copy-start = (f32[2048,2048]{1,0:T(8,128)S(1)}, f32[2048,2048]{1,0:T(8,128)}, u32[]{:S(2)}) copy-start(w)
  x = f32[2048,2048]{1,0:T(8,128)} parameter(0)
  copy-done = f32[2048,2048]{1,0:T(8,128)S(1)} copy-done(copy-start)
  ROOT dot = f32[2048,2048]{1,0:T(8,128)} dot(x, copy-done), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""  # noqa: E501
KERNEL = """HloModule jit_f, is_scheduled=true

ENTRY main {
  w = f32[2048,2048]{1,0:T(8,128)} parameter(1)
  n = s32[4]{0:T(128)S(2)} parameter(2)
  copy-start = (f32[2048,2048]{1,0:T(8,128)S(1)}, f32[2048,2048]{1,0:T(8,128)}, u32[]{:S(2)}) copy-start(w)
  x = f32[2048,2048]{1,0:T(8,128)} parameter(0)
  copy-done = f32[2048,2048]{1,0:T(8,128)S(1)} copy-done(copy-start)
  ROOT k = f32[2048,2048]{1,0:T(8,128)} custom-call(n, x, copy-done), custom_call_target="tpu_custom_call", backend_config={"custom_call_config": {"body": "", "cost_estimate": {"flops": 17179869184, "transcendentals": 0, "bytes_accessed": 50331648}}}
}
"""  # noqa: E501
OFFLOADED = """HloModule jit_f, is_scheduled=true

ENTRY main {
  s = f32[1024,1024]{1,0:T(8,128)S(5)} parameter(0)
  in = (f32[1024,1024]{1,0:T(8,128)}, f32[1024,1024]{1,0:T(8,128)S(5)}, u32[]{:S(2)}) copy-start(s)
  there = f32[1024,1024]{1,0:T(8,128)} copy-done(in)
  new = f32[1024,1024]{1,0:T(8,128)} negate(there)
  out = (f32[1024,1024]{1,0:T(8,128)S(5)}, f32[1024,1024]{1,0:T(8,128)}, u32[]{:S(2)}) copy-start(new)
  ROOT back = f32[1024,1024]{1,0:T(8,128)S(5)} copy-done(out)
}
"""  # noqa: E501


def test_mfu_counts_what_a_kernel_declares() -> None:
    """An upper bound that leaves a kernel's work out would be none."""
    cap = hs.read(KERNEL, hardware="tpu-v5e")
    headline = cap.findings.headline
    rate = cap.cost().hardware.matmul["bf16"]
    assert headline.mfu == pytest.approx(17179869184 / (rate * headline.seconds))


def test_a_copy_to_vmem_reads_main_memory_once_and_runs_beside() -> None:
    cost = hs.read(PREFETCHED).cost(V5E)
    copy = cost.module.find("copy-start").index
    assert cost.bytes[copy] == 2 * 16 * MIB + 0
    assert cost.main_bytes[copy] == 16 * MIB
    r = cost.roofline
    dot = r.seconds[cost.module.find("dot").index]
    assert r.bound(copy) == "copy"
    assert r.copy_seconds == pytest.approx(16 * MIB / V5E.memory_bandwidth)
    # three arrays cross HBM's pins and the products are done meanwhile: no less, no more
    roofline = max(2 * 2048**3 / V5E.matmul["f32"], 3 * 16 * MIB / V5E.memory_bandwidth)
    assert r.total_seconds == pytest.approx(max(roofline, dot))
    assert "copies" in repr(cost)


def test_copies_to_the_host_take_what_its_link_gives() -> None:
    v6e = find("tpu-v6e")
    cost = hs.read(OFFLOADED).cost(v6e)
    seconds = 4 * MIB / v6e.host_bandwidth
    for name in ("in", "out"):
        assert cost.roofline.seconds[cost.module.find(name).index] == pytest.approx(seconds)
    # both ways at once, and never faster than one of them
    assert cost.roofline.total_seconds == pytest.approx(seconds)


def test_every_chip_says_where_its_host_link_is_from() -> None:
    known = [chip for chip in load().values() if chip.host_bandwidth]
    assert {"tpu-v5e", "tpu-v6e", "h100", "mi300x"} <= {chip.id for chip in known}
    for chip in known:
        assert any("PCIe" in line for line in chip.source), chip.id


@pytest.mark.parametrize(
    ("count", "dimensions", "sliced"),
    [(16, 2, (4, 4)), (8, 2, (2, 4)), (128, 2, (8, 16)), (256, 2, (16, 16)), (64, 3, (4, 4, 4)),
     (16, 3, (2, 2, 4)), (6, 2, (2, 3)), (1, 2, (1, 1))],
)  # fmt: skip
def test_an_ordinary_slice(count: int, dimensions: int, sliced: tuple[int, ...]) -> None:
    assert assumed_slice(count, dimensions) == sliced


@pytest.mark.parametrize(
    ("size", "sliced", "axes"),
    [(4, (4, 4), [(4, False)]), (16, (4, 4), [(4, False), (4, False)]),
     (16, (16, 16), [(16, True)]), (8, (8, 16), [(8, False)]), (4, (4, 4, 4), [(4, True)]),
     (3, (4, 4), [(3, False)])],
)  # fmt: skip
def test_a_group_on_it(size: int, sliced: tuple[int, ...], axes: Any) -> None:
    assert assumed_axes(size, sliced) == axes


def test_live_and_dump_of_one_program_agree(libtpu: None) -> None:
    """A mesh laid along the torus: the dump does not say where its devices are."""
    import jax
    import jax.numpy as jnp
    from jax.experimental import topologies
    from jax.sharding import NamedSharding, PartitionSpec

    topology = topologies.get_topology_desc(platform="tpu", topology_name="v5e:4x4")
    mesh = topologies.make_mesh(topology, (4, 4), ("data", "model"))
    spec = PartitionSpec("data", "model")
    summed = jax.shard_map(
        lambda x: jax.lax.psum(x, "model"),
        mesh=mesh,
        in_specs=spec,
        out_specs=PartitionSpec("data"),
    )
    x = jax.ShapeDtypeStruct((4096, 16384), jnp.float32, sharding=NamedSharding(mesh, spec))
    cap = hs.capture(summed, x, provenance=False)
    live, dump = cap.cost(), hs.read(cap.text).cost("tpu-v5e")
    assert dump.roofline.assumed_slice == (4, 4)
    assert not live.roofline.assumed_slice
    assert "4×4 is assumed" in repr(dump)
    assert "is assumed" not in repr(live)
    assert dump.roofline.total_seconds == pytest.approx(live.roofline.total_seconds)


def test_modelled_time_is_below_xlas_own_estimate(
    libtpu: None, compiled: Callable[..., Any]
) -> None:
    """Of every program and every operation for which XLA:TPU says how many cycles it takes."""
    seen = 0
    on_tpu = [p.name for p in PROGRAMS.values() if "tpu" in p.platforms]
    for name in some_of(on_tpu, 30, "each program of a TPU"):
        cap = compiled(name, "v5e:2x4").capture
        target = replace(cap.target, hardware="tpu-v5e")
        cost = estimate(cap.module, target, hardware=V5E)
        if not cost.total_estimated_cycles:
            continue
        r = cost.roofline
        ours = r.total_seconds - r.exposed_seconds
        assert ours <= cost.total_estimated_cycles / V5E.clock, name
        for n, cycles in cost.estimated_cycles.items():
            if cost.is_unit[n] and not np.isnan(r.seconds[n]):
                assert r.seconds[n] <= cycles / V5E.clock, (
                    name,
                    cost.module.instructions[n],
                )
                seen += 1
    assert seen > 500


def test_without_a_chip_nothing_is_assumed() -> None:
    assert estimate(hs.read(PREFETCHED).module, Target()).roofline is None


def test_what_a_kernels_author_declares_is_timed_as_matmuls_may_be() -> None:
    """Nobody says which unit does it: at the vector unit's rate it would be no lower bound."""
    cost = hs.read(KERNEL).cost("tpu-v5e")
    kernel = next(r for r in cost if r.instruction.name == "k")
    assert cost.total_flops == 17_179_869_184
    assert cost.total_matmul_flops == 0
    assert kernel.seconds == pytest.approx(17_179_869_184 / V5E.matmul["bf16"])
    assert "17.2 GFLOP declared by the authors of kernels" in repr(cost)
    # 48 MiB are read and written, 16 of them in VMEM
    assert cost.main_bytes[kernel.instruction.index] == 32 * MIB
    assert cost.bytes[kernel.instruction.index] == 48 * MIB


def test_what_is_written_into_main_memory_counts_wherever_the_update_is() -> None:
    """A row of a cache that was updated in VMEM is written back: its own memory says nothing."""
    row, all_rows = "f32[1,1024,1024]{2,1,0:T(8,128)%s}", "f32[8,1024,1024]{2,1,0:T(8,128)%s}"
    fused = "%f (a: f32[8,1024,1024], u: f32[1,1024,1024], n: s32[]) -> f32[8,1024,1024] {"
    for of_row, of_all, whole in (("S(1)", "", 4 * MIB), ("", "S(1)", 4 * MIB), ("", "", 8 * MIB)):
        a, u = all_rows % of_all, row % of_row
        update = f"{a} dynamic-update-slice(a, u, n, n, n)"
        given = f"  a = {a} parameter(0)\n  u = {u} parameter(1)\n  n = s32[] parameter(2)\n"
        head = "HloModule m, is_scheduled=true\n\n"
        plain = f"{head}ENTRY main {{\n{given}  ROOT r = {update}\n}}\n"
        call = f"  ROOT r = {a} fusion(a, u, n), kind=kLoop, calls=f\n"
        in_fusion = (
            f"{head}{fused}\n{given}  ROOT d = {update}\n}}\n\nENTRY main {{\n{given}{call}}}\n"
        )
        for text in (plain, in_fusion):
            cost = hs.read(text).cost("tpu-v5e")
            (r,) = [x.instruction for x in cost if x.instruction.name == "r"]
            assert cost.main_bytes[r.index] == pytest.approx(whole, abs=64), (of_row, of_all)


def test_a_kernel_without_floats_is_the_vector_units() -> None:
    text = KERNEL.replace("f32[", "s32[")
    cost = hs.read(text).cost("tpu-v5e")
    kernel = next(r for r in cost if r.instruction.name == "k")
    assert kernel.seconds == pytest.approx(17_179_869_184 / V5E.vector)


WRITTEN_TO_HOST = """HloModule jit_f, is_scheduled=true

ENTRY main {
  h = f32[12,1024,1024]{2,1,0:T(8,128)S(5)} parameter(0)
  u = f32[1,1024,1024]{2,1,0:T(8,128)} parameter(1)
  z = s32[] constant(0)
  s = ((f32[12,1024,1024]{2,1,0:T(8,128)S(5)}, f32[1,1024,1024]{2,1,0:T(8,128)}, s32[], s32[], s32[]), f32[12,1024,1024]{2,1,0:T(8,128)S(5)}, u32[]{:S(2)}) dynamic-update-slice-start(h, u, z, z, z)
  ROOT d = f32[12,1024,1024]{2,1,0:T(8,128)S(5)} dynamic-update-slice-done(s)
}
"""  # noqa: E501


def test_a_slice_written_to_the_host_goes_over_its_link() -> None:
    cost = hs.read(WRITTEN_TO_HOST, hardware="tpu-v6e").cost()
    link = find("tpu-v6e").host_bandwidth
    assert cost.roofline.total_seconds == pytest.approx(4 * MIB / link)
    (move,) = moves(cost.module, cost.target)
    assert (move.kind, move.bytes) == ("to host", 4 * MIB)
