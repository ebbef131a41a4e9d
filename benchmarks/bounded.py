"""What damaged files take: memory and CPU time of all that is done with each; prints a table.

    python benchmarks/bounded.py [-n 2000] [--seed 0] [--minutes 30] [FILE…]

Each input is read, analysed, drawn and written as a page in a process of its own. One fails that
takes over 400 MB and 60 times its size, or over 5 s and 3 µs a byte, or that raises anything but
the documented exceptions. Inputs are small programs compiled on the spot, a trace and hand-made
attacks, damaged in text, in fields of protos, and as archives. Exit status 1 when one failed.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPO / "python"), str(REPO / "tests" / "python" / "helpers")]
sys.path.append(str(REPO / "scripts"))

from attacks import ATTACKS, larger_fields, larger_numbers, zip_that_lies  # noqa: E402
from bounded import MIB, Outcome, measured  # noqa: E402
from fuzz import compiled  # noqa: E402
from mutations import MUTATIONS, window  # noqa: E402

Mutation = Callable[[random.Random, bytes], bytes]
_TEXT = {**MUTATIONS, "larger numbers": larger_numbers, "a zip that lies": zip_that_lies}
_BINARY = ("cut", "swap", "repeat", "junk bytes", "flipped bytes", "archives", "gzip")
_SMALL_ATTACK = 40_000


def inputs(paths: list[Path]) -> dict[str, bytes]:
    """Name → data of what is damaged."""
    found = {str(p.name): p.read_bytes() for p in paths}
    with get_context("spawn").Pool(1) as other:  # jax's threads and a fork do not mix
        found |= other.apply(compiled)
    found |= trace(found)
    made = {name: make() for name, make in ATTACKS.items()}
    return found | {name: data for name, data in made.items() if len(data) < _SMALL_ATTACK}


def trace(known: dict[str, bytes]) -> dict[str, bytes]:
    """A profile of a compiled program with the program inside, as the profiler writes it."""
    from hloscope.readers import read_modules
    from xplane_builder import TraceBuilder

    if "compiled.pb" not in known:
        return {}
    (module,) = read_modules(known["compiled.pb"])
    made = TraceBuilder()
    made.metadata(module.name, 7, known["compiled.pb"])
    made.tpu(module, 7)
    return {"trace.xplane.pb": made.serialized()}


def mutations(name: str, data: bytes) -> dict[str, Mutation]:
    """How an input can be damaged."""
    if name.endswith(".xplane.pb"):
        return {k: MUTATIONS[k] for k in _BINARY} | {"larger fields": larger_fields("XSpace")}
    if name.endswith(".pb"):
        kind = "HloProto" if name.endswith("hlo.pb") else "HloModule"
        return {k: MUTATIONS[k] for k in _BINARY} | {"larger fields": larger_fields(kind)}
    if b"\0" in data[:4096] or data[:2] == b"\x1f\x8b":
        return {k: MUTATIONS[k] for k in _BINARY}
    return _TEXT


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("paths", nargs="*", type=Path)
    parser.add_argument("-n", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=60.0, help="stop after as many")
    parser.add_argument("--keep", type=Path, help="folder to write failing inputs to")
    options = parser.parse_args()
    found = inputs(options.paths)
    rows: dict[str, list[Outcome]] = defaultdict(list)
    failures: Counter[str] = Counter()
    first: dict[str, str] = {}
    begun = time.monotonic()
    done = 0

    def one(kind: str, name: str, data: bytes) -> None:
        outcome = measured(data)
        rows[kind].append(outcome)
        for failure in outcome.failures:
            key = failure if "took" not in failure else f"{kind}: {failure.split(',')[-1]}"
            failures[key[:160]] += 1
            first.setdefault(key[:160], name)
        if outcome.failures and options.keep:
            options.keep.mkdir(parents=True, exist_ok=True)
            (options.keep / name.replace(" ", "_").replace("/", "_")).write_bytes(data)

    for name, make in ATTACKS.items():
        one("by hand", name, make())
    for n in range(options.n):
        if time.monotonic() - begun > options.minutes * 60:
            break
        r = random.Random(options.seed * 1_000_003 + n)
        name = r.choice(list(found))
        data = found[name]
        ways = mutations(name, data)
        kind = r.choice(list(ways))
        if kind != "larger fields":
            data = window(r, data, 12_000)
        one(kind, f"{options.seed}-{n}-{kind}-{name}", ways[kind](r, data))
        done += 1
    print(f"{done:,} mutations of {len(found)} inputs and {len(ATTACKS)} attacks by hand, seed "
          f"{options.seed}, {time.monotonic() - begun:.0f} s\n")  # fmt: skip
    columns = ("kind", "files", "refused", "failed", "most memory, MB", "most CPU, s")
    print(f"| {' | '.join(columns)} |\n|---|---:|---:|---:|---:|---:|")
    for kind, of in sorted(rows.items()):
        refused = sum(bool(o.refused) for o in of)
        failed = sum(bool(o.failures) for o in of)
        most = f"{max(o.peak for o in of) / MIB:.0f} | {max(o.seconds for o in of):.1f}"
        print(f"| {kind} | {len(of)} | {refused} | {failed} | {most} |")
    for what, count in failures.most_common(60):
        print(f"{count:6} × {what}   (first: {first[what]})")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
