"""Parts of attributes that are not understood: reported once per text, with its line.

Attributes are parsed when an analysis needs them. An analysis must not be the first to find that
a sharding is unreadable, so the few kinds that figures depend on are tried here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ...hlo.collective_kinds import KINDS
from ...hlo.columns import NEVER_CALLS, called_names
from ...hlo.module import Instruction, Module
from ...hlo.parts import ReadWarning
from ...hlo.shape import Shape
from ...hlo.shardings.devices import device_counts, groups_text, names_nobody, parse_groups
from ...hlo.shardings.sharding import Sharding
from ...hlo.shardings.sharding_text import parse_sharding
from ...hlo.texts.regex import regex

_COLLECTIVES = frozenset(
    f"{name}{end}"
    for name in (k.name for k in KINDS.values() if k.pattern != "pairs")
    for end in ("", "-start")
)  # fmt: skip
_ONE_CALL = frozenset({"fusion", "reduce", "call", "all-reduce", "scatter", "sort", "map"})
_COMMENT = regex(r"/\*(?:[^*]|\*(?!/))*+\*/|//[^\n]*+")
Warn = Callable[[str, int], None]
MAX_TEXTS = 5000  # at most this many distinct ones are tried


def unknown_element(kind: str) -> str:
    """The message about an element type whose size is not known."""
    return f"{kind!r} is not an element type known here: 0 bytes are counted"


# `1,0:T(8,128)(2,1)S(1)`: dimensions, then what only the compiler needs
_LAYOUT = regex(r"\{[\d,\s]*+(?::[\w\s(),*#:+~.\-\[\]{}]*)?\}\Z")


def unclear_layouts(shape: Shape) -> list[str]:
    """Layouts that name other dimensions than the array has, or are not valid layouts."""
    return [
        leaf.text
        for leaf in shape.leaves()
        if (layout := leaf.layout) is not None
        and (
            not _LAYOUT.match(_COMMENT.sub("", layout.text))
            or (layout.minor_to_major and sorted(layout.minor_to_major) != [*range(leaf.rank)])
        )
    ]


def unsaid_devices(module: Module) -> None:
    """Warns where a proto says neither how many devices there are nor which communicate."""
    if device_counts(module) != (1, 1) or "num_partitions" in module.attributes:
        return
    found = [i for i in module.instructions if i.opcode in _COLLECTIVES and names_nobody(i)]
    if found:
        more = f" and {len(found) - 1} more name" if len(found) > 1 else " names"
        message = (
            f"the proto does not say on how many devices it runs, and %{found[0].name}{more} "
            "no groups: what is sent is unknown; the text of the same dump says it"
        )
        module.warnings = (*module.warnings, ReadWarning(message, is_note=True))


def check(module: Module, instructions: Iterable[Instruction], warn: Warn) -> None:
    """Warns about shardings and groups that cannot be read and computations that are missing.

    ``instructions`` are those to check: one of each attribute text is enough.
    """
    names = {c.name for c in module.computations}
    seen: set[str] = set()
    sharded = "sharding=" in module.source_text if module.source_text is not None else True
    for i in instructions:
        opcode = i.opcode
        if (sharded and "sharding=" in i.attribute_text) or opcode in _COLLECTIVES:
            _groups_and_sharding(i, seen, warn)
        if opcode not in NEVER_CALLS:
            text = i.attribute_text
            if opcode in _ONE_CALL and _calls_one(text, names):
                continue
            for role, name in called_names(opcode, text):
                if name not in names:
                    warn(f"%{i.name[:60]} has {role}=%{name[:60]}, which is not here", _at(i))


def _calls_one(text: str, names: set[str]) -> bool:
    """Whether the computation is here, for an instruction that calls exactly one."""
    for role in ("calls=%", "to_apply=%"):
        at = text.find(role)
        if at != -1:
            break
    else:
        return False
    at += len(role)
    end = text.find(",", at)
    return (text[at:end] if end != -1 else text[at:]) in names


def _groups_and_sharding(i: Instruction, seen: set[str], warn: Warn) -> None:
    if len(seen) > MAX_TEXTS:
        return
    sharding = i.attribute("sharding")
    if sharding is not None and sharding not in seen:
        seen.add(sharding)
        if "{unknown" not in sharding and _meaningless(sharding):
            warn(f"the sharding of %{i.name[:60]} is not understood: {sharding[:80]!r}", _at(i))
    groups = groups_text(i)
    if groups is not None and groups not in seen:
        seen.add(groups)
        if _no_groups(groups):
            warn(f"the groups of %{i.name[:60]} are not understood: {groups[:80]!r}", _at(i))


def _meaningless(sharding: str) -> bool:
    try:
        return _unknown(parse_sharding(sharding))
    except (ValueError, OverflowError, MemoryError, RecursionError):  # numbers no device has
        return True


def _no_groups(text: str) -> bool:
    try:
        return parse_groups(text) is None
    except (ValueError, OverflowError, MemoryError):
        return True


def _unknown(sharding: Sharding) -> bool:
    return not sharding.is_known or any(_unknown(p) for p in sharding.parts)


def _at(i: Instruction) -> int:
    return i.text_span[0] if i.text_span else 0
