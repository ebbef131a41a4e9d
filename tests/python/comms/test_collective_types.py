"""Element types of collectives: in rows, text, tables, reports and answers."""

from __future__ import annotations

import hloscope as hs
import pytest

HLO = """HloModule m, num_partitions=4

add16 { a = bf16[] parameter(0)
  b = bf16[] parameter(1)
  ROOT s = bf16[] add(a, b) }
add32 { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b) }

ENTRY e {
  p = bf16[1024]{0:T(1024)(128)(2,1)} parameter(0)
  q = f32[256] parameter(1)
  g = bf16[1024] all-reduce(p), replica_groups={{0,1,2,3}}, to_apply=add16
  l = f32[256] all-reduce(q), replica_groups={{0,1,2,3}}, to_apply=add32
  both = (bf16[1024], f32[256]) all-reduce(g, l), replica_groups={{0,1,2,3}}, to_apply=add32
  g2 = bf16[1024] get-tuple-element(both), index=0
  w = bf16[4096] all-gather(g2), dimensions={0}, replica_groups={{0,1,2,3}}
  s = s8[64] parameter(2)
  moved = s8[64] collective-permute(s), source_target_pairs={{0,1}}
  ROOT t = (bf16[4096], s8[64]) tuple(w, moved)
}
"""


@pytest.fixture(scope="module")
def cap() -> hs.Capture:
    return hs.read(HLO)


def test_rows_have_their_types(cap: hs.Capture) -> None:
    found = {c.name: c.element_types for c in cap.collectives}
    assert found == {"g": "bf16", "l": "f32", "both": "bf16+f32", "w": "bf16", "moved": "s8"}
    combined = cap.collectives.find("both")
    assert [p.element_type for p in combined.parts] == ["bf16", "f32"]
    row = combined.to_dict()
    assert row["element_types"] == "bf16+f32"
    assert [p["element_type"] for p in row["parts"]] == ["bf16", "f32"]
    pandas = pytest.importorskip("pandas")
    frame = cap.collectives.to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame["element_types"]) == ["bf16", "f32", "bf16+f32", "bf16", "s8"]


def test_reductions_by_type(cap: hs.Capture) -> None:
    """An all-reduce on four devices sends 2 · 3/4 of its payload. Gathers reduce nothing."""
    found = {t.key[0]: t.wire_bytes for t in cap.collectives.reductions_by_type}
    assert found == {"bf16": 3072, "f32": 1536, "bf16+f32": 4608}
    text = str(cap.collectives)
    assert "reductions by type, wire per device: bf16+f32 4.5 KiB, bf16 3 KiB, f32 1.5 KiB" in text
    lines = text.splitlines()
    assert lines[1].split()[:3] == ["kind", "axes", "type"]
    assert any(line.startswith("all-gather") and "  bf16  " in line for line in lines)


def test_one_type_needs_no_sums() -> None:
    text = str(
        hs.read(HLO.replace("f32[", "bf16[").replace("{0:T(1024)(128)(2,1)}", "")).collectives
    )
    assert "reductions by type" not in text


def test_reports_say_the_type(cap: hs.Capture) -> None:
    rows = [r.split("|") for r in cap.to_markdown().splitlines() if r.startswith("| `all-")]
    assert {(r[1].strip(), r[3].strip()) for r in rows} == {
        ("`all-reduce`", "bf16"), ("`all-reduce`", "f32"), ("`all-reduce`", "bf16+f32"),
        ("`all-gather`", "bf16"),
    }  # fmt: skip
