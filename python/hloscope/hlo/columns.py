"""What is searched for in attribute text: op names, calls, stack frames.

Text is searched, not parsed: ``op_name="`` and ``stack_frame_id=`` appear in it as printed, and
only the opcodes that can call a computation are searched for calls.
"""

from __future__ import annotations

import re
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from .collective_kinds import KINDS
from .opcodes import BARRIERS
from .parts import parse_metadata, split_attributes, unescape
from .texts.regex import regex

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


@lru_cache(maxsize=10_000)  # walks ask it again and again of the same elements
def element_index(attribute_text: str) -> int | None:
    """The number in ``index=3``; None if it is not a number."""
    text = attribute_text
    raw: str | None = text[6 : text.find(",")] if "," in text else text[6:]
    if not text.startswith("index="):
        raw = split_attributes(text).get("index") if "index" in text else None
    return int(raw) if raw and raw.isdecimal() and len(raw) < 9 else None


def offsets(counts: list[int] | Ints) -> Ints:
    """``[0, counts[0], counts[0] + counts[1], …]``."""
    out = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=out[1:])
    return out


def each_once(numbers: Ints) -> Ints:
    """As ``np.unique``, which first imports ``numpy.ma``: a tenth of a small file's summary."""
    found = np.sort(numbers)
    return found[np.diff(found, prepend=found[:1] - 1) > 0]


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


def frame_id(text: str) -> int:
    """``stack_frame_id`` out of attribute text; 0 if there is none."""
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


def source_place(text: str) -> tuple[str, int] | None:
    """File and line of one attribute text."""
    at = text.rfind(' source_file="')
    if at < 0 and "source_file=" not in text:
        return None
    plain = _PLACE.match(text, at) if at > 0 else None
    if plain is not None:
        return plain[1], int(plain[2])
    meta = parse_metadata(split_attributes(text).get("metadata", ""))
    return meta.source_file, meta.source_line
