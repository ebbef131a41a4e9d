"""Instructions followed through all passes, and the picture of them all."""

from __future__ import annotations

import base64
import gzip
import json
import re
import struct
from pathlib import Path
from typing import Any

import hloscope as hs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from corpus.by_hand import write_passes
from hloscope.analysis.passes.follow import follow
from hloscope.analysis.passes.passes import Passes, passes
from hloscope.analysis.passes.steps import LAYOUT, OPERANDS, RENAMED, RESULT, USERS, PassNode
from hloscope.analysis.passes.union import union
from hloscope.readers.files.pass_dump import read_passes
from hloscope.readers.hlo.pass_lines import Reader
from hloscope.show import blocks
from hloscope.show.cli import main
from hloscope.show.notebook.pass_job import PassJobs
from hloscope.view import passes as view_passes


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_passes(tmp_path_factory.mktemp("by_hand"))


@pytest.fixture(scope="module")
def found(folder: Path) -> Passes:
    return passes(read_passes(folder))


def by_name(found: Passes, name: str) -> PassNode:
    steps = found.steps
    return next(n for n in steps.nodes if steps.versions[n.versions[0]].line.name == name)


def test_a_change_is_told_of_the_pass_that_made_it(found: Passes) -> None:
    names = [r.title for r in found.rows]
    assert names == [
        "before any pass", "algsimp", "dce", "shardy-xla", "layout-assignment", "fusion",
    ]  # fmt: skip
    assert "something-else" not in names, "it ran, but changed nothing"


def test_what_stays_is_one_instruction_through_all_passes(found: Passes) -> None:
    steps = found.steps
    dot = by_name(found, "dot.1")
    assert (dot.first, dot.last) == (0, len(found))
    lines = [steps.versions[v] for v in dot.versions]
    assert [v.row for v in lines] == [0, 1, 3, 4]
    assert [v.changed & (OPERANDS | LAYOUT | RENAMED) for v in lines[1:]] == [
        OPERANDS, RENAMED, LAYOUT,
    ]  # fmt: skip
    assert steps.name(dot) == "dot_general.5"
    for row in found.rows:
        alive = sum(n.first <= row.index < n.last for n in steps.nodes)
        assert alive == row.counts["instructions"]


def test_what_took_whose_place(found: Passes) -> None:
    steps = found.steps
    links = {(x.row, steps.name(steps.nodes[x.old]), steps.name(steps.nodes[x.new])): x.how
             for x in steps.links}  # fmt: skip
    assert links[5, "neg.9", "tanh_neg_fusion"] == RESULT
    assert (1, "scaled", "x.0") not in links, "scaled is still there, unused, until dce"
    tanh = by_name(found, "tanh.20")
    assert any(steps.nodes[x.old] is by_name(found, "tanh.1") and x.new == tanh.index
               for x in steps.links)  # fmt: skip
    users = [x for x in steps.links if x.how == USERS]
    assert all(x.old != x.new for x in users)


def test_the_text_of_a_pass_is_a_difference(found: Passes) -> None:
    steps = found.steps
    [(place, lines)] = steps.diffs[4]
    assert steps.places[place].entry
    told = [(kind, steps.versions[v].line.text) for kind, v in lines if kind != " "]
    assert [k for k, _ in told] == ["-", "+", "+", "-", "+"]
    assert told[2][1] == "%copy.3 = f32[8,8]{1,0} copy(%dot_general.5)"
    assert all("metadata" not in text for _, text in told)


def test_one_picture_holds_every_instruction_once(found: Passes) -> None:
    module, order = union(found.steps, "jit_step")
    assert sorted(order) == list(range(len(found.steps.nodes)))
    assert [i.index for i in module.instructions] == list(range(len(order)))
    fusion = module.find("tanh_neg_fusion")
    assert fusion is not None
    assert [c.name for c in fusion.called_computations] == ["fused_computation"]
    assert module.entry is not None
    assert module.entry.root is fusion


def header_of(block: bytes) -> dict[str, Any]:
    raw = gzip.decompress(block)
    size = struct.unpack_from("<I", raw, 8)[0]
    return dict(json.loads(raw[12 : 12 + size]))


def test_the_block_says_what_the_timeline_shows(folder: Path) -> None:
    cap = hs.read(folder)
    assert cap.has_passes
    rows = header_of(blocks.passes(cap))["extras"]["passes"]["rows"]
    assert [r["title"] for r in rows][1] == "algsimp"
    assert rows[2]["removed"] == 3
    assert rows[2]["change"]["instructions"] == -3
    assert rows[3]["renamed"] == 5
    assert rows[4]["added"] == 1
    assert rows[4]["change"]["copies"] == 1
    assert rows[1]["cost"] is None, "not worked out yet"
    assert view_passes.work_out(cap.passes(), cap.target) == ""
    cost = header_of(blocks.passes(cap))["extras"]["passes"]["rows"][5]["cost"]
    assert cost["flops"] == 8 * 8 * 8 * 2 + 64
    assert cost["peak_bytes"] > 0
    assert rows[5]["about"]


def test_a_page_says_that_figures_of_too_many_are_left_out(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view_passes, "MOST_COSTED", 10)
    page = hs.read(folder).html(passes=True)
    monkeypatch.setattr(view_passes, "MOST_COSTED", 10_000)
    block = lambda text: re.search(  # noqa: E731
        r'id="hloscope-passes"[^>]*>([^<]+)<', str(text)
    )[1]
    notes = [
        header_of(base64.b64decode(block(p)))["extras"]["passes"]["note"]
        for p in (page, hs.read(folder).html(passes=True))
    ]
    assert "over the 10 that they are worked out for" in notes[0]
    assert notes[1] == ""


def test_figures_of_an_uncut_program_are_told_to_be_of_all_devices(folder: Path) -> None:
    found = passes(read_passes(folder))
    assert found.cost(1)["shapes"] == "local"
    text = found.text(0).replace("HloModule jit_step", "HloModule jit_step, num_partitions=4")
    sharded = text.replace("parameter(0)", "parameter(0), sharding={devices=[4,1]<=[4]}")
    from dataclasses import replace

    from hloscope.readers import read_modules

    whole = replace(found.snapshots[0], module=lambda: read_modules(sharded)[0])
    assert Passes(found.rows[:1], (whole,)).cost(0)["shapes"] == "global"


def test_pages_carry_passes_only_when_asked(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    cap = hs.read(folder)
    assert 'id="hloscope-passes"' not in cap.html()
    assert 'id="hloscope-passes"' in cap.html(passes=True)
    out = tmp_path / "p.html"
    assert main(["html", str(folder), "--passes", "-o", str(out)]) == 0
    assert "the passes take" in capsys.readouterr().err
    from hloscope.show.html import page

    small = page(cap, passes=True, passes_limit_bytes=10)
    assert 'id="hloscope-passes"' not in small
    assert "over this page" in small
    monkeypatch.setattr(view_passes, "MOST_NODES", 3)
    assert "the 3 that a picture is made of" in page(cap, passes=True)
    one = folder / "module_0001.jit_step.before_optimizations.txt"
    assert main(["html", str(one), "--passes", "-o", str(tmp_path / "q.html")]) == 2
    assert "holds no passes" in capsys.readouterr().err


def test_lines_are_read_whatever_stands_in_them() -> None:
    text = (
        "HloModule m\n\nENTRY %e (p: (f32[2]{0:T(8,128)}, s32[])) -> f32[2] {\n"
        "  %p = (f32[2]{0:T(8,128)}, /*index=1*/s32[]) parameter(0)\n"
        '  %c = f32[2]{0} custom-call(%p), custom_call_target="a(b", metadata={op_name="x)y{"}\n'
        '  ROOT %k = f32[2]{0} custom-call(%c), backend_config="two\nlines", api_version=1\n}\n'
    )
    [body] = Reader().read(text)
    assert [(x.name, x.opcode, x.operands) for x in body.lines] == [
        ("p", "parameter", ()), ("c", "custom-call", ("p",)), ("k", "custom-call", ("c",)),
    ]  # fmt: skip
    assert body.lines[1].op_name == "x)y{"
    assert body.lines[1].attributes == 'custom_call_target="a(b"'
    assert body.lines[0].dense == "(f32[2], /*index=1*/s32[])"
    assert body.lines[2].root


ANEW = """HloModule m
ENTRY main {{
  {0} = f32[4]{{0}} parameter(0)
  {1} = f32[4]{{0}} tanh({0}), metadata={{op_name="f/tanh"}}
  {2} = f32[4]{{0}} cosine({1}), metadata={{op_name="f/cos"}}
  {3} = f32[4]{{0}} negate({2}), metadata={{op_name="f/neg"}}
  ROOT {4} = f32[4]{{0}} exponential({3}), metadata={{op_name="f/exp"}}
}}
"""


def test_a_name_that_something_else_has_now_is_not_followed() -> None:
    """A pass that writes the whole module anew gives out names again."""
    texts = [ANEW.format("x", "a", "b", "c", "d"), ANEW.format("p", "b", "q", "r", "s")]
    steps = follow([lambda text=text: text for text in texts])
    opcodes = [
        {steps.versions[v].line.opcode for v in node.versions} for node in steps.nodes
    ]  # fmt: skip
    assert sorted(map(sorted, opcodes)) == [
        ["cosine"], ["exponential"], ["negate"], ["parameter"], ["tanh"],
    ]  # fmt: skip


REDUCERS = """HloModule m
%{0} ({4}.1: f32[], {4}.2: f32[]) -> f32[] {{
  %{4}.1 = f32[] parameter(0)
  %{4}.2 = f32[] parameter(1)
  ROOT %{4}.3 = f32[] {1}(%{4}.1, %{4}.2), metadata={{op_name="f/{1}"}}
}}

%{2} ({5}.1: f32[], {5}.2: f32[]) -> f32[] {{
  %{5}.1 = f32[] parameter(0)
  %{5}.2 = f32[] parameter(1)
  ROOT %{5}.3 = f32[] {3}(%{5}.1, %{5}.2), metadata={{op_name="f/{3}"}}
}}

ENTRY %main (x: f32[8]) -> f32[] {{
  %x{6} = f32[8]{{0}} parameter(0)
  %zero{6} = f32[] constant(0)
  %sum{6} = f32[] reduce(%x{6}, %zero{6}), dimensions={{0}}, to_apply=%{0}
  ROOT %most{6} = f32[] reduce(%x{6}, %sum{6}), dimensions={{0}}, to_apply=%{2}
}}
"""


@pytest.mark.parametrize(
    "after",
    [
        # all is written anew, and the names of the two are given out the other way round
        ("region_1", "add", "region_0", "maximum", "u", "v", ".9"),
        # the same, and by chance the names within are those of before
        ("region_1", "add", "region_0", "maximum", "b", "a", ".9"),
        ("region_0", "add", "region_1", "maximum", "u", "v", ".9"),
        ("region_0", "add", "region_1", "maximum", "a", "b", ""),
    ],
)  # fmt: skip
def test_a_computation_is_not_followed_by_a_name_that_another_has_now(
    after: tuple[str, ...],
) -> None:
    before = ("region_0", "add", "region_1", "maximum", "a", "b", "")
    texts = [REDUCERS.format(*before), REDUCERS.format(*after)]
    steps = follow([lambda text=text: text for text in texts])
    assert len(steps.places) == 3, "nothing is gone, nothing is new"
    for place in steps.places:
        found = {
            steps.versions[v].line.opcode for n in place.order for v in steps.nodes[n].versions
        }
        assert len(found & {"add", "maximum"}) <= 1, (place.name, found)
    names = {p.name: [n for _, n in p.renames] for p in steps.places if not p.entry}
    assert names[after[0]][0] == "region_0"
    assert names[after[2]][0] == "region_1"


def test_a_computation_that_a_pass_replaced_by_another_of_its_name_ends() -> None:
    """One computation only, in a module that else stays as it is."""
    before = ("region_0", "add", "region_1", "maximum", "a", "b", "")
    texts = [REDUCERS.format(*before), REDUCERS.format(*before[:3], "minimum", "a", "other", "")]
    steps = follow([lambda text=text: text for text in texts])
    lives = [(p.first, p.last) for p in steps.places if p.name == "region_1"]
    assert lives == [(0, 1), (1, 2)]
    module, _ = union(steps, "m")
    assert len({c.name for c in module.computations}) == len(module.computations) == 4
    assert len(module.find("most").called_computations) == 2  # the one before, and the one now


def test_a_computation_whose_instructions_change_in_place_goes_on() -> None:
    before = ("region_0", "add", "region_1", "maximum", "a", "b", "")
    texts = [REDUCERS.format(*before), REDUCERS.format(*before[:3], "minimum", "a", "b", "")]
    steps = follow([lambda text=text: text for text in texts])
    assert [(p.first, p.last) for p in steps.places] == [(0, 2)] * 3


def test_a_job_tells_how_far_it_is_and_stops(folder: Path) -> None:
    sent: list[dict[str, Any]] = []
    jobs = PassJobs(hs.read(folder), lambda content, buffers: sent.append(content))
    jobs.start(1).join(60)
    kinds = [m["kind"] for m in sent]
    assert kinds[0] == "progress"
    assert kinds[-1] == "done"
    assert kinds.count("cost") == 6
    assert kinds.index("passes") < kinds.index("cost")
    sent.clear()

    def stop(content: dict[str, Any], _: list[bytes]) -> None:
        sent.append(content)
        if content["kind"] == "progress":
            stopped.cancel(2)

    stopped = PassJobs(hs.read(folder), stop)
    stopped.start(2).join(60)
    assert [m["kind"] for m in sent] == ["progress", "error"]
    assert sent[-1]["message"] == "cancelled"
    sent.clear()
    broken = PassJobs(hs.read(folder / "module_0001.jit_step.before_optimizations.txt"),
                      lambda content, buffers: sent.append(content))  # fmt: skip
    broken.start(3).join(60)
    assert "no record of its passes" in sent[-1]["message"]


def test_a_real_compile_is_followed_to_its_last_instruction() -> None:
    def step(w: Any, x: Any) -> Any:
        return jnp.sum(jnp.tanh(x @ w) @ w.T * 1.0)

    w = jnp.ones((64, 64))
    cap = hs.capture(jax.grad(step), w, w, passes=True)
    steps = cap.passes().steps
    for row in cap.passes().rows:
        alive = sum(n.first <= row.index < n.last for n in steps.nodes)
        assert alive == row.counts["instructions"]
    last = [n for n in steps.nodes if n.last == steps.rows]
    assert {steps.name(n) for n in last} == {i.name for i in cap.module.instructions}
    assert "~" not in "".join(v.line.name for v in steps.versions), "no mark shows"
    header = header_of(blocks.passes(cap))
    assert header["counts"]["instructions"] <= len(steps.nodes)
    assert np.all([r["cost"] is None for r in header["extras"]["passes"]["rows"]])
