"""The same wherever programs are compiled: processes, Dask, Ray, ipyparallel.

Rankings of a search, comparisons, and the largest that fits.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import hloscope as hs
import jax
import jax.numpy as jnp
import pytest
from hloscope.plan.running.running import ray_executor
from hloscope.plan.search.result import Search
from hloscope.results.planning import Largest, Variants
from plan_programs import mlp, mlp_args, search


def searched(**options: Any) -> Search:
    return search(
        mlp, *mlp_args(64), mesh={"x": 4}, hardware="a100",
        groups={"x": (), "y": (), "w1": (None, "x")}, timeout=200, **options,
    )  # fmt: skip


@pytest.fixture(scope="module")
def here() -> list[Any]:
    return ranking(searched(isolate=False))


def ranking(found: Search) -> list[Any]:
    assert found.failed == ()
    return [(c.number, c.specs, c.figures) for c in found]


@contextlib.contextmanager
def processes() -> Iterator[Executor]:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        yield pool


@contextlib.contextmanager
def dask() -> Iterator[Executor]:
    distributed = pytest.importorskip("distributed", reason="dask.distributed is not installed")
    options = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": None}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        yield client.get_executor()


@contextlib.contextmanager
def ray() -> Iterator[Executor]:
    module = pytest.importorskip("ray", reason="ray is not installed")
    try:
        module.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
    except Exception as error:  # a busy machine: its own processes do not answer in time
        pytest.skip(f"a Ray cluster does not start here: {str(error)[:100]}")
    try:
        yield ray_executor(module)
    finally:
        module.shutdown()


@contextlib.contextmanager
def ipyparallel() -> Iterator[Executor]:
    module = pytest.importorskip("ipyparallel", reason="ipyparallel is not installed")
    with module.Cluster(n=1, log_level=40) as client:
        client.wait_for_engines(1)
        yield client.load_balanced_view().executor


@pytest.fixture(scope="module", params=[processes, dask, ray, ipyparallel])
def executor(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Executor]:
    """Each of them is started once."""
    helpers = str(Path(__file__).parents[1] / "helpers")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([helpers, *[p for p in sys.path if p]]))
        patch.setenv("IPYTHONDIR", str(tmp_path_factory.mktemp("ipython")))
        with request.param() as made:
            yield made


def test_the_same_ranking(executor: Executor, here: list[Any]) -> None:
    assert ranking(searched(executor=executor)) == here


def test_a_worker_that_is_lost_costs_its_candidate(here: list[Any]) -> None:
    """An executor whose every second future fails."""
    from concurrent.futures import Future

    class Leaky(Executor):
        count = 0

        def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
            Leaky.count += 1
            made: Future[Any] = Future()
            if Leaky.count == 2:
                made.set_exception(RuntimeError("the worker\nis gone"))
            else:
                made.set_result(fn(*args, **kwargs))
            return made

    found = searched(executor=Leaky(), isolate=False)
    assert [c.error for c in found if c.error] == ["crashed: RuntimeError: the worker"]
    assert len(found) == len(here)


# -- comparing, and the largest that fits --------------------------------------------------------

W = jax.ShapeDtypeStruct((128, 128), jnp.float32)


def step(w: Any, x: Any) -> Any:
    return w - 0.1 * jax.grad(lambda w: (jnp.tanh(x @ w) ** 2).sum())(w)


def twice(w: Any, x: Any) -> Any:
    return step(step(w, x), x)


def wrong(w: Any, x: Any) -> Any:
    return w @ x


def args_of(n: int) -> tuple[Any, ...]:
    return W, jax.ShapeDtypeStruct((n, 128), jnp.float32)


PROGRAMS = {"as is": step, "wrong": wrong, "jitted": jax.jit(twice)}


def compared(options: hs.ProofOptions | None = None) -> Variants:
    return hs.compare(PROGRAMS, *args_of(64), options=options, hardware="tpu-v5e")


def found(options: hs.ProofOptions | None = None) -> Largest:
    return hs.largest(step, args_of, fits="1MiB", multiple_of=64, options=options)


def figures(rows: Variants) -> list[Any]:
    return [(v.name, v.figures, bool(v.error)) for v in rows]


def test_every_executor_says_what_this_process_says(executor: Executor) -> None:
    here, most = compared(), found()
    assert [v.error == "" for v in here] == [True, False, True]
    options = hs.ProofOptions(executor=executor, workers=2)
    there = compared(options)
    assert figures(there) == figures(here)
    other = found(options)
    assert there.capture("jitted").text == here.capture("jitted").text
    assert (other.number, other.live, other.compiled_for) == (
        most.number, most.live, most.compiled_for
    )  # fmt: skip
    assert most.number > 0
    assert other.number + 64 in {r.number for r in other.rows if not r.fits}
    assert most.capture is not None
    assert other.capture is None


def test_a_store_goes_on_where_it_ended(tmp_path: Path) -> None:
    seen: list[Any] = []
    options = hs.ProofOptions(store=tmp_path / "kept.db", progress=seen.append)
    first, most = compared(options), found(options)
    seen.clear()
    assert figures(compared(options)) == figures(first)
    assert seen[-1].from_store == seen[-1].done == 2
    assert found(options).number == most.number
    assert seen[-1].from_store == seen[-1].done == len(most.rows)


def test_a_cancel_keeps_what_is_finished() -> None:
    def twice_only(now: Any) -> bool:
        return bool(now.done < 2)

    most = found(hs.ProofOptions(progress=twice_only))
    assert most.cancelled
    assert most.to_dict()["cancelled"]
    assert most.number == 64
    assert f"at least {most.number}" in str(most)
    rows = compared(hs.ProofOptions(progress=lambda now: now.done < 1))
    assert rows.cancelled
    assert [v.name for v in rows] == ["as is", "wrong"]


def test_a_program_that_its_process_does_not_survive_is_a_row() -> None:
    options = hs.ProofOptions(isolate=True, workers=1, timeout=0.01)
    rows = hs.compare({"as is": step}, *args_of(64), options=options)
    assert rows[0].figures is None
    assert rows[0].error
    with pytest.raises(hs.CaptureError, match="64: "):
        found(options)
