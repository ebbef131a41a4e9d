"""Protos: told apart by content, equal to the text, kept in part when damaged."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hloscope as hs
import numpy as np
import pytest
from hloscope import read
from hloscope.hlo.compare import differences
from hloscope.plan.running.candidate_figures import figures
from hloscope.readers import ReadError, read_modules
from hloscope.readers.proto.literals import float_text
from hloscope.readers.proto.proto import read_buffer_assignment, read_proto
from hloscope.readers.proto.schema import message_class
from hloscope.readers.recognise import is_proto, message_name
from hloscope.show.text import summary_text
from xla_oracle import through_xla


@pytest.fixture(scope="module")
def built(compiled: Callable[..., Any]) -> Any:
    return compiled("switch_four")


def wrapped(proto: bytes) -> tuple[bytes, bytes]:
    """The same module as an HloProto with a buffer assignment, and as an HloSnapshot."""
    whole = message_class("HloProto")()
    whole.hlo_module.ParseFromString(proto)
    assignment = whole.buffer_assignment
    first = whole.hlo_module.computations[0].instructions[0]
    buffer = assignment.logical_buffers.add(id=7, size=1024, color=1)
    buffer.defined_at.instruction_id = first.id
    buffer.defined_at.shape_index.append(1)
    allocation = assignment.buffer_allocations.add(index=0, size=4096, color=1)
    allocation.is_entry_computation_parameter = True
    allocation.parameter_number = 2
    allocation.maybe_live_out = True
    allocation.assigned.add(logical_buffer_id=7, offset=512, size=1024)
    trace = assignment.heap_simulator_traces.add(buffer_allocation_index=0)
    trace.events.add(kind=0, buffer_id=7)
    trace.events.add(kind=1, buffer_id=7)
    snapshot = message_class("HloSnapshot")()
    snapshot.hlo.CopyFrom(whole)
    return whole.SerializeToString(), snapshot.SerializeToString()


def with_frames(text: Any) -> Any:
    """The module of a text that a current XLA printed; older ones print no stack frames."""
    module = read_modules(text)[0]
    if not module.frames.frames:
        pytest.skip("this XLA leaves stack frames out of its text")
    return module


def test_the_three_messages(built: Any) -> None:
    whole, snapshot = wrapped(built.proto)
    text = with_frames(built.text)
    for data, name in ((built.proto, "HloModule"), (whole, "HloProto"), (snapshot, "HloSnapshot")):
        assert message_name(data) == name
        module = read(data).module
        assert module.warnings == ()
        assert differences(text, module) == []
        assert (module.buffer_assignment is None) == (name == "HloModule")


def test_buffer_assignment(built: Any) -> None:
    whole, _ = wrapped(built.proto)
    module = read_proto(whole)
    assignment = module.buffer_assignment
    assert assignment is not None
    first = message_class("HloModule").FromString(built.proto).computations[0].instructions[0]
    (buffer,) = assignment.buffers
    assert (buffer.id, buffer.size, buffer.memory_space) == (7, 1024, 1)
    assert buffer.instruction == first.name.decode()
    assert buffer.shape_index == (1,)
    (allocation,) = assignment.allocations
    assert allocation.is_entry_computation_parameter
    assert allocation.maybe_live_out
    assert allocation.parameter_number == 2
    assert allocation.assigned[0].offset == 512
    assert [e.kind for e in assignment.traces[0].events] == ["ALLOC", "FREE"]
    assert assignment.total_bytes == 4096


def test_xla_s_own_buffer_assignment(compiled: Callable[..., Any]) -> None:
    built = compiled("fsdp_tp")
    stats = built.compiled.runtime_executable().get_compiled_memory_stats()
    data = stats.serialized_buffer_assignment_proto
    if not data:
        pytest.skip("this jaxlib gives no buffer assignment for CPU programs")
    assignment = read_buffer_assignment(data)
    parameters = [a for a in assignment.allocations if a.is_entry_computation_parameter]
    entry = read_modules(built.text)[0].entry
    assert entry is not None
    assert len(parameters) == len(entry.parameters)
    assert sum(a.size for a in parameters) == sum(p.shape.byte_size for p in entry.parameters)
    sizes = {b.id: b.size for b in assignment.buffers}
    for a in assignment.allocations:
        for x in a.assigned:
            assert sizes[x.buffer_id] == x.size
            assert x.offset + x.size <= a.size


def test_frames_equal_the_text_s(built: Any) -> None:
    text, proto = with_frames(built.text), read_modules(built.proto)[0]
    assert proto.frames.frames
    assert text.frames == proto.frames
    stacks = {i.frames for i in proto.instructions if i.frames}
    assert any(len(s) > 1 for s in stacks)


def test_gzip_and_file_names_do_not_matter(built: Any, tmp_path: Path) -> None:
    path = tmp_path / "module.txt"
    path.write_bytes(gzip.compress(gzip.compress(built.proto)))
    assert differences(read(path).module, read(built.proto).module) == []
    cut = gzip.compress(built.text.encode())
    module = read(cut[: len(cut) * 9 // 10]).module
    assert any("gzip data is cut off" in w.message for w in module.warnings)
    assert module.instructions


def test_a_cut_proto_keeps_whole_computations(built: Any) -> None:
    whole = read_proto(built.proto)
    for data in (built.proto, *wrapped(built.proto)):
        module = read_proto(data[: data.rindex(whole.computations[-1].name.encode()) + 400])
        assert 0 < len(module.instructions) < len(whole.instructions)
        assert "cut off or damaged" in module.warnings[0].message


def test_not_a_proto() -> None:
    for data in (b"\x0a\x03abc\x12\x01x", b"\x0a\xff\xff", b"\x12\x00"):
        with pytest.raises(ReadError):
            read_proto(data, "x.pb")
        with pytest.raises(ReadError):
            read(data)


@pytest.mark.parametrize("name", ["a\nb", "\nab", "é", "\x12x", "a\tb", "x" * 3000])
def test_a_module_may_have_any_name(built: Any, name: str) -> None:
    message = message_class("HloModule")()
    message.ParseFromString(built.proto)
    message.name = name.encode()
    data = message.SerializeToString()
    for form in (data, *wrapped(data)):
        (found,) = read_modules(form)
        assert found.name == name


def test_text_that_begins_with_an_empty_line_is_no_proto() -> None:
    for first in range(32, 127):
        text = b"\n" + bytes([first]) + b"x" * (first - 1) + b'"\n' + b"y" * 200
        assert not is_proto(text)
        text = b"\n" + bytes([first]) + b"x" * (first - 3) + b'\n"\n' + b"y" * 200
        assert not is_proto(text)


def test_unknown_fields_opcodes_and_types_degrade(built: Any) -> None:
    message = message_class("HloModule").FromString(built.proto)
    entry = message.computations[-1]
    entry.instructions[0].opcode = b"brand-new-op"
    entry.instructions[0].shape.element_type = 99
    entry.instructions[1].operand_ids.append(123456)
    data = message.SerializeToString() + b"\xf2\x3f\x03abc"  # field 1022, which nobody knows
    module = read_proto(data)
    assert any(i.opcode == "brand-new-op" for i in module.instructions)
    assert any("type99" in i.shape.text for i in module.instructions)
    assert any("operand that is not in" in w.message for w in module.warnings)


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (0.1, "f64", "0.1"),
        (3.141592653589793, "f64", "3.1415926535897931"),
        (0.10000000149011612, "f32", "0.1"),
        (123456792.0, "f32", "123456792"),
        (1.17549435e-38, "f32", "1.17549435e-38"),
        (0.10009765625, "bf16", "0.1001"),
        (0.0999755859375, "f16", "0.099976"),
        (0.1015625, "f8e4m3fn", "0.102"),
        (float("inf"), "f32", "inf"),
        (-float("nan"), "f32", "-nan"),
    ],
)
def test_numbers_as_xla_prints_them(value: float, kind: str, text: str) -> None:
    assert float_text(value, kind) == text


def test_no_name_in_the_default_pool() -> None:
    """TensorFlow registers xla.*; our messages live elsewhere."""
    from google.protobuf import descriptor_pool

    message_class("HloModule")
    with pytest.raises(KeyError):
        descriptor_pool.Default().FindMessageTypeByName("xla.HloModuleProto")
    with pytest.raises(KeyError):
        descriptor_pool.Default().FindMessageTypeByName("hloscope.xla.HloModule")


LITERALS = {
    "elements in the order of another layout": "s32[2,3]{0,1} constant({{1, 2, 3}, {4, 5, 6}})",
    "rows of four dimensions": "s32[2,1,2,2]{3,2,1,0} constant({{{{1,2},{3,4}}},{{{5,6},{7,8}}}})",
    "four dimensions in another layout": "s32[1,2,2,2]{1,3,0,2} "
    "constant({{{{1,2},{3,4}},{{5,6},{7,8}}}})",
}


@pytest.mark.parametrize("what", LITERALS)
def test_literals_of_protos_are_those_of_the_text(what):
    text = f"HloModule m\n\nENTRY e {{\n  ROOT r = {LITERALS[what]}\n}}\n"
    printed, proto = through_xla(text)
    (of_text,), (of_proto,) = read_modules(printed), read_modules(proto)
    assert differences(of_text, of_proto) == []
    digits = [c for c in LITERALS[what].split("constant")[1] if c.isdigit()]
    found = re.sub(r"/\*.*?\*/", "", of_proto.entry.root.argument_text)
    assert [c for c in found if c.isdigit()] == digits


RARE = {
    "scaled-dot": "f32[16,32]{1,0} scaled-dot(a, b, c, d), lhs_contracting_dims={1}, "
    "rhs_contracting_dims={1}",
    "reshape": "s32[16,2]{1,0} reshape(e), inferred_dimension=0",
    "custom-call": 'f32[2]{0} custom-call(e), custom_call_target="k", literal=f32[] 0.5',
    "collective-permute": "s32[2,8,128]{2,1,0} collective-permute(g, h, i, i), "
    "source_target_pairs={{0,1},{1,0}}, slice_sizes={{1,8,128}}",
}


@pytest.mark.parametrize("opcode", RARE)
def test_rare_attributes_are_the_same_from_text_and_proto(opcode):
    text = (
        "HloModule m\n\nENTRY e {\n  a = f8e4m3fn[16,128]{1,0} parameter(0)\n"
        "  b = f8e5m2[32,128]{1,0} parameter(1)\n  c = f8e8m0fnu[16,4]{1,0} parameter(2)\n"
        "  d = f8e8m0fnu[32,4]{1,0} parameter(3)\n  e = s32[32]{0} parameter(4)\n"
        "  g = s32[2,8,128]{2,1,0} parameter(5)\n  h = s32[2,8,128]{2,1,0} parameter(6)\n"
        "  z = s32[] constant(0)\n  i = (s32[], s32[], s32[]) tuple(z, z, z)\n"
        f"  ROOT r = {RARE[opcode]}\n}}\n"
    )
    (m,) = read_modules(text)
    assert m.warnings == ()
    (of_text,), (of_proto,) = map(read_modules, through_xla(text))
    assert differences(of_text, of_proto) == []
    for key in ("slice_sizes", "inferred_dimension", "literal", "lhs_contracting_dims"):
        assert of_proto.entry.root.attribute(key) == m.entry.root.attribute(key)


def test_calls_of_what_is_not_there_and_shared_ids_are_said(built):
    message = message_class("HloModule")()
    message.ParseFromString(built.proto)
    message.computations[0].id = message.computations[1].id
    m = read_proto(message.SerializeToString())
    said = [str(w) for w in m.warnings]
    assert any("computations share an id" in w for w in said)
    assert any("which is not here" in w for w in said)


EVERYONE = """HloModule m, num_partitions=4

%sum {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %r = f32[] add(%x, %y)
}

ENTRY %e {
  %p = f32[64]{0} parameter(0)
  ROOT %all = f32[64]{0} all-reduce(%p), channel_id=1, GROUPS, to_apply=%sum
}
"""


@pytest.mark.parametrize("groups", ["replica_groups={}", "replica_groups={{0}}"])
def test_a_proto_that_does_not_count_its_devices_leaves_what_is_sent_unknown(groups, tmp_path):
    text, proto = through_xla(EVERYONE.replace("GROUPS", groups))
    (tmp_path / "m.hlo.pb").write_bytes(proto)
    of_text, of_proto = hs.read(text), hs.read(tmp_path / "m.hlo.pb")
    assert of_text.warnings == ()
    assert [r.wire_bytes for r in of_text.collectives] == [384]
    assert [r.wire_bytes for r in of_proto.collectives] == [None]
    (warning,) = of_proto.warnings
    assert "does not say on how many devices" in str(warning)
    assert "%all names no groups" in str(warning)


def test_what_is_sent_and_unknown_is_shown_as_unknown_everywhere(tmp_path):
    """Nobody knows what the only collective takes: neither 0 bytes nor 0 seconds."""
    _, proto = through_xla(EVERYONE.replace("GROUPS", "replica_groups={}"))
    (tmp_path / "m.hlo.pb").write_bytes(proto)
    cap = hs.read(tmp_path / "m.hlo.pb", hardware="tpu-v5e")
    assert cap.collectives.wire_bytes is None
    assert cap.collectives.total.is_lower_bound
    assert "unknown" in str(cap.collectives).splitlines()[-1]
    summary = cap.summary
    assert summary["wire_bytes"] is None
    assert [row["wire_bytes"] for row in summary["collectives"]] == [None]
    seconds = summary["modelled_seconds"]
    assert [seconds[k] for k in ("collective", "exposed", "total")] == [None] * 3
    roofline = cap.cost().roofline
    assert [i.name for i in roofline.unmodelled] == ["all"]
    assert np.isnan(roofline.step_seconds).sum() == 1
    assert "modelled on TPU v5e: unknown" in str(cap.cost())
    shown = summary_text(cap)
    assert re.search(r"modelled +unknown on tpu-v5e", shown)
    assert re.search(r"wire +unknown: 1 all-reduce", shown)
    assert hs.check(cap, max_wire_bytes="1TiB").problems
    assert figures(cap).seconds is None
    assert figures(cap).wire_bytes is None


def test_a_difference_with_what_is_unknown_is_unknown(tmp_path):
    text, proto = through_xla(EVERYONE.replace("GROUPS", "replica_groups={}"))
    (tmp_path / "m.hlo.pb").write_bytes(proto)
    known, unknown = hs.read(text), hs.read(tmp_path / "m.hlo.pb")
    diff = hs.diff(known, unknown)
    (before,) = (d for d in diff.collectives if d.a)
    assert (before.a, before.b) == (384, 0)  # over four devices: none of those here
    (after,) = (d for d in diff.collectives if d is not before)
    assert (after.a, after.b, after.change) == (0, None, None)
    assert re.search(r"all-reduce over unknown +0 B → unknown", str(diff))
    assert hs.diff(unknown, unknown).collectives == ()


def test_findings_about_what_is_unknown_name_no_bytes(tmp_path):
    constant = EVERYONE.replace("all-reduce(%p)", "all-reduce(%c)")
    constant = constant.replace("  ROOT %all", "  %c = f32[64]{0} constant({...})\n  ROOT %all")
    text, proto = through_xla(constant.replace("GROUPS", "replica_groups={}"))
    (tmp_path / "m.hlo.pb").write_bytes(proto)
    for cap, wire in ((hs.read(text), 384), (hs.read(tmp_path / "m.hlo.pb"), None)):
        (found,) = (f for f in cap.findings if f.rule == "collective-of-constant")
        assert found.bytes == wire


def test_time_beside_an_unknown_collective_is_the_least_there_is(tmp_path):
    text = EVERYONE.replace("GROUPS", "replica_groups={}").replace(
        "all-reduce(%p)", "all-reduce(%n)"
    )
    text = text.replace("  ROOT %all", "  %n = f32[64]{0} negate(%p)\n  ROOT %all")
    _, proto = through_xla(text)
    (tmp_path / "m.hlo.pb").write_bytes(proto)
    cap = hs.read(tmp_path / "m.hlo.pb", hardware="tpu-v5e")
    seconds = cap.summary["modelled_seconds"]
    assert seconds["total"] > 0
    assert seconds["communication_is_least"]
    assert re.search(r"modelled +≥ ", summary_text(cap))


def test_groups_that_name_devices_count_them(tmp_path):
    named = "replica_groups={{0,1,2,3}}, use_global_device_ids=true"
    _, proto = through_xla(EVERYONE.replace("GROUPS", named))
    (tmp_path / "m.hlo.pb").write_bytes(proto)
    cap = hs.read(tmp_path / "m.hlo.pb")
    assert cap.warnings == ()
    assert [r.wire_bytes for r in cap.collectives] == [384]
