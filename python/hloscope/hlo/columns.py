"""Whole columns of a module at once: what views over 100,000 instructions are built from.

Attribute text is searched, not parsed: ``op_name="`` and ``stack_frame_id=`` appear in it
as printed, and only the opcodes that can call a computation are searched for calls.
"""

from __future__ import annotations

import re
from collections import defaultdict
from itertools import chain, count
from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from .collective_kinds import KINDS
from .opcodes import BARRIERS
from .parts import FrameTable, parse_metadata, split_attributes, unescape
from .texts.regex import regex

if TYPE_CHECKING:
    from .module import Module

Ints = npt.NDArray[np.int64]

CALL_ROLES = (
    "calls",
    "to_apply",
    "condition",
    "body",
    "branch_computations",
    "true_computation",
    "false_computation",
    "select",
    "scatter",
    "comparator",
    "called_computations",
    "region",
)
_ROLES = frozenset(CALL_ROLES)
_ROLE_MARKS = tuple(f"{role}=" for role in CALL_ROLES)
_CALLS = regex(r"(?:^|,)\s*(" + "|".join(CALL_ROLES) + r")=(\{[^{}]*+\}|[^\s,{}\"()]++)")
_ONE_CALL = regex(
    r"(?:(?:kind=\w+|dimensions=\{[\d,]*\}), )?(calls|to_apply)=%([\w.\-]+)"
    r"(?:, metadata=\{[^{}]*+\})?"
)
_PLAIN_NAME = regex(r"%?[\w.\-]+")
_QUOTED = regex(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.S)
_OP_NAME = regex(r'op_name="([^"\\]*+(?:\\.[^"\\]*+)*+)"', re.S)
_FRAME_ID = regex(r"\bstack_frame_id=(\d{1,9})\b")

# Opcodes that never name a computation; any other, known or not, is searched.
NEVER_CALLS = frozenset(
    """
    parameter constant get-tuple-element tuple bitcast broadcast reshape transpose copy
    copy-start copy-done convert bitcast-convert add subtract multiply divide remainder power
    maximum minimum and or xor not negate abs sign sqrt rsqrt cbrt exponential
    exponential-minus-one log log-plus-one logistic tanh tan sine cosine atan2 floor ceil
    round-nearest-afz round-nearest-even erf compare select clamp iota slice dynamic-slice
    dynamic-update-slice concatenate pad reverse gather dot convolution partition-id
    replica-id after-all add-dependency is-finite real imag complex
    shift-left shift-right-logical shift-right-arithmetic popcnt clz reduce-precision rng
    rng-bit-generator get-dimension-size set-dimension-size fft cholesky triangular-solve infeed
    outfeed send recv send-done recv-done
    """.split()
) | {
    *BARRIERS,
    *(o for k in KINDS.values() for o in k.opcodes if not k.reduces or o.endswith("-done")),
}


def called_names(opcode: str, attribute_text: str) -> list[tuple[str, str]]:
    """(role, computation name) pairs of one instruction, in printed order."""
    if opcode in NEVER_CALLS:
        return []
    one = _ONE_CALL.fullmatch(attribute_text)  # most are
    if one is not None:
        return [(one[1], one[2])]
    if not any(map(attribute_text.__contains__, _ROLE_MARKS)):
        return []
    plain = _plain_calls(attribute_text)
    if plain is not None:
        return plain
    if '"' in attribute_text:
        attribute_text = _QUOTED.sub('""', attribute_text)
    out = []
    for role, value in _CALLS.findall(attribute_text):
        for name in value.strip("{}").split(","):
            name = name.strip().lstrip("%")
            if name:
                out.append((role, name))
    return out


def _plain_calls(text: str) -> list[tuple[str, str]] | None:
    """``called_names`` of ``condition=%c, body=%b, metadata={…}``; None if it is not as plain."""
    at = text.find(", metadata={")
    if at >= 0 and text.find("}", at) == len(text) - 1:
        text = text[:at]
    if '"' in text or "(" in text:
        return None
    out = []
    for part in text.split(", "):
        role, _, value = part.partition("=")
        braces = value.startswith("{") and value.find("}") == len(value) - 1
        if role not in _ROLES:
            if " " in part or (not braces and any(c in value for c in ",{}")):
                return None
        elif braces or not _PLAIN_NAME.fullmatch(value):
            return None
        else:
            out.append((role, value.removeprefix("%")))
    return out


def operand_csr(module: Module) -> tuple[Ints, Ints]:
    operands = list(map(attrgetter("operands"), module.instructions))
    offsets = _offsets(np.fromiter(map(len, operands), np.int64, len(operands)))
    each = map(attrgetter("index"), chain.from_iterable(operands))
    return offsets, np.fromiter(each, np.int64, int(offsets[-1]))


def element_index(attribute_text: str) -> int | None:
    """The number in ``index=3``; None if it is not a number."""
    text = attribute_text
    raw: str | None = text[6 : text.find(",")] if "," in text else text[6:]
    if not text.startswith("index="):
        raw = split_attributes(text).get("index") if "index" in text else None
    return int(raw) if raw and raw.isdecimal() and len(raw) < 9 else None


def tuple_indices(module: Module) -> dict[int, int | None]:
    rows = [k for k, opcode in enumerate(module.opcodes_list) if opcode == "get-tuple-element"]
    of, texts = module.attribute_texts
    mine = of[np.array(rows, np.int64)].tolist()
    known = {n: element_index(texts[n]) for n in set(mine)}
    return dict(zip(rows, map(known.__getitem__, mine), strict=True))


def called_csr(module: Module) -> tuple[Ints, Ints, list[str]]:
    index = {c.name: c.index for c in module.computations}
    counts = np.zeros(len(module.instructions), np.int64)
    values: list[int] = []
    roles: list[str] = []
    opcodes = module.opcodes_list
    may_call = set(opcodes) - NEVER_CALLS
    for k in [k for k, opcode in enumerate(opcodes) if opcode in may_call]:
        i = module.instructions[k]
        before = len(values)
        for role, name in called_names(i.opcode, i.attribute_text):
            if name in index:
                values.append(index[name])
                roles.append(role)
        counts[k] = len(values) - before
    return _offsets(counts), np.array(values, np.int64), roles


def _offsets(counts: list[int] | Ints) -> Ints:
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets


def op_name(attribute_text: str) -> str:
    """``metadata.op_name`` out of attribute text; '' if there is none."""
    at = attribute_text.find('op_name="')
    if at < 0:
        return ""
    end = attribute_text.find('"', at + 9)
    name = attribute_text[at + 9 : end] if end >= 0 else ""
    if "\\" not in name:
        return name
    m = _OP_NAME.search(attribute_text, at)
    return unescape(m.group(1)) if m else ""


def attribute_texts(module: Module) -> tuple[Ints, list[str]]:
    """For each instruction the number of its attribute text, and the distinct texts.

    Half of them are printed more than once; each distinct text is searched once.
    """
    number: defaultdict[str, int] = defaultdict(count().__next__)
    texts = map(attrgetter("attribute_text"), module.instructions)
    of = np.fromiter(map(number.__getitem__, texts), np.int64, len(module.instructions))
    return of, list(number)


def op_names(module: Module) -> list[str]:
    of, texts = module.attribute_texts
    interned: dict[str, str] = {}
    names = [interned.setdefault(n, n) for n in map(op_name, texts)]
    return list(map(names.__getitem__, of.tolist()))


def frame_ids(module: Module) -> list[int]:
    of, texts = module.attribute_texts
    ids = np.array([_frame_id(text) for text in texts], np.int64)
    found: list[int] = ids[of].tolist()
    return found


def _frame_id(text: str) -> int:
    at = text.rfind("stack_frame_id=")
    if at < 0:
        return 0
    # As XLA prints it: right after the op_name's closing quote. Anything else (no quote
    # before, an opening or an escaped one) is searched outside of all quotes.
    if text[at - 2 : at] == '" ' and text[at - 3] not in "=\\{[(, :":
        digits = text[at + 15 : text.find("}", at)]
        if digits.isdecimal() and len(digits) < 10:
            return int(digits)
    m = _FRAME_ID.search(_QUOTED.sub('""', text))
    return int(m.group(1)) if m else 0


# As XLA prints it. Inside a string quotes are escaped, so this begins outside of all of them.
_PLACE = regex(r' source_file="([^"\\]*+)" source_line=(\d{1,9})(?=[ }])')


def source_frames(module: Module) -> tuple[FrameTable, list[int]]:
    if module.frames.frames:
        ids = frame_ids(module)
        if any(ids):
            return module.frames, ids
    files: dict[str, int] = {}
    places: dict[tuple[int, int], int] = {}
    of, texts = module.attribute_texts
    place_of = []
    for text in texts:
        found = _place(text)
        if found is None:
            place_of.append(0)
            continue
        file_id = files.setdefault(found[0], len(files) + 1)
        place_of.append(places.setdefault((file_id, found[1]), len(places) + 1))
    ids = np.array(place_of, np.int64)[of].tolist()
    locations = tuple((f, 0, line, 0, 0, 0) for f, line in places)
    frames = tuple((n + 1, 0) for n in range(len(locations)))
    return FrameTable(tuple(files), (), locations, frames), ids


def _place(text: str) -> tuple[str, int] | None:
    """File and line of one attribute text."""
    at = text.rfind(' source_file="')
    if at < 0 and "source_file=" not in text:
        return None
    plain = _PLACE.match(text, at) if at > 0 else None
    if plain is not None:
        return plain[1], int(plain[2])
    meta = parse_metadata(split_attributes(text).get("metadata", ""))
    return meta.source_file, meta.source_line
