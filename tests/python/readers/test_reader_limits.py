# ruff: noqa: E501
"""What files are told by, which of a folder or archive is taken, and both sides of each limit."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from hloscope.readers import ReadError
from hloscope.readers.entries import ModuleEntry, choose_module, name_or_number, suggest
from hloscope.readers.files import archives, decode, gzipped
from hloscope.readers.files.dump_directory import choose_entry, list_directory
from hloscope.readers.files.pass_dump import list_passes, pass_of
from hloscope.readers.formats import beside_a_dump, compilation_cache, hlo_proto_text
from hloscope.readers.hlo.frame_tables import FrameTableBuilder
from hloscope.readers.hlo.log_prefixes import strip
from test_proto_modules import THREE, data_of, said

SMALL = "HloModule m\nENTRY e {\n  ROOT c = f32[] constant(1)\n}\n"
DUMP = "module_0001.m.after_optimizations.txt"


def refused(do: Callable[[], Any]) -> str:
    with pytest.raises(ReadError) as found:
        do()
    return str(found.value)


def tarred(files: dict[str, str], kinds: dict[str, bytes] | None = None) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as t:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            entry.type = (kinds or {}).get(name, tarfile.REGTYPE)
            t.addfile(entry, io.BytesIO(text.encode()))
    return out.getvalue()


def zipped(files: dict[str, str], modes: dict[str, int] | None = None) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as z:
        for name, text in files.items():
            info = zipfile.ZipInfo(name)
            info.external_attr = (modes or {}).get(name, 0) << 16
            z.writestr(info, text)
    return out.getvalue()


def names_of(folder: Path) -> list[str]:
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())


def test_archives_are_told_by_their_content() -> None:
    tar = tarred({DUMP: SMALL})
    table = {
        tar: True, gzip.compress(tar): True, lzma.compress(tar): True, bz2.compress(tar): True,
        zipped({DUMP: SMALL}): True, b"": False, SMALL.encode(): False, gzip.compress(b"x" * 600): False,
        lzma.compress(b"x" * 600): False, bz2.compress(b"x"): False, b"\x1f\x8bnothing": False, b"BZhnothing": False,
        b"\xfd7zXZ\0nothing": False, b"PK\x03\x05" + b"x" * 600: False, b"x" * 256 + b"ustar": False,
        b"x" * 257 + b"ustar": True, b"x" * 258 + b"ustar": False,
        gzip.compress(b"x" * 257 + b"ustar"): True, gzip.compress(b"x" * 256 + b"ustar" + b"x"): False,
    }  # fmt: skip
    for data, want in table.items():
        assert archives.is_archive(data) == want, data[:20]


def test_members_go_where_they_say_and_nowhere_else() -> None:
    long = "n" * 251 + ".txt"
    deep = "/".join(["d"] * 31)
    files = {
        DUMP: SMALL, f"a/{DUMP}": SMALL, "read.me": "no", "X.HLO": "x", "y.pb.gz": "y", "z.json": "z", ".txt": "no",
        f"{deep}/e.txt": "e", f"{deep}/d/f.txt": "no", long: "l", "n" + long: "no", "../out.txt": "no",
        "a/../../out.txt": "no", "/abs.txt": "no", "C:\\w.txt": "no", "b\\c.txt": "c",
    }  # fmt: skip
    want = [DUMP, "X.HLO", f"a/{DUMP}", "b/c.txt", f"{deep}/e.txt", long, "y.pb.gz", "z.json"]
    for data in (tarred(files), zipped(files)):
        root = archives.unpack(data, "x.tar")
        assert names_of(root) == sorted(want)
        (note,) = archives.notes(root)
        assert note.startswith("skipped in x.tar, not plain files within it: ")
        assert note.endswith(" and 1 more")
    kinds = {
        "link.txt": tarfile.SYMTYPE,
        "folder.txt": tarfile.DIRTYPE,
        "fifo.txt": tarfile.FIFOTYPE,
    }
    root = archives.unpack(tarred({DUMP: SMALL, **dict.fromkeys(kinds, "")}, kinds), "")
    assert names_of(root) == [DUMP]
    assert archives.notes(root) == (
        "skipped in the archive, not plain files within it: link.txt, fifo.txt",
    )
    modes = {"plain.txt": 0o100644, "link.txt": 0o120777, "none.txt": 0, "dir/": 0o040755}
    root = archives.unpack(zipped({DUMP: SMALL, **dict.fromkeys(modes, "")}, modes), "")
    assert names_of(root) == [DUMP, "none.txt", "plain.txt"]
    assert archives.notes(root) == ("skipped in the archive, not plain files within it: link.txt",)
    assert archives.notes(Path("/nowhere")) == ()


def test_of_an_archive_s_folders_the_one_with_most_modules_is_taken() -> None:
    two = {f"b/module_000{k}.m.after_optimizations.txt": SMALL for k in (1, 2)}
    assert archives.unpack(tarred({f"a/{DUMP}": SMALL, **two, f"c/{DUMP}": SMALL}), "").name == "b"
    assert archives.unpack(tarred({f"c/{DUMP}": SMALL, f"a/{DUMP}": SMALL}), "").name == "a"
    trace = archives.unpack(tarred({"plugins/profile/1/h.xplane.pb.txt": "x"}), "")
    assert trace.name == "1"
    assert archives.unpack(zipped({"p/h.xplane.pb": "x"}), "").name == "p"
    assert refused(lambda: archives.unpack(tarred({"a/b.json": "{}"}), "t")) == (
        "t is an archive that holds no HLO dump"
    )


def test_limits_of_archives() -> None:
    files = {f"{k}.txt": "x" * 10 for k in range(5)}
    for data in (tarred(files), zipped(files)):
        for name, limit, fits in (
            ("MAX_MEMBERS", 5, True), ("MAX_MEMBERS", 4, False), ("MAX_MEMBER_BYTES", 10, True),
            ("MAX_MEMBER_BYTES", 9, False), ("MAX_TOTAL_BYTES", 50, True), ("MAX_TOTAL_BYTES", 49, False),
        ):  # fmt: skip
            with mock.patch.object(archives, name, limit):
                if fits:
                    assert len(names_of(archives.unpack(data, ""))) == 5
                else:
                    assert refused(lambda data=data: archives.unpack(data, "")).startswith(
                        "the archive holds more than "
                    )
    kept = [archives.unpack(tarred({DUMP: SMALL}), "") for _ in range(archives.MAX_KEPT + 1)]
    assert [p.exists() for p in kept] == [False, *[True] * archives.MAX_KEPT]


def test_archives_cut_at_any_block_keep_the_files_before() -> None:
    data = tarred({f"module_000{k}.m.after_optimizations.txt": SMALL for k in (1, 2)})
    for end in range(512, len(data), 512):
        part = data[:end]
        if end < 1024:
            continue
        root = archives.unpack(part, "")
        assert len(names_of(root)) == (1 if end < 1536 else 2), end
        cut = any(part[-512:])
        assert (archives.notes(root) != ()) == cut, end
        if cut:
            assert "the rest, because the archive is damaged" in archives.notes(root)[0]
    assert refused(lambda: archives.unpack(b"PK\x03\x04nothing", "z")).startswith(
        "z cannot be unpacked: "
    )


def test_gzip_is_unpacked_up_to_a_limit_and_as_far_as_it_is_whole() -> None:
    text = bytes(range(256)) * 40
    one, rest = gzip.compress(text), "; the rest was read"
    for unwrap, data in (
        (gzipped.unwrap, one), (gzipped.unwrap, one + gzip.compress(b"more")),
        (gzipped.unwrap_other, bz2.compress(text)), (gzipped.unwrap_other, lzma.compress(text)),
    ):  # fmt: skip
        want = text + (b"more" if unwrap is gzipped.unwrap and data != one else b"")
        assert unwrap(data) == (want, [])
        assert unwrap(data, limit=len(want)) == (want, [])
        assert refused(lambda: unwrap(data, "f", len(want) - 1)) == (  # noqa: B023
            f"f holds more than {len(want) - 1:,} bytes when unpacked; unpack it yourself and read "
            "the part that is wanted"
        )
    for unwrap, data, kind in (
        (gzipped.unwrap, one, "gzip"), (gzipped.unwrap_other, lzma.compress(text), "xz"),
    ):  # fmt: skip
        found, warnings = unwrap(data[:-9])
        assert text.startswith(found), kind
        assert len(found) > 9000, kind
        assert [w.message for w in warnings] == [f"the {kind} data is cut off{rest}"]
        assert "nothing in it can be decompressed" in refused(lambda: unwrap(data[:10], "f"))  # noqa: B023
    assert [
        w.message for w in gzipped.unwrap_other(bz2.compress(os.urandom(1_000_000))[:-9])[1]
    ] == [f"the bzip2 data is cut off{rest}"]
    wrong = bytearray(one)
    wrong[-6] ^= 1  # of the checksum
    found, (warning,) = gzipped.unwrap(bytes(wrong))
    assert found == text
    assert warning.message.startswith("the gzip data is damaged (")
    found, (warning,) = gzipped.unwrap(gzip.compress(b"first") + bytes(wrong))
    assert found == b"first" + text
    noise = os.urandom(20_000)
    wrong = bytearray(gzip.compress(noise))
    wrong[12_000] ^= 0x55
    found, _ = gzipped.unwrap(bytes(wrong))
    assert found[:11_000] == noise[:11_000]
    table = {
        b"BZh91AY&SY": True,
        b"BZh91AY&SX": False,
        b"BZi91AY&SY": False,
        b"\xfd7zXZ\0": True,
        b"": False,
    }
    for data, want in table.items():
        assert gzipped.is_bzip2_or_xz(data) == want
    assert gzipped.is_gzip(b"\x1f\x8b")
    assert not gzipped.is_gzip(b"\x1f")


def test_bytes_become_text() -> None:
    rows = "HloModule é\nab"
    table: list[tuple[bytes | str, str, list[tuple[str, int, int]]]] = [
        ("\ufeffa\r\nb\rc", "a\nb\nc", []),
        (b"\xef\xbb\xbfa", "a", []),
        (b"\xff\xfe" + rows.encode("utf-16-le"), rows, []),
        (b"\xfe\xff" + rows.encode("utf-16-be"), rows, []),
        (rows.encode("utf-16-le"), rows, []),
        (rows.encode("utf-16-be"), rows, []),
        ("abc".encode("utf-16-le"), "a\0b\0c\0", []),  # too short to tell
        ("abcd".encode("utf-16-le"), "abcd", []),
        (b"a\0b\0c\0d\0" + b"\0\0", "a\0b\0c\0d\0\0\0", []),
        (("ab" * 20 + "é" * 4).encode("utf-16-le"), "ab" * 20 + "é" * 4, []),
        (b"ok\n12\xffx", "ok\n12\ufffdx", [("UTF-8", 2, 3)]),
        (b"\xffx", "\ufffdx", [("UTF-8", 1, 1)]),
        (b"a\x1b[31mb\x1b[0mc", "abc", []),
    ]
    for data, text, warned in table:
        found, warnings = decode.to_text(data)
        assert found == text, data
        assert [(w.line, w.column) for w in warnings] == [w[1:] for w in warned]
        assert all("not UTF-8 are shown" in w.message for w in warnings)
    lost = b"\xef\xbf\xbd"
    for data, said_so in (
        (lost + b"x" * 47, True),
        (lost + b"x" * 48, False),
        (b"", False),
        (lost * 2 + b"x" * 94, True),
    ):
        assert bool(decode.saved_as_text(data)) == said_so


def test_prefixes_of_lines() -> None:
    table: list[tuple[str, str, list[int] | None]] = [
        ("HloModule m\na", "HloModule m\na", None),
        (" \tHloModule m\na", " \tHloModule m\na", None),
        ("no module", "no module", None),
        ("x\nHloModule m", "x\nHloModule m", None),
        ("r0: HloModule m\nr1: a\nr22: b", "HloModule m\na\nb", [4, 4, 5]),
        ("r0: HloModule m\nr1: a\nb", "r0: HloModule m\nr1: a\nb", None),  # half of them
        ("r0: HloModule m\nr1: a\nr1: b\nc", "HloModule m\na\nb\nc", [4, 4, 4, 0]),
        ("r0: HloModule m", "r0: HloModule m", None),
        ("r0: HloModule m\n\n  \n", "r0: HloModule m\n\n  \n", None),
        ("r0: HloModule m\nr1: a\n\n", "HloModule m\na\n\n", [4, 4, 0, 0]),
        ("r0: HloModule m\nr1:a\nr1:", "HloModule m\na\n", [4, 3, 3]),
        ("I0101 12:00 1 f.cc:1] HloModule m\nI0102 1] a\nb", "HloModule m\na\nb", [22, 9, 0]),
    ]
    for text, want, shifts in table:
        assert strip(text) == (want, shifts), text
    rows = "r0: HloModule m\n" + "r1: a\n" * 150 + "b\n" * 400
    assert strip(rows)[1] is not None  # the first two hundred lines decide


def test_tables_of_frames_with_rows_missing() -> None:
    def built(**rows: str) -> Any:
        builder = FrameTableBuilder()
        for name, text in rows.items():
            builder.begin(name)
            for row in text.split("\n"):
                assert builder.add(row)
        assert builder.used
        assert not builder.add("}")
        assert builder.open == ""
        return builder.build()

    found = built(
        FileNames='3 "c"\n1 "a\\"b"', FunctionNames='1 "f"', FileLocations="2 {line=5}",
        StackFrames="1 {file_location_id=2}\n2 {file_location_id=1 parent_frame_id=2}\n3 {parent_frame_id=1}",
    )  # fmt: skip
    assert found.files == ('a"b', "", "c")
    assert found.functions == ("f",)
    assert found.locations == ((0, 0, 0, 0, 0, 0), (0, 0, 5, 0, 0, 0))
    assert found.frames == ((2, 0), (1, 1), (0, 0))
    assert not FrameTableBuilder().used
    for last, count in ((1002, 1002), (1003, 1)):  # twice as many as there are, and a thousand
        assert len(built(FileNames=f'{last} "x"').files) == count
    assert len(built(FileNames='1 "a"\n1004 "x"').files) == 1004
    assert len(built(FileNames='1 "a"\n1005 "x"').files) == 2


def test_one_of_several_modules() -> None:
    assert [name_or_number(x) for x in (None, "3", "-1", "jit_f", "1234567890", "", "1.0")] == [
        None, 3, -1, "jit_f", "1234567890", "", "1.0",
    ]  # fmt: skip

    def module(name: str, size: int) -> Any:
        return SimpleNamespace(name=name, instructions=range(size), warnings=())

    a, b, c = module("a", 1), module("b", 3), module("a", 2)
    all_ = [a, b, c]
    for which, want in ((0, a), (2, c), (-1, c), (-3, a), ("b", b), (None, b), ("a", c)):
        assert choose_module(all_, which, "f") is want
    assert choose_module([a], None, "f") is a
    assert a.warnings == ()
    assert [w.message for w in c.warnings] == [
        "2 modules here, the largest was taken; choose with module=: 0: a (1 instructions), 1: a (2 instructions)"
    ]
    assert "3 modules here" in b.warnings[0].message
    assert len(b.warnings) == 1
    for which in (3, -4):
        assert refused(lambda which=which: choose_module(all_, which, "f")) == (
            f"f holds 3 module(s); there is no module={which}, use 0 to 2"
        )
    assert (
        refused(lambda: choose_module(all_, "bb", "f"))
        == "f holds no module 'bb'; did you mean 'b'? it holds a, b"
    )
    many = [module(f"m{k}", 1) for k in range(21)]
    assert suggest("zzz", many[:20]).endswith("m18, m19")
    assert suggest("zzz", many).endswith("m19, …")
    assert suggest("zzz", many).startswith("; it holds m0, ")
    choose_module(many, None, "f")
    assert many[0].warnings[0].message.count("instructions") == 10


def test_files_of_a_dump_in_the_order_of_compilation() -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        assert refused(lambda: list_directory(root)).startswith(
            f"{root} holds no HLO dump; point to"
        )
        assert refused(lambda: list_directory(root / "no")).startswith(
            f"cannot list {root / 'no'}: No such"
        )
        sizes = {
            "module_0002.b.after_optimizations.txt": 9, "module_0002.b.before_optimizations.txt": 30,
            "module_0010.a.cpu_after_optimizations.txt": 5, "module_0001.z.after_optimizations.hlo.pb": 9,
            "module_0001.z.after_optimizations.txt": 9, "module_0001.z.0010.p.after_x.before_y.txt": 1,
            "module_0001.z.0009.p.after_w.txt": 1, "module_0001.z.before_optimizations.hlo.pb": 1,
            "1234567890.module_0003.t.after_optimizations.txt.gz": 2, "module_0001.z.other.txt": 99,
        }  # fmt: skip
        for name, size in sizes.items():
            (root / name).write_bytes(b"x" * size)
        entries = list_directory(root)
        assert [(e.index, e.name, e.stage, e.path.suffix) for e in entries if e.path] == [
            (1, "z", "before_optimizations", ".pb"), (1, "z", "0009.p.after_w", ".txt"),
            (1, "z", "0010.p.after_x.before_y", ".txt"), (1, "z", "after_optimizations", ".txt"),
            (2, "b", "before_optimizations", ".txt"), (2, "b", "after_optimizations", ".txt"),
            (3, "t", "after_optimizations", ".gz"), (10, "a", "cpu_after_optimizations", ".txt"),
        ]  # fmt: skip

        def choice(module: Any = None, stage: str | None = None) -> tuple[str, str]:
            found, note = choose_entry(entries, module, stage, "d")
            return f"{found.index} {found.stage}", note

        note = "b (2) was taken; choose with module=: z (1), b (2), t (3), a (10)"
        assert choice() == ("2 after_optimizations", note)  # as large as z's, and later
        assert choice("a") == ("10 cpu_after_optimizations", "")
        assert choice(1) == ("1 after_optimizations", "")
        assert choice(1, "w") == ("1 0009.p.after_w", "")
        assert choice(1, "x") == ("1 0010.p.after_x.before_y", "")
        assert choice("z", "0009.p.after_w")[0] == "1 0009.p.after_w"
        assert choice("z", "before_y")[0] == "1 0010.p.after_x.before_y"
        assert choice(stage="optimized")[0] == "2 after_optimizations"
        assert choice(stage="hlo") == (
            "2 before_optimizations",
            "b (2) was taken; choose with module=: z (1), b (2)",
        )
        assert choice("a", "optimized")[0] == "10 cpu_after_optimizations"
        assert refused(lambda: choice(7)) == "d holds no module number 7; it holds 1, 2, 3, 10"
        assert refused(lambda: choice("q")).startswith("d holds no module 'q'; it holds z, b, t, a")
        assert refused(lambda: choice("a", "after_optimisations")) == (
            "d holds no stage 'after_optimisations'; did you mean 'cpu_after_optimizations'? it holds cpu_after_optimizations"
        )
        passes = list_passes(root, 1)
        assert [e.stage for e in passes][1:3] == [
            "0009.p.after_w",
            "0010.p.after_x.before_y",
        ]
        assert len(passes) == 4
        assert len(list_passes(root, None, "z")) == 4
        assert refused(lambda: list_passes(root, None, "b")).startswith(
            f"{root} holds no passes: dump them"
        )
        assert refused(lambda: list_passes(root / "no")).endswith(
            "is not a folder; give one that xla_dump_to wrote"
        )
    plain = (ModuleEntry("x", 0, ""), ModuleEntry("y", 1, ""))
    assert choose_entry(plain, None, None, "d")[0].name == "x"
    stages = {
        "before_optimizations": (-1, "", "", ""), "after_optimizations": (1 << 30, "", "after_optimizations", ""),
        "cpu_after_optimizations": (1 << 30, "", "after_optimizations", ""),
        "0007.spmd-cleanup.after_dce.before_tuple-simplifier": (7, "spmd-cleanup", "dce", "tuple-simplifier"),
        "0007.a.b.after_pipeline-start.before_x": (7, "a.b", "", "x"), "0007.after_x": (7, "", "x", ""),
        "0007.p.after_optimizations": (7, "p", "optimizations", ""), "other": None, "007.after_x": None,
    }  # fmt: skip
    for stage, found in stages.items():
        assert pass_of(stage) == found, stage


def test_entries_of_a_compilation_cache() -> None:
    proto = data_of(THREE)
    small = data_of(THREE.replace("'mo'", "'tiny'").split(" computations { name: 'g'")[0])
    length = bytes([len(proto) & 127 | 128, len(proto) >> 7])
    inside = b"time" * 3 + b"\x0a" + length + proto + b"rest" * 9
    for data in (
        zlib.compress(inside),
        zlib.compress(b"\x0a" + bytes([len(small)]) + small + inside),
    ):
        assert compilation_cache.accepts(data)
        (module,) = compilation_cache.read(data, "c")
        assert module.name == "mo"
        assert said(module) == []
    (module,) = compilation_cache.read(zlib.compress(length + proto), "")
    assert module.name == "mo"
    for broken in (
        inside[:-37],
        b"\x0a" + bytes([len(proto) & 127, len(proto) >> 7]) + proto,
        b"nothing",
    ):
        assert refused(
            lambda broken=broken: compilation_cache.read(zlib.compress(broken), "c")
        ).startswith("c is compressed, and holds no HLO")
    assert refused(lambda: compilation_cache.read(b"\x78\x9cnothing", "")).startswith(
        "the data looks compressed, and cannot be unpacked: "
    )
    table = {b"\x28\xb5\x2f\xfd": True, b"\x28\xb5\x2f": False, b"\x78\x9c": False, b"\x78\x9cx": True, b"\x78\x9dx": False,
             b"\x79\x9cx": False, b"\x78\x01x": True, b"": False}  # fmt: skip
    for data, want in table.items():
        assert compilation_cache.accepts(data) == want, data


def test_protos_as_text_and_files_beside_a_dump() -> None:
    body = (
        'computations { name: "e" id: 2 root_id: 1 instructions { id: 1 name: "c" opcode: "constant" '
        "shape { element_type: %s dimensions: 2 } } } entry_computation_id: 2"
    )
    module = f'name: "m" {body % "F32"}'
    table = {
        module: "HloModule", f"hlo_module {{ {module} }}": "HloProto", f"hlo_module: {{ {module} }}": "HloProto",
        f"hlo < hlo_module {{ {module} }} >": "HloSnapshot", f"# why\n#\n{module}": "HloModule",
    }  # fmt: skip
    for text in table:
        assert hlo_proto_text.accepts(text.encode()), text
        (found,) = hlo_proto_text.read(text.encode(), "t")
        assert found.name == "m"
        assert found.find("c").shape.text == "f32[2]"
        assert said(found) == []
    assert not hlo_proto_text.accepts(b'name: "m" other {}')
    assert not hlo_proto_text.accepts(b"HloModule m")
    (found,) = hlo_proto_text.read((f'name: "NEW: F32" {body % "NEWER"} x: NEWEST').encode(), "t")
    assert found.name == "NEW: F32"
    assert said(found)[-1:] == ["values that are not known were read as 0: NEWER, NEWEST"]
    assert refused(lambda: hlo_proto_text.read(b'name: "m" {', "t")).startswith(
        "t is not an HLO proto as text: "
    )
    beside = {
        b'{"traceEvents": []}': "holds no HLO: give the ….xplane.pb", b'{ "metadata": 1, "traceEvents": 2}': "xplane",
        b"BufferAssignment:\nallocation 0": "after_optimizations.txt", b"Memory Space: 0": "memory use",
        b"Total bytes used: 3": "memory use", b"HloLiveRange (max 3): ": "memory use",
    }  # fmt: skip
    for data, part in beside.items():
        assert beside_a_dump.accepts(data), data
        message = refused(lambda data=data: beside_a_dump.read(data, ""))
        assert message.startswith("the data is ")
        assert part in message
    for data in (
        b'{"metadata": 1}',
        b"BufferAssignment:\n",
        b"x BufferAssignment:\nallocation ",
        b"",
    ):
        assert not beside_a_dump.accepts(data), data
