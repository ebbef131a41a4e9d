"""CPU time a big module takes to become a View and its analyses; prints two tables.

    python benchmarks/view.py [FILE] [--layers 28] [--repeat 3]

Without FILE it uses the GPT step of read_module.py (28 layers are about 100,000
instructions; compiled once and cached). First the blocks as hosts request them: the View is
all that the first picture needs, the analyses come after it, the text on demand.
Then cost, memory and source lines on their own, and each step of the blocks after the
previous ones: an analysis runs once, so a later step gets cached results for free.
"""

from __future__ import annotations

import argparse
import gc
import gzip
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))


def parts(module: Any) -> dict[str, float]:
    """Seconds of each step of the blocks, in order, each after the previous ones."""
    from hloscope.analysis.base.labels.families import families
    from hloscope.analysis.base.labels.flags import flags
    from hloscope.analysis.base.labels.labels import labels
    from hloscope.analysis.base.table import table
    from hloscope.analysis.grouping.folds import folds
    from hloscope.analysis.grouping.groups import group_tree
    from hloscope.analysis.grouping.scopes import scopes
    from hloscope.analysis.report.summary import CONTRIBUTIONS
    from hloscope.hlo import Target
    from hloscope.view import Builder, Context
    from hloscope.view.builder import VIEW_MAGIC
    from hloscope.view.picture import add_picture
    from hloscope.view.sections import SECTIONS

    target = Target()
    context, builder, seconds = Context(module, target), Builder(), {}

    def timed(name: str, action: Callable[[], Any]) -> Any:
        begun = time.process_time()
        out = action()
        seconds[name] = time.process_time() - begun
        return out

    gc.disable()
    timed("columns of the module", lambda: table(module))
    timed("families, flags", lambda: (families(module), flags(module)))
    timed("labels", lambda: labels(module))
    timed("scopes", lambda: scopes(module))
    tree = timed("groups", lambda: group_tree(module))
    timed("folds", lambda: folds(module, tree))
    timed("write columns", lambda: add_picture(builder, context))
    timed("strings, gzip", lambda: builder.finish(VIEW_MAGIC))
    for name, contribution in CONTRIBUTIONS:
        timed(f"summary: {name}", lambda c=contribution: c(module, target))
    for name, add in SECTIONS:
        timed(f"section: {name}", lambda a=add: a(Builder(), context))
    gc.enable()
    return seconds


def analyses(module: Any) -> dict[str, float]:
    """Seconds of cost, memory and source lines on their own, with nothing cached."""
    from hloscope.analysis.cost.cost import estimated
    from hloscope.analysis.memory.memory import analysed
    from hloscope.analysis.report.source import attribute
    from hloscope.hlo import Target

    target, seconds = Target(), {}
    gc.disable()
    begun = time.process_time()
    cost = estimated(module, target)
    seconds["cost"] = time.process_time() - begun
    memory = analysed(module, target)
    seconds["memory"] = time.process_time() - begun - seconds["cost"]
    attribute(module, cost, memory)
    seconds["cost, memory and source together"] = time.process_time() - begun
    gc.enable()
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument("--layers", type=int, default=28)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    path = options.file
    if path is None:
        from read_module import generate

        folder = Path(tempfile.gettempdir()) / f"hloscope-benchmark-{options.layers}-layers"
        path = folder / "step.hlo"
        if not path.exists():
            print(f"compiling a {options.layers}-layer step …", file=sys.stderr)
            generate(folder, options.layers)
    from hloscope.readers import read_modules
    from hloscope.view import build_analyses, build_text, build_view

    data = path.read_bytes()
    blocks: dict[str, bytes] = {}
    runs: list[dict[str, float]] = []
    steps: list[dict[str, float]] = []
    alone: list[dict[str, float]] = []
    for _ in range(options.repeat):
        begun = time.process_time()
        module = read_modules(data)[0]
        runs.append({"read": time.process_time() - begun})
        for name, build in (
            ("View", build_view),
            ("analyses", build_analyses),
            ("text", build_text),
        ):
            begun = time.process_time()
            blocks[name] = build(module)
            runs[-1][name] = time.process_time() - begun
        steps.append(parts(read_modules(data)[0]))
        alone.append(analyses(read_modules(data)[0]))
    print(
        f"{len(module.instructions):,} instructions, {len(module.computations):,} computations,",
        end=" ",
    )
    print(f"{len(data) / 1e6:.1f} MB of text\n")
    print("| block | CPU seconds | MB | MB unpacked |")
    print("|---|---:|---:|---:|")
    for name in runs[0]:
        seconds = min(run[name] for run in runs)
        size = f"{len(blocks[name]) / 1e6:.2f}" if name in blocks else ""
        whole = f"{len(gzip.decompress(blocks[name])) / 1e6:.1f}" if name in blocks else ""
        print(f"| {name} | {seconds:.2f} | {size} | {whole} |")
    print("\n| analysis | CPU seconds |")
    print("|---|---:|")
    for name in alone[0]:
        print(f"| {name} | {min(run[name] for run in alone):.2f} |")
    print("\n| step | CPU seconds |")
    print("|---|---:|")
    for name in steps[0]:
        print(f"| {name} | {min(step[name] for step in steps):.3f} |")


if __name__ == "__main__":
    main()
