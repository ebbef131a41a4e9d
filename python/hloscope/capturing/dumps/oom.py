"""A program that does not fit: what the compiler had produced when it ran out of memory.

XLA dumps the module it could not place and its buffer assignment before it gives up:

    RESOURCE_EXHAUSTED: … CompileTimeHbmOom: … (29.85G) exceeds available HBM (15.75G)
    module_0000.jit_step.oom_intermediate_module.txt       the last module, scheduled
    module_0000.jit_step.after_optimizations.hlo.pb        with every allocation in it
"""

from __future__ import annotations

import re
from pathlib import Path

from ...hlo import Module
from ...hlo.buffers import Allocation, BufferAssignment
from ...hlo.texts.places import own_line, short_place
from .provenance import MAX_FILE_BYTES

# How many arrays the sentence names.
LISTED = 5
_SIZES = (
    # "(29.85G) exceeds available HBM (15.75G)"
    re.compile(r"\(?([\d.]+)([KMGT])\)? exceeds (?:available \w+ \()?([\d.]+)([KMGT])"),
    # "Used 20.96G of 15.75G hbm"
    re.compile(r"Used ([\d.]+)([KMGT]) of ([\d.]+)([KMGT])"),
)
_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
# From the last module XLA dumped to the earliest worth showing.
_LAST = ("oom_intermediate_module", "after_optimizations", "before_buffer_assignment")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a compile ended because the program does not fit the device's main memory."""
    said = str(error)
    return "RESOURCE_EXHAUSTED" in said and ("HbmOom" in said or "hbm" in said.lower())


def last_text(folder: str | Path) -> str | None:
    """The last module XLA made, as text; None when nothing was dumped or it is too large."""
    for end in _LAST:
        for path in sorted(Path(folder).glob(f"module_*{end}.txt")):
            if path.stat().st_size <= 8 * MAX_FILE_BYTES:
                return path.read_text(encoding="utf-8", errors="replace")
    return None


def sentence(error: BaseException, module: Module) -> str:
    """``does not fit: 29.85 of 15.75 GiB: …``, with the largest arrays and their lines."""
    said = str(error)
    found = next((m for p in _SIZES if (m := p.search(said))), None)
    if found:
        needs = float(found[1]) * _UNITS[found[2]] / 2**30
        has = float(found[3]) * _UNITS[found[4]] / 2**30
        sizes = f"{needs:.2f} of {has:.2f} GiB"
    else:
        sizes = said.splitlines()[0][:200]
    arrays = _largest(module)
    return f"does not fit: {sizes}" + (f": {'; '.join(arrays)}" if arrays else "")


def _largest(module: Module) -> list[str]:
    """The largest arrays of the compiler's own allocations, one for each place."""
    buffers = module.buffer_assignment
    if buffers is None:
        return []
    names = {i.name: i for i in module.instructions}
    out = []
    for size, name in _places(buffers)[:LISTED]:
        i = names.get(name)
        where = ""
        frame = own_line(i.frames) if i is not None else None
        if frame is not None:
            where = f" ({short_place(frame.file, frame.line)})"
        shape = f" {i.shape.dense_text}" if i is not None and i.shape.is_array else ""
        out.append(f"{size / 2**30:.2f} GiB %{name}{shape}{where}")
    return out


def _places(buffers: BufferAssignment) -> list[tuple[int, str]]:
    """(bytes, instruction) of what is side by side in main memory, largest first."""
    by_id = {b.id: b for b in buffers.buffers}
    out: list[tuple[int, str]] = []
    for allocation in buffers.allocations:
        if allocation.memory_space or allocation.is_thread_local:
            continue
        out += [(size, by_id[b].instruction) for size, b in _side_by_side(allocation) if b in by_id]
    return sorted(out, key=lambda place: -place[0])


def _side_by_side(allocation: Allocation) -> list[tuple[int, int]]:
    """(bytes, buffer): of values that share a place, only the largest."""
    taken: list[tuple[int, int]] = []
    out = []
    for a in sorted(allocation.assigned, key=lambda a: -a.size):
        if any(a.offset < end and begin < a.offset + a.size for begin, end in taken):
            continue
        taken.append((a.offset, a.offset + a.size))
        out.append((a.size, a.buffer_id))
    return out
