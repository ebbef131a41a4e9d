"""How good a sharding search of a 12-layer transformer is, beside an exhaustive one.

    python benchmarks/search_transformer.py [--budget 200] [--store search.db] [--chip a100]

Eight groups of arguments (embedding, six weights of every layer, tokens) on three meshes of
eight CPU devices. An exhaustive search is only possible for a reduced version: one layer, two specs
per group, 514 candidates. The search has the 12 layers, every spec, and its budget. Then both
winners are compiled in both versions, and the same search is run on the reduced version.

A compile is about two CPU seconds; ``--store`` resumes where an earlier run ended.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
REPO = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPO / "python"), str(REPO / "tests" / "python" / "helpers")]

from hloscope.plan.search.result import Candidate, Search  # noqa: E402
from plan_programs import FEW, gpt, gpt_args  # noqa: E402
from plan_programs import search as search_with  # noqa: E402

MESHES = [{"data": 2, "model": 4}, {"data": 4, "model": 2}, {"data": 8, "model": 1}]


def search(layers: int, **options: Any) -> Search:
    """A search over the model with that many layers."""
    found = search_with(gpt, *gpt_args(layers), progress=tell, **options)
    sys.stderr.write("\n")
    return found


def tell(now: Any) -> None:
    """Shows progress on one line."""
    sys.stderr.write(f"\r\x1b[K{now}")
    sys.stderr.flush()


def one(layers: int, wanted: Candidate, **options: Any) -> Candidate:
    """The same mesh and specs with another number of layers."""
    return search(layers, mesh=dict(wanted.mesh), groups=dict(specs(wanted)), **options)[0]


def specs(c: Candidate) -> dict[str, Any]:
    """Patterns that fit any number of layers."""
    return {p.replace("params/", ""): s for p, s in c.specs.items()}


def seconds(c: Candidate) -> float:
    """Modelled seconds of a step."""
    assert c.figures is not None, c.error
    assert c.figures.seconds is not None
    return c.figures.seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--budget", type=int, default=200)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--store", help="a file that keeps results")
    parser.add_argument("--chip", default="a100")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        same = {"hardware": options.chip, "store": options.store or Path(folder) / "search.db"}
        report(options.layers, options.budget, same)


def report(layers: int, budget: int, same: dict[str, Any]) -> None:
    """Runs all searches and prints the results."""
    every = search(1, mesh=MESHES, groups=FEW, method="all", **same)
    print(f"1 layer, two specs a group: all {len(every)} candidates, {len(every.failed)} failed")
    print(f"  best {seconds(every.best) * 1e3:.3f} ms: {every.best.mesh_label}, {every.best.label}")
    groups = [p for p in FEW if p != "tokens"]
    large = search(layers, mesh=MESHES, groups=groups, budget=budget, **same)
    print(f"{layers} layers, every spec: {len(large)} of {large.space:,} candidates looked at")
    best = large.best
    print(f"  best {seconds(best) * 1e3:.3f} ms: {best.mesh_label}, {best.label}")
    first = next(n for n in range(budget) if seconds(large.find(n)) <= 1.05 * seconds(best))
    print(f"  within 5 % of it after {first + 1} looks")
    theirs = one(layers, every.best, **same)
    print(f"  the reduced version's best has {seconds(theirs) * 1e3:.3f} ms: ", end="")
    print(f"found / exhaustive = {seconds(best) / seconds(theirs):.3f}")
    ours = one(1, best, **same)
    print(f"1 layer with what was found: {seconds(ours) * 1e3:.3f} ms: ", end="")
    print(f"found / exhaustive = {seconds(ours) / seconds(every.best):.3f}")
    small = search(1, mesh=MESHES, groups=FEW, method="search", budget=budget, **same)
    ratio = seconds(small.best) / seconds(every.best)
    exact = next(n for n in range(len(small)) if seconds(small.find(n)) == seconds(small.best))
    print(f"searching the reduced version: {len(small)} looks, found / exhaustive = {ratio:.3f}, ")
    print(f"  its best was look {exact + 1}; {small.compiled} were not among all")


if __name__ == "__main__":
    main()
