"""Which instructions are one collective, of texts that hold every way in which several are."""

from __future__ import annotations

import hloscope as hs
from hloscope.analysis.base.collectives.find import Found, find, payload
from hloscope.analysis.base.collectives.halo import join_halos
from hloscope.analysis.base.collectives.windowed import join_windowed
from hloscope.hlo import Module
from text_tables import assert_table


def one(module: Module, found: Found, sized: bool = True) -> str:
    members = ", ".join(module.instructions[m].name for m in sorted(found.members))
    bytes_, arrays = payload(found) if sized else (0, ())
    size = f" {bytes_} B {[f'{t} {n}' for t, n in arrays]}" if sized else ""
    parts = "".join(f" + {p.op.name}" for p in found.transfers)
    return f"{found.kind} {found.op.name} run by {found.anchor.name}: {members}{size}{parts}"


def collectives_told(text: str) -> str:
    """Those found; then those that are joined as matmuls and exchanges of edges."""
    module = hs.read(text).module
    found = find(module)
    lines = [one(module, f) for f in found]
    joined = join_windowed(module, join_halos(module, found))
    lines += [f"joined {one(module, f, False)}" for f in joined if f.transfers]
    assert sum(len(f.transfers) or 1 for f in joined) == len(found)
    assert [f.op.index for f in joined] == sorted(f.op.index for f in joined)
    return "\n".join(lines + [f"! {w.message}" for w in module.warnings])


def test_every_collective() -> None:
    assert_table("collectives", collectives_told)
