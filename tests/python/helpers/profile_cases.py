"""Measured time: on 8 CPU devices nearly all of a trace lands on instructions.

``test_profile.py`` runs these in a separate process: the profiler cannot run in one that has
compiled for a TPU topology, as other tests do. The last case here is about that.
"""

from __future__ import annotations

import dataclasses
import gzip
import json
from pathlib import Path
from typing import Any

import hloscope as hs
import numpy as np
import pytest
from findings_programs import folding_alarm
from hloscope.readers.xplane.xplane import read_trace
from hloscope.show import blocks
from hloscope.view.schema import decode, joined
from ways import WAYS

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
    run = cap.for_hosts.program.compiled  # type: ignore[union-attr]
    jax.block_until_ready(run(x, w))
    with jax.profiler.trace(str(folder)):
        for _ in range(STEPS):
            jax.block_until_ready(run(x, w))
    return cap, (x, w), folder


def lands(measured: Any) -> None:
    """Every event is on an instruction, and what each step runs was seen in each step.

    Their share of the wall time is not checked: on a busy machine a short step waits at times.
    """
    assert measured.unmatched == {}
    assert 0 < measured.coverage <= 1
    entry = {r.instruction.name: r.count for r in measured if r.instruction.computation.is_entry}
    assert entry
    assert set(entry.values()) == {1.0}


def test_the_trace_lands_on_instructions(traced: Any) -> None:
    cap, _, folder = traced
    measured = cap.add_profile(folder, steps=STEPS)
    assert len(measured.devices) == 8
    lands(measured)
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
    # the file's bytes, compressed or not: the same
    assert read_trace(gzip.compress(file.read_bytes())) == read_trace(file.read_bytes())


def test_profile_runs_and_the_view_has_it(traced: Any) -> None:
    cap, args, _ = traced
    measured = cap.profile(*args, steps=2)
    assert measured.steps == 2
    assert measured is cap.measured
    lands(measured)
    header, columns = decode(blocks.analyses(cap))
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


def test_capture_measures_in_one_go(traced: Any) -> None:
    import jax
    import jax.numpy as jnp

    def donating(x: Any, power: int, w: Any) -> Any:
        return jnp.tanh(x @ w) ** power

    x = np.ones((64, 64), np.float32)
    held = jax.device_put(x)
    fn = jax.jit(donating, static_argnums=1, donate_argnums=0)
    cap = hs.capture(fn, held, 3, x, profile=2)
    assert cap.measured is not None
    assert cap.measured.steps == 2
    lands(cap.measured)
    assert not held.is_deleted()  # the user's array is not deleted
    # onto another mesh: the arrays go where the program needs them
    spread = hs.capture(lambda a: (a @ a).sum(), x, mesh={"x": 2}, profile=1)
    assert spread.measured is not None
    assert len(spread.measured.devices) == 2


def test_capture_refuses_what_cannot_run(traced: Any) -> None:
    import jax

    cap, (x, _), _ = traced
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    for words, fn, args, more in (
        ("give arrays, not ShapeDtypeStruct", lambda a: a, (shape,), {}),
        ("v5e:2x2 is only a topology", lambda a: a, (x,), {"topology": "v5e:2x2"}),
        ("measures the optimized stage", lambda a: a, (x,), {"stage": "hlo"}),
        ("comes without values to run on", jax.jit(lambda a: a).lower(x), (), {}),
        ("comes without values to run on", cap, (), {}),
    ):
        with pytest.raises(hs.CaptureError, match=words):
            hs.capture(fn, *args, profile=1, **more)
    with pytest.raises(hs.CaptureError, match="steps must be at least 1"):
        hs.capture(lambda a: a, x, profile=-1)


def test_a_trace_is_read_by_itself_and_with_a_dump(traced: Any, tmp_path: Path) -> None:
    cap, _, folder = traced
    (file,) = folder.rglob("*.xplane.pb")
    for source in (file, folder, file.read_bytes(), gzip.compress(file.read_bytes())):
        alone = hs.read(source)
        assert alone.module.name == cap.module.name
        assert alone.measured is not None
        assert alone.measured.steps == STEPS  # counted
        lands(alone.measured)
    assert cap.module.name in {m.name for m in hs.list_modules(file)}
    dump = tmp_path / "step.hlo"
    dump.write_text(cap.text)
    for profile in (file, str(folder)):
        both = hs.read(dump, profile=profile)
        assert both.measured is not None
        np.testing.assert_allclose(both.measured.seconds.sum(), alone.measured.seconds.sum())
    other = tmp_path / "other.hlo"
    other.write_text("HloModule other\nENTRY e { ROOT p = f32[] parameter(0) }")
    with pytest.raises(hs.ReadError, match=f"no times for 'other'; it has .*{cap.module.name}"):
        hs.read(other, profile=file)


def test_of_several_modules_the_slowest_is_taken(tmp_path: Path) -> None:
    import jax
    import jax.numpy as jnp

    def heavy(x: Any) -> Any:
        return x @ x @ x

    def light(x: Any) -> Any:
        return x + 1 - jnp.sin(x)

    x = jnp.ones((512, 512))
    slow, fast = jax.jit(heavy), jax.jit(light)
    jax.block_until_ready((slow(x), fast(x[:2])))
    with jax.profiler.trace(str(tmp_path)):
        jax.block_until_ready((slow(x), fast(x[:2])))
    cap = hs.read(tmp_path)
    assert cap.module.name == "jit_heavy"
    assert any("jit_light" in w and "choose with module=" in w for w in cap.warnings)
    assert hs.read(tmp_path, module="jit_light").measured is not None


def test_a_profile_taken_here_is_a_timeline_too() -> None:
    import jax
    import jax.numpy as jnp

    def f(x: Any) -> Any:
        return jnp.tanh(x @ x).sum()

    x = jnp.ones((256, 256))
    cap = hs.capture(jax.jit(f), x)
    measured = cap.profile(x, steps=3)
    events = measured.events
    assert len(events.runs) == 3
    found = sum(x.seconds[x.instruction >= 0].sum() for x in events.lanes)
    # loops and calls contain what they run; here there are none
    assert found / 3 == pytest.approx(measured.seconds.sum(), rel=1e-9)
    header, _ = joined(blocks.view(cap), blocks.analyses(cap))
    assert header["extras"]["trace"]["runs"] == 3


def test_functions_of_libraries_run_with_their_own_arguments() -> None:
    for name in ("nnx_jit", "equinox_donating", "jitted_method"):
        way = WAYS[name]()
        cap = hs.capture(way.function, *way.arguments, exact=False, profile=1)
        assert cap.measured.coverage > 0.5, name


def test_runs_at_a_glance(traced: tuple[Any, Any, Path]) -> None:
    cap, args, _ = traced
    found = cap.run(*args, runs=6)
    assert len(found.seconds) == len(found.call_seconds) == 6
    assert all(call <= whole for call, whole in zip(found.call_seconds, found.seconds, strict=True))
    low, high = found.spread
    assert min(found.seconds) <= low <= found.median_seconds <= high <= max(found.seconds)
    assert found.median_seconds == pytest.approx(np.median(found.seconds))
    assert cap.measured is found.measured
    assert 0 <= found.idle_share <= 1
    assert found.is_dispatch_bound == ("dispatch-bound" in str(found))
    assert found.modelled_seconds == cap.cost().roofline.total_seconds
    with pytest.raises(hs.CaptureError, match="must be at least 1"):
        cap.run(*args, runs=0)
    with pytest.raises(ValueError, match="only the optimized stage of a program captured"):
        hs.read(cap.text).run(*args)


def test_a_program_that_does_little_waits_for_the_host() -> None:
    import jax
    import jax.numpy as jnp

    cap = hs.capture(jax.jit(lambda x: x + 1, donate_argnums=0), jnp.ones(4))
    x = jnp.ones(4)
    found = cap.run(x, runs=5)
    assert not x.is_deleted()
    slow = dataclasses.replace(found, seconds=tuple(10 * s + 1 for s in found.seconds))
    assert slow.is_dispatch_bound
    assert "wait for the host" in str(slow)


def test_the_time_of_a_compile_is_told_by_pass_and_adds_up(tmp_path: Path) -> None:
    import jax
    import jax.numpy as jnp

    def step(x: Any) -> Any:
        return x + jnp.bincount(jnp.zeros(50, jnp.int32), length=1)[0]

    for exact in (True, False):
        cap = hs.capture(step, jnp.ones(4), exact=exact)
        with folding_alarm():
            told = cap.compile_time()
        assert sum(row.seconds for row in told) == pytest.approx(told.total_seconds)
        assert all(row.seconds >= 0 for row in told)
        passes = {row.name: row for row in told if row.kind == "HLO pass"}
        assert "simplification" in passes["algsimp"].pipeline
        assert {"constant_folding", "layout-assignment", "fusion"} <= set(passes)
        assert any("LLVM" in row.name for row in told if row.kind == "code generation")
        (slow,) = told.slow
        assert slow.seconds == 62.5
        assert "~" not in slow.op_name
        assert (slow.frame is not None) == exact
        assert "simplification (" not in str(told)
        assert cap.compile_time() is told
    another = hs.capture(step, jnp.ones(4), exact=False)
    with jax.profiler.trace(str(tmp_path)), pytest.raises(hs.CaptureError, match="cannot start"):
        another.compile_time()
    compiled = jax.jit(step).lower(jnp.ones(4)).compile()
    with pytest.raises(hs.CaptureError, match="a Compiled cannot be compiled again"):
        hs.capture(compiled).compile_time()
    with pytest.raises(ValueError, match="only a program captured in this process"):
        hs.read(cap.text).compile_time()


def test_the_passes_of_a_capture_have_their_share_of_the_compile() -> None:
    import jax
    import jax.numpy as jnp

    def model(w: Any, x: Any) -> Any:
        def layer(x: Any, w: Any) -> Any:
            return jax.nn.gelu(x @ w), jnp.sum(x)

        y, sums = jax.lax.scan(layer, x, w)
        return jnp.sum(y) + jnp.sum(sums)

    w, x = jnp.ones((4, 32, 32)), jnp.ones((8, 32))
    cap = hs.capture(jax.grad(model), w, x, passes=True)
    assert {r.seconds for r in cap.passes()} == {None}
    spent: list[float] = []

    def listen(event: str, seconds: float, **_: Any) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            spent.append(seconds)

    jax.monitoring.register_event_duration_secs_listener(listen)
    told = cap.compile_time()
    passes = cap.passes()
    assert sum(s for _, s in passes.parts()) == pytest.approx(sum(spent), rel=0.1)
    whole = told.seconds_of("HLO pass") + told.seconds_of("pipeline")
    of_passes = {"passes of this list", "other passes", "between passes"}
    parts = dict(passes.parts())
    assert sum(parts[what] for what in of_passes) == pytest.approx(whole)
    ran = {run.name for run in told.runs if run.name}
    assert all(r.seconds is not None for r in passes if r.name in ran)
    assert {r.title for r in passes if r.seconds is None} >= {"before any pass"}
    once = [run for run in told.runs if run.name == "layout-assignment"]
    assert [passes["layout-assignment"].seconds] == [run.seconds for run in once]
    again = [r.seconds for r in passes if r.name == "algsimp"]
    assert len(again) > 1, "each run is a row"
    assert all(any(run.seconds == s for run in told.runs) for s in again)


def test_the_magic_runs_and_shows_what_was_measured(capsys: Any) -> None:
    interactive = pytest.importorskip("IPython.core.interactiveshell")
    from IPython.core.error import UsageError

    shell = interactive.InteractiveShell()
    shell.run_line_magic("load_ext", "hloscope")
    shell.ex("import jax, jax.numpy as jnp\nx = jnp.ones((64, 64))\nf = jax.jit(lambda v: v @ v)")
    capsys.readouterr()
    cap = shell.run_line_magic("hlo", "--run f(x)")
    printed = capsys.readouterr().out
    assert "(median of 20;" in printed
    assert "(profile of 5 runs)" in printed
    assert (cap.measured.steps, cap.display["panel"]) == (5, "measured")
    with pytest.raises(UsageError, match="--run needs a call"):
        shell.run_line_magic("hlo", "--run f.lower(x).compile()")
    with pytest.raises(UsageError, match="ShapeDtypeStruct"):
        shell.run_line_magic("hlo", "--run f(jax.ShapeDtypeStruct((4, 4), 'float32'))")
    found = hs.run(shell.user_ns["f"], shell.user_ns["x"], runs=3)
    assert len(found.seconds) == 3
    assert min(found.seconds) <= found.median_seconds <= max(found.seconds)


def test_a_trace_for_perfetto_has_the_measured_lanes(traced: Any, tmp_path: Path) -> None:
    cap, args, _ = traced
    cap.profile(*args, steps=2)
    content = json.loads(cap.to_perfetto(tmp_path / "run.json").read_text())["traceEvents"]
    process = {e["pid"]: e["args"]["name"] for e in content if e["name"] == "process_name"}
    sums: dict[str, float] = {}
    for e in content:
        if e["ph"] == "X":
            name = process[e["pid"]]
            sums[name] = sums.get(name, 0.0) + e["dur"] / 1e6
    for name in {lane.device_name for lane in cap.measured.events.lanes}:
        lanes = [x for x in cap.measured.events.lanes if x.device_name == name]
        expected = sum(float((x.end - x.start).sum()) for x in lanes)
        assert expected > 0
        assert sums[f"measured, {name}"] == pytest.approx(expected, rel=1e-3)
    assert len(sums) >= len(cap.measured.devices)


def test_a_topology_cannot_be_profiled_later(libtpu: None) -> None:
    x = np.ones((8, 128), np.float32)
    cap = hs.capture(lambda a: a + 1, x, topology="v5e:2x2", provenance=False)
    with pytest.raises(hs.CaptureError, match="not attached here"):
        cap.profile(x)
    # jax's profiler would end this process now: an error instead
    here = hs.capture(lambda a: a + 1, x, provenance=False)
    with pytest.raises(
        hs.CaptureError, match="libtpu is loaded in this process and there is no TPU"
    ):
        here.profile(x)
