"""What the first picture of real programs shows: layers found, boxes, arrows, text.

    python benchmarks/first_picture.py FOLDER …

Every dump under the folders is read; ``compile_people.py`` writes some. "layers" are those that
the program's own arguments state (``layer_truth.py``): right where each stack of n is one fold of
n groups, forward and backward, with the products of layer k in the k-th. Where arguments say
nothing about layers, those that ``people`` states for its programs are expected, else none; for
those in ``EITHER`` one or the other is right.
Boxes, arrows and pixels of the smallest text are for windows of 1500×1000, 900×640 and
2560×1400. "in boxes" is the share of the products that groups with a name hold.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPO / "python"), str(REPO / "benchmarks"), str(REPO / "benchmarks" / "front")]

SUFFIXES = (".hlo", ".hlo.gz", ".txt")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", nargs="+", type=Path)
    options = parser.parse_args()

    import hloscope as hs
    from hloscope.analysis.grouping.folds import folds
    from hloscope.analysis.grouping.groups import KINDS, group_tree
    from hloscope.analysis.grouping.worth import worth
    from hloscope.show import blocks
    from layer_truth import judge, judge_counts, stacks
    from people import EITHER, PROGRAMS
    from run import bundle

    by_hand = {name: counts for name, (_, counts) in PROGRAMS.items()}
    files = sorted(p for f in options.folder for p in f.iterdir() if p.name.endswith(SUFFIXES))
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "first_picture.mjs"
        bundle(REPO / "benchmarks" / "front" / "first_picture.ts", script, "--platform=node",
               "--format=esm")  # fmt: skip
        rows, views, said = [], [], []
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
            view.write_bytes(blocks.view(capture))
            views.append(str(view))
            entry = [g for g, x in enumerate(tree.kind) if KINDS[x] == "entry"]
            first = [g for g, p in enumerate(tree.parent.tolist()) if p in entry]
            share = worth(module, tree)
            loose = [g for g in first if KINDS[tree.kind[g]] == "section"]
            boxed = sum(float(share[g]) for g in first if g not in loose)
            total = float(share[entry[0]]) if entry else 0.0
            stated = stacks(module)
            folded = folds(module, tree)
            wrong = [w for w in (judge(module, s, tree, folded) for s in stated) if w]
            truth = sorted((s.count for s in stated), reverse=True)
            right = None if not stated else not wrong
            name = file.name.partition(".")[0]
            counts = by_hand.get(name)
            either = bool(wrong) and name in EITHER
            if counts is not None and (
                not stated or (either and not judge_counts(module, counts, tree, folded))
            ):
                wrong = judge_counts(module, counts, tree, folded)
                truth, right = list(counts), not wrong
            said += [f"{file.name}: {w}" for w in wrong]
            rows.append((file.name, len(module.instructions), truth, right, len(loose),
                         min(1.0, boxed / total) if total else None))  # fmt: skip
        out = subprocess.run(["node", str(script), *views], capture_output=True, text=True)
        pictures = [json.loads(line) for line in out.stdout.splitlines()]
    if out.returncode or len(pictures) != len(rows):
        sys.exit(out.stderr[-2000:])
    print(
        f"{'':44} {'instr.':>8} {'layers':>22}  "
        "boxes      arrows     text px         parts in boxes"
    )
    for (name, size, truth, right, parts, boxed), sizes in zip(rows, pictures, strict=True):
        mark = (
            "?" if right is None else f"{'+'.join(map(str, truth or []))} {'ok' if right else 'NO'}"
        )
        print(
            f"{name[:44]:44} {size:>8,} {mark[:22]:>22}  "
            + "/".join(str(s["boxes"]) for s in sizes).ljust(11)
            + "/".join(str(s["arrows"]) for s in sizes).ljust(11)
            + "/".join(f"{s['text']:.1f}" for s in sizes).ljust(16)
            + f"{parts:>5} "
            + ("" if boxed is None else f"{boxed:.0%}")
        )
    judged = [r for r in rows if r[3] is not None]
    right = sum(bool(r[3]) for r in judged)
    print(f"\nlayers right in {right} of {len(judged)} programs that state them")
    print("".join(f"  {line}\n" for line in said), end="")
    small = sum(any(s["text"] < 10 for s in p) for p in pictures)
    many = sum(any(s["boxes"] > 15 for s in p[:1]) for p in pictures)
    arrows = sum(any(s["arrows"] > 25 for s in p[:1]) for p in pictures)
    print(f"{len(rows)} programs; text under 10 px: {small}; over 15 boxes: {many}; "
          f"over 25 arrows: {arrows} (at 1500×1000)")  # fmt: skip


if __name__ == "__main__":
    main()
