"""CPU time of a proof beside a plain compile, of eight changes wherever they can be compiled, and
what proofs gain beside what findings say is at stake.

    python benchmarks/proof_cost.py [--topology v5e:2x4] [--layers 12] [--rounds 3]
    python benchmarks/proof_cost.py --executors [--workers 2]
    python benchmarks/proof_cost.py --gains FOLDER [NAME.cpu NAME.tpu ...]

A proof is a change carried out, traced, compiled, read and modelled; a plain compile is jax's own
of the same function, traced and lowered too. Rounds alternate, with jax's caches cleared.

``--executors`` compiles eight changes one after another in this process, in processes of
hloscope's own, in a ``ProcessPoolExecutor``, on Dask and on Ray where they are installed: seconds
until there are workers, seconds of the eight changes, and seconds of CPU of all processes. Needs
psutil. Other work on the machine lengthens the first two, hardly the third.

``--gains`` captures programs of ``benchmarks/ordinary``, each in a process of its own, tries the
advice of their findings and prints a row for each: what was said to be at stake, and what the best
way gained. The capture and the proofs stay in FOLDER; the next run says what is at stake anew, and
compiles only what is not there.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pickle
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")

import hloscope as hs
import jax
import jax.numpy as jnp
from hloscope.capturing.changing.what_if import what_if
from hloscope.capturing.placing import target_mesh
from hloscope.plan.running.candidate_figures import figures
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

WAYS: list[Any] = [
    {"donate": "params"},
    {"remat": "block"},
    {"remat": {"block": "dots_saveable"}},
    {"remat": {"block": "dots_with_no_batch_dims_saveable"}},
    {"cast": {"block": "bfloat16"}},
    {"in_shardings": {"params": P(None, None, "model")}},
    {"in_shardings": {"params": P(None, "model")}},
    {"matmul_precision": "highest"},
]


def block(x: Any, w: Any) -> Any:
    h = jax.nn.gelu(x @ w)
    return x + jnp.sin(h) @ w.T


def step(params: Any, x: Any) -> Any:
    def loss(params: Any) -> Any:
        y = x
        for k in range(params.shape[0]):
            y = block(y, params[k])
        return (y * y).mean()

    return params - 0.1 * jax.grad(loss)(params)


LIMIT_SECONDS = 1200


def keep_proofs(name: str, folder: Path) -> None:
    """A capture of ``bert_mlm.cpu``, and the same with its proofs, as two pickles."""
    from compile_ordinary import HERE, captured

    stem, place = name.rsplit(".", 1)
    cap = captured(HERE / f"{stem}.py", place)
    cap.hardware = "tpu-v5e"
    plain = pickle.dumps(cap)
    proved = cap.findings.prove()
    for row in proved:
        print(name, row.rule, row.at_stake, *row.proofs, sep=" | ", flush=True)
    (folder / f"{name}.capture").write_bytes(plain)
    (folder / f"{name}.proofs").write_bytes(pickle.dumps(proved))


def print_gains(folder: Path, names: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    ordinary = Path(__file__).with_name("ordinary")
    every = [f"{f.stem}.{p}" for f in sorted(ordinary.glob("*.py")) for p in ("cpu", "tpu")]
    within = total = 0
    print(f"{'rule':20} {'program':28} {'at stake':>12} {'gained':>12}")
    for name in names or every:
        if not (folder / f"{name}.proofs").exists():
            command = [sys.executable, __file__, "--keep", name, str(folder)]
            try:
                ended = subprocess.run(command, timeout=LIMIT_SECONDS, capture_output=True)
            except subprocess.TimeoutExpired:
                print(f"{name}: no end after {LIMIT_SECONDS} s", flush=True)
                continue
            if ended.returncode:
                print(f"{name}: {ended.stderr.decode()[-200:]}", flush=True)
                continue
        # files that this benchmark wrote itself
        cap = pickle.loads((folder / f"{name}.capture").read_bytes())
        proved = pickle.loads((folder / f"{name}.proofs").read_bytes())
        found = {f.rule: f for f in reversed(list(cap.findings))}
        for tried in proved:
            if not tried.proofs:
                continue
            best, now = tried.proofs[0], found.get(tried.rule)
            before, after = {"peak": best.peak, "wire": best.wire, "step": best.step}[best.gains]
            said = None if now is None else now.bytes if best.gains != "step" else now.seconds
            gained = None if before is None or after is None else before - after
            if said is not None and gained is not None:
                total += 1
                within += 0.7 <= gained / said <= 1.3
            said, gained = (_of(best.gains, x) for x in (said, gained))
            print(f"{tried.rule:20} {name:28} {said:>12} {gained:>12}", flush=True)
    print(f"{within} of {total} gain 0.7 to 1.3 times what was at stake")


def _of(measure: str, value: float | None) -> str:
    if value is None:
        return "nothing"
    return f"{value * 1e6:,.0f} µs" if measure == "step" else f"{value / 2**20:,.1f} MiB"


def compare_executors(cap: hs.Capture, workers: int) -> None:
    """A row for each place where eight changes are compiled, the quickest last."""
    from hloscope.plan.proving.prove import tried

    rows = []
    print(f"{'eight changes':32} {'ready':>8} {'compiled':>9} {'CPU':>8} failed", flush=True)
    for name, place in PLACES.items():
        jax.clear_caches()
        before, start = cpu_seconds(), time.perf_counter()
        with contextlib.ExitStack() as stack:
            try:
                options = place(workers, stack)
            except ImportError as error:
                print(f"{name:32} {error.name} is not installed", flush=True)
                continue
            except Exception as error:  # a busy machine: its own processes do not answer in time
                print(f"{name:32} does not start here: {str(error)[:100]}", flush=True)
                continue
            ready = time.perf_counter() - start
            answers = tried(cap, WAYS, options)
            took = time.perf_counter() - start - ready
            spent = cpu_seconds() - before
        failed = sum(a is None or "error" in a for a in answers)
        print(f"{name:32} {ready:6.1f} s {took:7.1f} s {spent:6.1f} s {failed:6}", flush=True)
        rows.append((ready + took, name))
    print(f"quickest: {min(rows)[1]}")


def cpu_seconds() -> float:
    """Of this process and all below it that are alive."""
    import psutil

    here = psutil.Process()
    total = sum(here.cpu_times()[:4])  # children's that have ended too
    for process in here.children(recursive=True):
        with contextlib.suppress(psutil.Error):
            total += sum(process.cpu_times()[:4])
    return total


def in_dask(workers: int, stack: contextlib.ExitStack) -> hs.ProofOptions:
    import distributed

    cluster = stack.enter_context(
        distributed.LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None)
    )
    client = stack.enter_context(distributed.Client(cluster))
    return hs.ProofOptions(executor=client.get_executor(), workers=workers)


def in_ray(workers: int, stack: contextlib.ExitStack) -> hs.ProofOptions:
    import ray
    from hloscope.plan.running.running import ray_executor

    ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False)
    stack.callback(ray.shutdown)
    return hs.ProofOptions(executor=ray_executor(ray), workers=workers)


def in_pool(workers: int, stack: contextlib.ExitStack) -> hs.ProofOptions:
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"))
    return hs.ProofOptions(executor=stack.enter_context(pool), workers=workers)


PLACES: dict[str, Callable[[int, contextlib.ExitStack], hs.ProofOptions]] = {
    "one after another, this process": lambda workers, stack: hs.ProofOptions(),
    "processes of hloscope's own": lambda workers, stack: hs.ProofOptions(
        isolate=True, workers=workers
    ),
    "ProcessPoolExecutor": in_pool,
    "Dask": in_dask,
    "Ray": in_ray,
}


def main() -> None:
    if sys.argv[1:2] == ["--keep"]:
        keep_proofs(sys.argv[2], Path(sys.argv[3]))
        return
    if sys.argv[1:2] == ["--gains"]:
        print_gains(Path(sys.argv[2]), sys.argv[3:])
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topology")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--executors", action="store_true", help="eight changes, elsewhere too")
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    mesh = target_mesh(arguments.topology, {"data": 4, "model": 2})
    given = [
        jax.ShapeDtypeStruct(s, jnp.float32, sharding=NamedSharding(mesh, P(*spec)))
        for s, spec in (((arguments.layers, 512, 2048), ()), ((1024, 512), ("data",)))
    ]
    cap = hs.capture(jax.jit(step), *given, hardware="tpu-v5e")

    if arguments.executors:
        compare_executors(cap, arguments.workers)
        return

    def plain(_: Any) -> None:
        jax.jit(step).lower(*given).compile()

    def proof(way: Any) -> None:
        figures(what_if(cap, way, explains=False))

    taken: dict[str, list[float]] = {"plain": [], "proof": []}
    donated = {"donate": "params"}  # the same program, so that the ratio is of hloscope's own work
    for _ in range(arguments.rounds):
        for name, run in (("plain", plain), ("proof", proof)):
            jax.clear_caches()
            start = time.process_time()
            run(donated)
            taken[name].append(time.process_time() - start)
    compile_, prove = (statistics.median(taken[n]) for n in ("plain", "proof"))
    print(f"plain compile {compile_:.2f} s of CPU, proof {prove:.2f} s: {prove / compile_:.2f} ×")


if __name__ == "__main__":
    main()
