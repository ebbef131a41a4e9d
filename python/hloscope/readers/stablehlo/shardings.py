"""Shardings among MLIR attributes → ``sharding=…``, as HLO text has it.

sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>     parameters, operations (…_per_value)
mhlo.sharding = "{devices=[2]<=[2]}"             GSPMD
xla.sdy.sharding = "#sdy.sharding<…>"            frontend attributes of exported programs
sharding=<@mesh, [{"x"}]>                        sdy.sharding_constraint
out_shardings=[<@mesh, [{"x"}]>]                 sdy.manual_computation: for its results
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ...hlo.parts import unescape_mlir
from ...hlo.shardings.shardy import angle_end, named_form, per_value

_SDY = re.compile(r"sdy\.sharding\s*=\s*(#sdy\.sharding(?:_per_value)?\s*)(?=<)")
_QUOTED = re.compile(r'(?:xla\.sdy|mhlo|stablehlo)\.sharding\s*=\s*"((?:[^"\\]|\\.)*)"')
_OUT = re.compile(r"\bout_shardings\s*=\s*(?:#sdy\.sharding_per_value<)?\[")
_CONSTRAINT = re.compile(r"\bsharding\s*=\s*(?:#sdy\.sharding)?(?=<)")


def with_sharding(attributes: str, meshes: Mapping[str, str]) -> str:
    """The attributes with the sharding, if they name one, as ``sharding={…}`` in front."""
    if "sharding" not in attributes:
        return attributes
    m = _SDY.search(attributes)
    if m is not None:
        end = angle_end(attributes, m.end())
        return _moved(
            attributes, m.start(), end, named_form(m[1] + attributes[m.end() : end], meshes)
        )
    m = _QUOTED.search(attributes)
    if m is not None:
        text = unescape_mlir(m[1])
        found = named_form(text, meshes) if text.startswith("#sdy") else text
        return _moved(attributes, m.start(), m.end(), found)
    m = _CONSTRAINT.search(attributes)
    if m is not None:
        end = angle_end(attributes, m.end())
        found = named_form(attributes[m.end() : end], meshes)
        return _moved(attributes, m.start(), end, found)
    m = _OUT.search(attributes)
    if m is not None:
        listed = attributes[m.end() : _list_end(attributes, m.end())]
        if "<" in listed:
            return f"sharding={per_value(listed, meshes)}, {attributes}"
    return attributes


def _moved(attributes: str, begin: int, end: int, sharding: str) -> str:
    """The attributes without that stretch, and the sharding before them."""
    before, after = attributes[:begin].rstrip(", "), attributes[end:].lstrip(", ")
    return ", ".join(x for x in (f"sharding={sharding}", before, after) if x)


def _list_end(text: str, at: int) -> int:
    while at < len(text) and text[at] != "]":
        at = angle_end(text, at) if text[at] == "<" else at + 1
    return at
