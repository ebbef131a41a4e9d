"""Measured time: on 8 CPU devices nearly all of a trace lands on instructions."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import hloscope as hs
import numpy as np
import pytest
from hloscope.readers.xplane import read_trace
from hloscope.view.schema import decode

STEPS = 4


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any, Path]:
    """(capture, arguments, folder of a trace taken with jax.profiler itself)."""
    import jax
    import jax.numpy as jnp
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    mesh = Mesh(np.array(jax.devices("cpu")[:8]), ("x",))
    x = jax.device_put(np.ones((256, 256), np.float32), NamedSharding(mesh, PartitionSpec("x")))
    w = jax.device_put(np.ones((256, 256), np.float32), NamedSharding(mesh, PartitionSpec()))

    def profiled_step(x: Any, w: Any) -> Any:
        for _ in range(3):
            x = jnp.tanh(x @ w)
        return jax.lax.fori_loop(0, 4, lambda _, c: jnp.sin(c) + 1, x).sum()

    cap = hs.capture(jax.jit(profiled_step), x, w)
    folder = tmp_path_factory.mktemp("trace")
    run = cap._run
    jax.block_until_ready(run(x, w))
    with jax.profiler.trace(str(folder)):
        for _ in range(STEPS):
            jax.block_until_ready(run(x, w))
    return cap, (x, w), folder


def test_the_trace_lands_on_instructions(traced: Any) -> None:
    cap, _, folder = traced
    measured = cap.add_profile(folder, steps=STEPS)
    assert len(measured.devices) == 8
    assert measured.coverage >= 0.95
    trace = read_trace(folder)
    mine = sum(o.seconds for o in trace.ops if o.module == cap.module.name)
    assert measured.seconds.sum() * STEPS == pytest.approx(mine, rel=0.01)
    names = {r.instruction.opcode for r in measured}
    assert "all-reduce" in names
    assert {"dot", "fusion"} & names


def test_our_reading_agrees_with_jaxs(traced: Any) -> None:
    import jax

    cap, _, folder = traced
    (file,) = folder.rglob("*.xplane.pb")
    theirs: dict[tuple[str, int], float] = {}
    for plane in jax.profiler.ProfileData.from_file(str(file)).planes:
        for line in plane.lines:
            for event in line.events:
                stats = dict(event.stats)
                if stats.get("hlo_module") == cap.module.name and "hlo_op" in stats:
                    key = str(stats["hlo_op"]), int(stats["device_ordinal"])
                    theirs[key] = theirs.get(key, 0.0) + event.duration_ns * 1e-9
    ours = {
        (o.op, o.device): o.seconds for o in read_trace(file).ops if o.module == cap.module.name
    }
    assert ours.keys() == theirs.keys()
    assert all(ours[k] == pytest.approx(theirs[k], rel=1e-3, abs=1e-8) for k in ours)
    # the file itself, compressed, or its bytes: all the same
    assert read_trace(gzip.compress(file.read_bytes())) == read_trace(file.read_bytes())


def test_profile_runs_and_the_view_has_it(traced: Any) -> None:
    cap, args, _ = traced
    measured = cap.profile(*args, steps=2)
    assert measured.steps == 2
    assert measured is cap.measured
    assert measured.coverage >= 0.95
    header, columns = decode(cap.analyses_bytes)
    assert header["extras"]["measured"]["devices"] == list(measured.devices)
    np.testing.assert_array_equal(columns["measured.mean"], measured.mean)
    assert "8 devices" in repr(measured)


def test_what_cannot_run_says_so(traced: Any, tmp_path: Path) -> None:
    import jax

    cap, (x, w), _ = traced
    with pytest.raises(hs.CaptureError, match="give arrays, not ShapeDtypeStruct"):
        cap.profile(jax.ShapeDtypeStruct(x.shape, x.dtype), w)
    with pytest.raises(hs.CaptureError, match="steps must be at least 1"):
        cap.profile(x, w, steps=0)
    with pytest.raises(ValueError, match="only the optimized stage"):
        hs.read("HloModule m\nENTRY e { ROOT p = f32[] parameter(0) }").profile()
    with pytest.raises(hs.ReadError, match=r"no \*\.xplane\.pb under"):
        cap.add_profile(tmp_path)
    with pytest.raises(hs.ReadError, match="no trace at"):
        cap.add_profile(tmp_path / "none.pb")
    with pytest.raises(hs.ReadError, match="xplane"):
        read_trace(b"\xff\xff\xff junk")
