"""What advice gains: for each program of the tests, what findings say is at stake, what following
the advice by hand gains, and what hloscope's own change gains where it can make one.

    python benchmarks/advice.py [RULE ...]

Programs are those of ``tests/python/helpers/advice_pairs.py``; those of TPUs need libtpu. Nothing
runs. Under half of what is at stake is marked: such advice has to be withdrawn. The last lines
name rules that advise without a program, and those that give no advice.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")
TESTS = Path(__file__).resolve().parents[1] / "tests" / "python"
sys.path[:0] = [str(TESTS.parent), str(TESTS / "helpers"), str(TESTS / "findings")]

import hloscope as hs  # noqa: E402
from advice_pairs import CALLS, COMPILE, PAIRS, PEAK, SECONDS, Pair  # noqa: E402
from hloscope.analysis.text.units import count, duration, size  # noqa: E402
from test_advice_followed import WITHOUT_ADVICE, at_stake, gained  # noqa: E402

HALF = 0.5


def amount(pair: Pair, value: float | None) -> str:
    if value is None:
        return ""
    if pair.gains in (SECONDS, COMPILE):
        return duration(value)
    if pair.gains == CALLS or pair.rule == "unrolled":
        return count(value)
    return size(value)


def by_proof(pair: Pair, before: hs.Capture) -> float | None:
    """The gain of the best way of each finding that the advice is of; None where there is none."""
    total, made = 0.0, False
    for finding in before.findings.prove().of(pair.rule):
        if pair.branch not in finding.advice or not finding.proofs:
            continue
        best = finding.proofs[0]
        had, has = {PEAK: best.peak, SECONDS: best.step}.get(pair.gains, best.wire)
        if had is not None and has is not None and not best.error:
            total, made = total + had - has, True
    return total if made else None


def row(pair: Pair) -> tuple[list[str], bool]:
    before, after = pair.make(False), pair.make(True)
    found = [f for f in before.findings.of(pair.rule) if pair.branch in f.advice]
    stake = at_stake(pair, before, found) if found else 0.0
    hand = gained(pair, before, after)
    proof = by_proof(pair, before) if any(f.changes for f in found) else None
    holds = stake > 0 and hand >= HALF * stake and (proof is None or proof >= HALF * stake)
    parts = [stake, hand, proof]
    cells = [amount(pair, v) for v in parts]
    share = "" if not stake else f"{hand / stake:.2f}"
    own = "" if not stake or proof is None else f"{proof / stake:.2f}"
    return [pair.rule, pair.followed[:52], cells[0], cells[1], share, cells[2], own], holds


def main() -> None:
    wanted = set(sys.argv[1:])
    heads = ["rule", "followed", "at stake", "by hand", "×", "proved", "×"]
    print(("{:22} {:52} {:>11} {:>11} {:>5} {:>11} {:>5}").format(*heads))
    held = total = proved = 0
    for pair in PAIRS:
        if wanted and pair.rule not in wanted:
            continue
        cells, holds = row(pair)
        total, held, proved = total + 1, held + holds, proved + bool(cells[5])
        mark = "" if holds else "  under half"
        print(("{:22} {:52} {:>11} {:>11} {:>5} {:>11} {:>5}").format(*cells) + mark, flush=True)
    print(f"{held} of {total} gain half of what is at stake; {proved} of them by hloscope's change")
    known: Any = hs.read("HloModule m\n\nENTRY e {\n  ROOT x = f32[8] parameter(0)\n}\n")
    rules = set(known.findings.rules) - {p.rule for p in PAIRS}
    print("advise without a program:", ", ".join(sorted(rules - WITHOUT_ADVICE)) or "none")
    print("give no advice:", ", ".join(sorted(rules & WITHOUT_ADVICE)))


if __name__ == "__main__":
    main()
