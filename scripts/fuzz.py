"""Damages real dumps thousands of times and reads them every way; prints a table.

    python scripts/fuzz.py                         20,000 mutations, seed 0
    python scripts/fuzz.py -n 100000 --seed 7 dump.txt module.hlo.pb f.mlir

Sources default to small programs compiled on the spot and to the dumps in HLOSCOPE_SEEDS.
Exit status 1 when a reader raised anything but ReadError, or an input took over 2 seconds of CPU.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path
from types import FrameType

REPO = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPO / "python"), str(REPO / "tests" / "python" / "helpers")]

from mutations import MUTATIONS, read_every_way, window  # noqa: E402

LIMIT_SECONDS = 2.0


class TooSlow(Exception):
    """Raised by the watchdog inside whatever is running."""


def _alarm(signum: int, frame: FrameType | None) -> None:
    raise TooSlow


def sources(paths: list[str]) -> dict[str, bytes]:
    if paths:
        return {Path(p).name: Path(p).read_bytes() for p in paths}
    found = compiled()
    seeds = Path(os.environ.get("HLOSCOPE_SEEDS") or REPO.parent / "shared" / "seeds")
    if seeds.is_dir():
        found |= {p.name: p.read_bytes() for p in sorted(seeds.glob("*.txt"))}
    return found


def compiled() -> dict[str, bytes]:
    """One program with a loop, a branch, a sort and a scatter, in every format."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    try:
        import jax
        import jax.numpy as jnp
    except ImportError:
        return {}

    def f(x, w, k):  # type: ignore[no-untyped-def]
        x = jax.lax.fori_loop(0, 3, lambda i, v: jnp.tanh(v @ w), x)
        x = jax.lax.switch(k, [lambda v: v + 1, lambda v: v * 2], x)
        return jnp.sort(x), x.at[jnp.array([0, 1])].add(1.0).sum()

    lowered = jax.jit(f).lower(jnp.ones((8, 8)), jnp.ones((8, 8)), 1)
    program = lowered.compile()
    ir = lowered.compiler_ir("stablehlo")
    proto = program.runtime_executable().hlo_modules()[0].as_serialized_hlo_module_proto()
    module = program.runtime_executable().hlo_modules()[0]
    return (
        reports(lowered)
        | printed(module)
        | {
            "compiled.hlo": str(program.as_text()).encode(),
            "compiled.pb": bytes(proto),
            "lowered.mlir": lowered.as_text().encode(),
            "lowered with locations.mlir": lowered.as_text(debug_info=True).encode(),
            "generic.mlir": ir.operation.get_asm(print_generic_op_form=True).encode(),
        }
    )


def printed(module: object) -> dict[str, bytes]:
    """The program as XLA prints it with other options: inline computations, operand types."""
    from jaxlib import _hlo

    options = {k: getattr(_hlo.HloPrintOptions, k)() for k in ("canonical", "short_parsable")}
    return {f"{k}.hlo": module.to_string(o).encode() for k, o in options.items()}  # type: ignore[attr-defined]


def reports(lowered: object) -> dict[str, bytes]:
    """What XLA writes beside its dumps."""
    with tempfile.TemporaryDirectory() as folder:
        options = {
            "xla_dump_to": folder,
            "xla_dump_hlo_as_proto": True,
            "xla_dump_hlo_as_text": True,
        }
        lowered.compile(compiler_options=options)  # type: ignore[attr-defined]
        ends = ("buffer-assignment.txt", "memory-usage-report.txt", "after_optimizations.hlo.pb")
        files = sorted(Path(folder).iterdir())
        return {e: f.read_bytes() for e in ends for f in files if f.name.endswith(e)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("paths", nargs="*")
    parser.add_argument("-n", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="folder to write failing inputs to")
    options = parser.parse_args()
    inputs = sources(options.paths)
    if not inputs:
        print("nothing to damage: give files, or install jax")
        return 2
    signal.signal(signal.SIGPROF, _alarm)
    rows: Counter[tuple[str, str]] = Counter()
    slowest = dict.fromkeys(MUTATIONS, 0.0)
    failures: Counter[str] = Counter()
    begun = time.perf_counter()
    for n in range(options.n):
        r = random.Random(options.seed * 1_000_003 + n)
        name = r.choice(list(inputs))
        kind = r.choice(list(MUTATIONS))
        data = MUTATIONS[kind](r, window(r, inputs[name]))
        t = time.process_time()
        outcome = "refused"
        signal.setitimer(signal.ITIMER_PROF, LIMIT_SECONDS)
        try:
            if any(m.instructions for m in read_every_way(data)):
                outcome = "read in part or whole"
        except TooSlow:
            outcome = "TOO SLOW"
            failures[f"over {LIMIT_SECONDS} s: {kind} of {name}, input {n}"] += 1
        except BaseException as e:
            if isinstance(e, KeyboardInterrupt):
                raise
            outcome = "BROKEN"
            frame = traceback.extract_tb(e.__traceback__)[-1]
            where = f"{Path(frame.filename).name}:{frame.lineno}"
            failures[f"{type(e).__name__} at {where}: {str(e)[:80]} (first: input {n})"] += 1
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        slowest[kind] = max(slowest[kind], time.process_time() - t)
        rows[kind, outcome] += 1
        if outcome.isupper() and options.keep:
            options.keep.mkdir(parents=True, exist_ok=True)
            (options.keep / f"{n}-{name}").write_bytes(data)
    outcomes = ["read in part or whole", "refused", "BROKEN", "TOO SLOW"]
    print(f"{options.n:,} mutations of {len(inputs)} dumps, seed {options.seed}, "
          f"{time.perf_counter() - begun:.0f} s\n")  # fmt: skip
    print("| mutation | " + " | ".join(outcomes) + " | slowest |")
    print("|---|" + "---:|" * (len(outcomes) + 1))
    for kind in MUTATIONS:
        counts = " | ".join(str(rows[kind, o]) for o in outcomes)
        print(f"| {kind} | {counts} | {slowest[kind]:.2f} s |")
    for what, count in failures.most_common(30):
        print(f"{count:6} × {what}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
