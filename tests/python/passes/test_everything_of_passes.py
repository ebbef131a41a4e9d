"""Everything that is said of the passes of small programs against goldens.

    HLOSCOPE_ACCEPT=1 python -m pytest tests/python/passes/test_everything_of_passes.py  accepts

Each program is there twice: as a capture that marked its operations, and as a dump that nobody
marked. What should be said is for the tests of the subjects; here nothing may change
without a word.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import hloscope as hs
import pytest
from hloscope.analysis.provenance.trace_line import trace_line
from hloscope.show import blocks
from kept_passes import FOLDER, load, parsed, unpack
from program_page import assert_same

GROUPS = ("mixed", "gradient", "sharded", "layered", "small")
MOST_CARDS = 60  # instructions and parts of texts of one program


def held(path: Path, now: list[str]) -> None:
    text = "\n".join(line.rstrip() for line in now) + "\n"
    if os.environ.get("HLOSCOPE_ACCEPT"):
        path.write_text(text, encoding="utf-8")
    assert_same(path.read_text(encoding="utf-8") if path.exists() else "", text)


def of_passes(cap: hs.Capture) -> Iterator[str]:
    yield from str(cap.passes()).splitlines()


def of_origins(cap: hs.Capture) -> Iterator[str]:
    """Fates as they print, and each instruction's card in one line."""
    yield from str(cap.fates()).splitlines()
    for i in cap.module.instructions[:MOST_CARDS]:
        lines = str(cap.origins(i)).splitlines()
        yield " · ".join(" ".join(line.split()) for line in lines)


def of_stages(cap: hs.Capture) -> Iterator[str]:
    """The sentences about parts of the stages' texts."""
    for stage in blocks.linked_stages(cap).stages:
        for k in sorted(stage.told)[:MOST_CARDS]:
            yield f"{stage.id} {k}: {stage.told[k]}"


def of_lines(cap: hs.Capture) -> Iterator[str]:
    lines = {(f.file, f.line) for i in cap.module.instructions for f in i.frames}
    for file, line in sorted(lines):
        found = trace_line(cap.module, f"{Path(file).name}:{line}", cap.passes())
        yield from str(found).splitlines()[:MOST_CARDS]


@pytest.mark.parametrize("group", GROUPS)
def test_nothing_that_a_capture_says_of_its_passes_changes_without_a_word(group: str) -> None:
    now: list[str] = []
    for name, made in parsed(FOLDER / f"{group}.marked.xz").items():
        cap = load(made)
        now += [name, *of_passes(cap), *of_origins(cap), *of_stages(cap), *of_lines(cap)]
    held(FOLDER / f"{group}.marked.txt", now)


@pytest.mark.parametrize("group", GROUPS)
def test_nothing_that_a_dump_says_of_its_passes_changes_without_a_word(
    group: str, tmp_path: Path
) -> None:
    now: list[str] = []
    for k, (name, texts) in enumerate(parsed(FOLDER / f"{group}.dump.xz").items()):
        cap = hs.read(unpack(texts, tmp_path / str(k)))
        known = cap._inferred()
        assert known is not None
        now += [name, *of_passes(cap), *of_origins(cap), *of_stages(cap), *of_lines(cap)]
        now += [f"{i.name} {known.how(i)}" for i in cap.module.instructions[:MOST_CARDS]]
        now += [f"{how} {n}" for how, n in known.counts.items()]
    held(FOLDER / f"{group}.dump.txt", [line.replace(str(tmp_path), "") for line in now])


@pytest.mark.parametrize("group", ["mixed", "gradient", "sharded"])
def test_nothing_that_is_inferred_of_a_capture_without_marks_changes_without_a_word(
    group: str,
) -> None:
    ((name, made),) = parsed(FOLDER / f"{group}.marked.xz").items()
    cap = load(made, marked=False)
    known = cap._inferred()
    assert known is not None
    now = [name, *of_origins(cap), *(f"{how} {n}" for how, n in known.counts.items())]
    now += [f"{i.name} {known.how(i)}" for i in cap.module.instructions[:MOST_CARDS]]
    held(FOLDER / f"{group}.inferred.txt", now)
