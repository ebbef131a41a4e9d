"""How fast a 100,000-instruction module is read, beside XLA's own parser; prints a table.

    python benchmarks/read_module.py [--layers 96] [--repeat 3]

The module is a GPT training step compiled for 8 CPU devices from shapes alone (half a
minute, once: it is cached in the temporary folder). Each row is measured in a process of
its own, best of several runs; memory is the process's peak beyond its imports.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

REPO = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPO / "python"))


def generate(folder: Path, layers: int) -> None:
    """Writes ``step.hlo`` and ``step.pb`` of a GPT step with Adam on a 2×4 mesh."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("data", "model"))
    width, batch, length, words = 256, 8, 128, 1024

    def array(shape: tuple[int, ...], *axes: str | None, dtype: Any = jnp.float32) -> Any:
        sharding = NamedSharding(mesh, PartitionSpec(*axes))
        return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)

    def layer(p: Any, x: Any) -> Any:
        with jax.named_scope("attention"):
            q, k, v = (x @ p[n] for n in ("q", "k", "v"))
            weights = jax.nn.softmax(jnp.einsum("bld,bmd->blm", q, k) / 8.0)
            x = x + jnp.einsum("blm,bmd->bld", weights, v) @ p["o"]
        with jax.named_scope("mlp"):
            return x + jax.nn.gelu(x @ p["up"] + p["bias"]) @ p["down"]

    def loss(params: Any, tokens: Any) -> Any:
        x = params["embedding"][tokens]
        for n, p in enumerate(params["layers"]):
            with jax.named_scope(f"layer_{n}"):
                x = layer(p, x)
        scores = jax.nn.log_softmax(x @ params["embedding"].T)
        return -jnp.mean(jnp.take_along_axis(scores, tokens[..., None], -1))

    def step(params: Any, first: Any, second: Any, tokens: Any) -> Any:
        value, gradient = jax.value_and_grad(loss)(params, tokens)
        with jax.named_scope("adam"):
            first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradient)
            second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, gradient)
            params = jax.tree.map(
                lambda p, m, v: p - 1e-3 * m / (jnp.sqrt(v) + 1e-8), params, first, second
            )
        return params, first, second, value

    weights = {n: array((width, width), None, "model") for n in "qkv"}
    weights |= {
        "o": array((width, width), "model", None),
        "up": array((width, 4 * width), None, "model"),
        "bias": array((4 * width,), "model"),
        "down": array((4 * width, width), "model", None),
    }
    params = {
        "embedding": array((words, width), "model", None),
        "layers": [dict(weights) for _ in range(layers)],
    }
    tokens = array((batch, length), "data", None, dtype=jnp.int32)
    program = jax.jit(step, donate_argnums=(0, 1, 2)).lower(params, params, params, tokens)
    compiled = program.compile()
    folder.mkdir(parents=True, exist_ok=True)
    proto = compiled.runtime_executable().hlo_modules()[0].as_serialized_hlo_module_proto()
    (folder / "step.pb").write_bytes(proto)
    (folder / "step.hlo").write_text(compiled.as_text())


def peak_megabytes() -> float:
    """This process's peak memory; not getrusage's, which a parent's peak leaks into."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(x for x in status.read_text().splitlines() if x.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
    scale = 1024 * 1024 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / scale


def measure(what: str, folder: Path, repeat: int) -> dict[str, float]:
    """Runs in a process of its own: seconds (best of ``repeat``) and peak megabytes."""
    if what == "xla":
        import jaxlib._hlo as xla

        text = (folder / "step.hlo").read_text()
        action = lambda: xla.hlo_module_from_text(text)  # noqa: E731
    else:
        from hloscope.readers import read_modules

        data = (folder / ("step.hlo" if what == "text" else "step.pb")).read_bytes()
        read_modules(
            b"HloModule warm\n\nENTRY %e () -> f32[] {\n  ROOT %c = f32[] constant(0)\n}\n"
        )
        action = lambda: read_modules(data)[0]  # noqa: E731
    before = peak_megabytes()
    times = []
    result = None
    for _ in range(repeat):
        result = None
        gc.collect()
        begun = time.perf_counter()
        result = action()
        times.append(time.perf_counter() - begun)
    out = {"seconds": min(times), "megabytes": peak_megabytes() - before}
    if what != "xla":
        out["instructions"] = len(result.instructions)  # type: ignore[union-attr]
        begun = time.perf_counter()
        for column in ("operand_csr", "called_csr", "op_names", "source_frames"):
            getattr(result, column)()
        out["columns"] = time.perf_counter() - begun
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--layers", type=int, default=96)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--measure", choices=("text", "proto", "xla"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    folder = Path(tempfile.gettempdir()) / f"hloscope-benchmark-{options.layers}-layers"
    if options.measure:
        print(json.dumps(measure(options.measure, folder, options.repeat)))
        return
    if not (folder / "step.hlo").exists():
        print(f"compiling a {options.layers}-layer step …", file=sys.stderr)
        generate(folder, options.layers)
    rows = {}
    for what in ("text", "proto", "xla"):
        command = [sys.executable, __file__, "--measure", what, "--layers", str(options.layers)]
        child = subprocess.run(
            [*command, "--repeat", str(options.repeat)], stdout=subprocess.PIPE, check=True
        )
        rows[what] = json.loads(child.stdout)
    size = (folder / "step.hlo").stat().st_size / 1e6
    print(f"{rows['text']['instructions']:,} instructions, {size:.1f} MB of text\n")
    print("| reader | seconds | ratio to XLA's parser | peak memory, MB | columns, s |")
    print("|---|---:|---:|---:|---:|")
    names = {"text": "hloscope, text", "proto": "hloscope, proto", "xla": "XLA's parser (C++)"}
    for what, row in rows.items():
        ratio = row["seconds"] / rows["xla"]["seconds"]
        columns = f"{row['columns']:.2f}" if "columns" in row else ""
        print(
            f"| {names[what]} | {row['seconds']:.2f} | {ratio:.2f} "
            f"| {row['megabytes']:.0f} | {columns} |"
        )


if __name__ == "__main__":
    main()
