"""Text → Sharding: every spelling that XLA, Shardy and jax have printed.

{devices=[1,4]0,1,2,3}                                          GSPMD V1
{devices=[4,2,2]<=[2,8]T(1,0) last_tile_dim_replicate}          GSPMD V2
{devices=[2,1,2,2]<=[8] last_tile_dims={manual, replicated}}
{mesh['x'=2,'y'=4], [{'x'}, {'y':(1)2, ?}], unreduced={…}}      XLA's named form
#sdy.sharding<@mesh, [{"x"}, {?}], replicated={"z"}>            Shardy
PartitionSpec('data', ('fsdp', 'model'))                        jax
"""

from __future__ import annotations

import math
import re
from functools import lru_cache

import numpy as np

from ..limits import MOST_DEVICES
from ..mesh import Mesh
from ..shape import split_top
from ..texts.regex import regex
from .mesh_text import MOST_DIMENSIONS, AxisRef, mesh_from_text, parse_axis_ref, parse_iota
from .sharding import Sharding, from_axes

_DEVICES = regex(r"devices=\[([\d,\s]*)\](?:(<=\[[\d,\s]*\](?:T\([\d,\s]*\))?)|([\d,\s]+))")
_COMMENT = regex(r"/\*[^*\"]*\*/")
_LAST_DIMS = regex(r"last_tile_dims=\{([^}]*)\}")
_HUGE = regex(r"\d{10}")  # no device number or tile count has ten digits
_BRACE = regex(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[{}]')
_MAXIMAL = regex(r"maximal(?:_mesh\[)?[ ,]*device(?:_id)?=(\d+)")
_SDY_MESH = regex(r"@([\w.$-]+|\"[^\"]*\")|mesh<\[(.*?)\](?:,\s*device_ids=\[([\d,\s]*)\])?>")


def parse_sharding(text: str, meshes: dict[str, Mesh] | None = None) -> Sharding:
    """Parses any spelling; what is not understood becomes kind "unknown" with its text.

    GSPMD V1 and V2, XLA's named form, tuples, Shardy attributes (``meshes`` maps their
    mesh symbols), and ``PartitionSpec(…)`` when ``meshes`` has the one mesh under "".
    """
    if meshes:
        return _parse(text, meshes)
    return _parse_cached(text)


@lru_cache(maxsize=16384)
def _parse_cached(text: str) -> Sharding:
    return _parse(text, {})


def _parse(text: str, meshes: dict[str, Mesh]) -> Sharding:
    bare = text.strip()
    if "/*" in bare:  # XLA counts the leaves of a tuple: /*index=5*/
        bare = _COMMENT.sub("", bare)
    if "sdy.sharding_per_value" in bare:
        inner = bare[bare.index("<[") + 1 : bare.rindex("]") + 1]
        parts = tuple(_shardy(p, meshes) for p in split_angle(inner[1:-1]))
        return parts[0] if len(parts) == 1 else Sharding("tuple", bare, parts=parts)
    if "sdy.sharding<" in bare or bare.startswith("<@"):
        return _shardy(bare[bare.index("<") :], meshes)
    if bare.startswith(("PartitionSpec(", "P(", "NamedSharding(")):
        return _partition_spec(bare, meshes)
    if not (bare.startswith("{") and bare.endswith("}")):
        return Sharding("unknown", bare)
    inner = bare[1:-1].strip()
    if inner.startswith("{") or not inner:
        parts = tuple(_parse(p, meshes) for p in split_top(inner) if p)
        return Sharding("tuple", bare, parts=parts)
    return _gspmd(bare, inner)


def _gspmd(text: str, inner: str) -> Sharding:
    if "metadata=" in inner:
        inner = _without_metadata(inner)
    word = re.split(r"[\s,]", inner, maxsplit=1)[0]
    if word in ("replicated", "manual", "unreduced"):
        return Sharding(word, text)
    if maximal := _MAXIMAL.match(inner):
        return Sharding("maximal", text, device=int(maximal[1]))
    if "mesh[" in inner:
        return _xla_named(text, inner)
    m = _DEVICES.search(inner)
    if m is None or _HUGE.search(inner):
        return Sharding("unknown", text)
    dims = tuple(int(n) for n in m[1].replace(",", " ").split())
    if m[2]:
        array = parse_iota(f"[{m[1]}]{m[2]}")
    else:
        ids = np.asarray([int(n) for n in m[3].replace(",", " ").split()], dtype=np.int64)
        fits = ids.size == math.prod(dims) and len(dims) <= MOST_DIMENSIONS
        array = ids.reshape(dims) if fits else None
    if array is None:
        return Sharding("unknown", text)
    kinds: list[str] = []
    if named_dims := _LAST_DIMS.search(inner):
        kinds = [k.strip() for k in named_dims[1].split(",") if k.strip()]
    elif "last_tile_dim_replicate" in inner:
        kinds = ["replicated"]
    if len(kinds) > len(dims) or not set(kinds) <= {"replicated", "manual", "unreduced"}:
        return Sharding("unknown", text)
    data = len(dims) - len(kinds)
    return Sharding("tiled", text, dims[:data], tuple(zip(kinds, dims[data:], strict=True)), array)


def _without_metadata(text: str) -> str:
    """The text without ``metadata={op_name="…"}``, one or a list of them; what follows stays."""
    begin = text.index("metadata=")
    depth = 0
    end = len(text)
    for m in _BRACE.finditer(text, begin):
        depth += {"{": 1, "}": -1}.get(m.group(), 0)
        if depth == 0 and m.group() == "}":
            end = m.end()
            break
    return f"{text[:begin].rstrip(', ')} {text[end:].lstrip(', ')}".strip()


def _xla_named(text: str, inner: str) -> Sharding:
    """``mesh['x'=2,'y'=4], [{'x'}, {'y':(1)2, ?}], replicated={…}, unreduced={…}``."""
    found = mesh_from_text(inner)
    if found is None:
        return Sharding("unknown", text)
    mesh, end = found
    return _axes_body(mesh, inner[end:].lstrip(", "), text)


def _axes_body(mesh: Mesh, body: str, text: str) -> Sharding:
    spec: list[tuple[AxisRef, ...]] = []
    special: dict[str, tuple[AxisRef, ...]] = {}
    for part in split_top(body):
        if part.startswith("[") and part.endswith("]"):
            for dim in split_top(part[1:-1]):
                refs = _refs(dim)
                if refs is None:
                    return Sharding("unknown", text)
                spec.append(refs)
        elif part and part != "replicated":
            key, _, value = part.partition("=")
            refs = _refs(value)
            if refs is None:
                return Sharding("unknown", text)
            special[key.strip()] = refs
    special.pop("replicated", None)  # explicitly not sharded: the same tiles
    return from_axes(mesh, spec, special, text)


def _refs(text: str) -> tuple[AxisRef, ...] | None:
    """``{"x", "y":(1)2, ?}p0`` → axes; the open mark and the priority say nothing about tiles."""
    m = re.match(r"^\s*\{(.*)\}(?:p\d+)?\s*$", text, re.S)
    if m is None:
        return None
    refs = [parse_axis_ref(p) for p in split_top(m[1]) if p.strip() not in ("", "?")]
    return None if None in refs else tuple(r for r in refs if r is not None)


def _shardy(text: str, meshes: dict[str, Mesh]) -> Sharding:
    """``<@mesh, [{"x"}, {?}], replicated={"z"}>`` or with the mesh written out."""
    inner = text.strip()
    inner = inner[1:-1] if inner.startswith("<") and inner.endswith(">") else inner
    m = _SDY_MESH.match(inner)
    if m is None:
        return Sharding("unknown", text)
    mesh = meshes.get(m[1].strip('"')) if m[1] else _sdy_mesh(m[2] or "", m[3])
    if mesh is None:
        return Sharding("unknown", text)
    return _axes_body(mesh, inner[m.end() :].lstrip(", "), text)


_SDY_AXIS = regex(r'"((?:[^"\\]|\\.)*)"=(\d{1,9})(?!\d)')
_SDY_MESHES = regex(
    r"sdy\.mesh @([\w.$-]+|\"[^\"]*\") = <\[(.*?)\](?:, device_ids=\[([\d,\s]*)\])?>"
)


def _sdy_mesh(axes: str, ids: str | None) -> Mesh | None:
    pairs = [(name, int(n)) for name, n in _SDY_AXIS.findall(axes)]
    total = math.prod(n for _, n in pairs)
    if not 0 < total <= MOST_DEVICES:
        return None
    order = tuple(int(n) for n in ids.replace(",", " ").split()) if ids else tuple(range(total))
    if len(order) != total or max(order) >= MOST_DEVICES:
        return None
    return Mesh(tuple(name for name, _ in pairs), tuple(n for _, n in pairs), order)


def shardy_meshes(mlir: str) -> dict[str, Mesh]:
    """Mesh symbols of a Shardy module: ``sdy.mesh @mesh = <["data"=2, "model"=4]>``."""
    found = {m[1].strip('"'): _sdy_mesh(m[2], m[3]) for m in _SDY_MESHES.finditer(mlir)}
    return {name: mesh for name, mesh in found.items() if mesh is not None}


def split_angle(text: str) -> list[str]:
    """``<…>, <…>`` → its parts (split_top does not count angle brackets)."""
    parts: list[str] = []
    depth = begin = 0
    for i, c in enumerate(text):
        if c == "<":
            if depth == 0:
                begin = i
            depth += 1
        elif c == ">":
            depth -= 1
            if depth == 0:
                parts.append(text[begin : i + 1])
    return parts


_JAX_MESH = regex(r"(?:Abstract)?Mesh\(((?:'[^']*': \d+(?:, )?)+)")


def _partition_spec(text: str, meshes: dict[str, Mesh]) -> Sharding:
    mesh = meshes.get("")
    if mesh is None and (m := _JAX_MESH.search(text)):
        pairs = [(n, int(s)) for n, s in re.findall(r"'([^']*)': (\d+)", m[1])]
        total = math.prod(s for _, s in pairs)
        if total > MOST_DEVICES:
            return Sharding("unknown", text)
        mesh = Mesh(tuple(n for n, _ in pairs), tuple(s for _, s in pairs), tuple(range(total)))
    at = max(text.rfind("PartitionSpec("), 0 if text.startswith("P(") else text.rfind("spec=P("))
    m = re.search(r"(?:PartitionSpec|P)\(", text[at:])
    if mesh is None or m is None:
        return Sharding("unknown", text)
    spec: list[tuple[AxisRef, ...]] = []
    special: dict[str, tuple[AxisRef, ...]] = {}
    for part in split_top(_inside(text[at + m.end() - 1 :])):
        axes = tuple(AxisRef(n) for n in re.findall(r"'([^']*)'", part))
        if part.startswith("unreduced="):
            special["unreduced"] = axes
        elif part and not part.startswith("reduced="):
            spec.append(axes)
    return from_axes(mesh, spec, special, text)


def _inside(text: str) -> str:
    """What the parenthesis at the start of ``text`` holds."""
    depth = 0
    for i, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if depth == 0:
            return text[1:i]
    return text[1:]
