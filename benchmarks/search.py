"""Wall time of a sharding search under several executors, and its ratio to a plain loop.

    python benchmarks/search.py [--shrink 1] [--only processes dask ipyparallel ray]

The program is a two-layer MLP's step, 81 ways to shard it over four CPU devices. The loop compiles
them one after another in this process; the rest start processes of their own, which counts.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"

import hloscope as hs
import jax
import jax.numpy as jnp


def step(w1: Any, w2: Any, x: Any, y: Any) -> Any:
    def loss(w1: Any, w2: Any) -> Any:
        return jnp.mean((jax.nn.relu(x @ w1) @ w2 - y) ** 2)

    g1, g2 = jax.grad(loss, (0, 1))(w1, w2)
    return w1 - 0.01 * g1, w2 - 0.01 * g2


def search(shrink: int, options: hs.SearchOptions) -> float:
    """Seconds of one search."""
    wide, rows = 8192 // shrink, 2048 // shrink
    shapes = [(wide, wide), (wide, wide), (rows, wide), (rows, wide)]
    args = [jax.ShapeDtypeStruct(s, jnp.float32) for s in shapes]
    jax.clear_caches()
    start = time.perf_counter()
    found = hs.search_shardings(step, *args, mesh={"x": 4}, hardware="a100", options=options)
    assert len(found) == 81
    assert not found.failed, found.failed[0].error
    return time.perf_counter() - start


@contextlib.contextmanager
def dask(workers: int) -> Iterator[Any]:
    from distributed import Client, LocalCluster

    options = {"n_workers": workers, "threads_per_worker": 1, "dashboard_address": None}
    with LocalCluster(**options) as cluster, Client(cluster) as client:
        yield client.get_executor()


@contextlib.contextmanager
def ipyparallel(workers: int) -> Iterator[Any]:
    from ipyparallel import Cluster

    with Cluster(n=workers, log_level=40) as client:
        client.wait_for_engines(workers)
        yield client.load_balanced_view().executor


@contextlib.contextmanager
def ray(workers: int) -> Iterator[Any]:
    import ray as module
    from hloscope.plan.running.running import ray_executor

    module.init(num_cpus=workers, include_dashboard=False, log_to_driver=False)
    try:
        yield ray_executor(module)
    finally:
        module.shutdown()


CLUSTERS: dict[str, Callable[[int], Any]] = {"dask": dask, "ipyparallel": ipyparallel, "ray": ray}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--shrink", type=int, default=1, help="divides every size")
    names = ["processes", *CLUSTERS]
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    options = parser.parse_args()
    loop = search(options.shrink, hs.SearchOptions(isolate=False))
    print(f"{'loop in this process':28} {loop:7.1f} s")
    for workers in (1, 2):
        for name in options.only:
            label = f"{name}, {workers}"
            try:
                if name == "processes":
                    seconds = search(options.shrink, hs.SearchOptions(workers=workers))
                else:
                    with CLUSTERS[name](workers) as executor:
                        seconds = search(options.shrink, hs.SearchOptions(executor=executor))
            except Exception as error:  # not installed, or its processes do not start
                print(f"{label:28} {type(error).__name__}: {str(error)[:80]}")
                continue
            print(f"{label:28} {seconds:7.1f} s   {loop / seconds:5.2f} × the loop")


if __name__ == "__main__":
    main()
