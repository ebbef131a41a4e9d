"""CPU time of a proof beside a plain compile, and of eight changes here and in other processes.

    python benchmarks/proof_cost.py [--topology v5e:2x4] [--layers 12] [--rounds 3]

A proof is a change carried out, traced, compiled, read and modelled; a plain compile is jax's own
of the same function, traced and lowered too. Rounds alternate, with jax's caches cleared.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topology")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--processes", action="store_true", help="also eight changes elsewhere")
    arguments = parser.parse_args()
    mesh = target_mesh(arguments.topology, {"data": 4, "model": 2})
    given = [
        jax.ShapeDtypeStruct(s, jnp.float32, sharding=NamedSharding(mesh, P(*spec)))
        for s, spec in (((arguments.layers, 512, 2048), ()), ((1024, 512), ("data",)))
    ]
    cap = hs.capture(jax.jit(step), *given, hardware="tpu-v5e")

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
    if not arguments.processes:
        return
    for name, options in (
        ("in this process", hs.ProofOptions()),
        ("two processes", hs.ProofOptions(isolate=True, workers=2)),
    ):
        from hloscope.plan.proving.prove import tried

        jax.clear_caches()
        start = time.perf_counter()
        answers = tried(cap, WAYS, options)
        failed = sum(a is None or "error" in a for a in answers)
        print(f"eight changes {name}: {time.perf_counter() - start:.1f} s, {failed} failed")


if __name__ == "__main__":
    main()
