"""FLOPs and bytes against XLA's own cost analysis, slow twins and figures worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hloscope as hs
import numpy as np
import pytest
from corpus.programs import PROGRAMS
from hloscope.analysis.cost.cost import estimate
from hloscope.analysis.cost.roofline.roofline import transfer_time
from hloscope.analysis.cost.roofline.torus import torus, torus_axes
from hloscope.analysis.cost.roofline.transfers import ring
from hloscope.analysis.flops.convolution import valid_positions
from hloscope.hardware import find
from hloscope.hlo import Device, Target
from hypothesis import given, settings
from hypothesis import strategies as st
from quickly import as_users_do

SEED = {0: "000_b1cf5d3eba6d7049", 1: "001_496ac125c3946675", 4: "004_f260b7b1b8c886c1"}


def seed_cost(seeds: Path, number: int, chip: str) -> Any:
    return hs.read(seeds / f"{SEED[number]}.txt").cost(chip)


def test_seed_000_has_its_flops_in_five_gemms(seeds: Path) -> None:
    cost = seed_cost(seeds, 0, "h100")
    assert sum(k == "gemm" for k in cost.work.kind) == 5
    assert cost.total_matmul_flops == 343_597_383_680
    # five equal products at the TF32 peak
    assert cost.roofline.compute_seconds == pytest.approx(343_597_383_680 / 494.7e12)


def test_seed_001_has_two_convolutions_and_xlas_cycles(seeds: Path) -> None:
    cost = seed_cost(seeds, 1, "tpu-v5e")
    flops = [f for f, k in zip(cost.work.matmul_flops, cost.work.kind, strict=True) if k]
    assert flops == [4_294_967_296] * 2
    assert cost.total_estimated_cycles == 377_129
    # one after the other: all of it is exposed
    assert cost.roofline.exposed_seconds == pytest.approx(cost.roofline.collective_seconds)


def test_seed_004_has_its_flops_in_151_gemms(seeds: Path) -> None:
    cost = seed_cost(seeds, 4, "a100")
    assert sum(k == "gemm" for k in cost.work.kind) == 151
    assert cost.total_matmul_flops == 631_360_192_512
    assert not cost.unknown_flops


@pytest.mark.some(30)
@pytest.mark.parametrize("name", [p.name for p in PROGRAMS.values() if "cpu" in p.platforms])
def test_flops_equal_xlas_cost_analysis(name: str, compiled: Callable[..., Any]) -> None:
    """Equal up to XLA's 32-bit sums, once loops and custom calls are counted its way; but for FFTs,
    of which XLA multiplies the logarithms of dimensions."""
    cost = compiled(name).capture.cost()
    has_fft = any(i.opcode == "fft" for i in cost.module.instructions)
    rows = {x.quantity: x for x in cost.xla}
    for quantity in ("flops", "transcendentals"):
        x = rows[quantity]
        if x.xla is None or (has_fft and quantity == "flops"):
            continue
        assert x.other == pytest.approx(0, abs=max(1e-6 * abs(x.xla), 0.5)), (quantity, x)
        assert x.ours == pytest.approx(x.xla + x.loops + x.custom_calls + x.branches + x.other)


def test_the_difference_to_xlas_figures_is_explained() -> None:
    """A loop counted once, a custom call as -1, a convolution alike: nothing is left over."""
    import jax
    import jax.numpy as jnp

    def shapes(*all_: tuple[int, ...]) -> Any:
        return tuple(jax.ShapeDtypeStruct(s, jnp.float32) for s in all_)

    def flops(f: Any, *args: Any) -> Any:
        cost = hs.capture(jax.jit(f), *args).cost()
        return next(x for x in cost.xla if x.quantity == "flops"), cost

    def scan(x: Any, ws: Any) -> Any:
        return jax.lax.scan(lambda c, w: (jnp.tanh(c @ w), None), x, ws)[0]

    x, cost = flops(scan, *shapes((64, 64), (8, 64, 64)))
    # seven more trips of a product, a counter and a condition
    assert x.loops == pytest.approx(7 * 2 * 64**3, rel=1e-3)
    assert (x.custom_calls, x.other) == (0, 0)
    assert x.ours == x.xla + x.loops
    assert "loops" in repr(cost)

    x, cost = flops(jnp.linalg.cholesky, *shapes((64, 64)))
    assert cost.unknown_flops  # LAPACK's: XLA counts it as -1, we as unknown
    assert (x.loops, x.custom_calls, x.other) == (0, 1, 0)

    def conv(image: Any, kernel: Any) -> Any:
        return jax.lax.conv(image, kernel, (1, 1), "SAME")

    x, cost = flops(conv, *shapes((2, 8, 32, 32), (16, 8, 3, 3)))
    # 32 + 31 + 31 valid rows of the kernel's three, as many columns
    assert cost.total_matmul_flops == x.xla == 2 * (2 * 16) * 8 * (32 + 31 + 31) ** 2
    assert (x.loops, x.custom_calls, x.other) == (0, 0, 0)
    assert "(the same)" in repr(cost)


def test_a_scan_costs_as_much_as_the_unrolled_loop() -> None:
    import jax
    import jax.numpy as jnp

    def f(x: Any, ws: Any, unroll: int) -> Any:
        def body(c: Any, w: Any) -> Any:
            return jnp.tanh(c @ w), None

        return jax.lax.scan(body, x, ws, unroll=unroll)[0].sum()

    x, ws = (jax.ShapeDtypeStruct(s, jnp.float32) for s in ((64, 256), (8, 256, 256)))
    costs = [
        hs.capture(jax.jit(jax.grad(f), static_argnums=2), x, ws, unroll).cost()
        for unroll in (1, 8)
    ]
    scanned, unrolled = (c.total_flops for c in costs)
    assert scanned == pytest.approx(unrolled, rel=0.01)
    assert costs[0].total_matmul_flops == costs[1].total_matmul_flops > 0


def test_a_loop_of_unknown_length_counts_once_until_told() -> None:
    import jax
    import jax.numpy as jnp

    def f(x: Any) -> Any:
        return jax.lax.while_loop(lambda c: jnp.sum(c) > 1, lambda c: c @ c, x)

    cap = hs.capture(jax.jit(f), jax.ShapeDtypeStruct((16, 16), jnp.float32))
    once = cap.cost()
    (loop,) = once.unknown_trip_counts
    assert once.total_matmul_flops == 2 * 16**3
    assert cap.cost(trips={loop: 10}).total_matmul_flops == 10 * 2 * 16**3
    assert cap.summary["trip_counts_unknown"] == [loop]
    with pytest.raises(ValueError, match="no loop is called nothing"):
        cap.cost(trips={"nothing": 3})


def test_unknown_custom_calls_are_unknown_not_free() -> None:
    text = """HloModule m, is_scheduled=true
ENTRY main {
  p = f32[8,8]{1,0} parameter(0)
  a = f32[8,8]{1,0} custom-call(p), custom_call_target="somebody"
  ROOT b = f32[8,8]{1,0} add(a, p)
}
"""
    cost = hs.read(text).cost("h100")
    assert [i.name for i in cost.unknown_flops] == ["a"]
    assert math.isnan(cost.row(cost.unknown_flops[0]).flops)
    assert cost.total_flops == 64
    assert [i.name for i in cost.roofline.unmodelled] == ["a"]
    assert "unknown" in repr(cost)


OVERLAP = """HloModule m, is_scheduled=true, num_partitions=4
%add { %x = f32[] parameter(0)  %y = f32[] parameter(1)  ROOT %s = f32[] add(%x, %y) }
ENTRY main {
  p = f32[1024,1024]{1,0} parameter(0)
  s = f32[4096,1024]{1,0} all-gather-start(p), dimensions={0}, replica_groups={{0,1,2,3}}, channel_id=1, use_global_device_ids=true
  d = f32[1024,1024]{1,0} dot(p, p), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT g = f32[4096,1024]{1,0} all-gather-done(s)
}
"""  # noqa: E501


def test_a_transfer_hides_behind_what_runs_between_its_start_and_its_done() -> None:
    text = OVERLAP.replace("%add { %x = f32[] parameter(0)  %y = f32[] parameter(1)  ROOT", "")
    text = "\n".join(line for line in text.splitlines() if not line.startswith(" %s ="))
    cost = hs.read(text).cost("h100")
    r = cost.roofline
    wire = 3 * 3.4e-6 + 0.75 * 4096 * 1024 * 4 / 450e9
    product = max(2 * 1024**3 / 494.7e12, 3 * 1024 * 1024 * 4 / 3.35e12)
    assert r.collective_seconds == pytest.approx(wire)
    assert r.exposed_seconds == pytest.approx(wire - product)
    assert r.total_seconds == pytest.approx(wire)


def test_transfers_share_the_wire_one_after_the_other() -> None:
    """Two gathers start together; a dot hides the first, the second waits for both.

    wire     ▒ first ▒▒▒ second ▒▒
    compute  dot██ done1      done2: exposed = 2 wire - dot
    """
    text = """HloModule m, is_scheduled=true, num_partitions=4
ENTRY main {
  p = f32[1024,1024]{1,0} parameter(0)
  s1 = f32[4096,1024]{1,0} all-gather-start(p), dimensions={0}, replica_groups={{0,1,2,3}}, channel_id=1, use_global_device_ids=true
  s2 = f32[4096,1024]{1,0} all-gather-start(p), dimensions={0}, replica_groups={{0,1,2,3}}, channel_id=2, use_global_device_ids=true
  d = f32[1024,1024]{1,0} dot(p, p), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  g1 = f32[4096,1024]{1,0} all-gather-done(s1)
  g2 = f32[4096,1024]{1,0} all-gather-done(s2)
  ROOT r = f32[4096,1024]{1,0} add(g1, g2)
}
"""  # noqa: E501
    r = hs.read(text).cost("h100").roofline
    wire = 3 * 3.4e-6 + 0.75 * 4096 * 1024 * 4 / 450e9
    dot = max(2 * 1024**3 / 494.7e12, 3 * 1024 * 1024 * 4 / 3.352e12)
    assert r.collective_seconds == pytest.approx(2 * wire)
    assert r.exposed_seconds == pytest.approx(2 * wire - dot)
    assert r.exposed.nonzero()[0].size == 2


@pytest.mark.parametrize(("rows", "hidden"), [(1024, True), (8192, False)])
def test_a_real_schedule_hides_a_permute_behind_two_matmuls(
    libtpu: None, rows: int, hidden: bool
) -> None:
    """XLA:TPU starts the permute first and awaits it after both products."""
    import jax
    import jax.numpy as jnp
    from corpus.build import topology_devices
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    mesh = Mesh(np.array(topology_devices("v5e:2x4")).reshape(8), ("x",))
    ring = [(i, (i + 1) % 8) for i in range(8)]
    split, whole = PartitionSpec("x"), PartitionSpec()

    def local(x: Any, w: Any) -> Any:
        return jax.lax.ppermute(x, "x", ring) + 1, w @ w @ w

    def argument(shape: tuple[int, ...], spec: Any) -> Any:
        return jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=NamedSharding(mesh, spec))

    fn = jax.shard_map(local, mesh=mesh, in_specs=(split, whole), out_specs=(split, whole))
    args = argument((8 * rows, 1024), split), argument((2048, 2048), whole)
    program = jax.jit(fn, compiler_options=as_users_do(tpu=True))
    cost = hs.capture(program.lower(*args).compile()).cost()
    (t,) = cost.transfers
    between = cost.module.instructions[t.start + 1 : t.done]
    assert cost.module.instructions[t.start].opcode == "collective-permute-start"
    products = [cost.row(i).seconds for i in between if cost.row(i).bound == "compute"]
    assert len(products) == 2
    # v5e at 197 TFLOP/s; from the last chip of the 2x4 mesh back to the first it is 4 hops
    places = [d.coords for d in cost.target.devices]
    hops = max(sum(abs(a - b) for a, b in zip(places[i], places[j], strict=True)) for i, j in ring)
    wire = hops * 1e-6 + rows * 1024 * 2 / 50e9
    assert t.levels[-1].torus == (4, rows * 1024 * 2)  # no two ways share a link
    assert sum(products) == pytest.approx(2 * (2 * 2048**3) / 197e12, rel=1e-3)
    assert cost.roofline.collective_seconds == pytest.approx(wire)
    want = 0.0 if hidden else wire - sum(cost.roofline.seconds[i.index] for i in between)
    assert cost.roofline.exposed_seconds == pytest.approx(want, abs=1e-9)


def test_alpha_beta_times_follow_the_cited_formulas() -> None:
    assert ring("all-gather", 4, 400.0) == (3, 300)
    assert ring("all-reduce", 4, 400.0) == (6, 600)
    assert ring("all-reduce", 1, 400.0) == (0, 0)
    # a wrapped ring sends both ways: half the bytes a link, half the steps
    assert torus("all-gather", [(4, True)], 400.0) == (2, 150)
    assert torus("all-gather", [(4, False)], 400.0) == (3, 300)
    assert torus("all-gather", [(4, True), (4, True)], 1600.0) == (4, 1500 / 4)
    # all-to-all on a wrapped ring takes a quarter of the time of an all-gather, n → ∞
    a2a, gather = (
        torus("all-to-all", [(64, True)], 1.0)[1],
        torus("all-gather", [(64, True)], 64.0)[1],
    )
    assert a2a / gather == pytest.approx(0.25, rel=0.02)


def collective(kind: str, devices: int, groups: str, result: int, operand: int) -> str:
    """A program of one collective over ``devices``; sizes are elements of f32."""
    extra = ", dimensions={0}" if kind != "all-reduce" else ""
    apply = ", to_apply=sum" if kind in ("all-reduce", "reduce-scatter") else ""
    return f"""HloModule m, is_scheduled=true, num_partitions={devices}
sum {{
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT s = f32[] add(x, y)
}}
ENTRY main {{
  p = f32[{operand}]{{0}} parameter(0)
  ROOT c = f32[{result}]{{0}} {kind}(p){extra}, replica_groups={groups}, channel_id=1, use_global_device_ids=true{apply}
}}
"""  # noqa: E501


S = 4 * 2**26  # bytes of the payload below
HIERARCHY = [
    # kind, devices, groups, steps near and far, bytes near and far
    ("all-gather", 8, "[1,8]<=[8]", (7, 0), (7 / 8 * S, 0)),
    ("all-gather", 16, "[1,16]<=[16]", (7, 1), (7 / 8 * S, 1 / 2 * S / 8)),
    # one GPU of each of 2 nodes: only the network
    ("all-gather", 16, "[8,2]<=[2,8]T(1,0)", (0, 1), (0, 1 / 2 * S)),
    # 32 nodes of 8, as in "How to Scale Your Model": S / 413 GB/s
    ("all-gather", 256, "[1,256]<=[256]", (7, 31), (7 / 8 * S, 31 / 32 * S / 8)),
    ("reduce-scatter", 256, "[1,256]<=[256]", (7, 31), (7 / 8 * S, 31 / 32 * S / 8)),
    ("all-reduce", 16, "[1,16]<=[16]", (14, 2), (2 * 7 / 8 * S, 2 * 1 / 2 * S / 8)),
    ("all-to-all", 16, "[1,16]<=[16]", (7, 1), (7 / 8 * S, 1 / 2 * S)),
    # 4 of one node and 4 of another
    ("all-gather", 16, "[2,8]<=[2,2,4]T(1,0,2)", (3, 1), (3 / 4 * S, 1 / 2 * S / 4)),
]


@pytest.mark.parametrize(("kind", "devices", "groups", "steps", "sent"), HIERARCHY)
def test_groups_over_several_nodes(
    kind: str, devices: int, groups: str, steps: Any, sent: Any
) -> None:
    """Hand counts on H100: NVLink within 8, a network card a GPU between."""
    n = int(groups.partition(",")[2].partition("]")[0])
    large, part = 2**26, 2**26 // n
    result = {"all-gather": large, "reduce-scatter": part}.get(kind, large)
    operand = {"all-gather": part}.get(kind, large)
    (t,) = hs.read(collective(kind, devices, groups, result, operand)).cost("h100").transfers
    want = steps[0] * 3.4e-6 + steps[1] * 1.4e-5 + max(sent[0] / 450e9, sent[1] / 50e9)
    assert transfer_time(find("h100"), t) == pytest.approx(want)


def test_all_gather_over_32_nodes_has_the_published_bandwidth() -> None:
    text = collective("all-gather", 256, "[1,256]<=[256]", 2**34, 2**26)
    (t,) = hs.read(text).cost("h100").transfers
    assert 4 * 2**34 / transfer_time(find("h100"), t) == pytest.approx(413e9, rel=4e-3)


@pytest.mark.parametrize("slices", [1, 2])
def test_groups_over_several_slices(slices: int) -> None:
    """Two v5e 4x4 slices: a ring of each over ICI, the slices' shares over DCN."""
    n = 16 * slices
    module = hs.read(collective("all-gather", n, f"[1,{n}]<=[{n}]", 2**26, 2**26 // n)).module
    devices = tuple(
        Device(k, k, "TPU v5 lite", coords=(k % 4, k // 4 % 4, 0), slice=k // 16) for k in range(n)
    )
    cost = estimate(module, Target("tpu", "TPU v5 lite", devices), hardware=find("tpu-v5e"))
    assert cost.roofline is not None
    # two lines of 4, each way one link: 3 + 3 steps
    near = 6e-6, 15 / 16 * S / 2 / 50e9
    far = (1e-5, 1 / 2 * S / 16 / 3.125e9) if slices == 2 else (0, 0)
    want = near[0] + far[0] + max(near[1], far[1])
    assert cost.roofline.collective_seconds == pytest.approx(want)


def test_slices_exchange_what_a_real_compile_sends(libtpu: None) -> None:
    """psum over two v5e 2x4 slices: XLA scatters in the slice, exchanges an eighth, gathers."""
    import jax
    import jax.numpy as jnp
    from jax.experimental import topologies
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    described = topologies.get_topology_desc(platform="tpu", topology_name="v5e:2x4", num_slices=2)
    mesh = Mesh(np.array(described.devices).reshape(2, 8), ("slice", "chip"))
    spec = PartitionSpec("slice", "chip")

    def both(x: Any) -> Any:
        return jax.lax.psum(x, ("slice", "chip"))

    fn = jax.shard_map(both, mesh=mesh, in_specs=spec, out_specs=PartitionSpec())
    shape = jax.ShapeDtypeStruct((2048, 8 * 1024), jnp.float32, sharding=NamedSharding(mesh, spec))
    cap = hs.capture(jax.jit(fn).lower(shape).compile())
    assert {d.slice for d in cap.target.devices} == {0, 1}
    cost = cap.cost()
    (exchange,) = (t for t in cost.transfers if t.is_far)
    assert cost.module.instructions[exchange.start].opcode == "send"
    assert cost.module.instructions[exchange.done].opcode == "recv-done"
    payload = 1024 * 1024 * 4
    assert exchange.levels[0].far == (2, 2 * 1 / 2 * payload / 8)
    seconds = dict(zip(cost.transfers, cost.roofline.transfer_seconds, strict=True))
    assert seconds[exchange] == pytest.approx(2e-5 + payload / 8 / 3.125e9)
    near = [t for t in cost.transfers if not t.is_far]
    # what one transfer over both levels would take: the same bytes, near and far
    assert sum(t.levels[8].switch[1] for t in near) == pytest.approx(2 * 7 / 8 * payload)
    # nothing can run meanwhile
    assert cost.roofline.exposed_seconds == pytest.approx(sum(seconds.values()), rel=0.05)


def test_pods_end_where_their_links_do() -> None:
    """512 v5e chips are two pods of 256, whoever compiled for them."""
    text = collective("all-reduce", 512, "[1,512]<=[512]", 2**26, 2**26)
    (t,) = hs.read(text).cost("tpu-v5e").transfers
    near = 2 * 128 * 1e-6, 2 * 255 / 256 * S / 2 / 50e9
    far = 2 * 1e-5, 2 * 1 / 2 * S / 256 / 3.125e9
    assert transfer_time(find("tpu-v5e"), t) == pytest.approx(
        near[0] + far[0] + max(near[1], far[1])
    )
    (t,) = hs.read(text).cost("tpu-v5p").transfers  # 8×8×8, every axis closed
    assert transfer_time(find("tpu-v5p"), t) == pytest.approx(
        2 * 12e-6 + 2 * 511 / 512 * S / 6 / 100e9
    )


@pytest.mark.parametrize(
    ("shape", "closes"),
    [((4, 4, 4), True), ((4, 4, 8), True), ((2, 2, 4), False), ((16, 16, 1), True),
     ((8, 16, 1), None), ((4, 8, 1), False)],
)  # fmt: skip
def test_which_axes_wrap_around(shape: tuple[int, ...], closes: bool | None) -> None:
    """Rings close on 16 in 2D and on whole cubes in 3D (tpus, "How to Scale Your Model")."""
    n = math.prod(shape)
    module = hs.read(collective("all-gather", n, f"[1,{n}]<=[{n}]", n, 1)).module
    places = list(np.ndindex(*shape))
    devices = tuple(Device(k, k, coords=tuple(map(int, p))) for k, p in enumerate(places))
    target = Target("tpu", "", devices)
    (row,) = hs.Capture(module, target).collectives
    spanned = torus_axes(row.groups, target, None)
    assert spanned.known
    want = [(e, e == 16 if closes is None else closes) for e in shape if e > 1]
    assert spanned.axes == want


@pytest.mark.parametrize(
    ("shape", "shift", "hops", "load"),
    [
        # a line of 4: everybody goes one on, the last comes back all the way
        ((4, 1, 1), 1, 3, 1),
        ((4, 1, 1), 2, 2, 2),
        # a ring of 16: the shorter way, half of it at most
        ((16, 1, 1), 1, 1, 1),
        ((16, 1, 1), 5, 5, 5),
        ((16, 1, 1), 13, 3, 3),
    ],
)
def test_ways_of_a_permute(shape: tuple[int, ...], shift: int, hops: int, load: int) -> None:
    n = shape[0]
    pairs = ",".join(f"{{{k},{(k + shift) % n}}}" for k in range(n))
    text = f"""HloModule m, is_scheduled=true, num_partitions={n}
ENTRY main {{
  p = f32[1000000]{{0}} parameter(0)
  ROOT c = f32[1000000]{{0}} collective-permute(p), channel_id=1, source_target_pairs={{{pairs}}}
}}
"""
    devices = tuple(Device(k, k, coords=(k, 0, 0)) for k in range(n))
    cost = estimate(hs.read(text).module, Target("tpu", "", devices), hardware=find("tpu-v5e"))
    assert cost.roofline is not None
    assert cost.roofline.collective_seconds == pytest.approx(hops * 1e-6 + load * 4e6 / 50e9)


@settings(max_examples=200, deadline=None)
@given(
    size=st.integers(1, 9), kernel=st.integers(1, 5), output=st.integers(1, 9),
    stride=st.integers(1, 4), low=st.integers(-3, 5),
    base=st.integers(1, 4), window=st.integers(1, 3),
)  # fmt: skip
def test_valid_positions_equal_a_walk_over_all_positions(
    size: int, kernel: int, output: int, stride: int, low: int, base: int, window: int
) -> None:
    slow = 0
    for k in range(kernel):
        for o in range(output):
            at = o * stride - low + k * window
            slow += at % base == 0 and 0 <= at // base < size
    assert slow == valid_positions(
        size, kernel, output, stride=stride, low=low, base_dilation=base, window_dilation=window
    )


def test_results_are_tables() -> None:
    pytest.importorskip("pandas")
    cost = hs.read(OVERLAP.split("%add")[0] + OVERLAP[OVERLAP.index("ENTRY") :]).cost("tpu-v5e")
    frame = cost.to_pandas()
    assert next(iter(frame["instruction"])) in {"s", "d"}
    assert frame["flops"].sum() == cost.total_flops == 2 * 1024**3
    assert cost.to_dict()["hardware"] == "tpu-v5e"
    assert "2.15 GFLOP" in repr(cost)
    assert len(cost) == len(list(cost)) == len(frame)
    assert np.isfinite(cost.roofline.total_seconds)


def test_cost_needs_hlo() -> None:
    from hloscope.hlo import Module

    with pytest.raises(ValueError, match="cost needs HLO"):
        estimate(Module("m", (), None, dialect="stablehlo"))


CYCLES = """HloModule m, is_scheduled=true

ENTRY %main {
  %x = f32[64]{0:T(128)} parameter(0)
  %a = f32[64]{0:T(128)} negate(%x), backend_config={"window_config":{"estimated_cycles":"1200"}}
  %b = f32[64]{0:T(128)} negate(%a), backend_config={"window_config":{"estimated_cycles":"NONE"}}
  ROOT %c = f32[64]{0:T(128)} negate(%b), backend_config={"window_config":{"estimated_cycles":"34"}}
}
"""


@pytest.mark.parametrize("none", ["9223372036854775807", "18446744073709551615"])
def test_cycles_that_xla_does_not_know_are_no_number(none: str) -> None:
    cost = hs.read(CYCLES.replace("NONE", none), hardware="tpu-v5e").cost()
    assert {r.instruction.name: r.estimated_cycles for r in cost} == {"a": 1200, "b": None, "c": 34}
    assert (cost.total_estimated_cycles, cost.unknown_cycles) == (1234, 1)
    assert "XLA's estimated cycles: 1,234, without 1 that it has no estimate for" in str(cost)
    known = hs.read(CYCLES.replace("NONE", "66"), hardware="tpu-v5e").cost()
    assert known.total_estimated_cycles == 1300
    assert "without" not in str(known)


def test_a_dot_over_a_dimension_that_its_operand_has_not_is_unknown() -> None:
    lines = (
        "  x = f32[8,8] parameter(0)\n  ROOT y = f32[8,8] dot(x, x), lhs_contracting_dims={%d}\n"
    )
    for dimension, flops in ((1, 1024), (2, None)):
        cost = hs.read(f"HloModule m\n\nENTRY e {{\n{lines % dimension}}}\n").cost()
        assert [i.name for i in cost.unknown_flops] == ([] if flops else ["y"])
        assert cost.total_flops == (flops or 0)
