"""The text block: the module's text, where each instruction's line is, attributes split."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..analysis.base.pause import uncollected
from ..analysis.base.table import csr
from ..hlo import Module
from ..hlo.parts import split_attributes
from .builder import TEXT_MAGIC, Builder

NONE = 0xFFFFFFFF
# A constant of a million numbers is one attribute value; details panels need its beginning.
MAX_VALUE = 20_000  # characters


def build_text(module: Module) -> bytes:
    """The text block, gzip'd; offsets are UTF-8 bytes."""
    with uncollected():
        return _text(module)


def _text(module: Module) -> bytes:
    b = Builder()
    text = module.text
    raw = text.encode("utf-8", "replace")
    to_bytes = _byte_offsets(text, len(raw))
    b.column("text.bytes", np.frombuffer(raw, np.uint8))
    for what, spans in (
        ("instruction", [i.text_span for i in module.instructions]),
        ("computation", [c.text_span for c in module.computations]),
    ):
        begin, end = _spans(spans, to_bytes, len(text))
        b.column(f"line.{what}_begin", begin)
        b.column(f"line.{what}_end", end)
    # Not ``i.attributes``, which would keep a dictionary with every instruction.
    of, texts = module.attribute_texts
    split = [list(split_attributes(text).items()) for text in texts]
    pairs = [split[k] for k in of.tolist()]
    rows = csr([range(len(p)) for p in pairs])
    b.column("attribute.offsets", rows.offsets)
    b.column("attribute.key", [k for p in pairs for k, _ in p])
    b.column("attribute.value", [_cut(v) for p in pairs for _, v in p])
    return b.finish(TEXT_MAGIC)


def _cut(value: str) -> str:
    return value if len(value) <= MAX_VALUE else value[:MAX_VALUE] + "…"


def _byte_offsets(text: str, size: int) -> NDArray[np.int64] | None:
    """Byte offset of each character (and of the end), or None when they are the same."""
    if size == len(text):
        return None
    points = np.frombuffer(text.encode("utf-32-le", "replace"), np.uint32)
    width = 1 + (points > 0x7F).astype(np.int64) + (points > 0x7FF) + (points > 0xFFFF)
    return np.concatenate(([0], np.cumsum(width)))


def _spans(
    spans: list[tuple[int, int] | None], to_bytes: NDArray[np.int64] | None, length: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    array = np.array([s if s is not None else (-1, -1) for s in spans], np.int64).reshape(-1, 2)
    known = (array[:, 0] >= 0) & (array[:, 1] <= length)
    clipped = np.clip(array, 0, length)
    if to_bytes is not None:
        clipped = to_bytes[clipped]
    clipped[~known] = NONE
    return clipped[:, 0], clipped[:, 1]
