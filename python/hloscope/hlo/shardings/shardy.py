"""Shardy's shardings in XLA's named form, so that everything downstream reads one spelling.

    #sdy.sharding<@mesh, [{"data"}, {?}]>   with   sdy.mesh @mesh = <["data"=2, "model"=4]>
        ─▶  {mesh['data'=2,'model'=4], [{'data'}, {?}]}

StableHLO has them as attributes, HLO before partitioning as frontend attributes
(``xla.sdy.sharding``, and ``xla.sdy.meshes`` in the module's header).
"""

from __future__ import annotations

from collections.abc import Mapping as MappingType

from ..mesh import Mesh
from ..parts import unescape
from ..texts.regex import regex
from .mesh_text import mesh_from_text

_MESH = regex(
    r"@?([\w.$\-]+|\"[^\"]*\")\s*=\s*(?:#sdy\.mesh)?\s*<\[([^\[\]]*)\](?:,\s*device_ids=\[([\d,\s]*)\])?>"
)
_MESH_BODY = regex(r"<\[([^\[\]]*)\](?:,\s*device_ids=\[([\d,\s]*)\])?>")
_AXIS = regex(r'"((?:[^"\\]|\\.)*)"\s*=\s*(\d+)')
_INLINE_MESH = regex(r"\s*mesh(<\[[^\[\]]*\](?:,\s*device_ids=\[[\d,\s]*\])?>)\s*,?")
_SYMBOL = regex(r"\s*@([\w.$\-]+|\"[^\"]*\")\s*,?")
_ANGLE = regex(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|->|[<>]')


def mesh_text(body: str) -> str:
    """``<["a"=2], device_ids=[1,0]>`` → ``mesh['a'=2], device_ids=(1,0)``; '' if it is no mesh.

    ``maximal device=3`` for a mesh of one device, ``replicated`` for one of no axes.
    """
    m = _MESH_BODY.search(body)
    if m is None:
        return ""
    axes = ",".join(f"'{name}'={n}" for name, n in _AXIS.findall(m[1]))
    ids = (m[2] or "").replace(" ", "")
    if not axes:
        return f"maximal device={ids}" if ids.isdigit() else "replicated"
    return f"mesh[{axes}]" + (f", device_ids=({ids})" if ids else "")


def header_meshes(attributes: MappingType[str, str]) -> dict[str, str]:
    """Mesh symbol → ``mesh_text``, of a module's header: HLO's or StableHLO's."""
    out: dict[str, str] = {}
    for key, value in attributes.items():
        if key.startswith("sdy.mesh."):
            out[key[len("sdy.mesh.") :].strip('"')] = mesh_text(value)
        elif "xla.sdy.meshes" in value:
            inside = value[value.index("xla.sdy.meshes") :]
            if "\\" in inside:
                inside = unescape(inside)
            for name, axes, ids in _MESH.findall(inside):
                tail = f", device_ids=[{ids}]" if ids else ""
                out.setdefault(name.strip('"'), mesh_text(f"<[{axes}]{tail}>"))
    return out


_FRONTEND = regex(r'xla\.sdy\.sharding="((?:[^"\\]|\\.)*)"')


def of_frontend(attributes: str, header: MappingType[str, str]) -> str | None:
    """``xla.sdy.sharding`` of an instruction's frontend attributes in XLA's named form.

    ``header``: the module's attributes, which name its meshes.
    """
    m = _FRONTEND.search(attributes)
    return None if m is None else named_form(unescape(m[1]), header_meshes(header))


def named_mesh(attributes: MappingType[str, str], count: int) -> Mesh | None:
    """The header's mesh over ``count`` devices: the one with the most axes; None without one."""
    found = [mesh_from_text(text) for text in header_meshes(attributes).values() if text]
    whole = [m[0] for m in found if m is not None and len(m[0].partitions) == count]
    return max(whole, key=lambda m: len(m.axis_names), default=None)


def named_form(text: str, meshes: MappingType[str, str]) -> str:
    """A Shardy attribute (one sharding, or one per value) in XLA's named form.

    What cannot be converted, such as an unknown mesh, stays as it is, in braces.
    """
    begin = text.find("<")
    if begin < 0:
        return "{" + text + "}"
    if "sharding_per_value" in text[:begin]:
        inner = text[begin + 1 : text.rfind(">")].strip()
        return per_value(inner, meshes)
    return _one(text[begin : angle_end(text, begin)], meshes)


def per_value(listed: str, meshes: MappingType[str, str]) -> str:
    """``[<@mesh, [{"x"}]>, <@mesh, [{}]>]`` → one sharding, or a tuple of them."""
    parts = []
    at = listed.find("<")
    while at >= 0:
        end = angle_end(listed, at)
        parts.append(_one(listed[at:end], meshes))
        at = listed.find("<", end)
    return parts[0] if len(parts) == 1 else "{" + ", ".join(parts) + "}"


def _one(text: str, meshes: MappingType[str, str]) -> str:
    inner = text.strip()[1:-1]
    inline = _INLINE_MESH.match(inner)
    symbol = _SYMBOL.match(inner)
    mesh = ""
    if inline is not None:
        mesh, rest = mesh_text(inline[1]), inner[inline.end() :]
    elif symbol is not None:
        mesh, rest = meshes.get(symbol[1].strip('"'), ""), inner[symbol.end() :]
    if not mesh:
        return "{" + inner.replace('"', "'") + "}"
    if not mesh.startswith("mesh["):
        return "{" + mesh + "}"
    return "{" + f"{mesh}, {rest.strip()}".replace('"', "'") + "}"


def angle_end(text: str, at: int) -> int:
    """Offset just after the ``>`` that closes the ``<`` at ``at``; the end if none does."""
    depth = 0
    for m in _ANGLE.finditer(text, at):
        c = m.group()
        if c == "<":
            depth += 1
        elif c == ">":
            depth -= 1
            if depth <= 0:
                return m.end()
    return len(text)
