"""Small facts at the edges of the readers: each would be wrong after a change of one character.

As ``test_edges.py``, for the readers: without a compile.
"""

from __future__ import annotations

import zlib

import hloscope as hs
import pytest
from hloscope.readers import read_modules
from hloscope.readers.files.pass_dump import pass_of
from hloscope.readers.formats.compilation_cache import accepts as is_cache_entry
from hloscope.readers.formats.exported_program import _bytecode as _exported
from hloscope.readers.hlo.text import read_hlo_text
from hloscope.readers.proto.literals import literal_text
from hloscope.readers.proto.proto import _fields, read_proto
from hloscope.readers.proto.schema import message_class
from hloscope.readers.scan import skip
from hloscope.readers.xplane.lanes import LaneBuilder
from hloscope.readers.xplane.xplane import read_trace
from xplane_builder import TraceBuilder

F32 = 11  # of xla_data.proto


def module(*lines: str) -> hs.hlo.Module:
    body = "\n".join(f"  {line}" for line in lines)
    return read_hlo_text(f"HloModule m\n\nENTRY main {{\n{body}\n}}\n")[0]


# -- compressed entries --------------------------------------------------------------------


def test_what_begins_like_zlib() -> None:
    assert is_cache_entry(zlib.compress(b"a"))
    assert is_cache_entry(zlib.compress(b"a", 9))
    good = [k for k in range(256) if is_cache_entry(bytes([0x78, k, 0]))]
    assert good == [k for k in range(256) if (0x7800 + k) % 31 == 0]
    assert not is_cache_entry(b"\x78\x9c")  # nothing follows
    assert not is_cache_entry(b"\x79\x9c\x00")
    assert is_cache_entry(b"\x28\xb5\x2f\xfd")


# -- names of dumps ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stage", "found"),
    [
        ("before_optimizations", (-1, "", "", "")),
        ("cpu_after_optimizations", (1 << 30, "", "after_optimizations", "")),
        ("after_optimizations", (1 << 30, "", "after_optimizations", "")),
        ("0007.fusion.after_dce.before_cse", (7, "fusion", "dce", "cse")),
        ("0001.x.after_pipeline-start.before_optimizations", (1, "x", "", "optimizations")),
        ("0009.x.after_cse.before_after_optimizations", (9, "x", "cse", "after_optimizations")),
        ("anything", None),
    ],
)
def test_which_pass_a_dump_is_of(stage: str, found: object) -> None:
    assert pass_of(stage) == found


# -- traces --------------------------------------------------------------------------------


def test_events_that_no_lane_has_are_counted() -> None:
    made = LaneBuilder()
    made.skip("why", 2)
    made.skip("why", 3)
    made.skip("nothing", 0)
    assert made.left_out == {"why": 5}


def test_lines_that_repeat_others_are_left_out_and_no_others() -> None:
    trace = TraceBuilder()
    plane = trace.plane("/device:TPU:0")
    for name in ("XLA Modules", "Framework Ops", "Written by somebody", "Steps"):
        plane.event(name, plane.event_id("e"), 0, 1000)
    events = read_trace(trace.serialized()).events
    assert {lane.name for lane in events.lanes} == {"XLA Modules", "Written by somebody", "Steps"}
    assert list(events.left_out.values()) == [1]


# -- protos --------------------------------------------------------------------------------


def test_fields_that_are_whole() -> None:
    whole = [b"\x0a\x02ab", b"\x10\x07", b"\x1d1234", b"\x2112345678"]
    ends = [4, 6, 11, 20]
    data = b"".join(whole)
    assert [end for _, end in _fields(data)] == ends
    assert [end for _, end in _fields(data + b"\x0a\x05abc")] == ends  # cut off
    assert [end for _, end in _fields(data + b"\x00\x00")] == ends  # no field has number 0
    assert [end for _, end in _fields(data + b"\x0b")] == ends  # a group: never written
    assert [end for _, end in _fields(b"\x0a\x00\x10\x01")] == [2, 4]  # empty text is whole
    assert [end for _, end in _fields(b"\x01abcdefgh")] == [9]  # the lowest tag that can be


def test_constants_without_elements_and_of_one() -> None:
    Literal = message_class("Literal")
    empty = Literal()
    empty.shape.element_type, empty.shape.dimensions[:] = F32, [0]
    assert literal_text(empty) == "{}"
    one = Literal()
    one.shape.element_type, one.shape.dimensions[:], one.f32s[:] = F32, [1], [2.5]
    assert literal_text(one) == "{2.5}"


@pytest.mark.parametrize(
    ("version", "text"), [(0, None), (1, None), (2, "API_VERSION_STATUS_RETURNING")]
)
def test_the_version_of_a_custom_calls_interface(version: int, text: str | None) -> None:
    proto = message_class("HloModule")(name=b"m", entry_computation_name=b"main")
    main = proto.computations.add(name=b"main", id=1, root_id=1)
    call = main.instructions.add(name=b"c", opcode=b"custom-call", id=1)
    call.custom_call_target, call.custom_call_api_version = b"t", version
    call.shape.element_type = F32
    (found,) = read_proto(proto.SerializeToString()).instructions
    assert found.attribute("api_version") == text


def test_where_an_exported_program_keeps_its_bytecode() -> None:
    def exported(size: int, begin: bytes = b"flatbuff") -> bytes:
        return begin + size.to_bytes(4, "little") + b"ML\xefR" + bytes(16)

    assert _exported(exported(20)) == (12, 32)
    assert _exported(exported(5)) == (12, 17)
    assert _exported(exported(4)) is None  # no more than its magic
    assert _exported(exported(21)) is None  # more than there is
    assert _exported(exported(20, b"flat")) == (8, 28)
    assert _exported(exported(20, b"fla")) is None
    late = bytes(1 << 20)
    assert _exported(exported(20, late[: (1 << 20) - 8])) is not None
    assert _exported(exported(20, late)) is None  # too far in to be searched for


# -- text ----------------------------------------------------------------------------------


def test_shapes_that_are_written_and_shapes_that_follow() -> None:
    found = module(
        "p = f32[4,2] parameter(0)",
        "a = add(p, p)",
        "ROOT b = f32[4,2] add(a, p)",
    )
    assert [i.shape.dense_text for i in found.instructions] == ["f32[4,2]"] * 3
    assert not found.warnings or all("no shape" not in w.message for w in found.warnings)


def test_an_instruction_before_any_computation_begins() -> None:
    (found,) = read_hlo_text(
        "HloModule m\n\n  %a = f32[4]{0} tanh(f32[4]{0} %p)\n  ROOT %b = f32[4]{0} sine(%a)\n}\n"
    )
    assert [i.name for i in found.instructions] == ["a", "b"]
    assert any("before any computation" in w.message for w in found.warnings)


def test_what_is_between_tokens() -> None:
    text = "  // a comment\n /* another */ x"
    assert text[skip(text, 0)] == "x"
    assert skip("x", 0) == 0


def test_a_literal_attribute_with_blanks_and_one_beside_others() -> None:
    found = module(
        "p = f32[2] parameter(0)",
        'ROOT c = f32[2] custom-call(p), custom_call_target="t", literal=f32[2] {1, 2}, schedule=X',
    )
    (call,) = [i for i in found.instructions if i.opcode == "custom-call"]
    assert call.attribute("literal") == "f32[2] {1, 2}"
    assert call.attribute("schedule") == "X"
    assert not found.warnings
    plain = module(
        "p = f32[2] parameter(0)",
        'ROOT c = f32[2] custom-call(p), custom_call_target="t", x={0} , y=1',
    )
    (call,) = [i for i in plain.instructions if i.opcode == "custom-call"]
    assert (call.attribute("x"), call.attribute("y")) == ("{0}", "1")


def test_an_element_type_nobody_knows_is_said() -> None:
    from hloscope.readers import read_modules

    (module,) = read_modules(
        "HloModule m\n\nENTRY e {\n  a = f2[8]{0} parameter(0)\n  t = token[] after-all()\n"
        "  b = f32[] parameter(1)\n  ROOT r = (f2[8]{0}, f32[]) tuple(a, b)\n}\n"
    )
    said = [str(w) for w in module.warnings]
    assert len(said) == 2
    assert said[0].startswith("line 4, column 7: 'f2' is not an element type known here")


def test_a_proto_says_so_too_and_shapes_without_elements_are_no_news() -> None:
    made = message_class("HloModule")()
    made.name, made.entry_computation_id = b"m", 1
    entry = made.computations.add()
    entry.name, entry.id, entry.root_id = b"e", 1, 1
    a = entry.instructions.add()
    a.name, a.id, a.opcode = b"a", 1, b"parameter"
    a.shape.dimensions.append(8)
    a.shape.element_type = 77
    said = [w.message for w in read_proto(made.SerializeToString()).warnings]
    assert said == ["'type77' is not an element type known here: 0 bytes are counted"]
    for shape, size in (("b(f32[8]{0})", 32), ("opaque[]", 0), ("token[]", 0)):
        found = module(f"ROOT a = {shape} parameter(0)")
        assert found.warnings == ()
        assert found.instructions[0].shape.byte_size == size


@pytest.mark.parametrize("layout", ['{1,x"0}', "{1}", "{2,0}", "{0,0}", "{1,0:T(8,128)%}"])
def test_a_damaged_layout_is_a_warning(layout: str) -> None:
    text = f"HloModule m\nENTRY e {{\n  ROOT a = f32[8,16]{layout} parameter(0)\n}}\n"
    [module] = read_modules(text.encode())
    assert [w.line for w in module.warnings] == [3]
    assert "layout" in module.warnings[0].message


@pytest.mark.parametrize(
    "layout", ["{1,0}", "{}", "{:T(128)}", "{0,1:T(8,128)(2,1)S(1)}", "{ /* x */ 1,0:E(4)S(5)}"]
)
def test_layouts_that_stand_are_none(layout: str) -> None:
    text = f"HloModule m\nENTRY e {{\n  ROOT a = f32[8,16]{layout} parameter(0)\n}}\n"
    [module] = read_modules(text.encode())
    assert not module.warnings


def test_a_damaged_name_of_an_mlir_operation_is_a_warning() -> None:
    text = """module @m {
  func.func public @main(%arg0: tensor<8xi32>) -> tensor<8xi32> {
    %c = stablehlo.consta.\x01!dense<1> : tensor<i32>
    return %arg0 : tensor<8xi32>
  }
}
"""
    [module] = read_modules(text.encode())
    assert [w.line for w in module.warnings] == [3]
