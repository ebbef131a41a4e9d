"""Modelled time beside XLA:TPU's own estimate: how close, and never above it.

    python benchmarks/modelled.py [--topology v5e:2x4]        over the corpus; needs libtpu, no TPU
    python benchmarks/modelled.py step.hlo.gz --hardware tpu-v5e    dumps of your own

Prints one row per program: modelled time without communication, XLA's ``estimated_cycles`` at the
chip's clock, their ratio; then the median ratio, over programs and over operations, the rank
correlation of operations (Spearman), and what is above XLA's estimate. The corpus's programs are
tiny, and XLA's estimates of tiny operations are mostly fixed costs that no bound may count: the
operations that XLA estimates at 10 µs or more have figures of their own. So do those whose result
is in main memory: on a chip with much VMEM nearly all of a tiny program stays there, where a bound
by main memory's bandwidth says next to nothing.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="*", help="dumps; none: the corpus")
    parser.add_argument("--topology", default="v5e:2x4")
    parser.add_argument("--hardware", default="tpu-v5e", help="the chip that dumps are for")
    options = parser.parse_args()

    import numpy as np

    ratios, above = [], []
    pairs: list[tuple[float, float, bool]] = []  # ours, XLA's, whether the result is in HBM
    print(f"{'program':24} {'modelled':>12} {'XLA':>12} {'ratio':>8}")
    for name, cost in costs(options):
        r, cycles = cost.roofline, cost.total_estimated_cycles
        if r is None or not cycles or not r.hardware.clock:
            continue
        clock = r.hardware.clock
        ours, xla = r.total_seconds - r.exposed_seconds, cycles / clock
        ratios.append(ours / xla)
        if ours > xla:
            above.append(name)
        print(f"{name[:24]:24} {ours * 1e6:9.2f} µs {xla * 1e6:9.2f} µs {ours / xla:8.3f}")
        for n, count in cost.estimated_cycles.items():
            if cost.is_unit[n] and count and not np.isnan(r.seconds[n]):
                i = cost.module.instructions[n]
                in_main = all("S(" not in x.layout.text for x in i.shape.leaves() if x.layout)
                pairs.append((float(r.seconds[n]), count / clock, in_main))
                if r.seconds[n] > count / clock:
                    above.append(f"{name} %{cost.module.instructions[n].name}")
    if not pairs:
        sys.exit("no program here has estimated_cycles and a chip with a clock")
    print(f"median ratio: {np.median(ratios):.3f} of {len(ratios)} programs")
    for chosen, said in (
        (pairs, "operations"),
        ([p for p in pairs if p[2]], "operations with results in main memory"),
        ([p for p in pairs if p[1] >= 1e-5], "operations of 10 µs and more"),
    ):
        found = np.array([p[:2] for p in chosen])
        if len(found) < 3:
            continue
        ranks = [np.argsort(np.argsort(x, kind="stable"), kind="stable") for x in found.T]
        print(
            f"{len(found)} {said}: median ratio {np.median(found[:, 0] / found[:, 1]):.3f},",
            end=" ",
        )
        print(f"rank correlation {np.corrcoef(ranks[0], ranks[1])[0, 1]:.2f}")
    print(f"above XLA's estimate: {', '.join(above) or 'none'}")


def costs(options: argparse.Namespace) -> Iterator[tuple[str, Any]]:
    """(name, cost) of the dumps named, or of the corpus compiled for a topology."""
    import hloscope as hs

    if options.files:
        for file in options.files:
            yield Path(file).name, hs.read(file, hardware=options.hardware).cost()
        return
    from corpus.build import build
    from corpus.programs import PROGRAMS

    for program in PROGRAMS.values():
        if "tpu" in program.platforms:
            built = build(program.name, options.topology)
            try:
                made = built.capture
            except hs.CaptureError:  # XLA cannot print some of its own modules
                made = built.recaptured
            yield program.name, made.cost()


if __name__ == "__main__":
    main()
