"""Dumps as loggers, terminals, editors and archivers leave them: read as what they hold."""

from __future__ import annotations

import bz2
import gzip
import lzma

import hloscope as hs
import pytest
from hloscope.readers import ReadError, read_modules

TEXT = """HloModule m

%add (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %s = f32[] add(%x, %y)
}

ENTRY %main (a: f32[8,16]) -> f32[8] {
  %a = f32[8,16]{1,0} parameter(0)
  %zero = f32[] constant(0)
  ROOT %r = f32[8]{0} reduce(%a, %zero), dimensions={1}, to_apply=%add
}
"""
PREFIXES = {
    "glog": lambda k: f"I0311 11:02:03.{k:06d}   123 compiler.cc:77] ",
    "container": lambda k: f"2026-05-01T12:00:{k:02d}.123456789Z ",
    "rank": lambda k: "[rank0]: ",
    "service": lambda k: "trainer-1  | ",
    "quoted": lambda k: "> ",
    "numbered": lambda k: f"{k + 7:4d}  ",
}


@pytest.mark.parametrize("before", PREFIXES)
@pytest.mark.parametrize("strip", [False, True])
def test_what_stands_before_every_line_is_taken_off(before: str, strip: bool) -> None:
    lines = [PREFIXES[before](k) + line for k, line in enumerate(TEXT.splitlines())]
    lines = [line.rstrip() if strip else line for line in lines]
    [module] = read_modules("\n".join(lines).encode())
    assert [i.name for i in module.instructions] == ["x", "y", "s", "a", "zero", "r"]
    assert not module.warnings


def test_columns_of_warnings_count_what_was_taken_off() -> None:
    bad = TEXT.replace("parameter(1)", "parameter(1")
    lines = [PREFIXES["rank"](k) + line for k, line in enumerate(bad.splitlines())]
    [module] = read_modules("\n".join(lines).encode())
    assert module.warnings[0].line == 5
    assert (module.warnings[0].column or 0) > len("[rank0]: ")


def test_a_header_with_nothing_after_it_is_said() -> None:
    [module] = read_modules(b"HloModule m\nnothing of the kind\n")
    assert [w.message for w in module.warnings] == [
        "no computation follows the module's first line"
    ]


def test_a_word_before_the_first_line_alone_stays_a_word() -> None:
    [module] = read_modules(("the module: " + TEXT).encode())
    assert len(module.instructions) == 6


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_packed_files_are_unpacked(pack) -> None:  # type: ignore[no-untyped-def]
    assert len(hs.read(pack(TEXT.encode())).module.instructions) == 6


@pytest.mark.parametrize("pack", [bz2.compress, lzma.compress])
def test_packed_files_that_are_cut(pack) -> None:  # type: ignore[no-untyped-def]
    data = pack(TEXT.encode() + bytes(k * k % 251 for k in range(3_000_000)))
    with pytest.raises(ReadError, match="nothing in it can be decompressed"):
        read_modules(data[:20])
    [module] = read_modules(data[: len(data) * 2 // 3])
    assert len(module.instructions) == 6
    assert "cut off" in module.warnings[0].message


def test_a_wrong_checksum_loses_nothing() -> None:
    data = gzip.compress(TEXT.encode())
    [module] = read_modules(data[:-8] + bytes(8))
    assert len(module.instructions) == 6
    assert "damaged" in module.warnings[0].message


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-8-sig"])
def test_texts_of_other_systems(encoding: str) -> None:
    [module] = read_modules(TEXT.replace("\n", "\r\n").encode(encoding))
    assert len(module.instructions) == 6
    assert not module.warnings


def test_a_terminals_colours_are_passed_over() -> None:
    text = "\x1b[32m" + TEXT.replace("reduce(", "\x1b[1mreduce\x1b[0m(") + "\x1b[0m"
    [module] = read_modules(text.encode())
    assert (module.name, len(module.instructions), module.warnings) == ("m", 6, ())


def test_what_stands_behind_the_end_of_a_computation_is_said() -> None:
    [module] = read_modules((TEXT.rstrip() + "(f32[2], (f32[2], \n").encode())
    assert len(module.instructions) == 6
    assert [w.line for w in module.warnings] == [13]
