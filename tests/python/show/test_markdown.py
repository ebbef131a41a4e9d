"""Markdown for pull requests: what a reader of GitHub's dialect makes of it."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import hloscope as hs
import pytest
from hloscope.show.cli import main

TWO_DEVICES = """HloModule step, is_scheduled=true, num_partitions=2

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

ENTRY main_spmd {
  x = f32[1024,1024]{1,0} parameter(0), sharding={devices=[2,1]<=[2]}
  d = f32[1024,1024]{1,0} dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="jit(step)/dot_general" source_file="/a/train.py" source_line=7}
  ROOT r = f32[1024,1024]{1,0} all-reduce(d), replica_groups={{0,1}}, to_apply=add
}
"""  # noqa: E501
# Each would act if it were taken for Markdown: as HTML, a mention, a link, a table, a new block.
HOSTILE = (
    "<img src=x onerror=alert(1)>",
    "@everyone `@team` see #1 and GH-1",
    "[click](javascript:alert(1)) ![i](https://evil.example/x.png)",
    "https://evil.example www.evil.example a@evil.example",
    "</details> **bold** _it_ | cell | ~~gone~~ $x$",
    "``` ` ``",
    "- item",
    "# head",
    "1. one",
    "> quote",
    "&lt;b&gt; \\<b> \\` \\|",
)


class Page(HTMLParser):
    """Tags, text, and text outside code, of rendered Markdown."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.plain: list[str] = []  # text nodes outside code
        self._in_code = 0
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)
        self._in_code += tag == "code"

    def handle_endtag(self, tag: str) -> None:
        self._in_code -= tag == "code"

    def handle_data(self, data: str) -> None:
        self.text += data
        if not self._in_code:
            self.plain.append(data)


def rendered(text: str) -> Page:
    markdown_it = pytest.importorskip("markdown_it", reason="markdown-it-py is not installed")
    parser = markdown_it.MarkdownIt("gfm-like", {"linkify": False, "html": True})
    return Page(parser.render(text))


def flat(text: str) -> str:
    return re.sub(r"\s+", " ", text)


@pytest.fixture
def cap() -> hs.Capture:
    return hs.read(TWO_DEVICES, hardware="tpu-v5e")


def test_a_report_says_what_the_results_say(cap: hs.Capture) -> None:
    page = rendered(cap.to_markdown())
    said = flat(page.text)
    assert str(cap.findings.headline) in said
    assert len(cap.findings)
    for finding in cap.findings:
        for sentence in (finding.title, finding.evidence, finding.advice, finding.line):
            assert flat(sentence).replace("`", "") in said
    assert page.tags.count("details") == 3
    assert page.tags.count("table") == 4
    cells = page.tags.count("td")
    assert cells > 0
    assert "4 MiB" in said  # of the all-reduce: 1024 × 1024 × 4 B
    assert "train.py:7" in said


@pytest.mark.parametrize("name", HOSTILE)
def test_names_are_nothing_but_text(name: str) -> None:
    quoted = name.replace("\\", "\\\\").replace('"', '\\"')
    text = TWO_DEVICES.replace("/a/train.py", quoted).replace(
        "jit(step)/dot_general", f"jit(step)/{quoted}/dot_general"
    )
    hostile = hs.read(text, hardware="tpu-v5e")
    hostile.title = name
    healthy = hs.read(TWO_DEVICES, hardware="tpu-v5e")
    found = (
        (hostile.to_markdown(), healthy.to_markdown()),
        (hs.diff(healthy, hostile).to_markdown(), hs.diff(healthy, healthy).to_markdown()),
    )
    allowed = {"h3", "p", "br", "ol", "ul", "li", "strong", "code", "details", "summary", "table",
               "thead", "tbody", "tr", "th", "td"}  # fmt: skip
    for text, same in found:
        page = rendered(text)
        assert flat(name).strip() in flat(page.text)
        assert set(page.tags) <= allowed
        for tag in ("h3", "strong", "details", "td", "ol", "table") if "<td>" in same else ("h3",):
            assert page.tags.count(tag) == rendered(same).tags.count(tag), tag
        for piece in page.plain:  # a text node that GitHub would turn into a link
            assert not re.search(r"@\w|https?://|www\.|#\d|GH-\d", piece), piece


def test_folds_beyond_five_findings(cap: hs.Capture) -> None:
    from dataclasses import replace

    many = replace(cap.findings, rows=cap.findings.rows * 7)
    cap.for_hosts.answers["findings"] = many
    page = rendered(cap.to_markdown())
    assert f"{len(many) - 5} more findings" in page.text
    assert page.tags.count("ol") == 2


def test_a_stage_without_figures_says_so() -> None:
    text = "module @m {\n  func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> {\n"
    text += "    return %a : tensor<4xf32>\n  }\n}\n"
    said = hs.read(text).to_markdown()
    assert "### m" in said
    assert "details" not in said
    assert said.count("need HLO") == 1


def test_a_difference_says_what_changed(cap: hs.Capture) -> None:
    wide = hs.read(TWO_DEVICES.replace("1024", "2048"), hardware="tpu-v5e")
    found = hs.diff(cap, wide)
    page = rendered(found.to_markdown())
    said = flat(page.text)
    wire = next(d for d in found.totals if d.name == "wire bytes")
    assert (wire.a, wire.b) == (4 << 20, 16 << 20)
    assert "wire bytes 4 MiB 16 MiB +12 MiB (+300.0%)" in said.replace("\n", " ")
    assert "No difference" in hs.diff(cap, cap).to_markdown()


def test_new_findings_stand_out(cap: hs.Capture) -> None:
    alone = hs.read(TWO_DEVICES.replace("all-reduce(d), replica_groups={{0,1}}, to_apply=add",
                                        "negate(d)"), hardware="tpu-v5e")  # fmt: skip
    rules = {f.rule for f in cap.findings} - {f.rule for f in alone.findings}
    assert rules
    said = hs.diff(alone, cap).to_markdown()
    back = hs.diff(cap, alone).to_markdown()
    titles = [f.title for f in cap.findings if f.rule in rules]
    assert "New findings" in said
    assert "No longer found" in back
    for title in titles:
        for text in (said, back):
            assert flat(title).replace("`", "") in flat(rendered(text).text)


def test_the_command_prints_both(
    cap: hs.Capture, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = tmp_path / "a.hlo", tmp_path / "b.hlo"
    a.write_text(TWO_DEVICES)
    b.write_text(TWO_DEVICES.replace("1024", "2048"))
    assert main(["report", str(a), "--hardware", "tpu-v5e"]) in (0, None)
    alone = capsys.readouterr().out
    assert alone == hs.read(a, hardware="tpu-v5e").to_markdown()
    assert main(["report", str(a), str(b), "--hardware", "tpu-v5e"]) in (0, None)
    both = capsys.readouterr().out
    second = hs.read(b, hardware="tpu-v5e")
    assert both.startswith(hs.diff(hs.read(a, hardware="tpu-v5e"), second).to_markdown())
    assert both.endswith(second.to_markdown())
    assert main(["report", str(a), "-o", str(tmp_path / "a.md")]) in (0, None)
    assert (tmp_path / "a.md").read_text() == hs.read(a).to_markdown()
    json.dumps(both)
