"""Parts of attributes that are not understood: reported once per text, with its line.

Attributes are parsed when an analysis needs them. An analysis must not be the first to find that
a sharding is unreadable, so the few kinds that figures depend on are tried here.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable

import numpy as np

from ...hlo.collective_kinds import KINDS
from ...hlo.columns import NEVER_CALLS, called_names
from ...hlo.limits import MOST_BYTES_TOGETHER, MOST_DEVICE_NUMBERS, MOST_DEVICES
from ...hlo.module import Instruction, Module
from ...hlo.parts import ReadWarning
from ...hlo.shape import Shape
from ...hlo.shardings.devices import (
    device_counts,
    group_mode,
    groups_text,
    names_nobody,
    parse_groups,
)
from ...hlo.shardings.sharding import Sharding
from ...hlo.shardings.sharding_text import parse_sharding
from ...hlo.texts.regex import regex
from ..errors import ReadError

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


def refuse_impossible(module: Module, name: str) -> None:
    """Warns about counts of devices that no machine has, which are then not used; raises
    ``ReadError`` where arrays or lists of devices are larger than any machine's."""
    where = name or "the text"
    claimed = [f"{k}={v}" for k in ("replica_count", "num_partitions")
               if len(v := module.attributes.get(k, "")) > 2 and v.isdecimal()]  # fmt: skip
    if claimed and module.replica_count == module.num_partitions == 1:
        message = f"{', '.join(claimed)[:80]} is left out: no machine has as many devices"
        module.warnings = (*module.warnings, ReadWarning(message))
    sizes = Counter(i.shape for i in module.instructions)
    if sum(shape.byte_size * n for shape, n in sizes.items()) > MOST_BYTES_TOGETHER:
        raise ReadError(
            f"{name or 'the text'} has arrays that are together larger than any machine"
        )
    if _device_numbers(module) > MOST_DEVICE_NUMBERS:
        raise ReadError(
            f"{where} lists {MOST_DEVICE_NUMBERS:,} devices or more in its shardings and groups, "
            "more than any program does"
        )


_SHORT = regex(r"<=\[([\d,\s]*)\]|mesh\[([^\[\]]*)\]")
_AXIS_SIZE = regex(r"=\s*(\d{1,9})")


def _device_numbers(module: Module) -> int:
    """How many device numbers its shardings and groups stand for, each text once."""
    replicas, partitions = device_counts(module)
    seen: set[str] = set()
    total = 0
    of, texts = module.attribute_texts
    firsts = np.unique(of, return_index=True)[1]
    for first, text in zip(firsts.tolist(), texts, strict=True):
        short = "<=[" in text or "mesh[" in text
        if not short and (replicas * partitions == 1 or "={{" not in text):
            continue
        i = module.instructions[first]
        groups = groups_text(i) or i.attribute("source_target_pairs")
        for part in (groups, i.attribute("sharding")):
            if part is None or part in seen:
                continue
            seen.add(part)
            total += _listed(part) * (_repeats(i, replicas, partitions) if part is groups else 1)
    return total


def _listed(text: str) -> int:
    """Device numbers that a sharding or groups stand for."""
    total = len(text) // 2
    for iota, axes in _SHORT.findall(text):
        sizes = iota.replace(",", " ").split() if iota else _AXIS_SIZE.findall(axes)
        count = math.prod(int(n) for n in sizes if len(n) < 10)
        total += count if count <= MOST_DEVICES else 0  # not read at all
    return total


def _repeats(i: Instruction, replicas: int, partitions: int) -> int:
    """How often groups repeat, among other replicas or partitions."""
    mode = group_mode(i)
    if mode == "flattened":
        return 1
    return replicas if mode == "cross_partition" else partitions


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
