"""The same ranking whatever runs the candidates: processes, Dask, Ray, ipyparallel."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from hloscope.plan.running.running import ray_executor
from hloscope.plan.search.result import Search
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


@pytest.mark.parametrize("cluster", [processes, dask, ray, ipyparallel])
def test_the_same_ranking(
    cluster: Callable[[], Any], here: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = os.pathsep.join(
        [str(Path(__file__).parents[1] / "helpers"), *[p for p in sys.path if p]]
    )
    monkeypatch.setenv("PYTHONPATH", path)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    with cluster() as executor:
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
