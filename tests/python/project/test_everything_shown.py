"""Every figure and name of small real programs against goldens: what changes is seen and meant.

    HLOSCOPE_ACCEPT=1 python -m pytest tests/python/project/test_everything_shown.py  accepts

Each of these programs has something that few others have: loops in loops, branches, halos, a ring
of permutes, remat, ragged products, gathers of a table over devices. Captures know what a dump
does not: arguments, a mesh, where instructions come from. What the figures *should* be
is for the tests of their subjects; here nothing may change without a word.
"""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import hloscope as hs
import pytest
from everything_shown import assert_same, dumped, everything
from kept_captures import FOLDER, load

FILES = sorted([*FOLDER.glob("*.capture.gz"), *FOLDER.glob("*.hlo.gz")])
PROTOS = sorted(FOLDER.glob("*.pb.gz"))


@pytest.mark.parametrize("kept", FILES, ids=lambda p: p.name.removesuffix(".gz"))
def test_nothing_changes_without_a_word(kept: Path) -> None:
    cap = hs.read(kept) if kept.name.endswith(".hlo.gz") else load(kept)
    cap.hardware = "tpu-v5e"
    now = [*everything(cap), *in_other_dialects(cap), ""]
    path = kept.with_name(f"{kept.name.partition('.')[0]}.shown.gz")
    before = gzip.decompress(path.read_bytes()).decode().split("\n") if path.exists() else []
    if os.environ.get("HLOSCOPE_ACCEPT"):
        if now != before:
            path.write_bytes(gzip.compress("\n".join(now).encode(), 9, mtime=0))
        return
    assert_same(before, now)


def in_other_dialects(cap: hs.Capture) -> list[str]:
    """What was read of the text itself, of its StableHLO and of dumps around the partitioner."""
    modules = {"": cap.module}
    if cap.target.before_partitioning is not None:
        modules |= {"stablehlo": cap.at("stablehlo").module}
        modules |= {"before": cap.target.before_partitioning()}
    return [f"read {name} {line}" for name, m in modules.items() if m for line in dumped(m)]


@pytest.mark.parametrize("proto", PROTOS, ids=lambda p: p.name.removesuffix(".pb.gz"))
def test_a_proto_shows_what_its_text_shows(proto: Path) -> None:
    text = proto.with_name(proto.name.replace(".pb.", ".hlo."))
    found = [hs.read(path, hardware="tpu-v5e") for path in (proto, text)]
    assert found[0].module.instructions
    told = ([line for line in everything(c) if not line.startswith("subtitle")] for c in found)
    assert_same(*told)
    assert_same(*(dumped(c.module)[1:] for c in found))  # the head's options differ
