"""Live bytes against XLA's own figures, a slow twin and real remat policies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import hloscope as hs
import pytest
from corpus.programs import PROGRAMS
from hloscope.analysis.base.memory_tiling import padding_bytes, storage_bytes
from hloscope.hlo import parse_shape
from hypothesis import given, settings
from hypothesis import strategies as st
from quickly import as_users_do

ON_CPU = [p.name for p in PROGRAMS.values() if "cpu" in p.platforms]


def test_seed_001_peaks_at_its_all_reduce(seeds: Path) -> None:
    memory = hs.read(seeds / "001_496ac125c3946675.txt").memory
    assert memory.peak_instruction.opcode == "all-reduce"
    temporaries = [v.shape.byte_size for v in memory.live_at_peak if v.kind == "temp"]
    assert sum(temporaries) == 16_777_220
    assert memory.peak_source == "simulated"
    assert [v.name for v in memory.live_at_peak[:2]] == ["fusion", "all-reduce"]
    assert memory.by_category["collective buffer"] == 8_388_608


@pytest.mark.some(30)
@pytest.mark.parametrize("name", ON_CPU)
def test_the_buffer_assignment_gives_xlas_figures_exactly(
    name: str, compiled: Callable[..., Any]
) -> None:
    cap = compiled(name).capture
    memory, stats = cap.memory, cap.target.memory_stats
    total = sum(stats[f"{k}_size_in_bytes"] for k in ("argument", "output", "temp"))
    assert memory.assigned_bytes == total - stats["alias_size_in_bytes"]
    # on CPU, peak_memory_in_bytes is every allocation but the heap of temporaries
    kept = [
        a.size
        for a in cap.module.buffer_assignment.allocations
        if a.is_entry_computation_parameter or a.maybe_live_out or a.is_constant
        if not a.is_thread_local
    ]
    assert memory.xla_peak_bytes == sum(kept)


def test_live_ranges_follow_the_schedule() -> None:
    text = """HloModule m, is_scheduled=true
ENTRY main {
  p = f32[256]{0} parameter(0)
  a = f32[256]{0} exponential(p)
  r = f32[256]{0} reverse(a), dimensions={0}
  b = f32[256]{0} multiply(r, p)
  ROOT c = f32[256]{0} reverse(b), dimensions={0}
}
"""
    memory = hs.read(text).memory
    ranges = {v.name: (v.start, v.end, v.kind) for v in memory.values()}
    assert ranges == {
        "p": (0, 3, "argument"),
        "a": (1, 2, "temp"),
        "r": (2, 3, "temp"),
        "b": (3, 4, "temp"),
        "c": (4, 4, "output"),
    }
    # a lies where the output will be written, b takes the place of r
    assert memory.timeline.tolist() == [2048, 2048, 3072, 3072, 3072]


OPS = ("add", "reverse", "tuple")


@st.composite
def programs(draw: st.DrawFn) -> str:
    """A scheduled ENTRY of array ops over earlier values, without sharing opportunities."""
    lines = ["  v0 = f32[16]{0} parameter(0)"]
    sizes = [16]
    for k in range(1, draw(st.integers(1, 14))):
        a = draw(st.integers(0, len(sizes) - 1))
        b = draw(st.integers(0, len(sizes) - 1))
        size = sizes[a] + sizes[b]
        lines.append(f"  v{k} = f32[{size}]{{0}} concatenate(v{a}, v{b}), dimensions={{0}}")
        sizes.append(size)
    last = len(sizes)
    lines.append(f"  ROOT v{last} = f32[1]{{0}} slice(v{last - 1}), slice={{[0:1]}}")
    return "HloModule m, is_scheduled=true\nENTRY main {\n" + "\n".join(lines) + "\n}\n"


@settings(max_examples=150, deadline=None)
@given(programs())
def test_the_timeline_equals_a_slow_count(text: str) -> None:
    cap = hs.read(text)
    instructions = cap.module.entry.instructions
    memory = cap.memory
    homes = {v.name for v in memory.values() if v.home}
    for t, now in enumerate(instructions):
        live = 0
        for i in instructions:
            made = instructions.index(i)
            last = max([made, *(instructions.index(u) for u in i.users)])
            held = i.opcode == "parameter" or i is cap.module.entry.root or made <= t <= last
            live += i.shape.byte_size * (held and i.name not in homes)
        assert memory.timeline[t] == live, now


def test_loops_and_updates_are_in_place() -> None:
    import jax
    import jax.numpy as jnp

    def f(x: Any) -> Any:
        return jax.lax.fori_loop(0, 10, lambda i, c: c.at[i].set(jnp.sin(c[i - 1])), x)

    cap = hs.capture(jax.jit(f, donate_argnums=0), jax.ShapeDtypeStruct((512, 64), jnp.float32))
    (loop,) = [x for x in cap.memory.loops if x.trips == 10]
    (big,) = [c for c in loop.carries if c.bytes == 512 * 64 * 4]
    assert big.role == "stacked"
    assert cap.memory.simulated_bytes < 1.1 * 512 * 64 * 4
    (row,) = cap.memory.donations
    assert row.outcome == "aliased"


def test_the_donation_audit_says_what_was_for_nothing_and_what_could_be() -> None:
    import jax
    import jax.numpy as jnp

    def f(a: Any, b: Any) -> Any:
        return a * 2, b.sum()

    x = jax.ShapeDtypeStruct((64, 64), jnp.float32)
    cap = hs.capture(jax.jit(f, donate_argnums=1), x, x)
    rows = {d.argument: d.outcome for d in cap.memory.donations}
    # the output is not made of b, whose value is read as well
    assert rows["b"] in ("donated, unused", "aliased", "aliased, but copied")
    if rows["b"] == "donated, unused":
        assert rows["a"] == "could be donated"


def test_what_a_loop_stores_for_one_that_runs_back_is_not_for_a_backward_pass() -> None:
    """As the two sweeps of a tridiagonal solver."""
    import jax
    import jax.numpy as jnp

    def solve(x: Any) -> Any:
        _, swept = jax.lax.scan(lambda c, row: (jnp.tanh(c + row),) * 2, x[0], x)
        return jax.lax.scan(lambda c, row: (row - c, row), x[0], swept, reverse=True)[0]

    memory = hs.capture(jax.jit(solve), jax.ShapeDtypeStruct((64, 512), jnp.float32)).memory
    assert memory.residuals
    assert "stored between loops: " in str(memory)


def test_residuals_show_what_a_scan_stores_for_backward() -> None:
    import jax
    import jax.numpy as jnp

    def grad(policy: Any) -> Any:
        def body(c: Any, w: Any) -> Any:
            return jnp.tanh(c @ w), None

        def loss(ws: Any, x: Any) -> Any:
            return jax.lax.scan(jax.checkpoint(body, policy=policy), x, ws)[0].sum()

        shapes = (8, 64, 64), (32, 64)
        args = [jax.ShapeDtypeStruct(s, jnp.float32) for s in shapes]
        return hs.capture(jax.jit(jax.grad(loss)), *args).memory

    policies = jax.checkpoint_policies
    nothing, everything = grad(policies.nothing_saveable), grad(policies.everything_saveable)
    assert [r.shape.dense_text for r in nothing.residuals] == ["f32[8,32,64]"]  # the carry alone
    assert sum(r.bytes for r in everything.residuals) > sum(r.bytes for r in nothing.residuals)
    assert any("tanh" in r.op_name or "sub" in r.op_name for r in everything.residuals)
    assert "stored between loops for backward: " in str(nothing)
    writer, (reader,) = nothing.residuals[0].writer, nothing.residuals[0].readers
    assert (writer.phase, reader.phase) == ("forward", "backward")


@pytest.mark.parametrize(
    ("shape", "stored"),
    [
        ("f32[5,100]{1,0:T(8,128)}", 8 * 128 * 4),
        ("bf16[5,100]{1,0:T(8,128)(2,1)}", 8 * 128 * 2),
        ("f32[3]{0:T(256)}", 1024),
        ("f32[2,9,100]{2,1,0:T(8,128)}", 2 * 16 * 128 * 4),
        ("f32[9,100]{0,1:T(8,128)}", 104 * 128 * 4),
        ("f32[]{:T(128)}", 512),
        ("f32[5,100]{1,0}", 2000),
        ("(f32[4]{0}, s32[])", 20),
    ],
)
def test_tiles_pad(shape: str, stored: int) -> None:
    parsed = parse_shape(shape)
    assert storage_bytes(parsed) == stored
    assert padding_bytes(parsed) == stored - parsed.byte_size


def test_results_are_tables(compiled: Callable[..., Any]) -> None:
    pytest.importorskip("pandas")
    memory = compiled("gpt_scan").capture.memory
    frame = memory.to_pandas()
    assert frame["bytes"].sum() + memory.table_bytes == memory.simulated_bytes
    assert frame["bytes"].is_monotonic_decreasing
    assert memory.peak_source in repr(memory)
    assert memory.to_dict()["peak_live_bytes"] == memory.peak_bytes
    assert sum(memory.by_category.values()) == frame["bytes"].sum()


def test_what_xlas_peak_on_tpu_is_made_of(libtpu: None) -> None:
    import jax
    import jax.numpy as jnp

    def loss(w: Any, u: Any, h: Any, xs: Any) -> Any:
        return jax.lax.scan(lambda h, x: (jnp.tanh(h @ w + x @ u), None), h, xs)[0].sum()

    def grads(h: Any, w: Any, xs: Any, u: Any) -> Any:
        return jax.grad(loss, (0, 1))(w, u, h, xs)

    shapes = (16, 64), (64, 64), (20, 16, 32), (32, 64)
    args = [jax.ShapeDtypeStruct(s, jnp.float32) for s in shapes]
    options = as_users_do(tpu=True)
    cap = hs.capture(grads, *args, topology="v5e:2x4", compiler_options=options)
    found = cap.module.buffer_assignment
    assert found is not None
    size = {b.id: b.size for b in found.buffers}
    place = {
        x.buffer_id: (a.index, x.offset, x.size) for a in found.allocations for x in a.assigned
    }
    heaps = {t.allocation_index for t in found.traces}
    outside = [a.size for a in found.allocations if a.index not in heaps and not a.is_thread_local]
    peaks, twice = [], 0
    for trace in found.traces:
        live: set[int] = set()
        most: tuple[int, frozenset[int]] = (0, frozenset())
        for event in trace.events:
            (live.add if event.kind == "ALLOC" else live.discard)(event.buffer_id)
            most = max(most, (sum(size[b] for b in live), frozenset(live)), key=lambda m: m[0])
        peaks.append(most[0])
        places = [place[b] for b in most[1]]
        twice += sum(p[2] for p in places) - sum(p[2] for p in set(places))
    assert cap.memory.xla_peak_bytes == sum(outside) + max(peaks)
    # two stacks of f32[20,16,64], a tile of lanes each row, are counted as carry and as result
    assert twice == 2 * 20 * 16 * 128 * 4
    vmem = [a.size for a in found.allocations if a.memory_space == 1 and a.index in heaps]
    assert [cap.memory.memory_spaces[1]] == vmem


def test_a_tuple_whose_shape_states_fewer_leaves_takes_no_others_memory() -> None:
    text = """HloModule m, is_scheduled=true
ENTRY main {
  x = f32[1024]{0} parameter(0)
  a = f32[1024]{0} negate(x)
  b = f32[1024]{0} tanh(x)
  ROOT out = (f32[1024]{0}) tuple(a, b, x)
}
"""
    memory = hs.read(text).memory
    assert {v.name: v.bytes for v in memory}["a"] == 4096


def test_of_equal_arguments_each_output_is_offered_to_another() -> None:
    lines = [f"  p{k} = f32[64]{{0}} parameter({k})" for k in range(4)]
    lines += [f"  n{k} = f32[64]{{0}} negate(p{k})" for k in range(3)]
    text = "HloModule m, is_scheduled=true\nENTRY main {\n" + "\n".join(lines)
    text += "\n  ROOT out = (f32[64]{0}, f32[64]{0}, f32[64]{0}) tuple(n0, n1, n2)\n}\n"
    rows = [d for d in hs.read(text).memory.donations if d.outcome == "could be donated"]
    assert [(d.parameter, d.output) for d in rows] == [(0, (0,)), (1, (1,)), (2, (2,))]


def test_an_element_that_nothing_takes_has_a_place_of_its_own():
    """The indices of a TPU sort: XLA does not put them where the output is not yet written."""
    text = """HloModule m, is_scheduled=true

%less (a: f32[], b: f32[], c: s32[], d: s32[]) -> pred[] {
  %a = f32[]{:T(128)} parameter(0)
  %b = f32[]{:T(128)} parameter(1)
  %c = s32[]{:T(128)} parameter(2)
  %d = s32[]{:T(128)} parameter(3)
  ROOT %lt = pred[]{:T(512)} compare(%a, %b), direction=LT
}

ENTRY %main (x: f32[512,4096]) -> f32[512,4096] {
  %x = f32[512,4096]{1,0:T(8,128)} parameter(0)
  %copy = f32[512,4096]{0,1:T(8,128)S(1)} copy(%x)
  %iota = s32[512,4096]{0,1:T(8,128)S(1)} iota(), iota_dimension=1
  %sort = (f32[512,4096]{0,1:T(8,128)S(1)}, s32[512,4096]{0,1:T(8,128)}) sort(%copy, %iota), dimensions={1}, to_apply=%less
  %first = f32[512,4096]{0,1:T(8,128)S(1)} get-tuple-element(%sort), index=0
  ROOT %out = f32[512,4096]{1,0:T(8,128)} copy(%first)
}
"""  # noqa: E501
    array = 512 * 4096 * 4
    memory = hs.read(text, hardware="tpu-v5e").memory
    assert 0 <= memory.simulated_bytes - 3 * array < 64 << 10  # argument, output, indices
