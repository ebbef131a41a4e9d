"""Which convolutions are products, and what calls, fusions and transfers are, case by case."""

from __future__ import annotations

import hloscope as hs
import pytest
from hloscope.analysis.base.labels.families import (
    FAMILIES,
    convolution_is_matmul,
    families,
    is_matmul,
    opcode_family,
)

SLIDES = "size=3 pad=1_1"


@pytest.mark.parametrize(
    ("window", "extent", "product"),
    [
        # one position of the kernel
        ("size=1", 5, True),
        ("size=1 pad=0_0", 5, True),
        ("size=1 stride=2", 5, True),
        ("size=1 pad=1_0", 5, False),
        ("size=1 pad=0_1", 5, False),
        ("size=2", 5, False),
        # a batch: n windows, one for each of n elements that are n apart
        ("size=4 stride=3 lhs_dilate=4", 4, True),
        ("size=4 stride=3 lhs_dilate=4", 9, True),
        ("size=4 stride=2 lhs_dilate=4", 4, False),
        ("size=4 stride=4 lhs_dilate=4", 4, False),
        ("size=4 stride=3 lhs_dilate=3", 5, False),
        ("size=4 stride=3 lhs_dilate=4 pad=1_1", 4, False),
        ("size=2 stride=1 lhs_dilate=2", 2, True),
        ("size=2 stride=2 lhs_dilate=2", 2, False),
        # contracted: the window is all there is
        ("size=5", 5, True),
        ("size=5 pad=1_1", 5, False),
        ("size=5 lhs_dilate=2", 5, False),
        ("size=4", 5, False),
        # of the output: each element of the kernel meets the one element once
        ("size=3 pad=2_2", 1, True),
        ("size=2 pad=1_1", 1, True),
        ("size=3 pad=1_1", 1, False),
        ("size=3 pad=2_2", 2, False),
        ("size=3 pad=2_2 lhs_dilate=2", 1, False),
        ("size=3 pad=3_3", 1, False),
    ],
)
def test_a_window_that_never_slides_is_a_dimension_of_a_product(
    window: str, extent: int, product: bool
) -> None:
    """One dimension alone, and beside one that never slides, on either side of it."""
    fields = dict(f.split("=") for f in window.split())
    full = {"size": "1", "stride": "1", "lhs_dilate": "1", "pad": "0_0"} | fields
    assert convolution_is_matmul(window, "b0f_0io->b0f", (8, extent, 16)) is product
    plain = {"size": "1", "stride": "1", "lhs_dilate": "1", "pad": "0_0"}
    before = " ".join(f"{k}={plain[k]}x{v}" for k, v in full.items())
    assert convolution_is_matmul(before, "b01f_01io->b01f", (8, 7, extent, 16)) is product
    after = " ".join(f"{k}={v}x{plain[k]}" for k, v in full.items())
    assert convolution_is_matmul(after, "b01f_01io->b01f", (8, extent, 7, 16)) is product


def test_of_a_damaged_convolution_nothing_is_assumed() -> None:
    """Fewer numbers in a window than dimensions, and an operand of fewer dimensions."""
    assert convolution_is_matmul("size=3", "b01f_01io->b01f", (8, 7, 5, 16))  # one by one
    assert not convolution_is_matmul("size=5", "bf0_0io->bf0", (8, 16))
    assert convolution_is_matmul("size=5", "bf0_0io->bf0", (8, 16, 5))
    assert not convolution_is_matmul("size=5", "bf0_0io->bf0", ())


def read(text: str, before: str = "") -> dict[str, str]:
    """The family of every instruction, by name."""
    module = hs.read(f"HloModule m\n{before}\nENTRY main {{\n{text}\n}}\n").module
    found = {
        i.name: FAMILIES[f].id for i, f in zip(module.instructions, families(module), strict=True)
    }
    for i in module.instructions:
        if i.opcode != "call":
            assert is_matmul(i) == (found[i.name] == "matmul"), i.name
    return found


def test_groups_and_missing_labels_make_a_convolution() -> None:
    head = "  x = f32[8,16] parameter(0)\n  w = f32[16,32] parameter(1)\n"
    row = "  ROOT c = f32[8,32] convolution(x, w)"
    for more, family in (
        (", dim_labels=bf_io->bf", "matmul"),
        (", dim_labels=bf_io->bf, feature_group_count=1", "matmul"),
        (", dim_labels=bf_io->bf, feature_group_count=2", "convolution"),
        (", dim_labels=bf_io->bf, batch_group_count=2", "convolution"),
        ("", "convolution"),
        (", window={size=16}, dim_labels=b0_0o->bo", "matmul"),
        (", window={size=8}, dim_labels=b0_0o->bo", "convolution"),
    ):
        assert read(head + row + more)["c"] == family, more
    assert read("  ROOT c = f32[8,32] convolution(), dim_labels=bf_io->bf")["c"] == "matmul"


CALLED = """one {
  p = f32[8,8] parameter(0)
  b = f32[64] bitcast(p)
  c = f32[8,8] bitcast(b)
  k = f32[] constant(1)
  ROOT n = f32[8,8] WORK(c)
}
two {
  p2 = f32[8,8] parameter(0)
  n2 = f32[8,8] sine(p2)
  ROOT m2 = f32[8,8] sort(n2), dimensions={0}
}
none {
  ROOT p3 = f32[8,8] parameter(0)
}
"""


@pytest.mark.parametrize(
    ("work", "family"),
    [("sort", "linear_algebra"), ("negate", "elementwise"), ("transpose", "data_movement")],
)
def test_a_call_of_one_piece_of_work_is_that_work(work: str, family: str) -> None:
    rows = """  x = f32[8,8] parameter(0)
  a = f32[8,8] call(x), to_apply=one
  b = f32[8,8] call(a), to_apply=two
  c = f32[8,8] call(b), to_apply=none
  d = f32[8,8] fusion(c), kind=kLoop, calls=one
  e = f32[8,8] fusion(d), kind=kLoop, calls=two
  f = f32[8,8] fusion(e), kind=kLoop, calls=none
  ROOT g = f32[8,8] fusion(f), kind=kLoop"""
    found = read(rows, CALLED.replace("WORK", work))
    assert (found["a"], found["b"], found["c"]) == (family, "control_flow", "control_flow")
    assert found["d"] == {"elementwise": "fusion"}.get(family, family)
    assert (found["e"], found["f"]) == ("linear_algebra", "data_movement")
    assert found["g"] == "fusion"  # cut off


def test_wrappers_are_seen_through_level_by_level() -> None:
    """The innermost is printed last, so that a level is found in each round."""
    inside = [
        f"w{k} {{\n  p{k} = f32[8,8] parameter(0)\n"
        f"  ROOT f{k} = f32[8,8] fusion(p{k}), kind=kLoop, calls=w{k + 1}\n}}\n"
        for k in range(7)
    ]
    last = "w7 {\n  p7 = f32[8,8] parameter(0)\n  ROOT d = f32[8,8] dot(p7, p7)\n}\n"
    found = read("  ROOT x = f32[8,8] parameter(0)", "".join([*inside, last]))
    assert {found[f"f{k}"] for k in range(7)} == {"matmul"}


def test_the_end_of_a_transfer_is_of_its_kind() -> None:
    before = "w {\n  p = f32[8,8] parameter(0)\n  ROOT s = f32[8,8] sort(p), dimensions={0}\n}\n"
    tuples = "((f32[8,8]), f32[8,8], u32[])"
    found = read(
        f"""  x = f32[8,8] parameter(0)
  s0 = {tuples} async-start(x), calls=w
  s1 = {tuples} async-update(s0)
  s2 = f32[8,8] async-done(s1)
  lost = f32[8,8] async-done()
  ROOT y = f32[8,8] negate(x)""",
        before,
    )
    assert [found[n] for n in ("s0", "s1", "s2", "lost")] == [*["linear_algebra"] * 3, "other"]


@pytest.mark.parametrize(
    ("opcode", "family"),
    [
        ("slice-start", "transfer"),
        ("dynamic-slice-done", "transfer"),
        ("sort-start", "linear_algebra"),
        ("a.b.dot_general", "matmul"),
        ("stablehlo.ADD", "elementwise"),
        ("frobnicate-start", "other"),
    ],
)
def test_a_prefix_and_a_suffix_change_nothing(opcode: str, family: str) -> None:
    assert FAMILIES[opcode_family(opcode)].id == family
