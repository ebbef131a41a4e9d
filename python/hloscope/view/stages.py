"""The stages block: texts of a program's stages, and which of their lines correspond."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..analysis.base.pause import uncollected
from ..analysis.base.table import csr
from ..analysis.provenance.linked.linked import Linked, Stage
from .builder import STAGES_MAGIC, Builder

if TYPE_CHECKING:
    from .header import StagesContent, StageText

# Characters of all sentences of a program's lines; those beyond are left out and counted.
MOST_TOLD = 24_000_000


def build_stages(linked: Linked, instructions: int) -> bytes:
    """The stages block, gzip'd. ``instructions``: how many its View has."""
    with uncollected():
        return _stages(linked, instructions)


def _stages(linked: Linked, instructions: int) -> bytes:
    b = Builder()
    texts: list[bytes] = []
    size = 0
    lines: list[int] = []
    told: list[str] = []
    strands: list[tuple[int, ...]] = []
    near: list[tuple[int, ...]] = []
    numbers: list[int] = []
    stages: list[StageText] = []
    room = MOST_TOLD
    for stage in linked.stages:
        rows = sorted({*stage.places, *stage.near})
        text = stage.text
        raw = b"" if text is None else "\n".join(text.lines).encode("utf-8", "replace")
        notes = [text.note] if text is not None and text.note else []
        words, room, left = _sentences(stage, rows, room)
        if left:
            notes.append(f"{left:,} lines have no description: there are too many.")
        stages.append(
            {
                "id": stage.id,
                "title": stage.title,
                "own": text is None,
                "begin": size,
                "end": size + len(raw),
                "first": len(lines),
                "count": len(rows),
                "notes": notes,
                "files": [
                    {"file": file, "row": row, "known": known}
                    for file, row, known in (text.files if text is not None else ())
                ],
            }
        )
        if text is not None and text.numbers:
            numbers += text.numbers
        texts.append(raw)
        size += len(raw)
        lines += rows
        told += words
        strands += [stage.places.get(row, ()) for row in rows]
        near += [stage.near.get(row, ()) for row in rows]
    b.column("stage_text.bytes", np.frombuffer(b"".join(texts), np.uint8))
    b.column("source_row.number", np.array(numbers, np.int64))
    b.column("place.line", np.array(lines, np.int64))
    b.column("place.told", told)
    for name, rows_of in (("place_strand", strands), ("place_near", near)):
        table = csr(rows_of)
        b.relation(name, table.offsets, table.values)
    b.column("strand.color", np.array(linked.colors, np.int64))
    header: StagesContent = {
        "instructions": instructions,
        "exact": linked.exact,
        "how": linked.how,
        "stages": stages,
    }
    return b.finish(STAGES_MAGIC, header)


def _sentences(stage: Stage, rows: list[int], room: int) -> tuple[list[str], int, int]:
    """Sentences of the rows while there is room, what room is left, and how many have none."""
    out: list[str] = []
    seen: set[str] = set()
    left = 0
    for row in rows:
        words = stage.told.get(row, "")
        need = 0 if words in seen else len(words)
        if need > room:
            left += 1
            words = ""
        elif words:
            seen.add(words)
            room -= need
        out.append(words)
    return out, room, left
