"""Bytes → text: byte order marks, line ends, bytes that are not UTF-8."""

from __future__ import annotations

from ...hlo import ReadWarning
from ..hlo.log_prefixes import strip_colours

_MARKS = ((b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"))


def to_text(data: bytes | str) -> tuple[str, list[ReadWarning]]:
    """The text with ``\\n`` line ends; undecodable bytes become U+FFFD, with a warning."""
    warnings: list[ReadWarning] = []
    if isinstance(data, str):
        text = data.removeprefix("\ufeff")
    else:
        text = _decode(data, warnings)
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return strip_colours(text), warnings


def _decode(data: bytes, warnings: list[ReadWarning]) -> str:
    encoding = "utf-8"
    for mark, name in _MARKS:
        if data.startswith(mark):
            data, encoding = data[len(mark) :], name
            break
    else:
        encoding = _of_zeros(data[:512]) or encoding
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as e:
        line = data.count(b"\n", 0, e.start) + 1
        column = e.start - data.rfind(b"\n", 0, e.start)
        warnings.append(
            ReadWarning(f"bytes that are not {encoding.upper()} are shown as \ufffd", line, column)
        )
        return data.decode(encoding, errors="replace")


def _of_zeros(begin: bytes) -> str:
    """UTF-16 without its mark: every second byte of plain text is zero."""
    pairs = len(begin) // 2
    odd, even = begin[1::2].count(0), begin[::2].count(0)
    if pairs < 4 or max(odd, even) < 0.9 * pairs or min(odd, even):
        return ""
    return "utf-16-le" if odd > even else "utf-16-be"


def saved_as_text(data: bytes) -> str:
    """The end of a sentence for binary data that went through a text editor or upload, where every
    byte that is not UTF-8 became U+FFFD and is lost. "" otherwise."""
    lost = data.count(b"\xef\xbf\xbd")
    if not lost or lost * 50 < len(data):
        return ""
    return "; it was saved as text, which lost its bytes: copy it again as a binary file"
