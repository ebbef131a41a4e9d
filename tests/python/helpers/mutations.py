"""Damages real dumps, for the fuzz tests and ``scripts/fuzz.py``, and reads all of a Module."""

from __future__ import annotations

import gzip
import io
import random
import re
import tarfile
import zipfile
from collections.abc import Callable

from hloscope.hlo import Module
from hloscope.hlo.compare import differences
from hloscope.hlo.texts.printer import to_text
from hloscope.readers import ReadError, read_modules
from hloscope.readers.files.decode import to_text as decode
from hloscope.readers.hlo.text import read_hlo_text
from hloscope.readers.proto.proto import message_name, read_proto
from hloscope.readers.recognise import is_stablehlo
from hloscope.readers.stablehlo.text import read_all
from token_accounting import unaccounted, unaccounted_proto

Mutation = Callable[[random.Random, bytes], bytes]
_BRACKETS = (b"(", b"{", b"[", b"<", b"(f32[2], ", b"tensor<", b"loc(", b"{ {", b'"', b"/*")
_NUMBER = re.compile(rb"\d+")


def _span(r: random.Random, data: bytes, most: int = 400) -> tuple[int, int]:
    begin = r.randrange(len(data) + 1)
    return begin, min(len(data), begin + r.randrange(1, most))


def cut(r: random.Random, data: bytes) -> bytes:
    """A part is missing, or everything after a point."""
    begin, end = _span(r, data)
    return data[:begin] if r.random() < 0.3 else data[:begin] + data[end:]


def swap(r: random.Random, data: bytes) -> bytes:
    (a, b), (c, d) = sorted((_span(r, data), _span(r, data)))
    if b > c:
        return data[c:] + data[:c]
    return data[:a] + data[c:d] + data[b:c] + data[a:b] + data[d:]


def repeat(r: random.Random, data: bytes) -> bytes:
    begin, end = _span(r, data)
    return data[:end] + data[begin:end] * r.randrange(1, 40) + data[end:]


def junk(r: random.Random, data: bytes) -> bytes:
    begin, end = _span(r, data, 30)
    return data[:begin] + r.randbytes(r.randrange(1, 30)) + data[end:]


def flip(r: random.Random, data: bytes) -> bytes:
    out = bytearray(data)
    for _ in range(r.randrange(1, 12)):
        if out:
            out[r.randrange(len(out))] = r.randrange(256)
    return bytes(out)


def huge_numbers(r: random.Random, data: bytes) -> bytes:
    big = b"9" * r.choice((10, 19, 20, 5000))
    found = list(_NUMBER.finditer(data))
    for m in sorted(r.sample(found, min(len(found), 5)), key=lambda m: -m.start()):
        data = data[: m.start()] + r.choice((b"", b"-")) + big + data[m.end() :]
    return data


def nesting(r: random.Random, data: bytes) -> bytes:
    at = r.randrange(len(data) + 1)
    return data[:at] + r.choice(_BRACKETS) * r.choice((10, 1000, 30_000)) + data[at:]


def splice(r: random.Random, data: bytes) -> bytes:
    """Lines in another order."""
    lines = data.split(b"\n")
    for _ in range(r.randrange(1, 6)):
        i, j = r.randrange(len(lines)), r.randrange(len(lines))
        lines[i], lines[j] = lines[j], lines[i]
    return b"\n".join(lines)


def compressed(r: random.Random, data: bytes) -> bytes:
    """Damaged inside gzip, or the gzip itself damaged."""
    if r.random() < 0.5:
        return gzip.compress(flip(r, data), 1)
    return flip(r, gzip.compress(data, 1))


_JOINT = re.compile(rb", | = |\(|\{|\}, ")


def odd_blanks(r: random.Random, data: bytes) -> bytes:
    """Line breaks, tabs and comments between tokens, some of them in invalid places."""
    blanks = (b"\n", b"\n    ", b"\t", b"  ", b" /* x = { */ ", b" // ) }\n", b"\n}\n")
    found = list(_JOINT.finditer(data))
    for m in sorted(r.sample(found, min(len(found), 12)), key=lambda m: -m.start()):
        data = data[: m.end()] + r.choice(blanks) + data[m.end() :]
    return data


def long_attributes(r: random.Random, data: bytes) -> bytes:
    """Attributes over several lines, with braces, quotes and code in them, closed or not."""
    values = (
        b'{kernel={\n"a": "}{",\n"b": {\n}\n}}', b'{x="line\nline }, calls=%no"}',
        b"{\n{devices=[2]<=[2]}, /*index=5*/{replicated}\n}", b"{a={\n", b'{b="\n',
        b"{\n y = f32[] add(a, b)\n}",
    )  # fmt: skip
    ends = [m.start() for m in re.finditer(rb"\)\n", data)]
    for at in sorted(r.sample(ends, min(len(ends), 4)), reverse=True):
        data = data[: at + 1] + b", frontend_attributes=" + r.choice(values) + data[at + 1 :]
    return data


_STAMP = b"I0521 12:04:45.883483    1509 service.cc:186] "
_BEFORE = (b"[rank0]: ", b"> ", _STAMP, b"trainer-1  | ", b"\x1b[32m", b"12: ", b"# ", b"    ")


def log_prefixes(r: random.Random, data: bytes) -> bytes:
    """Prefixes of loggers before each line of a part or of all; some lines without."""
    lines, before = data.split(b"\n"), r.choice(_BEFORE)
    begin = r.choice((0, r.randrange(len(lines))))
    end = r.choice((len(lines), r.randrange(begin, len(lines)) + 1))
    skipped = r.choice((0.0, 0.0, 0.02, 0.5))
    return b"\n".join(
        before + line if begin <= n < end and r.random() >= skipped else line
        for n, line in enumerate(lines)
    )


def archives(r: random.Random, data: bytes) -> bytes:
    """An archive of a folder: the dump, notes and other files; damaged or not."""
    packed = io.BytesIO()
    files = {"d/module_0001.f.after_optimizations.txt": data, "d/notes.txt": b"x = {\n" * 9,
             "../up.hlo": data[:500], "d/module_0002.g.hlo.pb": flip(r, data)}  # fmt: skip
    if r.random() < 0.5:
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as z:
            for name, content in files.items():
                z.writestr(name, content)
    else:
        with tarfile.open(fileobj=packed, mode=r.choice(("w", "w:gz"))) as t:
            for name, content in files.items():
                info = tarfile.TarInfo(name)
                info.size = len(content)
                t.addfile(info, io.BytesIO(content))
    return r.choice((flip, cut, lambda r, d: d))(r, packed.getvalue())


def two_dumps(r: random.Random, data: bytes) -> bytes:
    """One dump behind or within another, with or without a line between."""
    at = r.choice((len(data), r.randrange(len(data) + 1)))
    other = data if r.random() < 0.5 else data[_span(r, data, 20_000)[0] :]
    return data[:at] + r.choice((b"", b"\n", b"\n-----\n", b"\n}\n")) + other + data[at:]


def in_place(r: random.Random, data: bytes) -> bytes:
    """Computations written out as attributes, nested or in a list, closed or not."""
    one = b"{\n a = f32[] parameter(0)\n ROOT b = f32[] negate(a)\n}"
    values = (
        b"to_apply=" + one,
        b"calls=\n" + one,
        b"branch_computations={\n" + one + b",\n" + one + b"}",
        b"called_computations={\n" + one + b"\n}",
        b"calls={\n c = f32[] add(d, d), calls=\n" + one + b"\n}",
        b"branch_computations={\n" + one + b",\n{\n",
        b"to_apply={\n {\n }\n a = f32[] parameter(0)\n }",
    )
    ends = [m.start() for m in re.finditer(rb"\)\n", data)]
    for at in sorted(r.sample(ends, min(len(ends), 4)), reverse=True):
        data = data[: at + 1] + b", " + r.choice(values) + data[at + 1 :]
    return data


MUTATIONS: dict[str, Mutation] = {
    "cut": cut,
    "swap": swap,
    "repeat": repeat,
    "junk bytes": junk,
    "flipped bytes": flip,
    "huge numbers": huge_numbers,
    "deep nesting": nesting,
    "lines swapped": splice,
    "odd blanks": odd_blanks,
    "long attributes": long_attributes,
    "computations in place": in_place,
    "log prefixes": log_prefixes,
    "two dumps": two_dumps,
    "archives": archives,
    "gzip": compressed,
}


def window(r: random.Random, data: bytes, size: int = 24_000) -> bytes:
    """A part of a large dump, with its head, so that 20,000 mutations end in time."""
    if len(data) <= size:
        return data
    begin = r.randrange(len(data) - size)
    return data[:300] + b"\n\n" + data[begin : begin + size]


def read_every_way(data: bytes) -> list[Module]:
    """All readers on the same bytes. Anything but ``ReadError`` is a bug, and so is a
    ``ReadError`` with another exception as its cause."""
    modules = []
    text, _ = decode(data)
    for attempt in (
        lambda: read_modules(data),
        lambda: [_counted_proto(data, read_proto(data))],
        lambda: _counted(text, read_hlo_text(text)),
        lambda: _counted(text, read_all(text)),
    ):
        try:
            modules += attempt()
        except ReadError as e:
            if e.__cause__ is not None:
                raise e.__cause__ from e
    for m in modules:
        touch(m)
    return modules


def _counted(text: str, modules: list[Module]) -> list[Module]:
    """Asserts that nothing of the text is lost, unless a warning names its line."""
    is_mlir = is_stablehlo(text.encode("utf-8", "replace"))
    if is_mlir == any(m.dialect == "stablehlo" for m in modules):
        assert unaccounted(text, modules) == []
    return modules


def _counted_proto(data: bytes, module: Module) -> Module:
    assert unaccounted_proto(data, module, message_name(data) or "HloModule") == []
    return module


def touch(module: Module) -> None:
    """Reads everything that is parsed lazily; prints; compares."""
    module.operand_csr()
    module.called_csr()
    module.op_names()
    module.source_frames()
    _ = (module.input_output_alias, module.num_partitions, module.replica_count, module.text)
    for i in module.instructions:
        _ = (i.attributes, i.metadata, i.frames, i.called, i.users, i.sharding_text)
        _ = (i.control_predecessors, i.backend_config_json, i.fusion_kind, i.channel_id)
        _ = (i.custom_call_target, i.parameter_number, i.literal, i.shape.byte_size)
        _ = (i.shape.dense_text, i.shape.elements, list(i.shape.leaves()))
        if i.text_span is not None:
            assert 0 <= i.text_span[0] <= i.text_span[1] <= len(module.text), i.text_span
    assert [i.index for i in module.instructions] == list(range(len(module.instructions)))
    for w in module.warnings:
        assert str(w)
    printed = to_text(module)
    if len(printed) < 100_000:
        read_hlo_text(printed)
    assert differences(module, module) == []
