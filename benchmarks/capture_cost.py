"""What tracking operations and keeping passes costs a capture; prints a table.

    python benchmarks/capture_cost.py [--topology v5e:2x4] [--layers 24] [--repeat 2]

A GPT training step is captured without marks, with them, and with all passes kept, each from a
cold jax, in turn and in one process: CPU seconds of this process, the best of some runs.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

REPO = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPO / "python"), str(REPO / "tests")]
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
for name, value in (
    ("TPU_SKIP_MDS_QUERY", "1"),
    ("TPU_WORKER_HOSTNAMES", "localhost"),
    ("ALLOW_MULTIPLE_LIBTPU_LOAD", "1"),
):
    os.environ.setdefault(name, value)

KINDS: dict[str, dict[str, Any]] = {
    "without marks": {"exact": False},
    "with marks": {},
    "all passes": {"passes": True},
}


def main() -> None:
    import hloscope as hs
    import jax
    import jax.numpy as jnp

    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--topology")
    arguments.add_argument("--layers", type=int, default=24)
    arguments.add_argument("--repeat", type=int, default=2)
    given = arguments.parse_args()

    def w(*shape: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, jnp.float32)

    def norm(x: Any) -> Any:
        return x * jax.lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-5)

    def layer(p: Any, x: Any) -> Any:
        h = norm(x)
        q, k, v = (h @ p[n] for n in "qkv")
        x = x + (jax.nn.softmax(q @ k.swapaxes(-1, -2), -1) @ v) @ p["o"]
        return x + jax.nn.gelu(norm(x) @ p["up"]) @ p["down"]

    def loss(params: Any, tokens: Any) -> Any:
        x = params["embed"][tokens]
        for p in params["layers"]:
            x = layer(p, x)
        return -jnp.mean(jax.nn.log_softmax(x @ params["embed"].T)[..., 0])

    def step(params: Any, tokens: Any) -> Any:
        gradients = jax.grad(loss)(params, tokens)
        return jax.tree.map(lambda p, g: p - 0.01 * g, params, gradients)

    one = {k: w(256, 256) for k in "qkvo"} | {"up": w(256, 1024), "down": w(1024, 256)}
    params = {"embed": w(1024, 256), "layers": [one] * given.layers}
    tokens = jax.ShapeDtypeStruct((8, 128), jnp.int32)
    mesh: dict[str, Any] = {"mesh": {"data": 2, "model": 4}} if given.topology else {}
    best = dict.fromkeys(KINDS, float("inf"))
    hs.capture(lambda x: x + 1, jnp.ones(4), topology=given.topology)  # one-time initialisation
    for _ in range(given.repeat):
        for kind, options in KINDS.items():
            jax.clear_caches()
            begin = time.process_time()
            hs.capture(step, params, tokens, topology=given.topology, **mesh, **options)
            best[kind] = min(best[kind], time.process_time() - begin)
    plain = best["without marks"]
    print(f"{given.layers} layers, {given.topology or 'CPU'}")
    for kind, seconds in best.items():
        print(f"{kind:16} {seconds:7.2f} s  {seconds / plain:5.2f} ×", flush=True)


if __name__ == "__main__":
    main()
