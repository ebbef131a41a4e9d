"""What the first picture of real programs shows: layers found, boxes, arrows, text.

    python benchmarks/first_picture.py FOLDER … [--layers TABLE.json]

Every dump under the folders is read. ``compile_people.py`` writes some, whose layers are known;
``--layers`` adds known layers of others: ``{"vit_training": [12]}`` by the beginning of a name.
Boxes, arrows and pixels of the smallest text are of windows of 1500×1000, 900×640 and
2560×1400. "in boxes" is the share of the products that groups with a name hold.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

REPO = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPO / "python"), str(REPO / "benchmarks"), str(REPO / "benchmarks" / "front")]

SUFFIXES = (".hlo", ".hlo.gz", ".txt")


def known(name: str, more: dict[str, list[int]]) -> list[int] | None:
    """Counts of layers of a program; None where nobody said."""
    from people import PROGRAMS

    stem = name.partition(".")[0]
    if stem in PROGRAMS:
        return list(PROGRAMS[stem][1])
    return next((v for k, v in more.items() if name.startswith(k)), None)


def counts(module: Any, tree: Any) -> dict[int, int]:
    """How often the picture says ×N: folds, runs of layers, loops around products."""
    from hloscope.analysis.base.table import table
    from hloscope.analysis.base.trips import trip_count
    from hloscope.analysis.grouping.folds import folds
    from hloscope.analysis.grouping.layers import layers

    found: dict[int, int] = {}
    for r in layers(module).runs:
        found[r.stack.count] = found.get(r.stack.count, 0) + 1
    for f in folds(module, tree).folds:
        found[len(f.members)] = found.get(len(f.members), 0) + 1
    for row in table(module).where("while").tolist():
        n = trip_count(module.instructions[row])
        if n:
            found[n] = found.get(n, 0) + 1
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", nargs="+", type=Path)
    parser.add_argument("--layers", type=Path)
    options = parser.parse_args()
    more = json.loads(options.layers.read_text()) if options.layers else {}

    import hloscope as hs
    from hloscope.analysis.grouping.groups import KINDS, group_tree
    from hloscope.analysis.grouping.worth import worth
    from run import bundle

    files = sorted(p for f in options.folder for p in f.iterdir() if p.name.endswith(SUFFIXES))
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "first_picture.mjs"
        bundle(REPO / "benchmarks" / "front" / "first_picture.ts", script, "--platform=node",
               "--format=esm")  # fmt: skip
        rows, views = [], []
        for k, file in enumerate(files):
            try:
                capture = hs.read(file)
            except hs.ReadError:
                continue
            module = getattr(capture, "module", None)
            if module is None:  # a log of something else
                continue
            if module.dialect != "hlo":
                continue
            tree = group_tree(module)
            view = Path(folder) / f"{k}.view"
            view.write_bytes(capture.view_bytes)
            views.append(str(view))
            entry = [g for g, x in enumerate(tree.kind) if KINDS[x] == "entry"]
            first = [g for g, p in enumerate(tree.parent.tolist()) if p in entry]
            share = worth(module, tree)
            loose = [g for g in first if KINDS[tree.kind[g]] == "section"]
            boxed = sum(float(share[g]) for g in first if g not in loose)
            total = float(share[entry[0]]) if entry else 0.0
            truth, found = known(file.name, more), counts(module, tree)
            right = None if truth is None else all(n in found for n in truth)
            rows.append((file.name, len(module.instructions), truth, right, len(loose),
                         min(1.0, boxed / total) if total else None))  # fmt: skip
        out = subprocess.run(["node", str(script), *views], capture_output=True, text=True)
        pictures = [json.loads(line) for line in out.stdout.splitlines()]
    if out.returncode or len(pictures) != len(rows):
        sys.exit(out.stderr[-2000:])
    print(
        f"{'':44} {'instr.':>8} {'layers':>10}  "
        "boxes      arrows     text px         parts in boxes"
    )
    for (name, size, truth, right, parts, boxed), sizes in zip(rows, pictures, strict=True):
        mark = (
            "?" if right is None else f"{'+'.join(map(str, truth or []))} {'ok' if right else 'NO'}"
        )
        print(
            f"{name[:44]:44} {size:>8,} {mark:>10}  "
            + "/".join(str(s["boxes"]) for s in sizes).ljust(11)
            + "/".join(str(s["arrows"]) for s in sizes).ljust(11)
            + "/".join(f"{s['text']:.1f}" for s in sizes).ljust(16)
            + f"{parts:>5} "
            + ("" if boxed is None else f"{boxed:.0%}")
        )
    judged = [r for r in rows if r[3] is not None]
    right = sum(bool(r[3]) for r in judged)
    print(f"\nlayers right in {right} of {len(judged)} programs where they are known")
    small = sum(any(s["text"] < 10 for s in p) for p in pictures)
    many = sum(any(s["boxes"] > 15 for s in p[:1]) for p in pictures)
    arrows = sum(any(s["arrows"] > 25 for s in p[:1]) for p in pictures)
    print(f"{len(rows)} programs; text under 10 px: {small}; over 15 boxes: {many}; "
          f"over 25 arrows: {arrows} (at 1500×1000)")  # fmt: skip


if __name__ == "__main__":
    main()
