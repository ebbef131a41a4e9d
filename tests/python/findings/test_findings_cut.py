"""Findings about what is sent whole and then cut, or summed apart and then added."""

from __future__ import annotations

from pathlib import Path

import hloscope as hs
import pytest
from round_chip import GATHERED, SUMMED, chip_file, mib, program, said
from test_findings_sent import figures, of, only


@pytest.fixture(autouse=True)
def _chip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOSCOPE_HARDWARE", chip_file(tmp_path))


# -- whole, then cut by device -----------------------------------------------------------------

WHOLE, PART = "f32[8,128,1024]{2,1,0}", "f32[4,128,1024]{2,1,0}"  # 4 and 2 MiB
INSIDE = f"""
%cut (u: f32[8,128,1024], n: s32[]) -> f32[4,128,1024] {{
%u = {WHOLE} parameter(0)
%n = s32[] parameter(1)
%z = s32[] constant(0)
ROOT %v = {PART} dynamic-slice(%u, %n, %z, %z), dynamic_slice_sizes={{4,128,1024}}
}}
%worked (u: f32[8,128,1024], n: s32[]) -> f32[4,128,1024] {{
%u = {WHOLE} parameter(0)
%n = s32[] parameter(1)
%z = s32[] constant(0)
%d = {PART} dynamic-slice(%u, %n, %z, %z), dynamic_slice_sizes={{4,128,1024}}
ROOT %v = {PART} tanh(%d)
}}
%summed (u: f32[8,128,1024], n: s32[]) -> f32[4,128,1024] {{
%u = {WHOLE} parameter(0)
%n = s32[] parameter(1)
%z = s32[] constant(0)
%d = {PART} dynamic-slice(%u, %n, %z, %z), dynamic_slice_sizes={{4,128,1024}}
%f = f32[] constant(0)
%r = f32[] reduce(%u, %f), dimensions={{0,1,2}}, to_apply=%sum
%b = {PART} broadcast(%r), dimensions={{}}
ROOT %v = {PART} add(%d, %b)
}}
%cast (u: f32[8,128,1024], n: s32[]) -> f16[4,128,1024] {{
%u = {WHOLE} parameter(0)
%n = s32[] parameter(1)
%z = s32[] constant(0)
%d = {PART} dynamic-slice(%u, %n, %z, %z), dynamic_slice_sizes={{4,128,1024}}
ROOT %v = f16[4,128,1024]{{2,1,0}} convert(%d)
}}
%number () -> s32[] {{
%i = u32[] partition-id()
%c = s32[] convert(%i)
%four = s32[] constant(4)
ROOT %m = s32[] multiply(%c, %four)
}}
%twice (i: u32[]) -> s32[] {{
%i = u32[] parameter(0)
%c = s32[] convert(%i)
ROOT %m = s32[] add(%c, %c)
}}
"""
AT = "%id = u32[] partition-id()\n%at = s32[] convert(%id)\n%zero = s32[] constant(0)\n"
GATHER = f"%g = {WHOLE} all-gather(%x), {GATHERED}, {said('jvp(n)/dot_general', 4)}"


def cut(at: str, of_what: str = "g", name: str = "c") -> str:
    return (
        f"%{name} = {PART} dynamic-slice(%{of_what}, %{at}, %zero, %zero),"
        " dynamic_slice_sizes={4,128,1024}"
    )


def sent_and_used(how: str, uses: str, root: str) -> hs.Capture:
    size = PART if "gather" in how else WHOLE
    return program(f"{AT}%x = {size} parameter(0)\n{how}\n{uses}\nROOT {root}", before=INSIDE)


ONE = f"%o = {PART} tanh(%c)"
USES = [
    (cut("at"), ONE, True),
    (cut("zero"), ONE, False),  # the same on each device
    (f"%at2 = s32[] fusion(), kind=kLoop, calls=%number\n{cut('at2')}", ONE, True),
    (f"%at2 = s32[] fusion(%id), kind=kLoop, calls=%twice\n{cut('at2')}", ONE, True),
    (f"%at2 = s32[] add(%zero, %at)\n{cut('at2')}", ONE, True),
    (f"%r = u32[] replica-id()\n%at2 = s32[] convert(%r)\n{cut('at2')}", ONE, True),
    (f"%c = {PART} fusion(%g, %at), kind=kLoop, calls=%cut", ONE, True),
    (f"%c = {PART} fusion(%g, %zero), kind=kLoop, calls=%cut", ONE, False),
    (f"%c = {PART} fusion(%g, %at), kind=kLoop, calls=%worked", ONE, True),
    (f"%c = {PART} fusion(%g, %zero), kind=kLoop, calls=%worked", ONE, False),
    (f"%c = {PART} fusion(%g, %at), kind=kLoop, calls=%summed", ONE, False),
    ("%c = f16[4,128,1024]{2,1,0} fusion(%g, %at), kind=kLoop, calls=%cast",
     "%o = f16[4,128,1024]{2,1,0} tanh(%c)", True),
    # behind casts and copies
    (f"%k = {WHOLE} copy(%g)\n{cut('at', 'k')}", ONE, True),
    (f"%k = {WHOLE} copy(%g)\n%c = {PART} fusion(%k, %at), kind=kLoop, calls=%worked", ONE, True),
    # every use counts
    (f"{cut('at')}\n{cut('at', 'g', 'd')}", f"%o = {PART} add(%c, %d)", True),
    (f"{cut('at')}\n{cut('zero', 'g', 'd')}", f"%o = {PART} add(%c, %d)", False),
    (f"{cut('at')}\n%d = {WHOLE} tanh(%g)", f"%o = ({PART}, {WHOLE}) tuple(%c, %d)", False),
    (cut("at"), f"%o = ({PART}, {WHOLE}) tuple(%c, %g)", False),
    (f"{cut('at')}\n%k = {WHOLE} copy(%g)", f"%o = ({PART}, {WHOLE}) tuple(%c, %k)", False),
]  # fmt: skip


@pytest.mark.parametrize("kind", ["gather", "reduce"])
def test_what_is_cut_by_device_need_not_be_whole(kind: str) -> None:
    rule = {"gather": "gathered-then-sliced", "reduce": "reduced-then-sliced"}[kind]
    how = GATHER if kind == "gather" else f"%g = {WHOLE} all-reduce(%x), {SUMMED}, {said('psum')}"
    wrong = []
    for uses, root, is_cut in USES:
        cap = sent_and_used(how, uses, root)
        if bool(of(cap, rule)) is not is_cut:
            wrong.append(uses)
        # and what need not be sent at all is not waited for, in words
        if kind == "gather" and bool(of(cap, "exposed-collective")) is is_cut:
            wrong.append(uses)
    assert wrong == []


def test_what_cutting_costs() -> None:
    found = only(sent_and_used(GATHER, cut("at"), ONE), "gathered-then-sliced")
    assert found.title == (
        "`%x` is gathered over one group of 2, and each device then keeps only a slice"
    )
    assert found.evidence == ("%g makes f32[8,128,1024], and all its users cut it again (%c)")
    assert [i.name for i in found.instructions] == ["g", "c"]
    assert (found.seconds, found.bytes, found.line) == (2.5, 2 << 20, "m.py:4")
    # the gather 2.5 s; the slice reads and writes 2 MiB, as tanh does
    assert found.share == pytest.approx(2.5 / 10.5, rel=1e-5)
    # half of a sum, which takes 1 s and 4 MiB
    how = f"%g = {WHOLE} all-reduce(%x), {SUMMED}, {said('psum')}"
    found = only(sent_and_used(how, cut("at"), ONE), "reduced-then-sliced")
    assert found.title == (
        "%g reduces all of f32[8,128,1024] over one group of 2, and each device keeps a slice:"
        " a reduce-scatter would send half"
    )
    assert (found.seconds, found.bytes) == (2.5, 2 << 20)
    assert found.share == pytest.approx(2.5 / 13, rel=1e-5)
    assert [i.name for i in found.instructions] == ["g", "c"]


def test_five_users_are_found_and_four_are_shown() -> None:
    cuts = "\n".join(cut("at", "g", f"c{k}") for k in range(5))
    out = f"%o = ({', '.join([PART] * 5)}) tuple({', '.join(f'%c{k}' for k in range(5))})"
    found = only(sent_and_used(GATHER, cuts, out), "gathered-then-sliced")
    assert "(%c0, %c1, %c2 and 2 more)" in found.evidence
    assert [i.name for i in found.instructions] == ["g", "c0", "c1", "c2", "c3"]


def test_more_than_half_of_what_was_gathered_is_no_slice() -> None:
    most = "f32[5,128,1024]{2,1,0}"
    uses = cut("at").replace(PART, most).replace("sizes={4", "sizes={5")
    cap = sent_and_used(GATHER, uses, f"%o = {most} tanh(%c)")
    assert of(cap, "gathered-then-sliced") == ()


def test_asynchronous_and_combined_ones() -> None:
    start = f"""%s = ({PART}, {WHOLE}) all-gather-start(%x), {GATHERED}
%g = {WHOLE} all-gather-done(%s)"""
    assert of(sent_and_used(start, cut("at"), ONE), "gathered-then-sliced")
    both = f"""%y = {PART} tanh(%x)
%s = ({WHOLE}, {WHOLE}) all-gather(%x, %y), {GATHERED}
%g = {WHOLE} get-tuple-element(%s), index=0"""
    assert of(sent_and_used(both, cut("at"), ONE), "gathered-then-sliced") == ()
    both = f"""%y = {WHOLE} tanh(%x)
%s = ({WHOLE}, {WHOLE}) all-reduce(%x, %y), {SUMMED}
%g = {WHOLE} get-tuple-element(%s), index=0"""
    assert of(sent_and_used(both, cut("at"), ONE), "reduced-then-sliced") == ()
    # of itself alone a device gets nothing to leave out
    alone = f"%g = {WHOLE} all-reduce(%x), {SUMMED.replace('[1,2]', '[2,1]')}"
    assert of(sent_and_used(alone, cut("at"), ONE), "reduced-then-sliced") == ()


# -- summed apart, then added ------------------------------------------------------------------

SUM_OF_TWO = f"""
%p = {mib(2)} parameter(0)
%q = {mib(2)} parameter(1)
%a = {mib(2)} all-reduce(%p), {SUMMED}, {said("transpose(jvp(n))/dot_general")}
%b = {mib(2)} all-reduce(%q), {SUMMED}, {said("transpose(jvp(n))/dot_general")}
"""
FUSED = f"""
%added (u: f32[2,512,512], v: f32[2,512,512]) -> f32[2,512,512] {{
%u = {mib(2)} parameter(0)
%v = {mib(2)} parameter(1)
%k = {mib(2)} negate(%KEPT)
ROOT %s = {mib(2)} add(%u, %v)
}}
%max (x: f32[], y: f32[]) -> f32[] {{
%x = f32[] parameter(0)
%y = f32[] parameter(1)
ROOT %m = f32[] maximum(%x, %y)
}}
"""


def summed(rest: str, first: str = SUM_OF_TWO, inside: str = "") -> hs.Capture:
    before = FUSED.replace("%KEPT", inside)
    if not inside:
        before = FUSED.replace(f"%k = {mib(2)} negate(%KEPT)\n", "")
    return program(first + rest, before=before)


ADD = f"ROOT %s = {mib(2)} add(%a, %b)"
FUSE = f"ROOT %s = {mib(2)} fusion(%a, %b), kind=kLoop, calls=%added"


def changed(old: str, new: str) -> str:
    assert old in SUM_OF_TWO
    return SUM_OF_TWO.replace(old, new)


B = f"%b = {mib(2)} all-reduce(%q), {SUMMED}"


@pytest.mark.parametrize(
    ("rest", "first", "inside", "is_twice"),
    [
        (ADD, SUM_OF_TWO, "", True),
        (FUSE, SUM_OF_TWO, "", True),
        # casts and copies between
        (f"%c = {mib(2)} copy(%b)\nROOT %s = {mib(2)} add(%c, %a)", SUM_OF_TWO, "", True),
        # another operation, one of them alone, the same one twice
        (ADD.replace("add", "multiply"), SUM_OF_TWO, "", False),
        (ADD.replace("%b)", "%q)"), SUM_OF_TWO, "", False),
        (ADD.replace("%b)", "%a)"), SUM_OF_TWO, "", False),
        # a sum that is read elsewhere too is needed by itself: outside, and in the fusion
        (f"%t = {mib(2)} tanh(%b)\n{ADD}", SUM_OF_TWO, "", False),
        (f"%t = {mib(2)} tanh(%a)\n{ADD}", SUM_OF_TWO, "", False),
        (FUSE, SUM_OF_TWO, "%u", False),
        (FUSE, SUM_OF_TWO, "%v", False),
        # no sum, or over other devices
        (ADD, changed(B, B.replace("%sum", "%max")), "", False),
        (ADD, changed(B, B.replace("[1,2]<=[2]", "[2,1]<=[2]")), "", False),
        # parts of one that sums both
        (f"{ADD}", f"""
%p = {mib(2)} parameter(0)
%q = {mib(2)} parameter(1)
%ab = ({mib(2)}, {mib(2)}) all-reduce(%p, %q), {SUMMED}
%a = {mib(2)} get-tuple-element(%ab), index=0
%b = {mib(2)} get-tuple-element(%ab), index=1
""", "", True),
        (f"{ADD}", f"""
%pq = {mib(4)} parameter(0)
%ab = {mib(4)} all-reduce(%pq), {SUMMED}
%a = {mib(2)} slice(%ab), slice={{[0:2], [0:512], [0:512]}}
%b = {mib(2)} slice(%ab), slice={{[2:4], [0:512], [0:512]}}
""", "", True),
        (f"{ADD}", f"""
%p = {mib(2)} parameter(0)
%q = {mib(2)} parameter(1)
%as = {mib(2)} all-reduce-start(%p), {SUMMED}
%a = {mib(2)} all-reduce-done(%as)
%bs = {mib(2)} all-reduce-start(%q), {SUMMED.replace("id=1", "id=2")}
%b = {mib(2)} all-reduce-done(%bs)
""", "", True),
    ],
)  # fmt: skip
def test_which_sums_could_be_one(rest: str, first: str, inside: str, is_twice: bool) -> None:
    assert bool(of(summed(rest, first, inside), "reduced-twice")) is is_twice


def test_what_the_second_sum_costs() -> None:
    cap = summed(ADD)
    found = only(cap, "reduced-twice")
    assert found.title == (
        "A gradient is reduced twice over one group of 2: 2 MiB of 2 MiB of %a could be saved"
    )
    assert found.evidence == (
        "%s adds two values that are each all-reduced: f32[2,512,512] in %a and in %b (such as"
        " the two uses of one array of weights, in two loops or as tied embedding)"
    )
    assert found.advice.startswith("add the partial gradients before they are reduced: red")
    # 3 s each for the sums, 6 s to read 4 MiB and write 2
    assert figures(cap, "reduced-twice") == [(0.25, 3.0, 2 << 20, "a b s")]


def test_additions_of_one_kind_are_one_finding_and_the_smaller_sum_counts() -> None:
    """Two pairs in bf16 beside f32: the smaller half of each, in the forward pass."""
    wide, narrow = mib(2), mib(2, "bf16")
    lines = []
    for k in range(2):
        lines += [
            f"%p{k} = {wide} parameter({2 * k})",
            f"%q{k} = {narrow} parameter({2 * k + 1})",
            f"%a{k} = {wide} all-reduce(%p{k}), {SUMMED}, {said('jvp(n)/dot_general')}",
            f"%b{k} = {narrow} all-reduce(%q{k}), {SUMMED}, {said('jvp(n)/dot_general')}",
            f"%c{k} = {wide} convert(%b{k})",
            f"%s{k} = {wide} add(%a{k}, %c{k})",
        ]
    cap = program("\n".join([*lines, f"ROOT %o = ({wide}, {wide}) tuple(%s0, %s1)"]))
    found = only(cap, "reduced-twice")
    assert found.title == (
        "2 sums are reduced twice over one group of 2: 2 MiB of 2 MiB of %b0, %b1 could be saved"
    )
    assert found.evidence.endswith("bf16[2,512,512] in %b0 and in %a0")
    # 1 s and 1 MiB each
    assert (found.seconds, found.bytes) == (4.0, 2 << 20)
    assert [i.name for i in found.instructions] == ["b0", "a0", "s0", "b1", "a1", "s1"]


def test_a_gradient_of_three_parts_is_one_gradient_that_is_reduced_three_times() -> None:
    """One array used three times beside another that is used twice: three sums could be saved."""
    back = said("transpose(jvp(n))/dot_general")
    lines = [f"%p{k} = {mib(2)} parameter({k})" for k in range(5)]
    lines += [f"%a{k} = {mib(2)} all-reduce(%p{k}), {SUMMED}, {back}" for k in range(5)]
    lines += [f"%s = {mib(2)} add(%a0, %a1)", f"%t = {mib(2)} add(%s, %a2)"]
    one = program("\n".join([*lines[:3], *lines[5:8], *lines[10:], f"ROOT %o = {mib(2)} copy(%t)"]))
    found = only(one, "reduced-twice")
    assert found.title == (
        "A gradient is reduced 3 times over one group of 2: 4 MiB of 4 MiB of %a0, %a2 could be"
        " saved"
    )
    assert found.evidence.endswith(
        "(such as several uses of one array of weights, in several loops or as tied embedding)"
    )
    lines += [f"%u = {mib(2)} add(%a3, %a4)", f"ROOT %o = ({mib(2)}, {mib(2)}) tuple(%t, %u)"]
    title = only(program("\n".join(lines)), "reduced-twice").title
    assert title.startswith("2 gradients are reduced 2 to 3 times over one group of 2: 6 MiB of")


def test_of_one_sum_of_both_a_half_is_saved() -> None:
    cap = program(f"""
%p = {mib(3)} parameter(0)
%ab = {mib(3)} all-reduce(%p), {SUMMED}
%a = f32[2,128,512]{{2,1,0}} slice(%ab), slice={{[0:2], [0:128], [0:512]}}
%b = f32[2,128,512]{{2,1,0}} slice(%ab), slice={{[1:3], [0:128], [0:512]}}
ROOT %s = f32[2,128,512]{{2,1,0}} add(%a, %b)""")
    found = only(cap, "reduced-twice")
    half = 1 << 19
    assert ": 512 KiB of 3 MiB of %ab" in found.title
    assert found.evidence.endswith("f32[2,128,512] both in %ab")
    # a sixth of 1 s + 3 MiB
    assert (found.seconds, found.bytes) == (4 / 6, half)


def test_a_hundredth_of_the_wire_is_a_trifle() -> None:
    def beside(n: int) -> hs.Capture:
        shape = "f32[512,512]{1,0}"
        return program(f"""
%x = {mib(n)} parameter(0)
%p = {shape} parameter(1)
%q = {shape} parameter(2)
%g = {mib(n)} all-reduce(%x), {SUMMED}
%a = {shape} all-reduce(%p), {SUMMED}
%b = {shape} all-reduce(%q), {SUMMED}
%s = {shape} add(%a, %b)
ROOT %o = ({mib(n)}, {shape}) tuple(%g, %s)""")

    assert only(beside(98), "reduced-twice").share == 0.02
    assert of(beside(99), "reduced-twice") == ()


def test_without_a_chip_bytes_on_the_wire_are_compared() -> None:
    cap = summed(ADD)
    cap.hardware = None
    # 2 of 4 MiB sent, at half its worth
    assert figures(cap, "reduced-twice") == [(0.25, None, 2 << 20, "a b s")]
    assert of(cap, "exposed-collective") == of(cap, "tiny-collectives") == ()
    assert "modelled" not in only(cap, "reduced-twice").at_stake


def test_narrow_sums_over_other_devices_are_said_to_be() -> None:
    back, one = said("transpose(jvp(n))/dot_general"), mib(2, "bf16")
    ways = {"all": "[1,4]<=[4]", "pairs": "[2,2]<=[4]"}
    every, pairs = (SUMMED.replace("[1,2]<=[2]", groups) for groups in ways.values())

    def summed_in(rest: str = "") -> hs.Capture:
        return program(
            f"""
%p = {one} parameter(0)
%q = {one} parameter(1)
%a = {one} all-reduce(%p), {every}, {back}
%b = {one} all-reduce(%q), {pairs}, {back}
%c = {mib(2)} convert(%a), {back}
%d = {mib(2)} convert(%b), {back}{
                rest
                or f'''
ROOT %o = ({mib(2)}, {mib(2)}) tuple(%c, %d)'''
            }""",
            devices=4,
        )

    found = only(summed_in(), "narrow-sums")
    assert found.title.startswith("Gradients are summed over 2 to 4 devices in bf16, and converted")
    assert found.evidence.startswith(
        "%a over axis_0+axis_1 and %b over axis_1: each partial sum is rounded"
    )
    # a hundredth of what is sent is nothing to say
    most = mib(400)
    rest = f"""
%x = {most} parameter(2)
%y = {most} all-reduce(%x), {every}
ROOT %o = ({mib(2)}, {mib(2)}, {most}) tuple(%c, %d, %y)"""
    assert not of(summed_in(rest), "narrow-sums")
