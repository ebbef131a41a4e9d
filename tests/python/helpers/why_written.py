"""Captures written by hand: a program before and after partitioning, and the optimised one.

Lines end in ``# 12 name``, which means metadata with line 12 of ``m.py`` and the op name
``jit(f)/name``; ``# =x`` is the op name ``x`` alone. ``D_`` is the sharding P('data', None).
"""

from __future__ import annotations

import re
from typing import Any

import hloscope as hs
from hloscope.hlo import Argument, Mesh, Target

MESH = Mesh(("data", "model"), (2, 4), tuple(range(8)))
REST = " last_tile_dim_replicate"
SHARDINGS = {
    "D__": "devices=[2,1,1,4]<=[8]" + REST,
    "_M_": "devices=[1,4,1,2]<=[2,4]T(1,0)" + REST,
    "D": "devices=[2,4]<=[8]" + REST,
    "M": "devices=[4,2]<=[2,4]T(1,0)" + REST,
    "D_": "devices=[2,1,4]<=[8]" + REST,
    "_D": "devices=[1,2,4]<=[8]" + REST,
    "M_": "devices=[4,1,2]<=[2,4]T(1,0)" + REST,
    "_M": "devices=[1,4,2]<=[2,4]T(1,0)" + REST,
    "DM": "devices=[2,4]<=[8]",
    "MD": "devices=[4,2]<=[2,4]T(1,0)",
    "Both": "devices=[8,1]<=[8]",
    "H_": "devices=[2,1,4]<=[2,2,2]T(1,0,2)" + REST,  # half of the model axis
    "R": "replicated",
}
SHORT = {
    "ALONG_DATA": "replica_groups={{0,4},{1,5},{2,6},{3,7}}, use_global_device_ids=true",
    "ALONG_MODEL": "replica_groups={{0,1,2,3},{4,5,6,7}}, use_global_device_ids=true",
    "HALVES": "replica_groups={{0,2},{1,3},{4,6},{5,7}}, use_global_device_ids=true",
    "EVERYWHERE": "replica_groups={{0,1,2,3,4,5,6,7}}, use_global_device_ids=true",
    "COLUMNS": "lhs_contracting_dims={0}, rhs_contracting_dims={0}",
    "MATMUL": "lhs_contracting_dims={1}, rhs_contracting_dims={0}",
}
SUM = """%sum (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %ab = f32[] add(%a, %b)
}
"""


def _metadata(line: str) -> str:
    code, _, said = line.partition("  # ")
    if not said:
        return line
    if said.startswith("="):
        return f'{code}, metadata={{op_name="{said[1:]}"}}'
    number, _, name = said.partition(" ")
    named = f'op_name="jit(f)/{name}" ' if name else ""
    return f'{code}, metadata={{{named}source_file="m.py" source_line={number}}}'


def text(body: str, entry: str = "main") -> str:
    """A module with 8 partitions; what comes before ``ENTRY`` are its other computations."""
    for name, meant in SHORT.items():
        body = body.replace(name, meant)
    body = re.sub(
        r"sharding=([\w,]+)$|sharding=([\w,]+)(?=  #)",
        lambda m: "sharding=" + _sharding(m[1] or m[2]),
        body,
        flags=re.M,
    )
    lines = [_metadata(line) for line in body.strip("\n").splitlines()]
    if not any(line.startswith("ENTRY") for line in lines):
        lines = [f"ENTRY %{entry} {{", *lines, "}"]
    return "\n".join(["HloModule m, num_partitions=8, is_scheduled=true", "", SUM, *lines, ""])


def _sharding(names: str) -> str:
    parts = [f"{{{SHARDINGS[n]}}}" for n in names.split(",")]
    return parts[0] if len(parts) == 1 else "{" + ", ".join(parts) + "}"


def written(
    before: str,
    after: str,
    arguments: dict[str, tuple[tuple[str, ...], ...]],
    *,
    optimised: str | None = None,
    results: tuple[str, ...] = (),
    dump: str = "",
    mesh: Mesh | None = MESH,
    **fields: Any,
) -> hs.Capture:
    """``arguments``: spec by name, in order."""
    whole = hs.read(text(before)).module
    local = hs.read(text(after, "main_spmd")).module
    known = tuple(
        Argument(name, (), "float32", spec=spec, parameter=k)
        for k, (name, spec) in enumerate(arguments.items())
    )
    target = Target(
        mesh=mesh,
        arguments=known,
        results=tuple(Argument(name, (), "float32") for name in results),
        dumps={"shardy/02.after_propagation": dump} if dump else {},
        before_partitioning=lambda: whole,
        after_partitioning=lambda: local,
        **fields,
    )
    module = hs.read(text(optimised or after, "main_spmd")).module
    return hs.Capture(module, target)


def cards(cap: hs.Capture) -> dict[str, str]:
    """Instruction → its card, without the first line."""
    return {row.name: "\n".join(str(cap.why(row)).splitlines()[1:]) for row in cap.collectives}
