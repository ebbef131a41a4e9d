"""The View and text blocks: exactly the columns that are declared, consistent, deterministic."""

from __future__ import annotations

import numpy as np
import pytest
from contract import differences
from hloscope import Capture
from hloscope.analysis.provenance.linked.linked import linked
from hloscope.hlo import FrameTable
from hloscope.readers import read_modules
from hloscope.show import blocks
from hloscope.view import Builder, build_analyses, build_stages, build_text, build_view
from hloscope.view.builder import VIEW_MAGIC
from hloscope.view.columns import STAGES, STRINGS, TEXT_BLOCK, VIEW, columns_of
from hloscope.view.schema import decode, joined

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


def names_of(*tables):
    return set(columns_of(tables))


def test_each_block_has_every_column_that_is_declared_for_it():
    module = read_modules(OLD)[0]
    strings = names_of(*STRINGS)
    header, _ = decode(build_view(module, title="t", subtitle="s"))
    assert set(header["columns"]) == names_of(*VIEW) | strings
    assert header["title"] == "t"
    header, _ = decode(build_text(module))
    assert set(header["columns"]) == names_of(*TEXT_BLOCK) | strings
    header, _ = decode(build_stages(linked(module, "optimized"), len(module.instructions)))
    assert set(header["columns"]) == names_of(*STAGES) | strings


def test_passes_say_their_direction(compiled):
    _, columns = decoded(compiled("cnn_step").module)
    said = {
        (columns["strings"][label].partition(" ")[0], int(direction))
        for label, direction in zip(columns["group.label"], columns["group.direction"], strict=True)
        if direction
    }
    assert said == {("forward", 1), ("backward", 2)}


@pytest.mark.parametrize("name", PROGRAMS)
def test_views_of_compiled_programs_are_consistent(compiled, name):
    module = compiled(name).module
    header, columns = decoded(module)
    assert differences(header, columns) == []
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
    assert differences(header, view) == []
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
    assert differences(header, columns) == []
    for start in range(3):
        seen, at = set(), start
        while at >= 0:
            assert at not in seen
            seen.add(at)
            at = int(columns["frame.parent"][at])
    assert columns["instruction.frame"].tolist() == [0, 1, -1]


def test_a_failing_section_is_a_warning_and_leaves_nothing(monkeypatch):
    def good(builder, context):
        for name, values in (("source", [1, 2]), ("target", [2, 1])):
            builder.column(f"transition.{name}", values)
        for name in ("before", "after"):
            builder.column(f"transition.{name}", ["P('x')", "P()"])
        context.extras["phases"] = ["", "backward"]

    def bad(builder, context):
        builder.column("device.id", [1])
        context.extras["bad"] = float("nan")
        raise RuntimeError("no such luck")

    monkeypatch.setattr("hloscope.view.analyses.SECTIONS", (("bad", bad), ("good", good)))
    header, columns = decode(build_analyses(read_modules(OLD)[0]))
    assert header["warnings"] == ["bad could not be worked out: RuntimeError: no such luck"]
    assert "device.id" not in columns
    assert columns["transition.source"].tolist() == [1, 2]
    assert header["extras"] == {"phases": ["", "backward"]}


@pytest.mark.parametrize("name", ["gpt_scan", "ring_matmul", "trivial"])
def test_analyses_join_their_view(compiled, name):
    cap = Capture(compiled(name).module)
    header, columns = joined(blocks.view(cap), blocks.analyses(cap))
    assert header["summary"] == cap.summary
    assert differences(header, columns) == []
    strings = columns["strings"]
    found = [strings[k] for k in columns.get("collective.kind", ())]
    assert found == [c.kind for c in cap.collectives]


def test_analyses_of_another_module_do_not_join(compiled):
    with pytest.raises(ValueError, match="another module"):
        joined(build_view(compiled("trivial").module), build_analyses(compiled("gpt_scan").module))


def test_builder_refuses_what_would_be_wrong():
    b = Builder()
    b.column("cost.unit", [255])
    with pytest.raises(ValueError, match="twice"):
        b.column("cost.unit", [1])
    with pytest.raises(ValueError, match="do not fit u8"):
        b.column("cost.bound", [256])
    with pytest.raises(ValueError, match="do not fit u32"):
        b.column("computation.first", [-1])
    with pytest.raises(ValueError, match="flat"):
        b.column("cost.flops", np.zeros((2, 2)))
    with pytest.raises(ValueError, match=r"column cost\.new is not declared"):
        b.column("cost.new", [1])
    with pytest.raises(ValueError, match=r"cost\.unit is not declared as text"):
        b.text_ids("cost.unit", [1])


def test_names_with_surrogates_and_nothing_at_all():
    b = Builder()
    b.column("computation.name", ["", "é\ud800", "x"])
    _, columns = decode(b.finish(VIEW_MAGIC))
    assert columns["strings"] == ["", "é?", "x"]
    assert columns["computation.name"].tolist() == [0, 1, 2]


@pytest.mark.parametrize("seed", ["000", "001", "004"])
def test_seeds(seeds, seed):
    module = read_modules(next(seeds.glob(f"{seed}_*")).read_bytes())[0]
    header, columns = decoded(module)
    assert differences(header, columns) == []
    assert header["counts"]["instructions"] == {"000": 48, "001": 118, "004": 9679}[seed]
