"""CPU time a big module takes to become a View, part by part; prints a table.

    python benchmarks/view.py [FILE] [--layers 28] [--repeat 3]

Without FILE it uses the GPT step of read_module.py (28 layers are about 100,000
instructions; compiled once and cached). "core" is what the graph needs before the first
picture; the sections and summary parts after it belong to optional analyses.
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
    """Seconds of each step of ``build_view``, in its order, each on what came before."""
    from hloscope.analysis.families import families
    from hloscope.analysis.flags import flags
    from hloscope.analysis.folds import folds
    from hloscope.analysis.groups import group_tree
    from hloscope.analysis.labels import labels
    from hloscope.analysis.scopes import scopes
    from hloscope.analysis.summary import CONTRIBUTIONS
    from hloscope.analysis.table import table
    from hloscope.hlo import Target
    from hloscope.view import core
    from hloscope.view.builder import VIEW_MAGIC, Builder
    from hloscope.view.sections import SECTIONS

    context, builder, seconds = core.Context(module, Target()), Builder(), {}

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
    writers = (core._instructions, core._computations, core._groups, core._frames)
    timed("write columns", lambda: [write(builder, context) for write in writers])
    builder.header = {}
    block = timed("strings, gzip", lambda: builder.finish(VIEW_MAGIC))
    seconds["core"] = sum(seconds.values())
    seconds["core, MB"] = len(block) / 1e6
    for name, contribution in CONTRIBUTIONS:
        timed(f"summary: {name}", lambda c=contribution: c(module, Target()))
    for name, add in SECTIONS:
        timed(f"section: {name}", lambda a=add: a(Builder(), context))
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
    from hloscope.view import build_text, build_view

    data = path.read_bytes()
    runs: list[dict[str, float]] = []
    for _ in range(options.repeat):
        module = read_modules(data)[0]
        runs.append(parts(module))
    best = {name: min(run[name] for run in runs) for name in runs[0]}
    module = read_modules(data)[0]
    begun = time.process_time()
    view = build_view(module)
    best["build_view, everything"] = time.process_time() - begun
    begun = time.process_time()
    text = build_text(module)
    best["build_text"] = time.process_time() - begun
    print(f"{len(module.instructions):,} instructions, {len(module.computations):,} computations")
    print(f"View {len(view) / 1e6:.2f} MB, {len(gzip.decompress(view)) / 1e6:.1f} MB unpacked;")
    print(f"text block {len(text) / 1e6:.2f} MB\n")
    print("| part | CPU seconds |")
    print("|---|---:|")
    for name, value in best.items():
        if name != "core, MB":
            print(f"| {name} | {value:.3f} |")


if __name__ == "__main__":
    main()
