"""Logical collectives: the dumps' known figures, and counting oracles on compiled programs."""

from __future__ import annotations

import functools
import importlib.util
import re
from collections import Counter, defaultdict

import hloscope as hs
import jax
import numpy as np
import pytest
from corpus import build
from hloscope.analysis.comms.apparent import apparent
from hloscope.analysis.comms.wire import wire_bytes
from kept_captures import FOLDER, load

PARALLEL = [
    "data_parallel", "map_psum", "map_all_gather", "map_reduce_scatter", "ring_matmul",
    "ring_attention", "pipeline", "experts_all_to_all", "moe_einsum", "gather_remat",
    "fsdp_scan", "two_of_three", "halo_convolution", "sharded_embedding", "gpt_unrolled",
    "gpt_scan", "gpt_remat", "fsdp", "fsdp_tp", "three_axes", "sequence_parallel",
]  # fmt: skip
# Those whose shapes can be cut 64 ways, on all chips of a 3-D torus.
WIDE = [
    "data_parallel", "map_psum", "map_all_gather", "map_reduce_scatter", "ring_matmul",
    "ring_attention", "gather_remat", "sequence_parallel", "gpt_scan",
]  # fmt: skip
V5P = "v5p:4x4x4"
EVERYWHERE = [
    *((name, None) for name in PARALLEL),
    *((name, "v5e:2x4") for name in PARALLEL),
    *((name, V5P) for name in WIDE),
]


@pytest.fixture(scope="session")
def compiled(compiled):
    """As everywhere; on a v5p the program's mesh is as many times larger as there are chips."""

    @functools.cache
    def wide(name: str) -> build.Built:
        program = build.PROGRAMS[name]
        shape = {axis: 64 if len(program.mesh) == 1 else 8 for axis in program.mesh}
        devices = np.array(build.topology_devices(V5P), dtype=object)
        made = program.make(jax.sharding.Mesh(devices.reshape(tuple(shape.values())), tuple(shape)))
        lowered = made.lower()
        return build.Built(program, V5P, made, lowered, lowered.compile())

    def get(name: str, topology: str | None = None):
        if topology != V5P:
            return compiled(name, topology)
        if importlib.util.find_spec("libtpu") is None:
            pytest.skip('libtpu is not installed (pip install "hloscope[tpu]")')
        return wide(name)

    return get


def read_seed(seeds, number: str):
    (path,) = seeds.glob(f"{number}_*.txt")
    return hs.read(str(path))


def test_seed_000_one_zero_means_all_four_and_a_constant_is_sent_around(seeds):
    rows = list(read_seed(seeds, "000").collectives)
    assert [(r.kind, r.payload_bytes, r.wire_bytes, r.group_size) for r in rows] == [
        ("all-reduce", 67_108_864, 100_663_296, 4),
        ("all-to-all", 67_108_864, 50_331_648, 4),
    ]
    assert rows[0].groups.rows() == [[0, 1, 2, 3]]
    assert rows[1].parts[0].shape == "f32[4,2048,2048]"
    assert rows[1].moves.kind == "constant"
    assert rows[0].line.endswith("linear.py:176")


def test_seed_001_gathers_over_data_and_a_reduction_over_model(seeds):
    found = read_seed(seeds, "001").collectives
    assert found.mesh.axis_sizes == (2, 4)
    gathers = [r for r in found if r.kind == "all-gather"]
    assert [(r.axes, r.payload_bytes, r.wire_bytes) for r in gathers] == [
        ("axis_0", 2_097_152, 1_048_576),
    ] * 2
    assert {r.moves.name for r in gathers} == {"up", "down"}
    (reduce,) = (r for r in found if r.kind == "all-reduce")
    assert (reduce.axes, reduce.payload_bytes, reduce.wire_bytes) == (
        "axis_1", 8_388_608, 12_582_912,
    )  # fmt: skip
    assert {r.phase for r in found} == {"backward"}


def test_seed_004_forty_over_eight_and_three_over_two(seeds):
    found = read_seed(seeds, "004").collectives
    totals = {t.key: t for t in found.totals(("kind", "group_size"))}
    eights, twos = totals["all-reduce", "8"], totals["all-reduce", "2"]
    assert (eights.count, eights.payload_bytes, eights.wire_bytes) == (
        40, 318_799_872, 557_899_776,
    )  # fmt: skip
    assert (twos.count, twos.payload_bytes) == (3, 45_505_540)
    assert found.wire_bytes == 603_405_316
    assert found.mesh.axis_sizes == (2, 8)
    assert sum(r.parts[0].shape == "f16[4096,1024]" for r in found) == 37
    summary = read_seed(seeds, "004").summary
    assert summary["collectives"][0] == {
        "kind": "all-reduce", "axes": "axis_1", "count": 40, "executions": 40,
        "payload_bytes": 318_799_872, "wire_bytes": 557_899_776,
    }  # fmt: skip


def test_seed_004_who_holds_what(seeds):
    found = read_seed(seeds, "004").shardings
    tiles = Counter(tuple(r.sharding.tiles) for r in found.parameters)
    assert tiles == {(): 116, (8, 1): 42, (8,): 39, (1, 8): 36, (2, 1): 5, (2,): 1}
    assert set(found.device_bytes()) == {194_152_460}
    assert sum(r.global_bytes for r in found.parameters) == 1_549_459_472


COLLECTIVE_LINE = re.compile(
    r"[\s)}](all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute"
    r"|ragged-all-to-all|collective-broadcast)(-start)?\((?=%|\w+\[|\()"
)


def slow_count(text: str) -> Counter[str]:
    """Line by line; what stands in fused computations once a channel and chain.

    An all-reduce inside all-reduce-scatter is one of those.
    """
    seen: dict[str, str] = {}
    inside = ""
    for number, line in enumerate(text.splitlines()):
        if line.startswith(("%", "ENTRY")) and line.endswith("{"):
            inside = line
        found = COLLECTIVE_LINE.search(line.partition("metadata=")[0])
        if found is None or " = " not in line:
            continue
        kind = found[1]
        if inside.startswith("%all-reduce-scatter") and kind == "all-reduce":
            kind = "reduce-scatter"
        fused = inside.startswith(("%fused_computation", "%async_collective_fusion"))
        ids = re.findall(r'channel_id=\d+|chain_id="\d+"', line)
        seen[" ".join(ids) if fused and ids else f"line {number}"] = kind
    return Counter(seen.values())


@pytest.mark.parametrize(("name", "topology"), EVERYWHERE)
def test_every_channel_is_one_row(name, topology, compiled):
    built = compiled(name, topology)
    ours: Counter[str] = Counter()
    for row in built.capture.collectives:
        if row.is_of_permutes:
            ours["collective-permute"] += len(row.parts)
        else:
            ours[row.kind] += 1
    assert ours == slow_count(built.text)
    assert ours, "this program is here because it communicates"


class Ring:
    """A ring of devices that really passes chunks on, and counts what each one sends."""

    def __init__(self, n: int, size: int):
        self.n, self.sent = n, np.zeros(n, dtype=np.int64)
        cuts = np.linspace(0, size, n + 1).astype(int)
        self.chunk = np.diff(cuts)

    def reduce_scatter(self, data: np.ndarray) -> np.ndarray:
        """``data[d, c]``: device d's share of chunk c; afterwards chunk d+1 is whole at d."""
        n = self.n
        for step in range(n - 1):
            moved = [(d, (d - step) % n) for d in range(n)]
            values = [data[d, c] for d, c in moved]
            for (d, c), value in zip(moved, values, strict=True):
                data[(d + 1) % n, c] += value
                self.sent[d] += self.chunk[c]
        return data

    def all_gather(self, data: np.ndarray, first: int) -> np.ndarray:
        n = self.n
        for step in range(n - 1):
            moved = [(d, (d + first - step) % n) for d in range(n)]
            values = [data[d, c] for d, c in moved]
            for (d, c), value in zip(moved, values, strict=True):
                data[(d + 1) % n, c] = value
                self.sent[d] += self.chunk[c]
        return data


def simulated(kind: str, payload: int, n: int) -> np.ndarray:
    """Bytes each of n devices sends; the result of the collective is checked on the way."""
    ring = Ring(n, payload)
    start = np.random.default_rng(0).integers(1, 100, (n, n)).astype(float)
    data = start.copy()
    if kind in ("reduce-scatter", "all-reduce"):
        data = ring.reduce_scatter(data)
        for d in range(n):
            assert data[d, (d + 1) % n] == start[:, (d + 1) % n].sum()
    if kind == "all-reduce":
        data = ring.all_gather(data, 1)
        assert (data == start.sum(axis=0)).all()
    if kind == "all-gather":
        data = ring.all_gather(data, 0)
        assert (data == np.diag(start)).all()
    if kind == "all-to-all":
        ring.sent += payload - ring.chunk  # all but its own part leaves
    return ring.sent


@pytest.mark.parametrize(("name", "topology"), EVERYWHERE)
def test_wire_bytes_are_what_a_ring_sends(name, topology, compiled):
    found = compiled(name, topology).capture.collectives
    for row in found:
        if row.kind in ("all-reduce", "all-gather", "reduce-scatter", "all-to-all"):
            n = row.group_size
            sent = simulated(row.kind, row.payload_bytes, n)
            assert abs(sent.mean() - row.wire_bytes) <= 0.5, row
            assert sent.max() - row.wire_bytes <= 2 * n, row
        elif row.kind == "collective-permute":
            moving = [(a, b) for a, b in row.groups.rows() if a != b]
            assert row.wire_bytes == (row.payload_bytes if moving else 0)
        assert row.executions is None or row.executions >= 1


@pytest.mark.parametrize(("name", "topology"), EVERYWHERE)
def test_traffic_adds_up_to_wire_bytes(name, topology, compiled):
    found = compiled(name, topology).capture.collectives
    for row in found:
        sent = found.traffic([row]).sum(axis=1)
        assert np.diagonal(found.traffic([row])).max() == 0
        expected = row.total_wire_bytes or 0
        if row.kind == "collective-permute" or row.is_of_permutes:
            assert sent.max() == pytest.approx(expected)
        else:
            assert sent == pytest.approx(np.full(len(sent), expected), abs=(row.executions or 1))


@pytest.mark.parametrize("name", PARALLEL)
def test_device_bytes_are_those_of_real_arrays(name, compiled):
    built = compiled(name)
    held: dict[int, int] = defaultdict(int)
    arguments = jax.tree.leaves(built.made.args)
    used = [a.parameter is not None for a in built.target.arguments]
    assert len(arguments) == len(used)
    order = {d.id: d.partition for d in built.target.devices}
    for shape, is_used in zip(arguments, used, strict=True):
        if not is_used:
            continue
        zeros = np.zeros(shape.shape, shape.dtype)
        array = jax.device_put(zeros, shape.sharding)
        for shard in array.addressable_shards:
            held[order[shard.device.id]] += shard.data.nbytes
    ours = built.capture.shardings.device_bytes("parameter")
    assert dict(enumerate(ours.tolist())) == dict(held)


@pytest.mark.parametrize("topology", [None, V5P])
def test_scan_of_sixteen_layers_runs_sixteen_times(topology):
    if topology is None:
        devices, shape = jax.devices(), (2, 4)
    elif importlib.util.find_spec("libtpu") is None:
        pytest.skip('libtpu is not installed (pip install "hloscope[tpu]")')
    else:
        devices, shape = build.topology_devices(topology), (8, 8)
    mesh = jax.sharding.Mesh(np.array(devices, dtype=object).reshape(shape), ("data", "model"))
    sharding = lambda *s: jax.sharding.NamedSharding(mesh, jax.P(*s))  # noqa: E731
    x = jax.ShapeDtypeStruct((16, 64), np.float32, sharding=sharding("data", None))
    w = jax.ShapeDtypeStruct((16, 64, 64), np.float32, sharding=sharding(None, "model", None))

    def body(c, w):
        c = jax.lax.with_sharding_constraint(c, sharding("data", "model"))
        return jax.lax.with_sharding_constraint(c @ w, sharding("data", None)), None

    @jax.jit
    def scan(x, w):
        return jax.lax.scan(body, x, w)[0]

    @jax.jit
    def nested(x, w):
        return jax.lax.fori_loop(0, 5, lambda i, c: scan(c, w) * 0.5, x)

    data, model = shape
    for f, expected in ((scan, 16), (nested, 80)):
        (row,) = hs.capture(f, x, w).collectives
        assert (row.kind, row.axes, row.executions) == ("all-reduce", "model", expected)
        payload = 16 // data * 64 * 4
        assert row.payload_bytes == payload
        assert row.wire_bytes == 2 * (model - 1) * payload // model
        assert row.total_wire_bytes == expected * row.wire_bytes
        assert row.line.endswith("test_collectives.py:" + str(body.__code__.co_firstlineno + 2))


def test_written_by_the_user_or_inserted(compiled):
    for topology in (None, "v5e:2x4"):
        for row in compiled("ring_attention", topology).capture.collectives:
            assert row.written_by == "user"
        assert all(r.inserted for r in compiled("gpt_unrolled", topology).capture.collectives)


def test_results_are_frozen_print_and_convert(compiled):
    found = compiled("fsdp_tp").capture.collectives
    assert repr(found).splitlines()[0] == f"{len(found)} collectives over 8 devices, mesh " + (
        "data=2 × model=4"
    )
    with pytest.raises(AttributeError):
        found.rows = ()
    assert len(found.to_dict()["rows"]) == len(found)
    pytest.importorskip("pandas", reason="pandas is not installed")
    table = found.to_pandas()
    assert table["wire_bytes"].sum() == sum(r.wire_bytes for r in found)
    assert sum(t.count for t in found.totals(("phase", "line"))) == len(found)


def test_wire_bytes_of_kinds_without_a_formula_are_unknown():
    assert wire_bytes("ragged-all-to-all", 100, 4) == 75
    assert wire_bytes("made-up-collective", 100, 4) is None
    assert wire_bytes("all-reduce", 100, 1) == 0
    assert wire_bytes("collective-broadcast", 100, 4) == 100


def test_groups_of_devices_that_the_module_lacks_are_left_out_of_the_traffic():
    text = """HloModule m, is_scheduled=true, num_partitions=2
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}
ENTRY main {
  p = f32[1024]{0} parameter(0)
  q = f32[1024]{0} collective-permute(p), source_target_pairs={{0,1},{1,7}}, channel_id=2
  ROOT r = f32[1024]{0} all-reduce(q), replica_groups={{0,1}}, to_apply=add
}
"""
    traffic = hs.read(text).collectives.traffic()
    assert traffic.tolist() == [[0, 4096], [0, 0]]


def test_what_a_branch_is_given_is_followed_to_the_caller():
    cap = hs.read(
        "HloModule m\n\n%yes (a: f32[8]) -> f32[8] {\n"
        "  %a = f32[8]{0} parameter(0)\n"
        "  ROOT %r = f32[8]{0} all-reduce(%a), replica_groups={}, to_apply=%sum\n}\n\n"
        "%no (b: f32[8]) -> f32[8] {\n  ROOT %b = f32[8]{0} parameter(0)\n}\n\n"
        "%sum (x: f32[], y: f32[]) -> f32[] {\n  %x = f32[] parameter(0)\n"
        "  %y = f32[] parameter(1)\n  ROOT %s = f32[] add(%x, %y)\n}\n\n"
        "ENTRY %main (p: pred[], v: f32[8], w: f32[8]) -> f32[8] {\n"
        "  %p = pred[] parameter(0)\n  %v = f32[8]{0} parameter(1)\n"
        "  %w = f32[8]{0} parameter(2)\n"
        "  ROOT %c = f32[8]{0} conditional(%p, %w, %v), true_computation=%yes,"
        " false_computation=%no\n}\n"
    )
    moved = cap.collectives[0].moves
    assert (moved.kind, moved.instruction.name) == ("argument", "w")  # no loop carries it


def test_a_transfer_between_slices_is_not_needed_by_its_own_end() -> None:
    cap = load(FOLDER / "two_slices_by_hand.capture.gz")
    between = [row for row in cap.collectives if row.network == "dcn"]
    assert between
    assert not any("send-done" in apparent(row) for row in between)
