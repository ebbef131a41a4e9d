"""HLO inside other files: entries of JAX's persistent compilation cache, HloProto as text.

A cache entry is a serialised executable, compressed with zlib or zstandard, with its compile
time in front. Where the platform keeps the HLO in it (CPU does), that is found by its shape:
a length-delimited protobuf field whose bytes are a whole HloModuleProto.
"""

from __future__ import annotations

import re
import zlib

from ...hlo import Module, ReadWarning
from ..errors import ReadError
from ..proto import proto
from ..proto.schema import message_class
from ..proto.shapes import BUFFER, ELEMENT_TYPES, OPAQUE, TUPLE
from . import gzipped

_ZSTD = b"\x28\xb5\x2f\xfd"
_CANDIDATE = re.compile(rb"\x0a[\x01-\x7f][A-Za-z_][\w.$\-]*(?=[\x12\x1a])")
MAX_CANDIDATES = 2000


def is_cache_entry(data: bytes) -> bool:
    """Whether it is compressed the way JAX does it, which gzip is not."""
    if data[:4] == _ZSTD:
        return True
    return data[:1] == b"\x78" and len(data) > 2 and (data[0] * 256 + data[1]) % 31 == 0


def read_cache_entry(data: bytes, name: str) -> list[Module]:
    """The HLO in a cache entry. Raises ``ReadError`` when it holds none."""
    where = name or "the data"
    inside = _unpacked(data, where)
    best: Module | None = None
    for at, end in _messages(inside):
        try:
            found = proto.read_proto(inside[at:end], name)
        except ReadError:
            continue
        if best is None or len(found.instructions) > len(best.instructions):
            best = found
    if best is None:
        raise ReadError(
            f"{where} is compressed, and holds no HLO: an entry of a compilation cache keeps it on "
            "CPU only. Dump the program with XLA_FLAGS=--xla_dump_to=FOLDER and read that"
        )
    return [best]


def _unpacked(data: bytes, where: str) -> bytes:
    if data[:4] != _ZSTD:
        try:
            return zlib.decompressobj().decompress(data, gzipped.MAX_BYTES)
        except zlib.error as e:
            raise ReadError(f"{where} looks compressed, and cannot be unpacked: {e}") from None
    try:
        import zstandard
    except ImportError:
        raise ReadError(
            f"{where} is compressed with zstandard; unpacking it needs: pip install zstandard"
        ) from None
    try:
        reader = zstandard.ZstdDecompressor().stream_reader(data)
        out: bytes = reader.read(gzipped.MAX_BYTES)
        return out
    except zstandard.ZstdError as e:
        raise ReadError(f"{where} cannot be unpacked: {e}") from None


def _messages(data: bytes) -> list[tuple[int, int]]:
    """Stretches that may be an HloModuleProto: name, entry's name, and a length before them."""
    out = []
    for m in list(_CANDIDATE.finditer(data))[:MAX_CANDIDATES]:
        at = m.start()
        if at + 2 + data[at + 1] != m.end():
            continue
        for size in range(1, 6):  # the varint that ends just before
            begin = at - size
            if begin < 0 or data[at - 1] & 0x80 or (size > 1 and not data[begin] & 0x80):
                continue
            length = sum((b & 0x7F) << (7 * k) for k, b in enumerate(data[begin:at]))
            if length > m.end() - at and at + length <= len(data):
                out.append((at, at + length))
    return out


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


def is_proto_text(data: bytes) -> bool:
    """Whether it is Protobuf's text format of an HloProto or HloModuleProto."""
    m = _TEXT_HEAD.match(data[:65536])
    return m is not None and (m[1] is not None or b"computations" in data[: 1 << 20])


def read_proto_text(data: bytes, name: str) -> list[Module]:
    """Reads an HLO proto from text. Raises ``ReadError`` that says where parsing failed."""
    from google.protobuf import text_format

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


# Files found beside a dump, and what to give instead: head of the content → sentence.
_BESIDE = (
    (re.compile(rb'\s*\{\s*"(?:displayTimeUnit|traceEvents|metadata)"'), b'"traceEvents"',
     "is a trace for a timeline viewer, which holds no HLO: give the ….xplane.pb beside it, or "
     "its folder"),
    (re.compile(rb"\s*BufferAssignment:"), b"allocation ",
     "is XLA's report of a buffer assignment, which holds no program: give the "
     "…after_optimizations.txt beside it, or the folder"),
    (re.compile(rb"\s*(?:Memory Space: |Total bytes(?: used)?: |HloLiveRange \()"), b":",
     "is XLA's report of memory use, which holds no program: give the …after_optimizations.txt "
     "beside it, or the folder"),
)  # fmt: skip


def is_beside(data: bytes) -> bool:
    head = data[:4096]
    return any(p.match(head) is not None and word in data[: 1 << 20] for p, word, _ in _BESIDE)


def refuse_beside(data: bytes, name: str) -> list[Module]:
    """Raises ``ReadError`` that says which file to give."""
    head = data[:4096]
    said = next(said for p, word, said in _BESIDE if p.match(head) and word in data[: 1 << 20])
    raise ReadError(f"{name or 'the data'} {said}")
