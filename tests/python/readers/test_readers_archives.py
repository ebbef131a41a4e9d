"""Folders of dumps in tar and zip files, opened within limits; and HLO inside other files."""

from __future__ import annotations

import gzip
import io
import re
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hloscope import read
from hloscope.hlo.compare import differences
from hloscope.readers import ReadError, list_modules, read_modules
from hloscope.readers.files import archives
from hloscope.readers.formats import exported_program
from hloscope.readers.proto.schema import message_class

SMALL = (
    "HloModule jit_f, is_scheduled=true, entry_computation_layout={(f32[4]{0})->f32[4]{0}}\n\n"
    "ENTRY %main (x: f32[4]) -> f32[4] {\n  %x = f32[4]{0} parameter(0)\n"
    "  ROOT %y = f32[4]{0} negate(%x)\n}\n"
)
BEFORE = "module_0001.jit_f.before_optimizations.txt"
AFTER = "module_0001.jit_f.cpu_after_optimizations.txt"
FILES = {
    BEFORE: SMALL.replace("is_scheduled=true, ", ""),
    AFTER: SMALL,
    "module_0001.jit_f.cpu_after_optimizations-buffer-assignment.txt": "BufferAssignment:\n",
    "notes.md": "nothing",
}


def tar(mode: str, files: dict[str, str] = FILES, *more: tarfile.TarInfo) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as t:  # type: ignore[call-overload]
        for name, text in files.items():
            entry = tarfile.TarInfo(f"run/dump/{name}" if "/" not in name else name)
            entry.size = len(text)
            t.addfile(entry, io.BytesIO(text.encode()))
        for entry in more:
            t.addfile(entry)
    return out.getvalue()


def zipped(files: dict[str, str] = FILES) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as z:
        for name, text in files.items():
            z.writestr(name, text)
    return out.getvalue()


@pytest.mark.parametrize("kind", ["w", "w:gz", "w:xz", "w:bz2", "zip"])
def test_an_archive_is_opened_as_its_folder(tmp_path: Path, kind: str) -> None:
    data = zipped() if kind == "zip" else tar(kind)
    path = tmp_path / "dump.bin"
    path.write_bytes(data)
    for source in (path, data):
        cap = read(source)
        assert cap.stage == "cpu_after_optimizations"
        assert cap.module.is_scheduled
        assert not cap.warnings
        assert not read(source, stage="before_optimizations").module.is_scheduled
    assert [e.stage for e in list_modules(path)] == [
        "before_optimizations",
        "cpu_after_optimizations",
    ]


def test_members_that_lead_out_links_and_devices_are_passed_over(tmp_path: Path) -> None:
    link = tarfile.TarInfo("run/dump/module_0002.jit_g.after_optimizations.txt")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/hostname"
    hard = tarfile.TarInfo("run/dump/module_0003.jit_h.after_optimizations.txt")
    hard.type, hard.linkname = tarfile.LNKTYPE, "../../outside.txt"
    device = tarfile.TarInfo("run/dump/module_0004.jit_i.after_optimizations.txt")
    device.type = tarfile.CHRTYPE
    files = {**FILES, "../../outside.txt": SMALL, "/absolute/x.txt": SMALL}
    cap = read(tar("w:gz", files, link, hard, device))
    assert cap.module.name == "jit_f"
    (warning,) = cap.warnings
    assert "skipped" in warning
    for name in ("outside.txt", "x.txt", "jit_g", "jit_h", "jit_i"):
        assert name in warning
    assert not (tmp_path.parent / "outside.txt").exists()
    evil = read(zipped({**FILES, "..\\..\\outside.txt": SMALL}))
    assert "outside.txt" in evil.warnings[0]


def test_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MAX_TOTAL_BYTES", 1000)
    bomb = {**FILES, "module_0009.jit_f.after_optimizations.txt": "0" * 100_000}
    for data in (zipped(bomb), tar("w:gz", bomb)):
        with pytest.raises(ReadError, match="more than 1,000 bytes when unpacked"):
            read(data)
    monkeypatch.setattr(archives, "MAX_MEMBERS", 2)
    with pytest.raises(ReadError, match="more than 2 files"):
        read(zipped())


def test_archives_that_are_damaged_or_hold_nothing() -> None:
    with pytest.raises(ReadError, match="holds no HLO dump"):
        read(zipped({"a/readme.md": "x"}))
    data = zipped()
    with pytest.raises(ReadError):
        read(data[: len(data) // 2])
    cut = tar("w")
    assert "damaged" in read(cut[: len(cut) // 3]).warnings[0]


def test_an_exported_program(tmp_path: Path) -> None:
    """A flatbuffer with the bytecode behind its length, as jax.export writes it."""
    import jax
    from jax import export

    exported = export.export(jax.jit(lambda x: x * 2))(1.0)
    code = bytes(exported.mlir_module_serialized)
    assert not exported_program.accepts(code)
    data = b"\x3c\0\0\0" * 20 + len(code).to_bytes(4, "little") + code + b"tail\0\0"
    m = read(data).module
    assert [i.opcode for i in m.instructions][-2:] == ["multiply", "return"]
    try:
        real = exported.serialize()
    except ImportError:
        return  # flatbuffers is not installed
    assert differences(read(bytes(real)).module, m) == []


def test_compilation_cache_entries(compiled: Callable[..., Any]) -> None:
    built = compiled("switch_four")
    inner = b"\x08\x03\x12\x09pjrt_ifrt" + b"\x0a" + _varint(len(built.proto)) + built.proto
    m = read(zlib.compress(b"\0\0\0\x63" + inner + b"\x7fELF" + bytes(1000))).module
    assert differences(m, read_modules(built.proto)[0]) == []
    with pytest.raises(ReadError, match="keeps it on CPU only"):
        read(zlib.compress(b"\0\0\0\x63 nothing of the kind"))
    with pytest.raises(ReadError, match=r"zstandard|cannot be unpacked"):
        read(b"\x28\xb5\x2f\xfd damaged")


def _varint(n: int) -> bytes:
    out = b""
    while n > 0x7F:
        out += bytes([n & 0x7F | 0x80])
        n >>= 7
    return out + bytes([n])


def test_protos_as_text(compiled: Callable[..., Any]) -> None:
    from google.protobuf import text_format

    built = compiled("switch_four")
    message = message_class("HloModule")()
    message.ParseFromString(built.proto)
    text = re.sub(r"element_type: 11\b", "element_type: F32", text_format.MessageToString(message))
    text = re.sub(r"element_type: 4\b", "element_type: S32", text)
    assert "F32" in text
    wanted = read_modules(built.proto)[0]
    for whole in (
        text,
        f"hlo_module {{\n{text}}}\n",
        f"# a comment\nhlo {{ hlo_module {{ {text} }} }}",
    ):
        m = read(whole.encode()).module
        assert m.warnings == ()
        assert differences(m, wanted) == []
    new = read(text.replace("is_dynamic", "brand_new: SOME_VALUE is_dynamic", 1).encode())
    assert new.module.instructions
    with pytest.raises(ReadError, match="not an HLO proto as text"):
        read(b'hlo_module { name: "a" computations { } ] }')


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b'{"displayTimeUnit":"ns","traceEvents":[{"ph":"X"}]}', r"give the ….xplane\.pb"),
        (b"BufferAssignment:\nallocation 0: size 512, parameter 0\n", "holds no program"),
        (b"Memory Space: default (color=0)\nTotal bytes: 912 (912B)\n", "report of memory use"),
    ],
)
def test_files_beside_a_dump_say_what_to_give(data: bytes, said: str) -> None:
    for whole in (data, gzip.compress(data)):
        with pytest.raises(ReadError, match=said):
            read(whole)
