"""DOT and SVG: what is drawn, and that no name can break out of a label."""

from __future__ import annotations

import re
import shutil
import xml.etree.ElementTree as ET

import hloscope as hs
import pytest
from hloscope import Capture
from hloscope.readers import read_modules
from hloscope.show import dot
from hloscope.show.dot import DotFailed, DotMissing, digraph, svg

needs_dot = pytest.mark.skipif(shutil.which("dot") is None, reason="no dot program")

EVIL = ["<b>bold</b>", '"], x -> y "', "back\\\\slash\\\\N\\\\l", "</script><img src=x>", "<&>"]


def hostile() -> Capture:
    lines = ["  %x = f32[4]{0} parameter(0)"]
    before = "x"
    for k, name in enumerate(EVIL):
        quoted = name.replace('"', '\\"')
        for n in range(4):
            meta = f'metadata={{op_name="jit(f)/{quoted}/tanh"}}'
            lines.append(f"  %a{k}.{n} = f32[4]{{0}} tanh(%{before}), {meta}")
            before = f"a{k}.{n}"
    lines.append(
        f'  ROOT %c = f32[4]{{0}} custom-call(%{before}), custom_call_target="<i>evil</i>"'
    )
    body = "\n".join(lines)
    text = f"HloModule m\n\nENTRY %main (x: f32[4]) -> f32[4] {{\n{body}\n}}\n"
    return Capture(read_modules(text)[0], title="<table><tr>")


def boxes(source: str) -> list[str]:
    return re.findall(r"^\t+([gif]\d+) \[", source, re.M)


def edges(source: str) -> set[tuple[str, str]]:
    return set(re.findall(r"^\t+(\w+) -> (\w+)", source, re.M))


def test_a_small_program_shows_every_box(compiled):
    capture = compiled("fori_matmul").capture
    source = digraph(capture).source
    assert source == digraph(capture).source
    assert "loop of f ×16" in source
    assert "matmul" in source


@pytest.mark.parametrize("limit", [6, 60])
def test_the_number_of_boxes_is_bounded(compiled, limit):
    source = digraph(compiled("gpt_unrolled").capture, max_nodes=limit).source
    assert len(boxes(source)) <= limit
    drawn = set(boxes(source))
    assert {end for edge in edges(source) for end in edge} <= drawn


def test_closed_boxes_are_groups_and_folds(compiled):
    capture = compiled("gpt_unrolled").capture
    closed = digraph(capture, max_nodes=16).source
    assert re.search(r'label="layer_\[0,1\] ×2\\n[\d,]+ instructions"', closed)
    opened = digraph(capture, max_nodes=16, open=["layer_[0,1]", "mlp"]).source
    assert len(boxes(opened)) > len(boxes(closed))


def test_edges_run_along_the_flow_and_are_not_implied(compiled):
    source = digraph(compiled("custom_rule").capture).source
    found = edges(source)
    following: dict[str, set[str]] = {}
    for a, b in found:
        following.setdefault(a, set()).add(b)

    def reaches(a: str, b: str, without: tuple[str, str]) -> bool:
        stack, seen = [a], set()
        while stack:
            at = stack.pop()
            for c in following.get(at, ()):
                if (at, c) == without or c in seen:
                    continue
                if c == b:
                    return True
                seen.add(c)
                stack.append(c)
        return False

    assert found
    assert not any(reaches(a, b, (a, b)) for a, b in found)


def test_an_edge_that_a_longer_path_implies_is_not_drawn():
    text = """HloModule m

ENTRY %main (x: f32[4]) -> f32[4] {
  %x = f32[4] parameter(0)
  %a = f32[4] tanh(%x)
  %b = f32[4] exponential(%a)
  ROOT %c = f32[4] atan2(%a, %b)
}
"""
    found = edges(digraph(hs.Capture(read_modules(text)[0])).source)
    assert found == {("i1", "i2"), ("i2", "i3")}  # and not from i1 to i3


@needs_dot
def test_hostile_names_stay_text():
    page = svg(hostile())
    root = ET.fromstring(page)
    tags = {e.tag.rpartition("}")[2] for e in root.iter()}
    assert tags <= {"svg", "g", "title", "path", "polygon", "polyline", "text", "ellipse", "a"}
    shown = {"".join(e.itertext()) for e in root.iter() if e.tag.endswith("}text")}
    assert "<b>bold</b>" in shown
    assert '"], x -> y "' in shown
    assert "back\\slash\\N\\l" in shown
    assert "<table><tr>" in shown
    assert "<i>evil</i>" in shown


def test_html_like_labels_are_never_written():
    source = digraph(hostile()).source
    assert not re.search(r"label=<", source)


def test_without_the_program_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    capture = hostile()
    with pytest.raises(DotMissing, match=r"install it \(apt install graphviz"):
        svg(capture)
    assert "digraph" in digraph(capture).source


@needs_dot
@pytest.mark.parametrize("where", ["module", "op_name", "instruction"])
def test_names_of_100_000_characters_are_cut(where):
    """dot takes no string over 16 kB, and ends; its broken pipe was taken for a closed stdout."""
    long = {name: name for name in ("module", "op_name", "instruction")} | {where: "x" * 100_000}
    text = (
        f"HloModule {long['module']}\n\nENTRY main {{\n  a = f32[4]{{0}} parameter(0)\n"
        f"  {long['instruction']} = f32[4]{{0}} tanh(a), "
        f'metadata={{op_name="jit(f)/{long["op_name"]}/tanh"}}\n'
        f'  ROOT r = f32[4]{{0}} custom-call({long["instruction"]}), custom_call_target="x"\n}}\n'
    )
    picture = svg(hs.read(text))
    assert ET.fromstring(picture).tag.endswith("svg")
    assert max(len(line) for line in picture.splitlines()) < 4000


@needs_dot
def test_a_dot_that_gives_up_is_an_error_in_its_own_words(monkeypatch, tmp_path, capsys):
    from hloscope.show.cli import main

    monkeypatch.setattr(dot, "MAX_LABEL", 10**9)
    monkeypatch.setattr(dot, "_cut", lambda text, most=0: "x" * 100_000)
    with pytest.raises(DotFailed, match="dot ended with status 1: Error: <stdin>: syntax error"):
        svg(hostile())
    file = tmp_path / "m.hlo"
    file.write_text("HloModule m\n\nENTRY e {\n  ROOT a = f32[] parameter(0)\n}\n")
    assert main(["svg", str(file), "-o", str(tmp_path / "m.svg")]) == 2
    assert "syntax error" in capsys.readouterr().err
    assert not (tmp_path / "m.svg").exists()
