"""An HLO proto in Protobuf's text format."""

from __future__ import annotations

import re

from ...hlo import Module, ReadWarning
from ..errors import ReadError
from ..proto.shapes import BUFFER, ELEMENT_TYPES, OPAQUE, TUPLE

NAME = "HLO proto as text"
SUFFIXES = (".pbtxt", ".textproto")
IS_CERTAIN = False
_TEXT_HEAD = re.compile(
    rb"\s*(?:#[^\n]*\n\s*)*(?:(hlo|hlo_module)\s*:?\s*[{<]|name:\s*\"[^\"\n]*\")"
)
_TYPES = {name.upper(): number for number, name in ELEMENT_TYPES.items()}
_TYPES |= {"TUPLE": TUPLE, "BUFFER": BUFFER, "OPAQUE_TYPE": OPAQUE, "PRIMITIVE_TYPE_INVALID": 0}
# Enumerators of xla_data.proto and hlo.proto that may appear in a text, by name.
_ENUMS = {
    **_TYPES,
    **dict(REPLICATED=0, MAXIMAL=1, OTHER=3, MANUAL=4, UNKNOWN=5, UNREDUCED=6),
    **dict(UNDEFINED_ALIAS=0, MAY_ALIAS=1, MUST_ALIAS=2),
    **dict(DEFAULT=0, HIGH=1, HIGHEST=2, PADDING_INVALID=0, PADDING_VALID=1, PADDING_SAME=2),
    **dict(DIM_DENSE=0, DIM_COMPRESSED=1, DIM_SINGLETON=2, DIM_LOOSE_COMPRESSED=3),
    **dict(SCHEDULE_NONE=0, SCHEDULE_LATEST=1, SCHEDULE_EARLIEST=2),
    **dict(API_VERSION_UNSPECIFIED=0, API_VERSION_ORIGINAL=1, API_VERSION_STATUS_RETURNING=2,
           API_VERSION_STATUS_RETURNING_UNIFIED=3, API_VERSION_TYPED_FFI=4),
    **dict(RNG_INVALID=0, RNG_UNIFORM=1, RNG_NORMAL=2, RNG_DEFAULT=0, RNG_THREE_FRY=1,
           RNG_PHILOX=2),
    **dict(FFT=0, IFFT=1, RFFT=2, IRFFT=3),
    **dict(TRANSPOSE_INVALID=0, NO_TRANSPOSE=1, TRANSPOSE=2, ADJOINT=3),
}  # fmt: skip
_ENUM_VALUE = re.compile(r'("(?:[^"\\\n]|\\.)*")|(:\s*)([A-Z][A-Z0-9_]*)\b')


def accepts(data: bytes) -> bool:
    """Whether it is Protobuf's text format of an HloProto or HloModuleProto."""
    m = _TEXT_HEAD.match(data[:65536])
    return m is not None and (m[1] is not None or b"computations" in data[: 1 << 20])


def read(data: bytes, name: str) -> list[Module]:
    """Reads an HLO proto from text. Raises ``ReadError`` that says where parsing failed."""
    from google.protobuf import text_format

    from ..proto import proto
    from ..proto.schema import message_class

    m = _TEXT_HEAD.match(data[:65536])
    outer = m[1] if m is not None else None
    kind = {b"hlo": "HloSnapshot", b"hlo_module": "HloProto"}.get(outer or b"", "HloModule")
    left_out: set[str] = set()

    def number(found: re.Match[str]) -> str:
        if found[1] is not None:
            return found[1]
        value = _ENUMS.get(found[3])
        if value is None:
            left_out.add(found[3])
        return f"{found[2]}{value or 0}"

    text = _ENUM_VALUE.sub(number, data.decode("utf-8", errors="replace"))
    message = message_class(kind)()
    try:
        text_format.Parse(text, message, allow_unknown_field=True)
    except text_format.ParseError as e:
        raise ReadError(f"{name or 'the data'} is not an HLO proto as text: {e}"[:300]) from None
    module = proto.read_proto(message.SerializeToString(), name)
    if left_out:
        listed = ", ".join(sorted(left_out)[:5])
        module.warnings += (ReadWarning(f"values that are not known were read as 0: {listed}"),)
    return [module]
