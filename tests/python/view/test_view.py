"""The View and text blocks: exactly the columns js/view.ts documents, consistent, deterministic."""

from __future__ import annotations

import re

import hloscope.view.core as core
import numpy as np
import pytest
from hloscope import Capture
from hloscope.analysis.provenance.linked.linked import linked
from hloscope.hlo import FrameTable
from hloscope.readers import read_modules
from hloscope.view import Builder, build_analyses, build_stages, build_text, build_view
from hloscope.view.builder import ANALYSES_MAGIC, STAGES_MAGIC, TEXT_MAGIC, VERSION, VIEW_MAGIC
from hloscope.view.schema import check, decode, documented_columns, joined

PROGRAMS = [
    "gpt_unrolled", "gpt_scan", "ring_matmul", "cond_branches", "nested_loops", "lstm_scan",
    "callbacks", "nested_tuples", "sorting", "hostile_names", "trivial", "cnn_step",
]  # fmt: skip

OLD = """HloModule old

ENTRY %main (x: f32[4]) -> f32[4] {
  %x = f32[4]{0} parameter(0)
  %é = f32[4]{0} tanh(f32[4]{0} %x), metadata={op_name="jit(f)/ü/tanh" source_file="ä.py" source_line=7}
  ROOT %r = f32[4]{0} negate(%é), control-predecessors={%x}, metadata={source_file="ä.py" source_line=7}
}
"""  # noqa: E501


def decoded(module, **options):
    return decode(build_view(module, **options))


def test_view_ts_documents_exactly_what_is_written(repo):
    source = (repo / "js" / "view.ts").read_text()
    core_table = source.partition("export type CoreColumn")[0]
    wanted = documented_columns(core_table)
    module = read_modules(OLD)[0]
    header, _ = decoded(module)
    dtypes = {name: spec["dtype"] for name, spec in header["columns"].items()}
    missing = {n for n in wanted if n not in dtypes}
    assert missing == set()
    assert {n: dtypes[n] for n in wanted} == wanted
    tables = {"instruction", "computation", "group", "fold", "frame", "operand", "control"}
    extra = {n for n in dtypes if n.partition(".")[0] in tables and n not in wanted}
    assert extra == set()
    second = source[source.index("The text block, gzip'd") :]
    text, _, third = second.partition("export const")
    text = documented_columns(text)
    header, _ = decode(build_text(module))
    assert {n: s["dtype"] for n, s in header["columns"].items()} == text
    stages = documented_columns(third.partition("The headers of the blocks")[0])
    header, _ = decode(build_stages(linked(module, "optimized"), len(module.instructions)))
    assert {n: s["dtype"] for n, s in header["columns"].items()} == stages
    assert int(re.search(r"VIEW_VERSION = (\d+)", source).group(1)) == VERSION
    for magic in (VIEW_MAGIC, ANALYSES_MAGIC, TEXT_MAGIC, STAGES_MAGIC):
        assert f'"{magic.decode()}"' in source


def test_header_has_the_fields_of_view_ts(repo):
    source = (repo / "js" / "view.ts").read_text()
    body = re.search(r"export interface ViewHeader \{(.*?)\n\}", source, re.S).group(1)
    fields = set(re.findall(r"^  (\w+)\??:", body, re.M))
    header, _ = decoded(read_modules(OLD)[0], title="t", subtitle="s")
    assert set(header) == fields
    assert header["title"] == "t"
    kinds = re.search(r"export type GroupKind =(.*?);\n", source, re.S).group(1)
    assert header["groupKinds"] == re.findall(r'\| "(\w+)"', kinds)
    flags = re.search(r"const enum Flag \{(.*?)\n\}", source, re.S).group(1)
    from hloscope.analysis.base.labels import flags as ours

    for name, value in re.findall(r"(\w+) = (\d+),", flags):
        constant = re.sub(r"(?<!^)(?=[A-Z])", "_", name).upper()
        assert getattr(ours, constant) == int(value)


@pytest.mark.parametrize("name", PROGRAMS)
def test_views_of_compiled_programs_are_consistent(compiled, name):
    module = compiled(name).module
    header, columns = decoded(module)
    assert check(header, columns) == []
    assert header["warnings"] == [str(w) for w in module.warnings]
    strings = columns["strings"]
    for i in module.instructions:
        assert strings[columns["instruction.name"][i.index]] == i.name
        assert header["opcodes"][columns["instruction.opcode"][i.index]] == i.opcode
        assert strings[columns["instruction.op_name"][i.index]] == i.op_name
        begin, end = columns["operand.offsets"][i.index : i.index + 2]
        assert columns["operand.values"][begin:end].tolist() == [o.index for o in i.operands]
        begin, end = columns["called.offsets"][i.index : i.index + 2]
        called = [c.index for c in i.called_computations]
        assert sorted(columns["called.values"][begin:end].tolist()) == sorted(called)
        frame = int(columns["instruction.frame"][i.index])
        lines = []
        while frame >= 0:
            lines.append((strings[columns["frame.file"][frame]], columns["frame.line"][frame]))
            frame = int(columns["frame.parent"][frame])
        assert lines == [(f.file, f.line) for f in i.frames]


@pytest.mark.parametrize("name", ["gpt_scan", "hostile_names", "narrow_types"])
def test_text_blocks_find_each_line(compiled, name):
    module = compiled(name).module
    _, columns = decode(build_text(module))
    raw, strings = columns["text.bytes"].tobytes(), columns["strings"]
    assert raw.decode() == module.text
    for i in module.instructions:
        line = raw[
            columns["line.instruction_begin"][i.index] : columns["line.instruction_end"][i.index]
        ].decode()
        assert f"{i.name} = " in line
        assert f"{i.opcode}(" in line
        begin, end = columns["attribute.offsets"][i.index : i.index + 2]
        pairs = [
            (strings[k], strings[v])
            for k, v in zip(
                columns["attribute.key"][begin:end],
                columns["attribute.value"][begin:end],
                strict=True,
            )
        ]
        assert pairs == list(i.attributes.items())


def test_byte_offsets_where_names_are_not_ascii():
    module = read_modules(OLD)[0]
    _, columns = decode(build_text(module))
    raw = columns["text.bytes"].tobytes()
    root = module.entry.root.index
    begin, end = columns["line.instruction_begin"][root], columns["line.instruction_end"][root]
    assert raw[begin:end].decode().strip().startswith("ROOT %r = ")
    header, view = decoded(module)
    assert check(header, view) == []
    assert len(view["frame.file"]) == 1
    assert view["instruction.frame"].tolist() == [-1, 0, 0]
    assert view["control.values"].tolist() == [0]


def test_the_same_module_gives_the_same_bytes(compiled):
    text = compiled("gpt_unrolled").text
    first, second = (build_view(read_modules(text)[0], title="x") for _ in range(2))
    assert first == second
    assert first[4:8] == b"\0\0\0\0"  # no time stamp
    assert build_text(read_modules(text)[0]) == build_text(read_modules(text)[0])


def test_frames_that_loop_are_cut():
    module = read_modules(OLD)[0]
    module.frames = FrameTable(("a.py",), ("f",), ((1, 1, 3, 0, 0, 0),), ((1, 2), (1, 1), (1, 9)))
    module.__dict__.pop("_source_frames", None)
    module.source_frames = lambda: (module.frames, [1, 2, 99])
    header, columns = decoded(module)
    assert check(header, columns) == []
    for start in range(3):
        seen, at = set(), start
        while at >= 0:
            assert at not in seen
            seen.add(at)
            at = int(columns["frame.parent"][at])
    assert columns["instruction.frame"].tolist() == [0, 1, -1]


def test_a_failing_section_is_a_warning_and_leaves_nothing(monkeypatch):
    def good(builder, context):
        builder.column("measured.rows", "u32", [1, 2])
        context.extras["phases"] = ["", "backward"]

    def bad(builder, context):
        builder.column("bad.values", "u32", [1])
        context.extras["bad"] = float("nan")
        raise RuntimeError("no such luck")

    monkeypatch.setattr(core._sections, "SECTIONS", (("bad", bad), ("good", good)))
    header, columns = decode(build_analyses(read_modules(OLD)[0]))
    assert header["warnings"] == ["bad could not be worked out: RuntimeError: no such luck"]
    assert "bad.values" not in columns
    assert columns["measured.rows"].tolist() == [1, 2]
    assert header["extras"] == {"phases": ["", "backward"]}


@pytest.mark.parametrize("name", ["gpt_scan", "ring_matmul", "trivial"])
def test_analyses_are_documented_and_join_their_view(compiled, name, repo):
    source = (repo / "js" / "view.ts").read_text()
    optional = source.partition("export type CoreColumn")[2].partition("export type Optional")[0]
    documented = documented_columns(optional)
    cap = Capture(compiled(name).module)
    analyses, _ = decode(cap.analyses_bytes)
    written = {n: s["dtype"] for n, s in analyses["columns"].items() if "strings." not in n}
    assert written
    assert {n: documented.get(n) for n in written} == written
    body = re.search(r"export interface AnalysesHeader \{(.*?)\n\}", source, re.S).group(1)
    assert set(analyses) == set(re.findall(r"^  (\w+)\??:", body, re.M))
    header, columns = joined(cap.view_bytes, cap.analyses_bytes)
    assert header["summary"] == cap.summary
    assert check(header, columns) == []
    strings = columns["strings"]
    found = [strings[k] for k in columns.get("collective.kind", ())]
    assert found == [c.kind for c in cap.collectives]


def test_analyses_of_another_module_do_not_join(compiled):
    with pytest.raises(ValueError, match="another module"):
        joined(build_view(compiled("trivial").module), build_analyses(compiled("gpt_scan").module))


def test_builder_refuses_what_would_be_wrong():
    b = Builder()
    b.column("a", "u8", [255])
    with pytest.raises(ValueError, match="twice"):
        b.column("a", "u8", [1])
    with pytest.raises(ValueError, match="do not fit u8"):
        b.column("b", "u8", [256])
    with pytest.raises(ValueError, match="do not fit u32"):
        b.column("c", "u32", [-1])
    with pytest.raises(ValueError, match="flat"):
        b.column("d", "f64", np.zeros((2, 2)))


def test_names_with_surrogates_and_nothing_at_all():
    b = Builder()
    b.text_column("t.name", ["", "é\ud800", "x"])
    b.header = {}
    _, columns = decode(b.finish(VIEW_MAGIC))
    assert columns["strings"] == ["", "é?", "x"]
    assert columns["t.name"].tolist() == [0, 1, 2]


@pytest.mark.parametrize("seed", ["000", "001", "004"])
def test_seeds(seeds, seed):
    module = read_modules(next(seeds.glob(f"{seed}_*")).read_bytes())[0]
    header, columns = decoded(module)
    assert check(header, columns) == []
    assert header["counts"]["instructions"] == {"000": 48, "001": 118, "004": 9679}[seed]
