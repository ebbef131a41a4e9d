"""Families, flags and labels of a program that holds something of every kind."""

from __future__ import annotations

import hloscope as hs
from hloscope.analysis.base.labels import flags as bits
from hloscope.analysis.base.labels.families import FAMILIES, families
from hloscope.analysis.base.labels.flags import BIG_BYTES, BIG_COUNT, LANDMARK, flags
from hloscope.analysis.base.labels.labels import labels, shorten, words_of_mask
from text_tables import assert_table

NAMES = "ROOT INLINE PARAMETER PLUMBING LANDMARK OUTPUT ASYNC_START ASYNC_DONE MOVE".split()


def told(text: str) -> str:
    """``name | label | family | flags`` of each instruction."""
    module = hs.read(text).module
    assert module.warnings == ()
    rows = zip(module.instructions, labels(module), families(module), flags(module), strict=True)
    return "\n".join(
        f"{i.name} | {label} | {FAMILIES[family].id} | "
        + " ".join(n.lower() for n in NAMES if flag & getattr(bits, n))
        for i, label, family, flag in rows
    )


def test_every_label_family_and_flag() -> None:
    assert_table("labels", told)


def test_long_names_are_cut_in_the_middle() -> None:
    assert shorten("abcdefghij", 10) == "abcdefghij"
    assert shorten("abcdefghijk", 10) == "abcdef…ijk"
    assert shorten("abcdefghijk", 4) == "ab…k"
    assert words_of_mask(0) == []
    assert words_of_mask(0, matmul=True) == ["matmul"]
    assert words_of_mask(1) == ["dot"]
    assert words_of_mask(1, matmul=True) == ["matmul"]


def test_the_biggest_buffers_are_landmarks_and_no_more_than_two_dozen() -> None:
    assert (BIG_BYTES, BIG_COUNT) == (1 << 20, 24)

    def marked(sizes: list[int]) -> list[int]:
        lines = ["HloModule m", "ENTRY e {", "  p = s8[] parameter(0)"]
        lines += [f"  x{k} = s8[{n}] negate(p)" for k, n in enumerate(sizes)]
        module = hs.read("\n".join([*lines, "  ROOT r = s8[] copy(p)", "}"])).module
        found = flags(module)
        return [k for k in range(len(sizes)) if found[module.find(f"x{k}").index] & LANDMARK]

    mib = 1 << 20
    assert marked([mib, mib - 1]) == [0]
    assert marked([mib - 1]) == []
    assert marked([4 * mib, 2 * mib, 2 * mib - 1]) == [0, 1]
    assert marked([mib] * 24) == list(range(24))
    assert marked([mib] * 25) == list(range(24))
    assert marked([*[mib] * 24, 2 * mib]) == [*range(23), 24]
