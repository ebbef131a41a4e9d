"""Compiles the programs of ``benchmarks/people`` for CPU and TPU: FOLDER/NAME.cpu.hlo, .tpu.hlo.

    python benchmarks/compile_people.py FOLDER [NAME ...]

What is there already is kept. TPU programs are compiled for v5e:2x4 without a TPU.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
os.environ.setdefault("TPU_WORKER_HOSTNAMES", "localhost")
os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")
sys.path.insert(0, str(Path(__file__).resolve().parent))


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    import hloscope as hs
    import jax
    from people import PROGRAMS
    from people.pods import AXES

    axes = AXES | {"pipeline": "stage", "ring_attention": "ring", "tensor_parallel": "model"}
    axes["sharded_weights"] = "model"
    axes |= {f"gathered{tail}": "data" for tail in ("", "_scoped")}
    axes |= {f"ring_trained{tail}": "ring" for tail in ("", "_scoped")}
    axes |= {f"assembly_line{tail}": "stage" for tail in ("", "_scoped")}
    axes |= {f"sequence_parallel{tail}": "model" for tail in ("", "_scoped")}
    for name in sys.argv[2:] or PROGRAMS:
        for place in ("cpu", "tpu"):
            file = folder / f"{name}.{place}.hlo"
            if file.exists():
                continue
            begin = time.time()
            function, arguments = PROGRAMS[name][0]()
            options = {} if place == "cpu" else {"topology": "v5e:2x4"}
            if place == "tpu" and name in axes:
                options["mesh"] = {axes[name]: 8}
            try:
                found = hs.capture(jax.jit(function), *arguments, **options)
            except Exception as error:
                print(f"{name} {place}: {type(error).__name__}: {str(error)[:300]}", flush=True)
                continue
            file.write_text(found.text)
            print(f"{name} {place}: {time.time() - begin:.0f} s", flush=True)


if __name__ == "__main__":
    main()
