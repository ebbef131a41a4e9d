"""Which line each cost belongs to, and the text of the user's own files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...analysis.base.lines.frames import is_library
from ...analysis.base.lines.lines import lines
from ...analysis.cost.cost import estimated
from ...analysis.cost.lines import cost_lines
from ..builder import Builder
from ..context import Context

if TYPE_CHECKING:
    from ..header import SourceFile

LARGEST_FILE = 256 * 1024  # characters; longer files show only their lines that cost something
LARGEST_TOTAL = 1024 * 1024


def add(builder: Builder, context: Context) -> None:
    """Writes ``source.*``; nothing if no instruction has a source line."""
    module = context.module
    if module.dialect != "hlo" or module.entry is None:
        return
    frames, ids = module.source_frames()
    if not frames.frames or not any(ids):
        return
    cost = estimated(module, context.target)
    frame, flops = cost_lines(module, cost)
    builder.column("source.frame", frame - 1)
    builder.column("source.flops", flops)
    known = lines(module)
    why, words = known.phrases()
    own = frame != known.frame  # a collective has the line of its card
    builder.column("source.via", np.where(own, -1, known.via))
    builder.column("source.why", np.where(own, 0, why).astype(np.uint8))
    files: list[SourceFile] = []
    total = 0
    for file in dict.fromkeys(frames.files):
        library = is_library(file)
        text = context.target.sources.get(file)
        if text is not None and (library or len(text) > LARGEST_FILE or total > LARGEST_TOTAL):
            text = None
        total += len(text or "")
        files.append({"file": file, "library": library, "text": text})
    context.extras["source"] = {"files": files, "why": words}
