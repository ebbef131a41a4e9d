"""The table of collectives: those that are alike are one row, and its card adds them up."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import hloscope as hs

if TYPE_CHECKING:
    from playwright.sync_api import Page

LAYER = """  %t{n} = f32[512,512]{{1,0}} tanh(%r{m}), metadata={{op_name="jit(f)/layer_{n}/tanh"}}
  %r{n} = f32[512,512]{{1,0}} all-reduce(%t{n}), channel_id={n}, replica_groups=[1,8]<=[8], \
use_global_device_ids=true, to_apply=%sum, metadata={{op_name="jit(f)/layer_{n}/psum" \
source_file="f.py" source_line=7}}
"""
MODULE = """HloModule m, is_scheduled=true, num_partitions=8

%sum (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %add = f32[] add(%a, %b)
}

ENTRY %main (r0: f32[512,512]) -> f32[512,512] {
  %r0 = f32[512,512]{1,0} parameter(0)
LAYERS  ROOT %out = f32[512,512]{1,0} negate(%r4)
}
"""


def test_the_card_of_a_folded_row_is_of_all_of_them(
    open_page: Callable[..., Page], page_errors: list[str], renderer: Path, tmp_path: Path
) -> None:
    layers = "".join(LAYER.format(n=n, m=n - 1) for n in range(1, 5))
    cap = hs.read(MODULE.replace("LAYERS", layers))
    assert cap.warnings == ()
    cap.hardware = "tpu-v5e"
    cap.to_html(tmp_path / "page.html")
    page = open_page((tmp_path / "page.html").as_uri(), width=1500, height=1000)
    page.get_by_role("tab", name="Collectives", exact=True).click(timeout=30_000)
    row = page.locator(".collective-row[data-collective]")
    assert row.count() == 1
    assert "all-reduce ×4" in row.inner_text()
    each = cap.collectives[0].total_wire_bytes
    assert each == 1_835_008  # 2 (8 - 1) / 8 of 1 MiB
    facts = page.locator(".card .facts").first.inner_text()
    assert "1.75 MiB per device and execution, 7 MiB in all" in facts
    assert "1 execution each" in facts
    assert page_errors == []
