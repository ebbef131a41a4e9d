"""Every format is a file of readers/formats, and hosts and docs know it."""

from __future__ import annotations

import pkgutil
import re
from pathlib import Path
from typing import Any

import pytest
from hloscope import readers
from hloscope.readers import formats
from hloscope.readers.errors import ReadError

READERS: tuple[Any, ...] = formats.READERS


def test_every_file_of_the_folder_is_a_reader() -> None:
    names = {info.name for info in pkgutil.iter_modules(formats.__path__)}
    assert names == {reader.__name__.rpartition(".")[2] for reader in READERS}
    assert len({reader.NAME for reader in READERS}) == len(READERS)


def test_the_docs_name_every_format_that_can_be_read(repo: Path) -> None:
    text = (repo / "docs" / "formats.md").read_text()
    rows = [row for row in text.split("\n") if row.startswith("| ")]
    read = [r.NAME for r in READERS if r.NAME != "a file beside a dump"]
    assert [name for name in read if not any(name in row for row in rows)] == []


def test_jupyterlab_offers_files_of_every_suffix(repo: Path) -> None:
    source = (repo / "src" / "files" / "files.ts").read_text()
    (pattern,) = re.findall(r"return /(.*)/i\.test\(name\)", source)
    offered = re.compile(pattern, re.I)
    for suffix in formats.SUFFIXES:
        if suffix != ".gz":
            assert offered.search(f"step{suffix}"), suffix
            assert offered.search(f"step{suffix}.gz"), suffix


@pytest.mark.parametrize("data", [b"", b"HloModule", b"\0" * 300, b"x = (1, 2)\n"])
def test_no_format_raises_when_it_is_asked(data: bytes) -> None:
    assert [reader.accepts(data) for reader in READERS][-1]
    with pytest.raises(ReadError):
        readers.read_modules(data, "f")
