"""Modelled time beside XLA:TPU's own estimate, over the corpus: how close, and never above it.

    python benchmarks/modelled.py [--topology v5e:2x4]

Prints a row a program: modelled time without communication, XLA's ``estimated_cycles`` at the
chip's clock, their ratio; then the median ratio, over programs and over operations, the rank
correlation of operations (Spearman), and what is above XLA's estimate. Needs libtpu, no TPU.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPO / "tests"), str(REPO / "python")]
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")
for name, value in (
    ("TPU_SKIP_MDS_QUERY", "1"),
    ("TPU_WORKER_HOSTNAMES", "localhost"),
    ("ALLOW_MULTIPLE_LIBTPU_LOAD", "1"),
):
    os.environ.setdefault(name, value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--topology", default="v5e:2x4")
    options = parser.parse_args()

    import numpy as np
    from corpus.build import build
    from corpus.programs import PROGRAMS

    ratios, above = [], []
    pairs: list[tuple[float, float]] = []
    print(f"{'program':24} {'modelled':>12} {'XLA':>12} {'ratio':>8}")
    for program in PROGRAMS.values():
        if "tpu" not in program.platforms:
            continue
        cost = build(program.name, options.topology).capture.cost()
        r, cycles = cost.roofline, cost.total_estimated_cycles
        if r is None or not cycles or not r.hardware.clock:
            continue
        clock = r.hardware.clock
        ours, xla = r.total_seconds - r.exposed_seconds, cycles / clock
        ratios.append(ours / xla)
        if ours > xla:
            above.append(program.name)
        print(f"{program.name:24} {ours * 1e6:9.2f} µs {xla * 1e6:9.2f} µs {ours / xla:8.3f}")
        for n, count in cost.estimated_cycles.items():
            if cost.is_unit[n] and count and not np.isnan(r.seconds[n]):
                pairs.append((float(r.seconds[n]), count / clock))
                if r.seconds[n] > count / clock:
                    above.append(f"{program.name} %{cost.module.instructions[n].name}")
    modelled, xla_ops = np.array(pairs).T
    ranks = [np.argsort(np.argsort(x, kind="stable"), kind="stable") for x in (modelled, xla_ops)]
    print(f"median ratio: {np.median(ratios):.3f} of {len(ratios)} programs,", end=" ")
    print(f"{np.median(modelled / xla_ops):.3f} of {len(pairs)} operations")
    print(f"rank correlation of operations: {np.corrcoef(*ranks)[0, 1]:.2f}")
    print(f"above XLA's estimate: {', '.join(above) or 'none'}")


if __name__ == "__main__":
    main()
