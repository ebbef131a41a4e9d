"""Bytes in sentences have the unit that a person reads: 768 MiB, never 805,306,368 B."""

from __future__ import annotations

import re
from pathlib import Path

import hloscope as hs
import pytest
from advice_pairs import PAIRS, Pair
from kept_captures import FOLDER, load

FILES = sorted([*FOLDER.glob("*.capture.gz"), *FOLDER.glob("*.hlo.gz")])
# A count of bytes with five digits or more; a bracket behind a figure with its unit may be exact.
_RAW = re.compile(r"(?<![\d,.])\d(?:\d{4,}|[\d,]{5,}) ?(?:B|bytes?)\b")


def sentences(cap: hs.Capture) -> list[str]:
    found = [t for f in cap.findings for t in (f.title, f.evidence, f.advice, f.at_stake)]
    checked = hs.check(cap, max_peak="1KiB", max_wire_bytes="1KiB", forbid="findings")
    return [*found, str(cap.findings.headline), str(checked), *map(str, cap.warnings)]


def without_units(cap: hs.Capture) -> list[str]:
    return [s for s in sentences(cap) if _RAW.search(s)]


@pytest.mark.parametrize("kept", FILES, ids=lambda p: p.name.removesuffix(".gz"))
def test_no_kept_program_has_a_sentence_with_a_raw_count_of_bytes(kept: Path) -> None:
    cap = hs.read(kept) if kept.name.endswith(".hlo.gz") else load(kept)
    cap.hardware = "tpu-v5e"
    assert without_units(cap) == []


@pytest.mark.some(12)
@pytest.mark.parametrize(
    "pair", [p for p in PAIRS if p.platform == "cpu"], ids=lambda p: p.followed
)
def test_no_finding_has_a_raw_count_of_bytes(pair: Pair) -> None:
    assert without_units(pair.make(False)) == []
