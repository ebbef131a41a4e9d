"""Compiles the programs of ``benchmarks/ordinary`` for CPU and TPU: FOLDER/NAME.cpu.hlo, .tpu.hlo.

    python benchmarks/compile_ordinary.py FOLDER [NAME ...]

They were written before anybody saw how hloscope draws them, with ``TRUTH``, what a person expects
to see, at the top. Each is compiled in a process of its own, since jax keeps the traces of others.
What is there already is kept. TPU programs are compiled for v5e:2x4 without a TPU.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent / "ordinary"
LIMIT_SECONDS = 900


def captured(file: Path, place: str, **options: Any) -> Any:
    """A program as ``hs.capture`` has it, for "cpu" or "tpu"."""
    import hloscope as hs
    import jax
    import numpy as np

    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)
    lowered = options.pop("lowered", False)  # with a mesh, as jax lowers it itself
    axes = getattr(module, "MESH", None)
    on_devices = not hasattr(module, "make")

    def made(devices: Any) -> Any:  # the function and its arguments
        if on_devices:
            return module.build(devices)
        if axes is None:
            return module.make()
        return module.make(jax.sharding.Mesh(np.array(devices).reshape([*axes.values()]), [*axes]))

    if place == "cpu":
        function, arguments = made(jax.devices())
        return hs.capture(function, *arguments, **options)
    if axes is None and not on_devices:
        function, arguments = made(None)
        return hs.capture(function, *arguments, topology="v5e:2x4", **options)
    from jax.experimental import topologies

    function, arguments = made(topologies.get_topology_desc("v5e:2x4", platform="tpu").devices)
    if lowered:
        jitted = function if hasattr(function, "lower") else jax.jit(function)
        return hs.capture(jitted.lower(*arguments), **options)
    return hs.capture(function, *arguments, **options)


def compile_one(file: Path, place: str, out: Path) -> None:
    capture = captured(file, place, lowered=True, exact=False, provenance=False)
    out.write_text(capture.text)


def main() -> None:
    if sys.argv[1] == "--one":
        compile_one(Path(sys.argv[2]), sys.argv[3], Path(sys.argv[4]))
        return
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    defaults = {
        "JAX_PLATFORMS": "cpu",
        "TPU_SKIP_MDS_QUERY": "1",
        "TPU_WORKER_HOSTNAMES": "localhost",
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
    }
    environment = defaults | dict(os.environ)
    for file in sorted(HERE.glob("*.py")):
        if sys.argv[2:] and file.stem not in sys.argv[2:]:
            continue
        for place in ("cpu", "tpu"):
            out = folder / f"{file.stem}.{place}.hlo"
            if out.exists():
                continue
            command = [sys.executable, __file__, "--one", str(file), place, str(out)]
            try:
                ended = subprocess.run(
                    command, env=environment, timeout=LIMIT_SECONDS, stderr=subprocess.PIPE
                )
                word = ended.stderr.decode().strip().splitlines()[-1:] if ended.returncode else ""
            except subprocess.TimeoutExpired:
                word = f"no end after {LIMIT_SECONDS} s"
            print(f"{file.stem} {place}: {word or 'compiled'}", flush=True)


if __name__ == "__main__":
    main()
