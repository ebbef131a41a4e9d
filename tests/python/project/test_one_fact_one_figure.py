"""No fact of a program has two values: in tables, on cards, on the page, in JSON, in a budget.

Over all kept programs; ``python benchmarks/one_fact.py FOLDER`` takes any dumps.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import facts_everywhere
import figures_everywhere
import hloscope as hs
import pytest
from kept_captures import FOLDER, load

FILES = sorted([*FOLDER.glob("*.capture.gz"), *FOLDER.glob("*.hlo.gz")])


def opened(kept: Path, chip: str = "tpu-v5e") -> Any:
    cap = hs.read(kept) if kept.name.endswith(".hlo.gz") else load(kept)
    cap.hardware = chip
    return cap


@pytest.mark.parametrize("kept", FILES, ids=lambda p: p.name.removesuffix(".gz"))
def test_one_fact_is_said_in_one_way(kept: Path) -> None:
    cap = opened(kept)
    facts = facts_everywhere.said(cap)
    assert facts_everywhere.differing(facts) == {}
    assert sum(map(len, facts.values())) > 15
    assert figures_everywhere.differing(figures_everywhere.told(cap)) == {}


def test_there_are_programs_enough() -> None:
    assert len(FILES) >= 60


@pytest.mark.parametrize("chip", ["tpu-v5p", "h100", "cpu"])
def test_on_another_chip_too(chip: str) -> None:
    for kept in FILES[::6]:
        cap = opened(kept, chip)
        assert facts_everywhere.differing(facts_everywhere.said(cap)) == {}, kept.name
        assert figures_everywhere.differing(figures_everywhere.told(cap)) == {}, kept.name


def test_the_oracle_notices() -> None:
    facts = {"step": {"headline": "1 ms", "cost": "1 ms", "page": "2 ms"}, "chip": {"a": "x"}}
    assert facts_everywhere.differing(facts).keys() == {"step"}
