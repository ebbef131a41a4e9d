"""What is on the devices: against sums by hand, and twenty leaks whose lines are known."""

from __future__ import annotations

import gc
import gzip
import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import hloscope as hs
import pytest
from hloscope.show.cli import main

jax = pytest.importorskip("jax", reason="jax is not installed")
jnp = jax.numpy

# Twenty ways to keep an array that is not needed: each line appends to `kept`.
LEAKS = [
    "kept.append(x * 2)",
    "kept.append([x + 1])",
    "kept.append({'h': jnp.tanh(x)})",
    "kept.append(jax.jit(lambda v: v - 1)(x))",
    "kept.append(jnp.zeros((32, 16)))",
    "kept.append(jnp.arange(100))",
    "kept.append(jax.device_put(numpy.ones((8, 8), 'float32')))",
    "kept.append(jax.random.normal(jax.random.PRNGKey(0), (40,)))",
    "kept.append(x.astype(jnp.bfloat16))",
    "kept.append(x[:5])",
    "kept.append(x.T)",
    "kept.append(jnp.stack([x, x]))",
    "kept.append(jax.grad(lambda v: (v * v).sum())(x))",
    "kept.append(lambda held=jnp.exp(x): held)",
    "kept.append(Holder(jnp.sin(x)))",
    "kept.append((jnp.cumsum(x),))",
    "kept.append(jnp.linspace(0, 1, 50))",
    "kept.append(jax.vmap(jnp.sum)(x))",
    "kept.append(jnp.where(x > 0, x, 0))",
    "kept.append(jax.device_put(x, place))",
]


@pytest.fixture
def on_devices() -> Any:
    """Jax arrays of other tests are not counted: what there is before."""
    gc.collect()
    return hs.live()


def by_hand() -> dict[str, int]:
    """Bytes by device over all buffers, each once."""
    buffers = {}
    for array in jax.live_arrays():
        for shard in array.addressable_shards:
            at = str(shard.device), shard.data.unsafe_buffer_pointer()
            buffers[at] = max(buffers.get(at, 0), shard.data.nbytes)
    found: dict[str, int] = {}
    for (device, _), size in buffers.items():
        found[device] = found.get(device, 0) + size
    return found


def test_bytes_are_those_of_the_live_arrays() -> None:
    mesh = jax.sharding.Mesh(jax.devices()[:2], ("d",))
    spec = jax.sharding.PartitionSpec("d")
    w = jax.device_put(jnp.ones((64, 32)), jax.sharding.NamedSharding(mesh, spec))
    x = [jnp.ones((7, 3)) + k for k in range(3)]
    expected = by_hand()
    now = hs.live()
    held = {d.device: d.array_bytes for d in now.devices}
    assert {d: n for d, n in held.items() if n} == expected
    assert now.total_bytes == sum(expected.values())
    assert sum(now.by_line.values()) == now.total_bytes
    assert {d.device for d in now.devices} == {str(d) for d in jax.local_devices()}
    assert all(d.in_use_bytes is None for d in now.devices)  # a CPU reports none: not 0
    row = next(r for r in now if "w" in r.names)
    assert (row.shape, row.bytes, row.bytes_per_device) == ("f32[64,32]", 8192, 4096)
    assert "'d'" in row.sharding
    here = next(r for r in now if "x" in r.names)
    assert (here.count, here.bytes) == (3, 3 * 7 * 3 * 4)
    assert (len(x), w.nbytes) == (3, 8192)
    assert hs.live().total_bytes == now.total_bytes  # looking changes nothing


def test_the_lines_of_twenty_leaks_are_named(on_devices: hs.results.Live) -> None:
    import numpy

    mesh = jax.sharding.Mesh(jax.devices()[:2], ("d",))
    place = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("d"))

    class Holder:
        def __init__(self, value: Any) -> None:
            self.value = value

    source = "def leaking(x, kept):\n" + "".join(f"    {line}\n" for line in LEAKS)
    space = {
        "jax": jax, "jnp": jnp, "numpy": numpy, "Holder": Holder, "place": place,
    }  # fmt: skip
    exec(compile(source, "/home/me/leaking.py", "exec"), space)
    kept: list[Any] = []
    x = jnp.ones((16, 16))
    before = hs.live()
    for _ in range(3):
        space["leaking"](x, kept)
    found = hs.diff(before, hs.live())
    lines = {c.line for c in found.grown}
    missed = [
        line for number, line in enumerate(LEAKS, 2) if f"/home/me/leaking.py:{number}" not in lines
    ]
    assert missed == []
    twice = next(c for c in found if c.line == "/home/me/leaking.py:2")
    assert (twice.count, twice.bytes, twice.names) == (3, 3 * 1024, ("kept",))
    assert "3 more f32[16,16] made at leaking.py:2: +3 KiB, held by kept" in str(found)
    after = hs.live()
    kept.clear()
    gc.collect()
    fewer = after.diff(hs.live())
    assert "3 fewer f32[16,16] made at leaking.py:2: −3 KiB" in str(fewer)
    assert not fewer.grown
    assert not hs.diff(before, hs.live())


def test_a_program_beside_what_is_there() -> None:
    params = [jnp.ones((128, 128)) * k for k in range(2)]
    params_old = [jnp.ones((128, 128)) * k for k in range(2, 8)]
    cap = hs.capture(jax.jit(lambda ps: [p @ p for p in ps]), params)
    peak, now = cap.memory.peak_bytes, hs.live()
    first = next(d for d in now.devices if d.device == str(params[0].device))
    without = now.beside(cap, limit=1 << 40)
    assert without.held_bytes == first.array_bytes
    there = now.beside(cap, params, limit=peak + 1000)
    assert there.held_bytes == first.array_bytes - 2 * 128 * 128 * 4
    assert (there.fits_alone, there.fits, bool(there)) == (True, False, False)
    of_old = next(h for h in there.holders if h.name == "params_old")
    assert of_old.bytes == 6 * 128 * 128 * 4
    assert "params" not in {h.name for h in there.holders}
    assert "fits, but not beside" in str(there)
    assert now.beside(cap, params, limit=peak + there.held_bytes)
    assert "does not fit" in str(now.beside(cap, params, limit=peak - 1))
    unknown = now.beside(cap, params)
    assert unknown.fits is None
    assert "the device's memory is unknown" in str(unknown)
    assert len(params_old) == 6


def test_a_memory_profile_says_the_same(tmp_path: Path, capsys: Any) -> None:
    first, second = tmp_path / "a.prof", tmp_path / "b.prof"
    gc.collect()
    start = hs.live()
    jax.profiler.save_device_memory_profile(str(first))
    made = [jnp.full((64, 64), k) * 1.0 for k in range(5)]
    jax.profiler.save_device_memory_profile(str(second))
    grown, read = start.diff(hs.live()), hs.diff(hs.live(first), hs.live(second))
    assert {c.line: c.bytes for c in grown} == {c.line: c.bytes for c in read}
    assert next(c.count for c in read) == len(made) == 5
    assert main(["live", str(first), str(second)]) in (0, None)
    assert "5 more buffers made at test_live.py:" in capsys.readouterr().out
    assert main(["live", str(second), "--json"]) in (0, None)
    assert json.loads(capsys.readouterr().out)["total_bytes"] == hs.live(second).total_bytes
    made_page = tmp_path / "live.html"
    assert main(["live", str(first), str(second), "--html", str(made_page)]) in (0, None)
    assert "What the devices hold more of" in made_page.read_text()
    raw = gzip.decompress(second.read_bytes())
    assert hs.live(raw).total_bytes == hs.live(second).total_bytes


def test_a_profile_is_read_without_jax(tmp_path: Path) -> None:
    file = tmp_path / "memory.prof"
    jax.profiler.save_device_memory_profile(str(file))
    code = "import sys, hloscope as hs; hs.live(sys.argv[1]); assert 'jax' not in sys.modules"
    subprocess.run([sys.executable, "-c", code, str(file)], check=True)


@pytest.mark.parametrize("content", [b"", b"HloModule m", b"\x1f\x8b\x08", b"\x0a\x02\x08\x01"])
def test_what_is_no_profile_says_so(content: bytes, tmp_path: Path, capsys: Any) -> None:
    with pytest.raises(hs.ReadError):
        hs.live(content)
    file = tmp_path / "x.prof"
    file.write_bytes(content)
    assert main(["live", str(file)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_results_behave_alike() -> None:
    pytest.importorskip("pandas")
    held = jnp.ones((5, 5))
    now = hs.live()
    for result in (now, hs.diff(now, now), now.diff(hs.results.Live((), ()))):
        frame = result.to_pandas()
        assert list(frame.columns) == list(type(result).COLUMNS)
        assert len(frame) == len(result)
        json.dumps(result.to_dict())
        assert str(pickle.loads(pickle.dumps(result))) == str(result)
    assert "held" in next(r for r in now if r.shape == "f32[5,5]").names
    assert held.nbytes == 100
