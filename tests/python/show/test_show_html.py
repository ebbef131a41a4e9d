"""The self-contained page and the frame: their policy, data blocks and limits."""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path

import hloscope as hs
import pytest
from hloscope.show import blocks, html, static

HLO = """HloModule jit_step

ENTRY %main (x: f32[4]) -> f32[4] {
  %x = f32[4]{0} parameter(0)
  ROOT %y = f32[4]{0} tanh(%x), metadata={op_name="</script><script>alert(1)</script>"}
}
"""


@pytest.fixture
def capture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> hs.Capture:
    """A read program, and a stand-in for the built renderer."""
    (tmp_path / "explorer.js").write_text('let a = "</script><!-- <script>"; // end\n')
    monkeypatch.setattr(static, "STATIC", tmp_path)
    static._bundle.cache_clear()
    source = tmp_path / 'a&b"<i>.hlo'
    source.write_text(HLO)
    yield hs.read(source)
    static._bundle.cache_clear()


class Elements(HTMLParser):
    """Start tags with attributes, and what each script holds."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self._in: dict[str, str | None] | None = None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self._in = dict(attrs)
            self.scripts.append((self._in, ""))

    def handle_endtag(self, tag: str) -> None:
        if tag == "script":
            self._in = None

    def handle_data(self, data: str) -> None:
        if self._in is not None:
            attrs, text = self.scripts[-1]
            self.scripts[-1] = (attrs, text + data)


def sha256(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def test_the_policy_allows_loader_and_renderer_and_nothing_else(capture: hs.Capture) -> None:
    page = Elements(html.page(capture))
    runs = [text for attrs, text in page.scripts if "type" not in attrs]
    assert len(runs) == 1
    (policy,) = [a["content"] for t, a in page.tags if t == "meta" and "http-equiv" in a]
    assert policy is not None
    assert policy.startswith("default-src 'none'; ")
    blocks = {a["id"]: text for a, text in page.scripts if "type" in a}
    code = gzip.decompress(base64.b64decode(blocks["hloscope-code"])).decode()
    assert code == static.page_script("explorer")
    assert f"script-src '{sha256(runs[0])}' '{sha256(code)}';" in policy
    assert "unsafe" not in policy
    assert "http" not in policy


def test_data_blocks_are_the_captures_bytes(capture: hs.Capture) -> None:
    page = Elements(html.page(capture))
    held = {a["id"]: text for a, text in page.scripts if "type" in a}
    assert base64.b64decode(held["hloscope-view"]) == blocks.view(capture)
    assert base64.b64decode(held["hloscope-analyses"]) == blocks.analyses(capture)
    assert base64.b64decode(held["hloscope-stages"]) == blocks.stages(capture)
    text = gzip.decompress(base64.b64decode(held["hloscope-text"]))
    assert b"tanh" in text
    chips = {a["data-chip"]: base64.b64decode(text) for a, text in page.scripts if "data-chip" in a}
    assert chips == blocks.chips(capture, html.CHIPS_LIMIT_BYTES)
    assert chips["h100"] == blocks.for_chip(capture, "h100")
    assert len(page.scripts) == 6 + len(chips), "nothing in the program opened a script"


def test_the_summary_is_there_without_scripts(capture: hs.Capture) -> None:
    text = html.page(capture)
    assert "<main><h1>jit_step</h1>" in text
    assert re.search(r"<pre>[^<]*instructions", text)
    assert "<i>" not in text, "the file's name is escaped"


def test_long_text_stays_out_and_the_page_says_why(capture: hs.Capture) -> None:
    page = Elements(html.page(capture, text_limit_bytes=10))
    names = [a["id"] for a, _ in page.scripts if "type" in a and "data-chip" not in a]
    assert names == ["hloscope-code", "hloscope-view", "hloscope-analyses", "hloscope-stages"]
    (element,) = [a for _, a in page.tags if a.get("id") == "hloscope"]
    assert "over this page's limit" in (element["data-no-text"] or "")


def test_the_frame_holds_the_whole_page(capture: hs.Capture) -> None:
    made = Elements(html.frame(capture))
    ((tag, attrs),) = made.tags
    assert tag == "iframe"
    assert "allow-scripts" in (attrs["sandbox"] or "")
    assert "allow-same-origin" not in (attrs["sandbox"] or "")
    assert attrs["srcdoc"] == html.page(capture)


def test_a_frame_over_its_limit_leaves_the_text_out(
    capture: hs.Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(html, "FRAME_LIMIT_BYTES", 3000)
    ((_, attrs),) = Elements(html.frame(capture)).tags
    inner = Elements(attrs["srcdoc"] or "")
    names = [a["id"] for a, _ in inner.scripts if "type" in a]
    assert names == ["hloscope-code", "hloscope-view", "hloscope-analyses"]


def test_options_reach_the_page(capture: hs.Capture) -> None:
    capture.display = {"colorBy": "bytes", "theme": "dark"}
    page = Elements(html.page(capture, options={"theme": "light"}))
    (element,) = [a for _, a in page.tags if a.get("id") == "hloscope"]
    assert element["data-options"] == '{"colorBy": "bytes", "theme": "light"}'


def test_a_missing_renderer_says_how_to_build_it(
    capture: hs.Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(static, "STATIC", tmp_path / "nowhere")
    with pytest.raises(static.RendererMissing, match="npm run build"):
        html.page(capture)


def test_a_ten_thousand_instruction_frame_stays_small(seeds: Path) -> None:
    """1.2 MB of notebook for seed 004 (9,679 instructions), text included."""
    if not (static.STATIC / "explorer.js").exists():
        pytest.skip("the renderer is not built (npm run build)")
    import json

    (source,) = seeds.glob("004_*")
    frame = html.frame(hs.read(source))
    assert "id=&quot;hloscope-text&quot;" in frame
    assert len(json.dumps(frame)) < 1_200_000
