"""Small files that state large things: one of each kind that took gigabytes or minutes.

ATTACKS["a frame of a large number"]()     the bytes of the file
"""

from __future__ import annotations

import gzip
import io
import random
import re
import struct
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from hloscope.readers.proto.schema import message_class

HUGE = (1 << 17, 10**6, 10**7, 10**9 - 1, 1 << 31, 1 << 53, 1 << 62, (1 << 63) - 1, 10**30)
_SUM = """
%sum (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %ab = f32[] add(%a, %b)
}

"""


def _entry(*rows: str, head: str = "", before: str = "", root: str = "tanh(%x)") -> bytes:
    body = "".join(f"  {row}\n" for row in rows or ("%x = f32[8,8]{1,0} parameter(0)",))
    shape = rows[0].split(" = ")[1].split(" ")[0] if rows else "f32[8,8]{1,0}"
    return (
        f"HloModule m, is_scheduled=true{head}\n{before}\n"
        f"ENTRY %main (x: f32[8,8]) -> f32[8,8] {{\n{body}  ROOT %r = {shape} {root}\n}}\n"
    ).encode()


def _collective(attributes: str, head: str = ", num_partitions=4", op: str = "all-reduce") -> bytes:
    apply = ", to_apply=%sum" if op == "all-reduce" else ""
    row = "%x = f32[8,8]{1,0} parameter(0)"
    return _entry(row, head=head, before=_SUM, root=f"{op}(%x), channel_id=1, {attributes}{apply}")


def _frame(number: int) -> bytes:
    table = (
        '\nFileNames\n1 "/a/model.py"\n\nFunctionNames\n1 "f"\n\nFileLocations\n'
        "1 {file_name_id=1 function_name_id=1 line=3 end_line=3 column=1 end_column=2}\n\n"
        "StackFrames\n1 {file_location_id=1 parent_frame_id=1}\n\n"
    )
    named = 'metadata={op_name="jit(f)/tanh" stack_frame_id=%d}'
    row = f"%y = f32[8,8]{{1,0}} tanh(%x), {named % 1}"
    first = "%x = f32[8,8]{1,0} parameter(0)"
    return _entry(first, row, before=table, root=f"add(%x, %y), {named % number}")


def _shape(shape: str, op: str = "tanh(%x)") -> bytes:
    return _entry(f"%x = {shape} parameter(0)", root=op)


def loops(levels: int, trips: str = "2") -> bytes:
    text = (
        "HloModule m, is_scheduled=true\n\n"
        "%b0 (p: f32[8]) -> f32[8] {\n  %p = f32[8]{0} parameter(0)\n"
        "  ROOT %t = f32[8]{0} tanh(%p)\n}\n\n"
        "%c (p: f32[8]) -> pred[] {\n  %p = f32[8]{0} parameter(0)\n"
        "  ROOT %t = pred[] constant(true)\n}\n\n"
    )
    config = f'backend_config={{"known_trip_count":{{"n":"{trips}"}}}}'
    for k in range(1, levels):
        text += (
            f"%b{k} (p: f32[8]) -> f32[8] {{\n  %p = f32[8]{{0}} parameter(0)\n"
            f"  ROOT %w{k} = f32[8]{{0}} while(%p), condition=%c, body=%b{k - 1}, {config}\n}}\n\n"
        )
    return (
        f"{text}ENTRY %main (p: f32[8]) -> f32[8] {{\n  %p = f32[8]{{0}} parameter(0)\n"
        f"  ROOT %w = f32[8]{{0}} while(%p), condition=%c, body=%b{levels - 1}\n}}\n"
    ).encode()


def _many_groups(count: int) -> bytes:
    rows = ["%x = f32[8,8]{1,0} parameter(0)"]
    for k in range(count):
        groups = f"[{1 << 17 - k % 17},{1 << k % 17}]<=[2,{1 << 16}]T({k % 2},{1 - k % 2})"
        rows.append(
            f"%z{k} = f32[8,8]{{1,0}} all-reduce(%x), channel_id={k + 1}, replica_groups={groups}, "
            "use_global_device_ids=true, to_apply=%sum"
        )
    return _entry(*rows, head=", num_partitions=131072", before=_SUM)


def _tuples(leaves: int, copies: int) -> bytes:
    shape = f"({', '.join(['f32[8]{0}'] * leaves)})"
    rows = [f"%x = {shape} parameter(0)", f"%x0 = {shape} copy(%x)"]
    rows += [f"%x{k} = {shape} copy(%x{k - 1})" for k in range(1, copies)]
    return _entry(*rows, root=f"copy(%x{copies - 1})")


def _skipped_members(gib: int) -> bytes:
    """An archive most of which is no dump: GiB of zeros in some megabytes."""
    zeros = gzip.compress(bytes(64 << 20), 1)
    packed = b""
    for k in range(gib * 16):
        info = tarfile.TarInfo(f"d/weights_{k}.bin")
        info.size = 64 << 20
        packed += gzip.compress(info.tobuf()) + zeros
    info = tarfile.TarInfo("d/module_0001.f.after_optimizations.txt")
    text = _entry()
    info.size = len(text)
    return packed + gzip.compress(info.tobuf() + text + bytes(-len(text) % 512 + 1024))


def _large_directory(count: int) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for k in range(count):
            archive.writestr(f"d/{k}.txt", b"")
        archive.writestr("d/module_0001.f.after_optimizations.txt", _entry())
    return packed.getvalue()


def _proto(**numbers: int) -> bytes:
    module = message_class("HloModule")()
    module.name, module.id, module.entry_computation_id = b"m", 1, 1
    computation = module.computations.add(name=b"e", id=1, root_id=numbers.get("root_id", 2))
    f32 = {"element_type": 11, "dimensions": [numbers.get("dimension", 8)]}
    first = computation.instructions.add(id=1, name=b"p", opcode=b"parameter", shape=f32)
    first.parameter_number = numbers.get("parameter_number", 0)
    second = computation.instructions.add(id=2, name=b"t", opcode=b"tanh", shape=f32)
    second.operand_ids.append(numbers.get("operand_id", 1))
    second.channel_id = numbers.get("channel_id", 0)
    data: bytes = module.SerializeToString()
    return data


ATTACKS: dict[str, Callable[[], bytes]] = {
    "a frame of a large number": lambda: _frame(999_999_999),
    "ten million replicas": lambda: _collective("replica_groups={}", ", replica_count=10000000"),
    "fifty million partitions": lambda: _entry(head=", num_partitions=50000000"),
    "as many replicas as partitions": lambda: _collective(
        "replica_groups={}, use_global_device_ids=true",
        ", replica_count=65536, num_partitions=65536",
    ),
    "as many devices as there may be": lambda: _collective(
        "replica_groups={}, use_global_device_ids=true", ", num_partitions=131072"
    ),
    "groups of a large machine": lambda: _collective("replica_groups=[4096,4096]<=[16777216]"),
    "a mesh of a large machine": lambda: _collective(
        "replica_groups=mesh['a'=4096,'b'=4096] {'b'}, use_global_device_ids=true"
    ),
    "devices of large numbers": lambda: _collective("replica_groups={{0,999999999},{1,2}}"),
    "pairs of large numbers": lambda: _collective(
        "source_target_pairs={{0,999999999},{1,0}}", op="collective-permute"
    ),
    "many groups of many devices": lambda: _many_groups(400),
    "a mesh of Shardy's": lambda: (
        b"module @jit_f attributes {mhlo.num_partitions = 1000000000 : i32} {\n"
        b'  sdy.mesh @mesh = <["d"=1000000000]>\n'
        b"  func.func public @main(%arg0: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, "
        b'[{"d"}]>}) -> (tensor<8xf32>) {\n    %0 = stablehlo.tanh %arg0 : tensor<8xf32>\n'
        b"    return %0 : tensor<8xf32>\n  }\n}\n"
    ),
    "a mesh whose devices have large numbers": lambda: _entry(
        "%x = f32[8,8]{1,0} parameter(0), sharding={mesh['a'=2], device_ids=(0,999999999), "
        "[{'a'}, {}]}",
        head=", num_partitions=2",
    ),
    "a tiled sharding of a large machine": lambda: _entry(
        "%x = f32[8,8]{1,0} parameter(0), sharding={devices=[16777216,1]<=[16777216]}"
    ),
    "an array over 2**63": lambda: _shape("f32[4294967296,4294967296]"),
    "an array over a float": lambda: _shape(f"f32[{','.join(['9999999999999999999'] * 60)}]"),
    "arrays that are too large together": lambda: _entry(
        *(f"%x{k or ''} = f32[1125899906842624]{{0}} parameter({k})" for k in range(3000))
    ),
    "36 dimensions": lambda: _entry(
        f"%x = f32[{','.join('2' * 36)}] parameter(0), sharding={{devices=[2{',1' * 35}]<=[2]}}",
        head=", num_partitions=2",
    ),
    "large tiles": lambda: _shape("f32[8,8]{1,0:T(999999999,999999999)(99999999999999999999,2)}"),
    "a large memory space": lambda: _shape("f32[8,8]{1,0:S(99999999999999999999)}"),
    "a large kernel": lambda: _entry(
        "%x = f32[1,8,1]{2,1,0} parameter(0)",
        "%k = f32[1000000000,1,1]{2,1,0} parameter(1)",
        root="convolution(%x, %k), window={size=1000000000 pad=999999999_999999999}, "
        "dim_labels=b0f_0io->b0f",
    ),
    "a reduce without operands": lambda: _entry(
        before=_SUM, root="reduce(), dimensions={1}, to_apply=%sum"
    ),
    "numbers of elements and parameters": lambda: _entry(
        "%x = f32[8]{0} parameter(999999999)",
        "%t = (f32[8]{0}, f32[8]{0}) tuple(%x, %x)",
        head=", input_output_alias={ {999999999}: (999999999, {999999999}, may-alias) }",
        root="get-tuple-element(%t), index=999999999",
    ),
    "an element of what is not there": lambda: _entry(
        "%x = f32[8]{0} parameter(0)", root="get-tuple-element(%t), index=0"
    ),
    "loops in loops": lambda: loops(800),
    "loops that never end": lambda: loops(300, str(10**17)),
    "a tuple of many copies": lambda: _tuples(5000, 4),
    "members of an archive that are no dumps": lambda: _skipped_members(3),
    "a long list of members": lambda: _large_directory(60_000),
    "a proto's dimension": lambda: _proto(dimension=(1 << 63) - 1),
    "a proto's parameter": lambda: _proto(parameter_number=(1 << 62)),
    "a proto's operand": lambda: _proto(operand_id=1 << 40, root_id=1 << 40, channel_id=1 << 60),
}


_NUMBER = re.compile(rb"\d+")


def larger_numbers(r: random.Random, data: bytes) -> bytes:
    """Some numbers of a text are such that somebody may believe them."""
    found = list(_NUMBER.finditer(data))
    for m in sorted(
        r.sample(found, min(len(found), r.choice((1, 1, 3)))), key=lambda m: -m.start()
    ):
        data = data[: m.start()] + b"%d" % r.choice(HUGE) + data[m.end() :]
    return data


def larger_fields(kind: str) -> Callable[[random.Random, bytes], bytes]:
    """The same for fields of a proto of this kind."""

    def mutate(r: random.Random, data: bytes) -> bytes:
        message = message_class(kind)()
        message.ParseFromString(data)
        some = list(_numbers(message))
        for owner, field in r.sample(some, min(len(some), r.choice((1, 1, 3)))):
            _enlarge(r, owner, field)
        changed: bytes = message.SerializeToString()
        return changed

    return mutate


_INTEGERS = {
    FieldDescriptor.CPPTYPE_INT32: 31,
    FieldDescriptor.CPPTYPE_INT64: 63,
    FieldDescriptor.CPPTYPE_UINT32: 32,
    FieldDescriptor.CPPTYPE_UINT64: 64,
}


def _numbers(message: Any) -> Iterator[tuple[Any, Any]]:
    for field, value in message.ListFields():
        if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
            if field.message_type.GetOptions().map_entry:
                continue
            repeated = not hasattr(value, "ListFields")
            for inner in value if repeated else [value]:
                yield from _numbers(inner)
        elif field.cpp_type in _INTEGERS:
            yield message, field


def _enlarge(r: random.Random, owner: Any, field: Any) -> None:
    bits = _INTEGERS[field.cpp_type]
    number = min(r.choice(HUGE), (1 << bits) - 1)
    if field.cpp_type in (FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_INT64):
        number = r.choice((number, number, number, -1))
    value = getattr(owner, field.name)
    if isinstance(value, int):
        setattr(owner, field.name, number)
    elif len(value):
        value[r.randrange(len(value))] = number


def zip_that_lies(r: random.Random, data: bytes) -> bytes:
    """A zip file whose sizes are other ones."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("d/module_0001.f.after_optimizations.txt", data)
        archive.writestr("d/other.bin", bytes(r.randrange(1, 1 << 22)))
    out = bytearray(packed.getvalue())
    for m in list(re.finditer(b"PK\x01\x02", bytes(out))):
        if r.random() < 0.5:
            struct.pack_into(
                "<I", out, m.start() + r.choice((20, 24)), r.choice(HUGE[:5]) & 0xFFFFFFFF
            )
    return bytes(out)
