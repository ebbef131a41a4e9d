"""Advice, followed: at least half of what a finding says is at stake is gained."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import hloscope as hs
import pytest
from advice_pairs import PAIRS, PEAK, SECONDS, WIRE, Pair

# Rules whose findings give no advice: nothing is known that would gain half of what is at stake.
WITHOUT_ADVICE = {
    "reduced-then-sliced",
    "full-rematerialization",
    "whole-copies",
    "batched-branches",
    "narrow-copies",
}


def gained(pair: Pair, before: hs.Capture, after: hs.Capture) -> float:
    if pair.gains == SECONDS:
        a, b = before.findings.headline.seconds, after.findings.headline.seconds
        assert a is not None
        assert b is not None
        return a - b
    if pair.gains == PEAK:
        return before.memory.peak_bytes - after.memory.peak_bytes
    return (before.collectives.wire_bytes or 0) - (after.collectives.wire_bytes or 0)


@pytest.mark.parametrize("pair", PAIRS, ids=lambda p: f"{p.rule}: {p.followed}")
def test_half_of_what_is_at_stake_is_gained(pair: Pair) -> None:
    if pair.platform == "tpu" and importlib.util.find_spec("libtpu") is None:
        pytest.skip('libtpu is not installed (pip install "hloscope[tpu]")')
    before, after = pair.make(False), pair.make(True)
    assert before.findings.failed == after.findings.failed == ()
    found = [f for f in before.findings.of(pair.rule) if pair.branch in f.advice]
    assert found, str(before.findings)
    left = [f for f in after.findings.of(pair.rule) if pair.branch in f.advice]
    if pair.gains == "none left":
        assert not left
        return
    kind = {SECONDS: "seconds", PEAK: "bytes", WIRE: "bytes"}[pair.gains]
    stake = sum(getattr(f, kind) for f in found)
    assert gained(pair, before, after) >= stake / 2


def test_every_rule_that_advises_has_a_pair() -> None:
    cap = hs.read("HloModule m\n\nENTRY e {\n  ROOT x = f32[8] parameter(0)\n}\n")
    assert {p.rule for p in PAIRS} == set(cap.findings.rules) - WITHOUT_ADVICE


def test_the_page_on_findings_lists_every_pair(repo: Path) -> None:
    page = (repo / "docs" / "findings.md").read_text()
    for pair in PAIRS:
        assert f"| `{pair.rule}` | {pair.followed} |" in page
