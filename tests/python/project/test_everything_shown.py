"""Small real programs as pages of text: what changes is seen in a review, and meant.

    HLOSCOPE_ACCEPT=1 python -m pytest tests/python/project/test_everything_shown.py  accepts

Each of these programs has something that few others have: loops in loops, branches, halos, a ring
of permutes, remat, ragged products, gathers of a table over devices. Captures know what a dump
does not: arguments, a mesh, where instructions come from. What the figures *should* be
is for the tests of their subjects; here nothing may change without a word.
"""

from __future__ import annotations

import os
from pathlib import Path

import hloscope as hs
import pytest
from everything_shown import dumped, everything
from hloscope.analysis.grouping.groups import group_tree
from kept_captures import FOLDER, load
from program_page import assert_same, page

FILES = sorted([*FOLDER.glob("*.capture.gz"), *FOLDER.glob("*.hlo.gz")])
PROTOS = sorted(FOLDER.glob("*.pb.gz"))


@pytest.mark.parametrize("kept", FILES, ids=lambda p: p.name.removesuffix(".gz"))
def test_a_program_shows_what_its_page_says(kept: Path) -> None:
    cap = hs.read(kept) if kept.name.endswith(".hlo.gz") else load(kept)
    cap.hardware = "tpu-v5e"
    now = page(cap)
    path = kept.with_name(f"{kept.name.removesuffix('.gz').partition('.')[0]}.txt")
    if kept.name.endswith(".capture.gz") and kept.with_name(path.stem + ".hlo.gz").exists():
        path = path.with_name(f"{path.stem}.capture.txt")
    if os.environ.get("HLOSCOPE_ACCEPT"):
        path.write_text(now, "utf-8")
    assert_same(path.read_text("utf-8") if path.exists() else "", now)


@pytest.mark.parametrize("kept", FILES, ids=lambda p: p.name.removesuffix(".gz"))
def test_only_what_is_computed_again_is_called_so(kept: Path) -> None:
    cap = hs.read(kept) if kept.name.endswith(".hlo.gz") else load(kept)
    again = any("remat" in i.op_name or ".remat" in i.name for i in cap.module.instructions)
    labels = group_tree(cap.module, cap.target).label
    assert again or not [name for name in labels if name.startswith("recomputed")]


@pytest.mark.parametrize("proto", PROTOS, ids=lambda p: p.name.removesuffix(".pb.gz"))
def test_a_proto_shows_what_its_text_shows(proto: Path) -> None:
    text = proto.with_name(proto.name.replace(".pb.", ".hlo."))
    found = [hs.read(path, hardware="tpu-v5e") for path in (proto, text)]
    assert found[0].module.instructions
    shown = ([line for line in everything(c) if not line.startswith("subtitle")] for c in found)
    assert_same(*("\n".join(lines) for lines in shown))
    read = (dumped(c.module)[1:] for c in found)  # the head's options differ
    assert_same(*("\n".join(lines) for lines in read))
