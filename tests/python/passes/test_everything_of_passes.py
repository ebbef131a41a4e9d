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
from typing import Any

import hloscope as hs
import pytest
from everything_shown import assert_same, leaves
from hloscope.analysis.provenance.trace_line import trace_line
from hloscope.show import blocks
from kept_passes import FOLDER, load, parsed, unpack

GROUPS = ("mixed", "gradient", "sharded", "layered", "small")


def held(path: Path, now: list[str]) -> None:
    before = path.read_text(encoding="utf-8").split("\n") if path.exists() else []
    if os.environ.get("HLOSCOPE_ACCEPT"):
        if now != before:
            path.write_text("\n".join(now), encoding="utf-8")
        return
    assert_same(before, now)


def of_passes(cap: hs.Capture) -> Iterator[str]:
    found = cap.passes()
    yield from str(found).splitlines()
    yield from leaves("passes", found.to_dict())
    for row in found.rows:
        yield f"row {row.title} {row.counts} {row.change}"
    for node in found.steps.nodes:
        names = [found.steps.versions[v].line.name for v in node.versions]
        yield f"node {node.first} {node.last} {names}"


def of_origins(cap: hs.Capture) -> Iterator[str]:
    yield from str(cap.fates()).splitlines()
    yield from leaves("fates", cap.fates().to_dict())
    for i in cap.module.instructions:
        card = cap.origins(i)
        yield from str(card).splitlines()
        yield from leaves(f"card {i.name}", card.to_dict())


def of_stages(cap: hs.Capture) -> Iterator[str]:
    found = blocks.linked_stages(cap)
    yield f"{found.how} {found.exact} {found.colors}"
    for stage in found.stages:
        if stage.text is not None:
            yield f"{stage.text.note} {stage.text.files} {stage.text.numbers}"
        for k in sorted({*stage.places, *stage.near, *stage.told}):
            parts: Any = stage.places.get(k), stage.near.get(k), stage.told.get(k)
            yield f"{stage.id} {k}: {parts}"


def of_lines(cap: hs.Capture) -> Iterator[str]:
    lines = {(f.file, f.line) for i in cap.module.instructions for f in i.frames}
    for file, line in sorted(lines):
        said = trace_line(cap.module, f"{Path(file).name}:{line}", cap.passes())
        yield from str(said).splitlines()


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
        now += [f"{i.name} {known.how(i)}" for i in cap.module.instructions]
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
    now += [f"{i.name} {known.how(i)}" for i in cap.module.instructions]
    held(FOLDER / f"{group}.inferred.txt", now)
