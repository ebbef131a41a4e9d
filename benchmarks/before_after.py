"""Two checkouts of this repository side by side: reading, the View, and what the wheel holds.

    git worktree add --detach /tmp/before COMMIT
    python benchmarks/before_after.py /tmp/before FILE … [--rounds 4] [--wheels OLD.whl NEW.whl]

Runs alternate, so that both see the same machine, and the best of all runs counts: CPU seconds
of reading and of the block that the first picture needs. With wheels: compressed bytes by part,
and which parts the new one has more of.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import zipfile
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
REPEAT = 7

CHILD = """
import json, sys, time
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from hloscope.readers import read_modules
from hloscope.view import build_view
data, clock = Path(sys.argv[2]).read_bytes(), time.process_time
best = [1e9, 1e9]
for _ in range(int(sys.argv[3])):
    a = clock()
    module = read_modules(data)[0]
    b = clock()
    try:
        view = build_view(module)
    except Exception as error:
        print(json.dumps(f"{type(error).__name__}"))
        break
    best = [min(best[0], b - a), min(best[1], clock() - b)]
else:
    print(json.dumps([*best, len(view), len(module.instructions)]))
"""


def run(tree: Path, file: Path, repeat: int) -> list[float] | str:
    out = subprocess.run(
        [sys.executable, "-c", CHILD, str(tree / "python"), str(file), str(repeat)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    found: list[float] | str = json.loads(out.stdout)
    return found


def part(name: str) -> str:
    """What a file of the wheel belongs to."""
    if "labextensions" in name:
        return "JupyterLab extension"
    if "/static/" in name:
        return "renderer bundles"
    if "dist-info" in name:
        return "names, licences"
    pieces = name.split("/")
    return f"python: {pieces[1]}" if len(pieces) > 2 else "python: top"


def wheels(before: Path, after: Path) -> None:
    sizes = []
    for path in (before, after):
        count: Counter[str] = Counter()
        for info in zipfile.ZipFile(path).infolist():
            count[part(info.filename)] += info.compress_size
        sizes.append(count)
    print(f"\n{'wheel, compressed bytes':28}{'before':>12}{'after':>12}{'more':>12}")
    for name in sorted(sizes[1] | sizes[0], key=lambda n: sizes[0][n] - sizes[1][n]):
        a, b = sizes[0][name], sizes[1][name]
        print(f"{name:28}{a:>12,}{b:>12,}{b - a:>+12,}")
    a, b = before.stat().st_size, after.stat().st_size
    print(f"{'the file':28}{a:>12,}{b:>12,}{b - a:>+12,}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("before", type=Path)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--wheels", nargs=2, type=Path)
    options = parser.parse_args()
    if options.files:
        print(f"{'':40}{'read':>17}{'View':>19}{'both':>19}   View's bytes")
    for file in options.files:
        best: dict[Path, list[float]] = {}
        failed = dict.fromkeys((options.before, HERE), "")
        repeat = REPEAT if file.stat().st_size < 5e6 else 2
        for _ in range(options.rounds):
            for tree in (options.before, HERE):
                found = run(tree, file, repeat)
                if isinstance(found, str):
                    failed[tree] = found
                else:
                    old = best.get(tree, found)
                    best[tree] = [*map(min, old[:2], found[:2]), *found[2:]]
        a, b = (best.get(tree) for tree in (options.before, HERE))
        columns = []
        for k in (0, 1, None):
            x, y = (None if r is None else r[k] if k is not None else sum(r[:2]) for r in (a, b))
            columns.append(f"{_ms(x)} →{_ms(y)} ms")
        sizes = " → ".join("—" if r is None else f"{int(r[2]):,}" for r in (a, b))
        said = "".join(f"  {when}: {failed[tree]}" for when, tree in
                       (("before", options.before), ("after", HERE)) if failed[tree])  # fmt: skip
        print(f"{file.name[:38]:40}" + "".join(f"{c:>19}" for c in columns) + f"   {sizes}{said}")
    if options.wheels:
        wheels(*options.wheels)


def _ms(seconds: float | None) -> str:
    return "      —" if seconds is None else f"{seconds * 1e3:7.1f}"


if __name__ == "__main__":
    main()
