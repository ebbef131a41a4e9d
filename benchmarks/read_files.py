"""Reads files and folders of files, and compares with XLA's own parser; prints a table.

    python benchmarks/read_files.py FOLDER… [--limit 500]

One row per folder: files read, equal to XLA's parser (in a child process: it may abort), equal
except for what that parser changes by itself (it gives arrays without a layout the default one,
and renumbers names that occur in two computations), different, not comparable (XLA refuses them,
or they are not HLO text), with warnings, refused with a message, and the slowest in CPU seconds.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPO / "python"), str(REPO / "tests" / "python" / "helpers")]

from hloscope.readers import ReadError, read_modules  # noqa: E402
from xla_oracle import Refused, ask_xla, compare_apart  # noqa: E402

OWN = "XLA's own layouts, names"
ENDS = (".hlo", ".txt", ".pb", ".mlir", ".mlirbc", ".gz")


def one(path: Path) -> tuple[str, bool, float]:
    """(outcome, whether it has warnings, CPU seconds of reading)."""
    begun = time.process_time()
    try:
        modules = read_modules(path.read_bytes(), path.name)
    except ReadError:
        return "refused", False, time.process_time() - begun
    seconds = time.process_time() - begun
    module, warned = modules[0], any(m.warnings for m in modules)
    if module.dialect != "hlo" or module.source_text is None:
        return "not comparable", warned, seconds
    try:
        theirs = ask_xla(module.source_text)
    except Refused:
        return "not comparable", warned, seconds
    differs, own = compare_apart(module, theirs)
    return ("different" if differs else OWN if own else "equal"), warned, seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--limit", type=int, default=500, help="files of a folder at most")
    options = parser.parse_args()
    columns = ("equal", OWN, "different", "not comparable", "refused")
    print("| folder | files | " + " | ".join(columns) + " | with warnings | slowest |")
    print("|---|" + "---:|" * (len(columns) + 3))
    for folder in options.folders:
        files = [folder] if folder.is_file() else sorted(folder.rglob("*"))
        files = [f for f in files if f.is_file() and f.suffix in ENDS][: options.limit]
        rows = [(f.name, *one(f)) for f in files]
        counts = " | ".join(str(sum(r[1] == c for r in rows)) for c in columns)
        warned = sum(r[2] for r in rows)
        seconds, name = max(((r[3], r[0]) for r in rows), default=(0.0, ""))
        row = f"| {folder.name} | {len(rows)} | {counts} | {warned} "
        print(f"{row}| {seconds:.2f} s, {name} |")


if __name__ == "__main__":
    main()
