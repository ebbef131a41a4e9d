"""Sharding searches: the log's program at full size, faults, stores, constraints, results."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import hloscope as hs
import jax
import pytest
from hloscope.plan.running.candidate_figures import figures, log_cost
from hloscope.plan.search.result import Search
from hloscope.plan.search.space import all_specs, make_space, matches
from plan_programs import faulty, mlp, mlp_args, search, tower, tower_args
from some import TAKES_ALL

X4 = {"x": 4}


KEPT: dict[str, Path] = {}


@pytest.fixture(scope="module", autouse=True)
def kept(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What one test compiled no other compiles again."""
    KEPT["store"] = tmp_path_factory.mktemp("kept") / "store.db"


def small(**options: Any) -> Search:
    """Nine candidates of a tiny MLP, compiled in this process."""
    groups = {"x": (), "y": (), **options.pop("groups", {})}
    given = {"mesh": X4, "hardware": "a100", "isolate": False, "groups": groups, **KEPT}
    return search(mlp, *mlp_args(64), **{**given, **options})


@pytest.fixture(scope="module")
def nine(kept: None) -> Search:
    return small()


def test_the_log_of_an_xmap_search(seeds: Path) -> None:
    cap = hs.read(next(seeds.glob("000_*")))
    assert log_cost(cap) == 222_130_339.84
    assert figures(cap, "a100").useless == ("all-to-all",)


def test_all_candidates_at_full_size() -> None:
    """Winner and figures of the log's program, from shapes, on four CPU devices.

    Those that shard what the loss compares with take two thirds of the time, and never win.
    """
    given: dict[str, Any] = (
        {} if TAKES_ALL else {"groups": {"w1": None, "w2": None, "x": None, "y": ()}}
    )
    found = search(mlp, *mlp_args(), mesh=X4, hardware="a100", isolate=False, **given)
    assert len(found) == found.space == found.compiled == (81 if TAKES_ALL else 27)
    assert found.failed == ()
    best = found.best
    assert best.specs == {"w1": (None, "x"), "w2": ("x",), "x": (), "y": ()}
    f = best.figures
    assert f is not None
    assert f.collectives == (("all-reduce", "x", 1, 100_663_296.0),)
    assert f.matmul_flops == 343_597_383_680
    assert f.wire_bytes == 100_663_296
    assert f.argument_bytes == 268_435_460
    assert f.temp_bytes == 50_331_648
    assert best in found.pareto
    times = [c.figures.seconds for c in found.pareto if c.figures]
    peaks = [c.figures.peak_bytes for c in found.pareto if c.figures]
    assert times == sorted(times)
    assert peaks == sorted(peaks, reverse=True)


def test_a_search_of_a_deep_model_beside_all_of_a_reduced_one() -> None:
    """Three layers and every spec against one layer, two specs a group, all compiled.

    ``benchmarks/search_transformer.py`` does it with a transformer of 12 layers, eight groups.
    """
    few: dict[str, Any] = {
        "first": (), "last": [(), (None, "model")], "x": [(), ("data",)],
        "layers/*/w1": [(), (None, "model")], "layers/*/w2": [(), ("model",)],
    }  # fmt: skip
    meshes = [{"data": 2, "model": 2}, {"data": 4, "model": 1}]
    same: dict[str, Any] = {"hardware": "a100", "isolate": False}
    every = search(tower, *tower_args(1), mesh=meshes, groups=few, **same)
    assert (len(every), every.failed) == (2**4 + 2, ())
    free = {**dict.fromkeys(few), "first": ()}
    large = search(tower, *tower_args(3), mesh=meshes, groups=free, budget=16, **same)
    assert len(large) <= 16 < 1_000 < large.left_out

    def with_layers(layers: int, found: Search) -> float:
        best = found.best
        args = tower_args(layers)
        given = {**same, "mesh": dict(best.mesh), "groups": dict(best.specs)}
        return search(tower, *args, **given).best.cost

    assert large.best.cost <= 1.05 * with_layers(3, every)
    assert with_layers(1, large) <= 1.05 * every.best.cost


def test_results_are_held_to_the_arguments_they_replace(nine: Search) -> None:
    assert any("results are sharded like" in n and "w1, w2" in n for n in nine.notes)
    free = small(carry=False)
    assert not any("results are sharded like" in n for n in free.notes)
    cap = nine.capture(next(c for c in nine if c.specs["w1"] == ("x",)))
    assert [r.spec for r in cap.target.results][1] == (("x",), ())


def test_bad_specs_are_one_line_each_and_the_search_goes_on() -> None:
    found = small(groups={"w1": [(), ("x", "x"), ("rows",), (None, None, "x")], "w2": ()})
    assert len(found.failed) == 3
    said = {c.error for c in found.failed}
    assert all("\n" not in s for s in said)
    assert any("w1: the mesh has no axis 'rows'" in s for s in said)
    assert any("w1 has 2 dimensions and its spec" in s for s in said)
    assert found.best.figures is not None


def test_specs_that_do_not_divide_and_meshes_too_large() -> None:
    found = small(groups={"w1": [(), ("x",)], "w2": ()}, mesh={"x": 3})
    assert [c.error for c in found.failed] == [
        "w1: dimension 0 of (128, 128) does not divide by 3 (x)"
    ]
    both = small(mesh=[{"x": 4}, {"x": 64}])
    assert len(both.failed) == 9
    assert "needs 64 devices" in both.failed[0].error
    assert both.best.mesh == X4


def test_a_tuple_is_one_spec_and_a_list_is_to_be_tried() -> None:
    leaves = [Leaf("w1", (8, 8)), Leaf("w2", (8, 8))]
    one = make_space(leaves, [X4], {"w1": (None, "x"), "w2": jax.P("x")})
    assert [g.choices for g in one.groups] == [((None, "x"),), (("x",),)]
    two = make_space(leaves, [X4], {"w1": [(), jax.P("x")], "w2": None})
    assert two.groups[0].choices == ((), ("x",))
    assert len(two.groups[1].choices) == 3
    with pytest.raises(ValueError, match="a tuple is one spec; give specs to try as a list"):
        make_space(leaves, [X4], {"w1": (jax.P("x"), jax.P())})


def test_a_function_that_fails_to_trace() -> None:
    def broken(w: Any) -> Any:
        raise TypeError("no\nway")

    found = search(broken, mlp_args(64)[1], mesh=X4, isolate=False)
    assert {c.error for c in found} == {"TypeError: no"}
    with pytest.raises(ValueError, match="no candidate compiled"):
        found.best  # noqa: B018


def test_constraints() -> None:
    found = small(constraints=["no all-reduce", "fits 1 GiB", lambda f: f.flops > 0])
    assert all(c[0] != "all-reduce" for c in found.best.figures.collectives)
    assert any("has 1 all-reduce" in c.broken for c in found)
    broken = [len(c.broken) for c in found]
    assert broken == sorted(broken)
    for bad, said in (
        ("fit 3", "cannot read the constraint"),
        ("no sends", "there are all-reduce"),
    ):
        with pytest.raises(ValueError, match=said):
            small(constraints=bad)


def test_costs(nine: Search) -> None:
    for name in ("wire", "memory", "log"):
        costs = [c.cost for c in small(cost=name)]
        assert costs == sorted(costs)
    own = small(cost=lambda cap: -len(cap.module.instructions), groups={"w1": [()]})
    assert own.cost == "custom"
    with pytest.raises(ValueError, match="there is no cost 'speed'"):
        small(cost="speed")


def test_three_faults_cost_three_candidates(tmp_path: Path) -> None:
    """A crash, a hang and a want of memory in processes of their own; nothing else is lost."""
    options: dict[str, Any] = {
        "mesh": {"x": 2, "z": 2},
        "cost": faulty,
        "isolate": True,
        "workers": 2,
        "store": tmp_path / "store.db",
    }
    if sys.platform == "linux":
        options["memory_limit"] = 2.5e9
    # so long that a busy machine does not make a hang of what only starts slowly
    specs = [(), ("x",), ("z",)] if sys.platform == "linux" else [(), ("x",)]
    found = small(groups={"w1": specs, "w2": ()}, timeout=300, **options)
    said = {c.specs["w1"]: c.error for c in found}
    assert said[()] == ""
    assert said["x",].startswith("crashed: its process was killed by SIGABRT")
    if sys.platform == "linux":
        assert said["z",].startswith("out of memory: its process held")
    # faults are tried again, results are not
    again = small(groups={"w1": [(), (None, "x")], "w2": ()}, timeout=4, **options)
    assert again.compiled == 1
    (hung,) = (c for c in again if c.error)
    assert (hung.specs["w1"], hung.error) == ((None, "x"), "hung: no result after timeout=4 s")
    (kept,) = (c for c in again if not c.error)
    assert kept.from_store


PROGRAM = """
import os, signal
import hloscope as hs
from plan_programs import mlp, mlp_args

def watch(now):
    print(now.done, now.from_store, flush=True)
    if now.done == {die}:
        os.kill(os.getpid(), signal.SIGKILL)

if __name__ == "__main__":
    found = hs.search_shardings(
        mlp, *mlp_args(64), mesh={{"x": 4}}, hardware="a100", groups={{"x": (), "y": ()}},
        options=hs.SearchOptions(isolate=False, store={store!r}, progress=watch),
    )
    print("compiled", found.compiled)
    print([c.number for c in found])
"""


def test_a_killed_search_goes_on_where_it_was(tmp_path: Path, nine: Search) -> None:
    store = str(tmp_path / "store.db")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1] / "helpers"), *sys.path]),
    }

    def run(die: int) -> subprocess.CompletedProcess[str]:
        program = PROGRAM.format(die=die, store=store)
        return subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, env=environment,
            check=False,
        )  # fmt: skip

    first = run(4)
    assert first.returncode == -signal.SIGKILL
    assert first.stdout.splitlines()[-1] == "4 0"
    second = run(-1)
    assert "compiled 5" in second.stdout, second.stderr[-2000:]
    assert second.stdout.splitlines()[-1] == str([c.number for c in nine])


def test_cancelling_keeps_what_is_done() -> None:
    found = small(progress=lambda now: now.done < 3, store=None)
    assert found.cancelled
    assert 3 <= len(found) < 9
    assert found.left_out == 9 - len(found)


def test_a_store_that_cannot_be_one(tmp_path: Path) -> None:
    bad = tmp_path / "notes.txt"
    bad.write_text("no database " * 100)
    with pytest.raises(ValueError, match=r"notes\.txt cannot be used as a store"):
        small(store=bad)


def test_another_function_of_the_same_name_is_another_key(tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    groups: dict[str, Any] = {"x": (), "y": (), "w2": ()}
    assert small(store=store, groups=groups).compiled == 3
    assert small(store=store, groups=groups).compiled == 0

    def other(count: Any, w1: Any, w2: Any, x: Any, y: Any) -> Any:
        return mlp(count + 1, w1, w2, x, y)

    other.__name__ = "mlp"
    again = search(
        other, *mlp_args(64), mesh=X4, hardware="a100", isolate=False, store=store,
        groups=groups,
    )  # fmt: skip
    assert again.compiled == 3


def test_everything_that_can_be_asked_of_a_search(nine: Search, tmp_path: Path) -> None:
    from hloscope.show.pages.front_end import opens

    assert len(nine.to_pandas()) == 9
    assert json.dumps(nine.to_dict())
    assert "ranked by modelled step time, modelled on a100" in repr(nine)
    names: dict[str, Any] = {}
    exec(nine.code(), names)
    assert dict(names["mesh"].shape) == X4
    assert tuple(names["specs"]["w1"]) == nine.best.specs["w1"]
    # axes that jax.make_mesh makes explicit would ask for shardings of every gather
    assert set(names["mesh"].axis_types) == {jax.sharding.AxisType.Auto}
    # candidates are compiled without most of LLVM's work, captures with all of it
    assert figures(nine.capture(0), "a100") == nine.find(0).figures
    assert nine.diff(nine[0], nine[8])
    page = Path(nine.to_html(tmp_path / "search.html", pages=2))
    assert len(list((tmp_path / "search-candidates").glob("*.html"))) == 2
    assert "search-candidates/candidate-" in page.read_text()
    answers = opens(nine, "candidate")
    assert "hloscope-view" in answers("open", {"ids": [nine[1].number]})["html"]
    assert "<table" in answers("diff", {"ids": [0, 1]})["html"]
    with pytest.raises(ValueError, match="select one candidate"):
        answers("diff", {"ids": [0]})
    with pytest.raises(ValueError, match="there is no candidate 99"):
        nine.capture(99)


def test_measured_beside_modelled() -> None:
    found = small(measure=2, runs=5)
    some = [c for c in found if c.measured]
    assert len(some) == 2
    m = some[0].measured
    assert m is not None
    assert len(m.seconds) == 5
    assert min(m.seconds) <= m.median <= max(m.seconds)
    assert "measured median" in repr(found)


class Leaf:
    def __init__(self, path: str, shape: tuple[int, ...], argument: int = 0) -> None:
        self.path, self.shape, self.argument = path, shape, argument
        self.bytes = 4


def test_groups_by_pattern() -> None:
    leaves = [Leaf(f"params/layers/{n}/{w}", (8, 8)) for n in range(10) for w in ("wq", "wo")]
    leaves.append(Leaf("batch", (16, 4), 1))
    space = make_space(leaves, [{"data": 2, "model": 4}, {"data": 8, "model": 1}], None)
    assert [g.pattern for g in space.groups] == [
        "params/layers/*/wq", "params/layers/*/wo", "batch",
    ]  # fmt: skip
    assert [len(g.leaves) for g in space.groups] == [10, 10, 1]
    assert [g.is_data for g in space.groups] == [False, False, True]
    assert len(space.groups[0].choices) == 9
    # on data 8 × model 1 only what data does is a choice of its own
    assert space.count() == 9 * 9 * 8 + 3 * 3 * 2
    keys = [space.key(c) for c in space.every()]
    assert len(set(keys)) == len(keys) == space.count()
    assert matches("layers/*/wq", "params/layers/3/wq")
    assert not matches("layers/*/wq", "params/layers/3/wqkv")
    with pytest.raises(ValueError, match="no argument is called 'wk'"):
        make_space(leaves, [X4], ["wk"])
    with pytest.raises(ValueError, match="differ in rank"):
        make_space([Leaf("a/0", (2,)), Leaf("a/1", (2, 2))], [X4], ["a/*"])


def test_groups_of_a_flax_model_and_its_optimizer() -> None:
    """Layers of one shape are one group, and Adam's moments go with their parameters."""
    shapes = {"Dense_0/kernel": (8, 32), "Dense_1/kernel": (32, 8), "norm/scale": (8,)}
    params = {f"layer_{n}/{w}": s for n in range(3) for w, s in shapes.items()}
    params["embed/embedding"] = (64, 8)
    layered = ["layer_*/Dense_0/kernel", "layer_*/Dense_1/kernel", "layer_*/norm/scale"]
    apart = [
        *(Leaf(f"params/params/{p}", s, 0) for p, s in params.items()),
        *(Leaf(f"opt/0/{m}/params/{p}", s, 1) for m in ("mu", "nu") for p, s in params.items()),
        Leaf("opt/0/count", (), 1),
        Leaf("tokens", (16, 4), 2),
    ]
    space = make_space(apart, [X4], None)
    wanted = [f"params/params/{p}" for p in (*layered, "embed/embedding")]
    assert [g.pattern for g in space.groups] == [*wanted, "tokens"]
    assert [len(g.leaves) for g in space.groups] == [9, 9, 9, 3, 1]
    assert [g.is_data for g in space.groups] == [False] * 4 + [True]
    together = [
        *(Leaf(f"state/params/{p}", s) for p, s in params.items()),
        *(Leaf(f"state/opt_state/0/{m}/{p}", s) for m in ("mu", "nu") for p, s in params.items()),
        Leaf("tokens", (16, 4), 1),
    ]
    space = make_space(together, [X4], None)
    assert [len(g.leaves) for g in space.groups] == [9, 9, 9, 3, 1]
    same = [Leaf("params/x", (8, 8), 0), Leaf("batch/x", (8, 8), 1)]
    assert len(make_space(same, [X4], None).groups) == 2
    # another tower of the same shapes is a group of its own
    towers = [Leaf(f"params/{t}/{p}", s) for t in ("a", "b") for p, s in params.items()]
    assert len(make_space(towers, [X4], None).groups) == 8


def test_all_specs_of_two_axes() -> None:
    found = all_specs(2, ("d", "m"))
    assert found[0] == ()
    assert (("d", "m"),) in found
    assert len(found) == len(set(found)) == 9


def test_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from hloscope.show.cli import main

    file = tmp_path / "train_for_search.py"
    file.write_text(
        "import jax, jax.numpy as jnp\n"
        "def step(w, x):\n    return w - 0.1 * (x.T @ jnp.tanh(x @ w))\n"
        "step_args = (jax.ShapeDtypeStruct((64, 64), jnp.float32),\n"
        "             jax.ShapeDtypeStruct((32, 64), jnp.float32))\n"
        "def empty(w):\n    return w\n"
    )
    store = str(tmp_path / "s.db")
    words = ["search", f"{file}:step", "--mesh", "x=4", "--hardware", "a100", "--store", store]
    assert main([*words, "--workers", "1"]) == 0
    assert "all 9 candidates" in capsys.readouterr().out
    assert main([*words, "--code"]) == 0
    assert 'jax.make_mesh((4,), ("x",),' in capsys.readouterr().out
    for bad, said in (
        ([f"{file}:step", "--mesh", "x"], "--mesh is axis=size pairs"),
        ([f"{file}:stop", "--mesh", "x=4"], "did you mean step?"),
        ([f"{file}:empty", "--mesh", "x=4"], "has no empty_args"),
        (["nowhere_at_all:step", "--mesh", "x=4"], "cannot be imported: ModuleNotFoundError"),
        ([str(file), "--mesh", "x=4"], "give MODULE:FUNCTION"),
    ):
        assert main(["search", *bad]) == 2
        assert said in capsys.readouterr().err
