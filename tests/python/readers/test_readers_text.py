"""HLO text of every dialect, whole and damaged, with the log around it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hloscope import read
from hloscope.hlo import Module
from hloscope.hlo.compare import differences
from hloscope.readers import ReadError, list_modules, read_modules

SMALL = """\
HloModule jit_f, is_scheduled=true, entry_computation_layout={(f32[4]{0})->f32[4]{0}}, num_partitions=2

%double (p: f32[4]) -> f32[4] {
  %p = f32[4]{0} parameter(0)
  ROOT %add.1 = f32[4]{0} add(%p, %p), metadata={op_name="jit(f)/add" source_file="a.py" source_line=3}
}

ENTRY %main (x: f32[4]) -> f32[4] {
  %x = f32[4]{0} parameter(0)
  ROOT %fusion = f32[4]{0} fusion(%x), kind=kLoop, calls=%double
}
"""  # noqa: E501


def one(text: str | bytes) -> Module:
    modules = read_modules(text)
    assert len(modules) == 1
    return modules[0]


def body(lines: str, header: str = "HloModule m") -> Module:
    return one(f"{header}\n\nENTRY %e (a: f32[4]) -> f32[4] {{\n{lines}\n}}\n")


# -- the seeds, from their raw logs ---------------------------------------------------------


def seed(seeds: Path, number: str) -> Module:
    module = read(next(seeds.glob(f"{number}_*.txt"))).module
    assert module.warnings == ()
    return module


def kinds(module: Module) -> Counter[str | None]:
    return Counter(i.fusion_kind for i in module.instructions if i.opcode == "fusion")


def test_seed_000(seeds: Path) -> None:
    m = seed(seeds, "000")
    assert (len(m.computations), len(m.instructions)) == (6, 48)
    assert kinds(m) == {"kLoop": 4}
    assert m.first_line == 4
    assert m.text.startswith("HloModule xmap_train_step.57")
    assert m.text.endswith("}")
    assert not m.is_scheduled


def test_seed_001(seeds: Path) -> None:
    m = seed(seeds, "001")
    assert (len(m.computations), len(m.instructions)) == (15, 118)
    assert m.entry is not None
    assert len(m.entry.instructions) == 31
    assert m.is_scheduled
    assert m.num_partitions == 8
    assert sum(p.shape.byte_size for p in m.entry.parameters) == 6_295_552


def test_seed_004(seeds: Path) -> None:
    m = seed(seeds, "004")
    assert (len(m.computations), len(m.instructions)) == (481, 9_679)
    assert m.entry is not None
    assert len(m.entry.instructions) == 1_656
    assert kinds(m) == {"kLoop": 178, "kInput": 104}
    assert len(m.entry.parameters) == 239
    assert sum(p.shape.byte_size for p in m.entry.parameters) == 194_152_460
    assert len(m.input_output_alias) == 233


# -- dialects ---------------------------------------------------------------------------------


def test_a_small_module() -> None:
    m = one(SMALL)
    assert m.warnings == ()
    assert m.name == "jit_f"
    assert m.num_partitions == 2
    fusion = m.find("fusion")
    assert fusion is not None
    assert fusion.called == (("calls", m.computations[0]),)
    assert fusion.operands[0].users == (fusion,)
    add = m.find("add.1")
    assert add is not None
    assert add.op_name == "jit(f)/add"
    assert add.frames[0].line == 3
    assert m.text[slice(*add.text_span)].startswith("ROOT %add.1 = f32[4]{0} add(%p, %p)")
    first = m.computations[0]
    assert m.text[slice(*first.text_span)].startswith("%double (p:")
    assert m.text[slice(*first.text_span)].endswith("}")


def test_line_ends_marks_and_names_without_percent() -> None:
    plain = one(SMALL)
    for variant in (
        SMALL.replace("\n", "\r\n"),
        "\ufeff" + SMALL,
        SMALL.replace("%", ""),
        SMALL.encode("utf-16"),
        "\ufeff".encode() + SMALL.encode(),
    ):
        m = one(variant)
        assert m.warnings == ()
        assert differences(plain, m) == [] or "%" not in variant
        assert [i.name for i in m.instructions] == [i.name for i in plain.instructions]
        assert [[o.name for o in i.operands] for i in m.instructions] == [[], ["p", "p"], [], ["x"]]


def test_bytes_that_are_not_utf8() -> None:
    data = SMALL.encode().replace(b"jit(f)/add", b"jit(f)/\xff\xe9")
    m = one(data)
    assert "not UTF-8" in m.warnings[0].message
    column = data.splitlines()[4].index(b"\xff") + 1
    assert (m.warnings[0].line, m.warnings[0].column) == (5, column)
    assert len(m.instructions) == 4


def test_operand_types_inline_comments_and_layouts() -> None:
    m = body(
        "  %a = f32[4]{0:T(128)S(1)} parameter(0), parameter_replication={false}\n"
        "  %b = (f32[4]{0:T(128)}, /*index=1*/bf16[2,3]{1,0:T(8,128)(2,1)}) "
        "custom-call(f32[4]{0:T(128)S(1)} %a), custom_call_target=\"x\"\n"
        "  ROOT %c = f32[4]{0} get-tuple-element((f32[4]{0:T(128)}, "
        "bf16[2,3]{1,0:T(8,128)(2,1)}) %b), index=0"
    )  # fmt: skip
    assert m.warnings == ()
    a, b, c = m.instructions
    assert a.shape.layout is not None
    assert a.shape.layout.memory_space == 1
    assert b.operands == (a,)
    assert b.shape.tuple_shapes[1].layout is not None
    assert b.shape.tuple_shapes[1].layout.tiles == ((8, 128), (2, 1))
    assert c.operands == (b,)


@pytest.mark.parametrize(
    "groups",
    [
        "{{0,4},{1,5}}",
        "[4,2]<=[2,4]T(1,0)",
        "mesh['axis_0'=2,'axis_1'=4] {'axis_1'}",
        "mesh['axis_0'=4,'axis_1'=1,'axis_2'=2], device_ids=([2,4]T(1,0)) {'axis_0'}",
    ],
)
def test_replica_groups_are_kept_as_printed(groups: str) -> None:
    m = body(
        f"  ROOT %a = f32[4]{{0}} all-gather(%x), channel_id=1, replica_groups={groups}, "
        "dimensions={0}\n  %x = f32[4]{0} parameter(0)"
    )
    gather = m.find("a")
    assert gather is not None
    assert f"replica_groups={groups}" in gather.attribute_text
    assert gather.attribute("dimensions") == "{0}"
    assert gather.channel_id == 1


def test_forward_references_and_parameters_out_of_order() -> None:
    m = body(
        "  ROOT %s = f32[4]{0} add(%b, %a)\n  %b = f32[4]{0} parameter(1)\n"
        "  %a = f32[4]{0} parameter(0)"
    )
    assert m.warnings == ()
    assert [o.name for o in m.instructions[0].operands] == ["b", "a"]
    assert m.entry is not None
    assert [p.name for p in m.entry.parameters] == ["a", "b"]


def test_quotes_with_braces_newlines_and_names_in_them() -> None:
    m = body(
        '  %a = f32[4]{0} parameter(0), metadata={op_name="one\ntwo }, calls=%nothing" '
        'source_file="<ipython>"}\n'
        '  ROOT %b = f32[4]{0} negate(%a), backend_config={"x":"}\\"{","y":[1]}, '
        'frontend_attributes={k="v, w=\\"1\\""}'
    )
    assert m.warnings == ()
    a, b = m.instructions
    assert a.op_name == "one\ntwo }, calls=%nothing"
    assert a.metadata.source_file == "<ipython>"
    assert a.called == ()
    assert b.backend_config_json == {"x": '}"{', "y": [1]}
    assert b.attribute("frontend_attributes") == '{k="v, w=\\"1\\""}'


def test_backend_config_as_an_escaped_string() -> None:
    m = body('  ROOT %a = f32[4]{0} custom-call(), backend_config="{\\"k\\": [\\"a,b\\"]}"')
    assert m.instructions[0].backend_config_json == {"k": ["a,b"]}


def test_literals_strings_and_several_lines() -> None:
    m = body(
        "  %big = f32[2,2]{1,0} constant({ { 1, 2 },\n    { 3, 4 } })\n"
        '  %text = s8[3]{0} constant("a)\\"b")\n'
        "  %complex = c64[2]{0} constant({(1, 2), (3, -4)})\n"
        "  %gone = f32[9]{0} constant({...})\n"
        "  ROOT %after = f32[4]{0} parameter(0)"
    )
    assert m.warnings == ()
    assert [i.name for i in m.instructions] == ["big", "text", "complex", "gone", "after"]
    assert m.instructions[0].literal == "{ { 1, 2 },\n    { 3, 4 } }"
    assert m.instructions[1].literal == '"a)\\"b"'
    assert m.instructions[2].literal == "{(1, 2), (3, -4)}"


def test_async_operations_and_threads() -> None:
    m = one(
        'HloModule m\n\n%w (p: f32[4]) -> f32[4] {\n  ROOT %p = f32[4]{0} parameter(0)\n}, '
        'execution_thread="sparse"\n\n'
        "ENTRY %e (a: f32[4]) -> f32[4] {\n  %a = f32[4]{0} parameter(0)\n"
        "  %s = ((f32[4]{0}), f32[4]{0}, s32[]) async-start(%a), "
        'async_execution_thread="sparse", calls=%w\n'
        "  ROOT %d = f32[4]{0} async-done(%s)\n}\n"
    )  # fmt: skip
    assert m.computations[0].attribute_text == 'execution_thread="sparse"'
    start = m.find("s")
    assert start is not None
    assert [c.name for c in start.called_computations] == ["w"]
    assert [s.text for s in start.shape.tuple_shapes] == ["(f32[4]{0})", "f32[4]{0}", "s32[]"]


def test_control_flow_roles() -> None:
    m = one(
        "HloModule m\n\n%c {\n  ROOT %p = pred[] constant(true)\n}\n\n%b {\n"
        "  ROOT %q = f32[] constant(1)\n}\n\nENTRY %e {\n  %i = s32[] parameter(0)\n"
        "  %w = f32[] while(%i), condition=%c, body=%b\n"
        "  ROOT %k = f32[] conditional(%i, %w, %w), branch_computations={%b, %c}\n}\n"
    )
    w, k = m.find("w"), m.find("k")
    assert w is not None
    assert k is not None
    assert [(r, c.name) for r, c in w.called] == [("condition", "c"), ("body", "b")]
    assert [(r, c.name) for r, c in k.called] == [
        ("branch_computations", "b"),
        ("branch_computations", "c"),
    ]


def test_stack_frames() -> None:
    """parent_frame_id is printed one too high: 1 means none."""
    m = body(
        '  ROOT %a = f32[4]{0} parameter(0), metadata={op_name="x" stack_frame_id=2}',
        'HloModule m\n\nFileNames\n1 "a.py"\n2 "b.py"\n\nFunctionNames\n1 "main"\n2 "f"\n\n'
        "FileLocations\n1 {file_name_id=1 function_name_id=1 line=5 end_line=5 column=2 "
        "end_column=9}\n2 {file_name_id=2 function_name_id=2 line=7 end_line=7 column=0 "
        "end_column=0}\n\nStackFrames\n1 {file_location_id=1 parent_frame_id=1}\n"
        "2 {file_location_id=2 parent_frame_id=2}\n",
    )
    frames = m.instructions[0].frames
    assert [(f.file, f.line, f.function) for f in frames] == [("b.py", 7, "f"), ("a.py", 5, "main")]
    table, ids = m.source_frames()
    assert ids == [2]
    assert table is m.frames


def test_columns() -> None:
    m = one(SMALL)
    offsets, values = m.operand_csr()
    assert offsets.tolist() == [0, 0, 2, 2, 3]
    assert values.tolist() == [0, 0, 2]
    offsets, values, roles = m.called_csr()
    assert (offsets.tolist(), values.tolist(), roles) == ([0, 0, 0, 0, 1], [0], ["calls"])
    assert m.op_names() == ["", "jit(f)/add", "", ""]
    table, ids = m.source_frames()
    assert ids == [0, 1, 0, 0]
    assert table.stack(1)[0].file == "a.py"
    assert m.opcodes_list == ["parameter", "add", "parameter", "fusion"]
    assert isinstance(values, np.ndarray)


@pytest.mark.parametrize(
    "metadata",
    [
        'op_name="f" source_file="a.py" source_line=3',
        'op_name="f" source_file="a.py" source_line=3 source_end_line=4',
        'source_line=3 source_file="a.py" op_name="f"',
        'op_name="x source_file=" source_file="a.py" source_line=3',
        'source_file="a.py" source_line=3 op_name="x source_file="',
        r'op_name="\" source_file=\"b.py\" source_line=9" source_file="a.py" source_line=3',
        r'op_name="f" source_file="a\".py" source_line=3',
        'op_name="f" source_file="a.py"',
        'op_name="f" source_file="a.py" source_line=1234567890',
        'op_name="f" source_line=3',
    ],
)
def test_old_source_lines_are_those_of_the_metadata(metadata: str) -> None:
    m = body(f"  ROOT %a = f32[4]{{0}} parameter(0), metadata={{{metadata}}}")
    table, ids = m.source_frames()
    meta = m.instructions[0].metadata
    assert [(f.file, f.line) for f in table.stack(ids[0])] == (
        [(meta.source_file, meta.source_line)] if meta.source_file else []
    )


def test_equal_shapes_are_one_object() -> None:
    m = one(SMALL)
    assert len({id(i.shape) for i in m.instructions}) == 1


# -- logs, several modules, damage ------------------------------------------------------------


def test_log_lines_before_between_and_after() -> None:
    text = f"Compiling…\nan HloModule is coming\n{SMALL}\nTrain step 1: 3.2 s\n"
    m = one(text)
    assert m.warnings == ()
    assert m.first_line == 3
    assert m.text == SMALL.rstrip("\n")


def test_log_prefix_on_every_line() -> None:
    prefix = "I0311 11:02:03.123456   123 compiler.cc:77] "
    logged = "".join(prefix + line + "\n" for line in SMALL.splitlines())
    m = one(logged)
    assert m.warnings == ()
    assert differences(m, one(SMALL)) == []
    damaged = one(logged.replace("%x = f32[4]{0} parameter(0)", "%x = f32[oops] parameter(0)"))
    assert (damaged.warnings[0].line, damaged.warnings[0].column) == (9, len(prefix) + 8)


def test_several_modules() -> None:
    other = SMALL.replace("jit_f", "jit_g").replace("  %x = f32[4]{0} parameter(0)\n", "")
    both = f"{SMALL}\nlog\n\n{other.replace('(%x)', '()')}"
    assert [m.name for m in read_modules(both)] == ["jit_f", "jit_g"]
    chosen = read(both)
    assert chosen.module.name == "jit_f"
    assert "choose with module=" in chosen.warnings[0]
    assert read(both, module="jit_g").module.name == "jit_g"
    assert read(both, module=1).module.name == "jit_g"
    assert [(e.name, e.index, e.instructions) for e in list_modules(both)] == [
        ("jit_f", 0, 4),
        ("jit_g", 1, 3),
    ]
    with pytest.raises(ReadError, match="did you mean 'jit_g'"):
        read(both, module="jit_gg")
    with pytest.raises(ReadError, match="no module=2"):
        read(both, module=2)


def test_cut_off_in_the_middle_of_a_line() -> None:
    m = one(SMALL[: SMALL.index("kind=kLoop") - 4])
    assert len(m.instructions) == 4
    assert any("ends inside %main" in w.message for w in m.warnings)
    assert m.entry is not None
    assert m.entry.root is m.find("fusion")
    early = one(SMALL[: SMALL.index(" parameter(0)\n  ROOT %fusion")])
    assert early.computations[0].root is not None
    assert early.entry is not None
    assert early.entry.root is None


def test_a_bad_line_is_passed_over_with_its_place() -> None:
    m = body("  %a = f32[4]{0} parameter(0)\n  what is this\n  ROOT %b = f32[4]{0} negate(%a)")
    assert [i.name for i in m.instructions] == ["a", "b"]
    (w,) = m.warnings
    assert (w.line, w.column) == (5, 3)
    assert str(w) == "line 5, column 3: not an instruction: 'what is this'"


def test_missing_operands_and_duplicate_names() -> None:
    m = body("  %a = f32[4]{0} parameter(0)\n  %a = f32[4]{0} negate(%nowhere)")
    messages = [w.message for w in m.warnings]
    assert messages == [
        "two instructions named 'a' in %e",
        "%a has an operand that is not here: 'nowhere'",
    ]
    assert len(m.instructions) == 2


def test_unknown_opcodes_shapes_and_numbers_survive() -> None:
    m = body(
        "  %a = f32[99999999999999999999]{0} parameter(0)\n"
        "  %b = f77x[4]{0} frobnicate(%a), zap={1,{2}}, channel_id=99999999999999999999999"
    )
    assert m.instructions[1].opcode == "frobnicate"
    assert m.instructions[1].attribute("zap") == "{1,{2}}"
    assert m.instructions[1].channel_id is None
    assert [w.message for w in m.warnings] == [
        "not a dimension: '99999999999999999999' in 'f32[99999999999999999999]{0}'",
        "'f77x' is not an element type known here: 0 bytes are counted",
    ]


def test_no_entry() -> None:
    m = one(SMALL.replace("ENTRY %main", "%main"))
    assert m.entry is not None
    assert m.entry.name == "main"
    assert "taking %main" in m.warnings[0].message


def test_no_header_at_all() -> None:
    m = one(SMALL.split("\n", 2)[2])
    assert m.name == "module"
    assert len(m.instructions) == 4


def test_tuples_of_thousands() -> None:
    parts = ", ".join(f"/*index={k}*/f32[{k}]{{0}}" for k in range(3000))
    names = ", ".join("%a" for _ in range(3000))
    m = body(f"  %a = f32[4]{{0}} parameter(0)\n  ROOT %t = ({parts}) tuple({names})")
    assert m.warnings == ()
    assert len(m.instructions[1].operands) == 3000
    assert m.instructions[1].shape.tuple_shapes[2999].dimensions == (2999,)


@pytest.mark.parametrize("bad", [b"", b"hello", b"\x00" * 100, "HloModule", b"{}", "ENTRY"])
def test_nothing_to_read(bad: bytes | str) -> None:
    with pytest.raises(ReadError):
        read(bad)


def test_errors_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match=r"there is no file .*nowhere\.txt"):
        read(tmp_path / "nowhere.txt")
    with pytest.raises(ReadError, match="cannot read a int"):
        read(3)  # type: ignore[arg-type]
    with pytest.raises(ReadError, match="stage= chooses among the files of a dump folder"):
        read(SMALL, stage="before_optimizations")
    empty = tmp_path / "empty.hlo"
    empty.write_bytes(b"")
    with pytest.raises(ReadError, match=r"empty\.hlo is empty; expected HLO text"):
        read(empty)


@pytest.mark.parametrize(
    "text",
    [
        "# Notes\n\n```python\n%load_ext hloscope\n\n%hlo step(x)\n```\n",
        "const pane = new Pane(element);\nfunction f(a: number) {\n  const b = new Box(a);\n}\n",
    ],
)
def test_prose_and_code_are_not_modules(text):
    with pytest.raises(ReadError, match="holds no HLO module; expected HLO text"):
        read(text.encode())


def test_calls_are_found_however_attributes_are_written() -> None:
    from hloscope.hlo.columns import called_names

    meta = 'metadata={op_name="calls=%no, body={x}"}'
    for text, found in {
        "kind=kLoop, calls=%f.1": [("calls", "f.1")],
        f"kind=kLoop, calls=%f.1, {meta}": [("calls", "f.1")],
        f"dimensions={{0,1}}, to_apply=r, {meta}": [("to_apply", "r")],
        f'{meta}, calls=%f, backend_config={{"a":"to_apply=%no"}}': [("calls", "f")],
        "condition=%c, body=%b": [("condition", "c"), ("body", "b")],
        "branch_computations={%a, %b}, x=1": [
            ("branch_computations", "a"),
            ("branch_computations", "b"),
        ],
        "called_computations={a}": [("called_computations", "a")],
        "calls=%f,to_apply=%g": [("calls", "f"), ("to_apply", "g")],
        'calls=%"odd name"': [],
        "not_calls=%f": [],
    }.items():
        assert called_names("fusion", text) == found, text


def test_operands_after_types_are_their_instructions() -> None:
    text = """HloModule m
ENTRY e {
  a = f32[2,3]{1,0} parameter(0)
  t = (f32[2,3]{1,0}, f32[]) custom-call(f32[2,3]{1,0} %a), custom_call_target="x"
  g = f32[] get-tuple-element((f32[2,3]{1,0}, f32[]) %t), index=1
  ROOT s = f32[2,3]{1,0} select(f32[] %g, /*index=1*/f32[2,3]{1,0} %a, f32[9] %a)
}
"""
    (m,) = read_modules(text)
    s = m.find("s")
    assert s is not None
    assert [o.name for o in s.operands] == ["g", "a", "a"]
    g = m.find("g")
    assert g is not None
    assert (g.tuple_index, s.tuple_index) == (1, None)
    assert m.attribute_texts[1][m.attribute_texts[0][g.index]] == "index=1"
