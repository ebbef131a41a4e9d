# ruff: noqa: E501
"""Modules of protos: which message it is, order and header, and what damage leaves at every byte."""

from __future__ import annotations

import random
from typing import Any

import pytest
from google.protobuf import text_format
from hloscope.hlo import Module
from hloscope.readers import ReadError
from hloscope.readers.proto.proto import MAX_WARNINGS, read_proto
from hloscope.readers.proto.schema import message_class
from hloscope.readers.recognise import is_proto, message_name

X = "instructions { id: 1 name: 'x' opcode: 'parameter' shape { element_type: 11 } } "
MAIN = f"computations {{ name: 'main' id: 2 root_id: 1 {X} }} "


def data_of(text: str, kind: str = "HloModule") -> bytes:
    data: bytes = text_format.Parse(text, message_class(kind)()).SerializeToString()
    return data


def module_of(text: str) -> Module:
    return read_proto(data_of(text))


def said(module: Module) -> list[str]:
    return [w.message for w in module.warnings]


def test_messages_are_told_apart_by_how_deep_the_name_lies() -> None:
    table = {
        b"": None,
        b"\x0a": None,
        b"\x0a\x80": None,  # a length that does not end
        b"\x0a" + b"\x80" * 10 + b"\x01": None,
        b"\x08\x01": None,
        b"\x12\x01x": "HloModule",  # no name: its entry's
        b"\x1a\x01x": None,
        b"\x0a\x03\x12\x01x": "HloProto",
        b"\x0a\x03\x1a\x01x": "HloProto",
        b"\x0a\x05\x0a\x03\x12\x01x": "HloSnapshot",
        b"\x0a\x05\x0a\x03\x12\x01x\x12": "HloSnapshot",
        b"\x0a\x07\x0a\x05\x0a\x03\x12\x01x": None,
        b"\x0a\x02ab\x12": "HloModule",
        b"\x0a\x02ab\x1a": "HloModule",
        b"\x0a\x02ab\x22": "HloModule",
        b"\x0a\x02ab": None,
        b"\x0a\x02ab\x2a": None,
        b"\x0a\x02ab ": None,
        b"\x0a\x02\xff\xfe\x12": None,  # no UTF-8
        b"\x0a\x02\xc3\xa9\x12": "HloModule",
        b"\x0a\x02\ta\x12": "HloModule",
        b"\x0a\x02\ta\x22": None,  # printable, then a name may be followed by this
        b"\x0a\x04\x0a\x02ab\x12\x01x": "HloProto",
        b"\x0a\x04\x0a\x03ab\x12\x01x": "HloModule",  # a name that begins with a line break
        b"\x0a\xff\x1f" + b"a" * 4095 + b"\x12": "HloModule",
        b"\x0a\x80\x20" + b"a" * 4096 + b"\x12": None,
    }
    for data, want in table.items():
        assert message_name(data) == want, data[:20]
        assert is_proto(data) == (want is not None)


def test_what_is_no_module_says_so() -> None:
    for data in (b"", b"\x0a", data_of("name: 'm'"), data_of("computations { name: 'c' }")):
        with pytest.raises(ReadError, match=r"^f\.pb is not an HLO proto"):
            read_proto(data, "f.pb")
        with pytest.raises(ReadError, match=r"^the data is not an HLO proto"):
            read_proto(data)


THREE = (
    "name: 'mo' entry_computation_name: 'main' entry_computation_id: 2 "
    f"computations {{ name: 'f' id: 3 root_id: 1 {X} }} "
    f"computations {{ name: 'g' id: 4 root_id: 1 {X} }} {MAIN}"
)


def wrapped_in(kind: str, data: bytes) -> bytes:
    message = message_class(kind)()
    inner = message.hlo_module if kind == "HloProto" else message.hlo.hlo_module
    inner.ParseFromString(data)
    if kind == "HloProto":
        message.buffer_assignment.logical_buffers.add(id=7, size=12).defined_at.instruction_id = 1
    whole: bytes = message.SerializeToString()
    return whole


def test_a_cut_at_any_byte_leaves_the_computations_before_it() -> None:
    """Of each of the three messages; those that are whole are there, and it is said."""
    plain = data_of(THREE)
    assert said(read_proto(plain)) == []
    assert read_proto(plain).buffer_assignment is None
    held = read_proto(wrapped_in("HloProto", plain)).buffer_assignment
    assert held is not None
    assert [(b.id, b.instruction) for b in held.buffers] == [(7, "x")]
    for kind in ("HloModule", "HloProto", "HloSnapshot"):
        data = plain if kind == "HloModule" else wrapped_in(kind, plain)
        skipped = data.index(plain[:10])
        ends = [plain.index(name, 8) for name in (b"\x0a\x01f", b"\x0a\x01g", b"\x0a\x04main\x12")]
        ends = [skipped + e + plain[e - 1] for e in ends]
        assert ends[-1] <= len(data)
        for end in range(skipped + 12, len(data)):
            whole = sum(e <= end for e in ends)
            if message_name(data[:end]) != kind or not whole:
                continue
            module = read_proto(data[:end])
            assert [c.name for c in module.computations] == ["f", "g", "main"][:whole], (kind, end)
            assert [i.name for i in module.instructions] == ["x"] * whole
            if end in ends[:2] and kind == "HloModule":
                assert said(module) == ["no computation is named as the entry"]
            elif end < ends[2]:
                assert said(module) == [
                    "the dump is cut off or damaged; the rest was read",
                    "no computation is named as the entry",
                ]


def test_fields_of_every_wire_type_are_stepped_over_and_one_that_is_damaged_left_out() -> None:
    begin, last = data_of("name: 'mo' " + MAIN), b"\x1a\x04\x0a\x02n"  # the last one is cut
    cut = "the dump is cut off or damaged; the rest was read"
    first = begin[:4] + b"\x12\x04main"
    for between in (
        b"", b"\xf0\x3f\x81\x01", b"\xf1\x3f12345678", b"\xf5\x3f1234", b"\xf2\x3f\x03abc",
        b"\xf0\x3f\x00", b"\xf2\x3f\x00",
    ):  # fmt: skip
        module = read_proto(first + between + begin[4:] + last)
        assert [c.name for c in module.computations] == ["main"], between
        assert said(module) == [cut], between
        assert module.entry is module.computations[0]  # by its name: there is no id
    # a computation in the middle that is none
    module = read_proto(first + b"\x1a\x02\x0a\x09" + begin[4:])
    assert [c.name for c in module.computations] == ["main"]
    assert said(module) == [cut]
    for stop in (b"\x00", b"\xf3\x3f", b"\xf7\x3f", b"\xf2\x3f\xff", b"\xf0\x3f\xff", b"\xff" * 11):
        behind = stop if stop[-1:] != b"\xff" else stop + b"\xff" * 10
        module = read_proto(first + begin[4:] + behind + begin[4:].replace(b"main", b"more"))
        assert [c.name for c in module.computations] == ["main"], stop


def test_computations_are_ordered_as_xla_prints_them() -> None:
    """Against recursion: callees before callers, in order of the calling instructions' ids."""
    dice = random.Random(3)
    for _ in range(60):
        n = dice.randint(1, 7)
        calls = {
            k: [(dice.randint(1, 99), dice.randint(1, n + 1)) for _ in range(dice.randint(0, 3))]
            for k in range(1, n + 1)
        }
        order = dice.sample(range(1, n + 1), n)
        text = "name: 'm' entry_computation_id: 1 "
        for k in order:
            own = {number: called for number, called in calls[k]}
            calls[k] = list(own.items())
            text += f"computations {{ name: 'c{k}' id: {k} root_id: 100 "
            text += "instructions { id: 100 name: 'r' opcode: 'add' shape { element_type: 11 } } "
            for number, called in own.items():
                text += (
                    f"instructions {{ id: {number} name: 'i{number}' opcode: 'call' "
                    f"called_computation_ids: {called} shape {{ element_type: 11 }} }} "
                )
            text += "} "
        seen: list[int] = []

        def visit(k: int, seen: list[int] = seen, calls: Any = calls, path: Any = set()) -> None:  # noqa: B006
            if k in path or k not in calls:
                return
            path.add(k)
            for _, called in sorted(calls[k]):
                visit(called, path=path)
            seen.append(k)

        called = {k for own in calls.values() for _, k in own}
        path: set[int] = set()
        for k in [*(k for k in order if k not in called), *order]:
            visit(k, path=path)
        module = module_of(text)
        assert [c.name for c in module.computations] == [f"c{k}" for k in seen]
        assert [i.index for i in module.instructions] == list(range(len(module.instructions)))
        assert [c.index for c in module.computations] == list(range(n))
        assert module.entry is not None
        assert module.entry.name == "c1"
        for c in module.computations:
            assert c.root is not None
            assert c.root.name == "r"
            assert [i.is_root for i in c.instructions] == [i.name == "r" for i in c.instructions]


def instruction(number: int, name: str, opcode: str, more: str = "") -> str:
    return (
        f"instructions {{ id: {number} name: '{name}' opcode: '{opcode}' "
        f"shape {{ element_type: 11 }} {more} }} "
    )


def test_a_schedule_is_the_order_of_instructions() -> None:
    body = "".join(
        instruction(k, f"i{k}", "parameter", f"parameter_number: {k}") for k in range(1, 5)
    )
    base = f"name: 'm' entry_computation_id: 2 computations {{ name: 'main' id: 2 {body} }} "
    for order, want in (
        ([3, 1, 4, 2], "3142"),
        ([3, 77, 1], "3124"),
        ([], "1234"),
        ([4, 4], "4123"),
    ):
        module = module_of(
            base + f"schedule {{ sequences {{ key: 2 value {{ instruction_ids: {order} }} }} }}"
        )
        assert "".join(i.name[1:] for i in module.instructions) == want
        assert [i.argument_text for i in module.instructions] == list(want)
        assert module.attributes == {"is_scheduled": "true"}
        assert module.entry is not None
        assert module.entry.root is None
    assert module_of(base + "schedule { }").attributes == {}


def test_headers_as_xla_prints_them() -> None:
    many = "parameters { element_type: 11 } " * 6
    table = {
        "input_output_alias { }": {},
        "input_output_alias { entries { output_shape_index: 1 parameter_number: 2 parameter_shape_index: [3, 4] "
        "kind: 2 } entries { kind: 1 } entries { kind: 9 } }": {
            "input_output_alias": "{ {1}: (2, {3,4}, must-alias), {}: (0, {}, may-alias), {}: (0, {}, may-alias) }"
        },
        "buffer_donor { entries { parameter_number: 1 parameter_shape_index: 2 } entries { } }": {
            "buffer_donor": "{ (1, {2}), (0, {}) }"
        },
        "host_program_shape { result { element_type: 4 } }": {"entry_computation_layout": "{()->s32[]}"},
        f"host_program_shape {{ {many} result {{ element_type: 13 {many.replace('parameters', 'tuple_shapes')} }} }}": {
            "entry_computation_layout": "{(f32[], f32[], f32[], f32[], f32[], /*index=5*/f32[])->"
            "(f32[], f32[], f32[], f32[], f32[], /*index=5*/f32[])}"
        },
        "device_assignment { computation_count: 1 replica_count: 1 }": {},
        "device_assignment { computation_count: 2 replica_count: 3 }": {"num_partitions": "2", "replica_count": "3"},
        "frontend_attributes { map { key: 'a' value: 'b' } }": {"frontend_attributes": '{a="b"}'},
    }  # fmt: skip
    for text, want in table.items():
        assert module_of(f"name: 'm' entry_computation_id: 2 {MAIN} {text}").attributes == want, (
            text
        )
    module = module_of(
        f"name: 'm' entry_computation_id: 2 {MAIN} stack_frame_index {{ file_names: 'a.py' "
        "function_names: 'f' file_locations { file_name_id: 1 function_name_id: 1 line: 3 column: 4 "
        "end_line: 5 end_column: 6 } stack_frames { file_location_id: 1 parent_frame_id: 0 } }"
    )
    assert module.frames.locations == ((1, 1, 3, 5, 4, 6),)
    assert (module.frames.files, module.frames.functions) == (("a.py",), ("f",))
    assert module.frames.frames == ((1, 0),)
    assert module_of(MAIN).name == "module"
    named = MAIN + "computations { name: 'f' id: 5 execution_thread: 't' " + X + "} "
    module = module_of("name: 'm' entry_computation_name: 'main' " + named)
    assert [(c.name, c.is_entry, c.attribute_text) for c in module.computations] == [
        ("main", True, ""), ("f", False, 'execution_thread="t"'),
    ]  # fmt: skip
    # an id is worth more than a name
    module = module_of("entry_computation_name: 'main' entry_computation_id: 5 " + named)
    assert module.entry is not None
    assert module.entry.name == "f"
    thread = f"entry_computation_id: 2 computations {{ name: 'main' id: 2 execution_thread: 'main' {X} }}"
    assert module_of(thread).computations[0].attribute_text == ""


def test_operands_and_what_is_said_of_strange_ones() -> None:
    several = "".join(
        instruction(k, f"p{k}", "parameter", f"parameter_number: {k - 1}") for k in range(1, 7)
    )

    def of(more: str, begin: str = several) -> Module:
        return module_of(
            f"entry_computation_id: 2 computations {{ name: 'main' id: 2 root_id: 9 {begin}{more} }}"
        )

    five = of(instruction(9, "r", "tuple", "operand_ids: [1, 2, 3, 4, 5]")).find("r")
    assert five.argument_text == "%p1, %p2, %p3, %p4, %p5"
    six = of(instruction(9, "r", "tuple", "operand_ids: [1, 2, 3, 4, 5, 6]")).find("r")
    assert six.argument_text == "%p1, %p2, %p3, %p4, %p5, /*index=5*/%p6"
    assert [o.name for o in six.operands] == ["p1", "p2", "p3", "p4", "p5", "p6"]
    module = of(instruction(9, "r", "tuple", "operand_ids: [1, 77]"))
    assert said(module) == ["%r has an operand that is not in %main"]
    assert module.find("r").operands == (module.find("p1"),)
    module = of(instruction(9, "r", "constant", "literal { shape { element_type: 4 } s32s: 7 }"))
    assert module.find("r").argument_text == "7"
    module = of(instruction(9, "p1", "Add") + instruction(10, "q", "Add"))
    assert said(module) == ["strange opcode b'Add'", "two instructions named 'p1' in %main"]
    module = of(instruction(6, "q", "add"))
    assert said(module) == ["instructions of %main share an id; the last of each was kept"]
    assert [i.name for i in module.instructions] == ["p1", "p2", "p3", "p4", "p5", "q"]
    twice = module_of("name: 'm' entry_computation_id: 2 " + MAIN + MAIN.replace("'x'", "'y'"))
    assert said(twice) == ["computations share an id; the last of each was kept"]
    strange = of(
        instruction(9, "r", "add").replace("element_type: 11", "element_type: 11 dimensions: -3")
    )
    assert said(strange) == ["not a shape: 'f32[-3]'"]
    unknown = of(instruction(9, "r", "add").replace("element_type: 11", "element_type: 99"))
    assert said(unknown) == ["'type99' is not an element type known here: 0 bytes are counted"]
    for extra in (0, 1, 2):
        body = "".join(
            instruction(k, f"i{k}", "add", "operand_ids: 7777") for k in range(MAX_WARNINGS + extra)
        )
        told = said(of(body, begin=""))
        assert len(told) == MAX_WARNINGS + bool(extra)
        assert told[MAX_WARNINGS:] == ([f"{extra} more warnings"] if extra else [])
