"""Facts that have two values: every figure and sentence of many programs, compared place by place.

    python benchmarks/one_fact.py [FOLDER_OR_FILE ...] [--hardware tpu-v5e]

Without files, the kept programs of the tests and the tests' corpus, compiled for 8 CPU devices.
Prints each fact with the places that say different things, and how many were compared.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

REPO = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPO / p) for p in ("python", "tests", "tests/python/helpers")]
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")


def programs(given: list[str], hardware: str) -> Iterator[tuple[str, Any]]:
    """Name and capture of each."""
    import hloscope as hs
    from kept_captures import FOLDER, load

    files = [
        f for g in given for f in (sorted(Path(g).iterdir()) if Path(g).is_dir() else [Path(g)])
    ]
    for path in files or sorted([*FOLDER.glob("*.capture.gz"), *FOLDER.glob("*.hlo.gz")]):
        cap = load(path) if path.name.endswith(".capture.gz") else hs.read(path)
        cap.hardware = hardware
        yield path.name, cap
    if not files:
        from corpus.build import build
        from corpus.programs import PROGRAMS

        for program in PROGRAMS.values():
            if "cpu" in program.platforms:
                cap = build(program.name).capture
                cap.hardware = hardware
                yield program.name, cap


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("files", nargs="*")
    parser.add_argument("--hardware", default="tpu-v5e")
    options = parser.parse_args()
    import facts_everywhere
    import figures_everywhere

    count = facts = places = 0
    for name, cap in programs(options.files, options.hardware):
        said, told = facts_everywhere.said(cap), figures_everywhere.told(cap)
        wrong = facts_everywhere.differing(said) | figures_everywhere.differing(told)
        wrong |= {
            f"line of %{n} on its card": {"table": a, "card": b}
            for n, (a, b) in facts_everywhere.card_lines(cap).items()
            if a != b
        }
        for fact, of in wrong.items():
            print(f"{name}: {fact}: {of}")
        count, facts = count + 1, facts + len(said) + len(told)
        places += sum(len(of) for of in (*said.values(), *told.values()))
    print(f"{count} programs, {facts:,} facts in {places:,} places")


if __name__ == "__main__":
    main()
