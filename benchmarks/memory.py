"""How close the simulated peak comes to XLA's own, program by program; prints a table.

    python benchmarks/memory.py [--topology v5e:2x4] [--rows 20]

The programs are those of the tests' corpus, compiled for 8 CPU devices (half a minute) or for a
TPU topology (libtpu, no TPU). On CPU XLA's figure is the sum of its allocations, on TPU its
``peak_memory_in_bytes``. test_memory_accuracy.py gives the reason for each miss.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPO / "python"), str(REPO / "tests")]
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
os.environ.setdefault("TPU_WORKER_HOSTNAMES", "localhost")
os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--topology")
    parser.add_argument("--rows", type=int, default=20, help="the farthest programs to list")
    options = parser.parse_args()
    import numpy as np
    from corpus.build import build
    from corpus.programs import PROGRAMS

    platform = "tpu" if options.topology else "cpu"
    rows = []
    for program in PROGRAMS.values():
        if platform in program.platforms:
            memory = build(program.name, options.topology).capture.memory
            xla = memory.allocated_bytes if options.topology else memory.assigned_bytes
            if xla:
                error = memory.simulated_bytes / xla - 1
                rows.append((error, program.name, memory.simulated_bytes, xla))
    errors = np.abs([r[0] for r in rows])
    print(f"{len(rows)} programs on {options.topology or 'CPU'}\n")
    print("| within | programs |\n|---|---:|")
    for limit in (0.0001, 0.001, 0.01, 0.05, 0.1):
        print(f"| {limit:.2%} | {(errors <= limit).sum()} |")
    print(f"\nmedian {np.median(errors):.3%}, 90th percentile {np.percentile(errors, 90):.1%}\n")
    print("| program | simulated | XLA's | error |\n|---|---:|---:|---:|")
    for error, name, ours, xla in sorted(rows, key=lambda r: -abs(r[0]))[: options.rows]:
        print(f"| {name} | {ours:,} | {xla:,} | {error:+.1%} |")


if __name__ == "__main__":
    main()
