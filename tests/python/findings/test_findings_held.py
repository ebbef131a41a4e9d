"""Findings about memory and about what is in the program, with figures worked out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hloscope as hs
import pytest
from hloscope.hlo import Argument, Target
from round_chip import chip_file, program, said, work
from test_findings_sent import figures, of, only


@pytest.fixture(autouse=True)
def _chip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOSCOPE_HARDWARE", chip_file(tmp_path))


def alone(entry: str, before: str = "", chip: str | None = "round", **target: Any) -> hs.Capture:
    cap = program(entry, devices=1, before=before, chip=chip)
    made = hs.Capture(cap.module, Target(**target))
    made.hardware = chip
    return made


# -- donated or not ----------------------------------------------------------------------------

A = "f32[64,512,512]{2,1,0}"  # 64 MiB of the chip's 1024
DEFINED = f"""
%update (u: {A}, v: {A}) -> {A} {{
%u = {A} parameter(0)
%v = {A} parameter(1)
ROOT %s = {A} subtract(%u, %v)
}}
%tanh (u: {A}, v: {A}) -> {A} {{
%u = {A} parameter(0)
%v = {A} parameter(1)
%t = {A} tanh(%u)
ROOT %s = {A} divide(%t, %v)
}}
%both (u: {A}, v: {A}) -> ({A}, {A}) {{
%u = {A} parameter(0)
%v = {A} parameter(1)
%s = {A} subtract(%u, %v)
%t = {A} tanh(%v)
ROOT %r = ({A}, {A}) tuple(%t, %s)
}}
%mixed (u: {A}, v: {A}) -> {A} {{
%u = {A} parameter(0)
%v = {A} parameter(1)
%d = {A} dot(%v, %v), lhs_batch_dims={{0}}, rhs_batch_dims={{0}}, lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}
%h = {A} multiply(%u, %u)
ROOT %s = {A} subtract(%h, %d)
}}
%product (u: {A}, v: {A}) -> {A} {{
%u = {A} parameter(0)
%v = {A} parameter(1)
ROOT %d = {A} dot(%u, %v), lhs_batch_dims={{0}}, rhs_batch_dims={{0}}, lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}
}}
"""  # noqa: E501
BACK = said("transpose(jvp(n))/mul")
NAMED = f"%z = {A} negate(%y), {BACK}\n"  # a backward pass, for what needs one
X = f"%x = {A} parameter(0)\n%y = {A} parameter(1)\n"


@pytest.mark.parametrize(
    ("rest", "is_update"),
    [
        (f"ROOT %o = {A} add(%x, %y)", True),
        (f"ROOT %o = {A} subtract(%x, %y)", True),
        (f"ROOT %o = {A} divide(%x, %y)", False),
        (f"%t = {A} tanh(%x)\nROOT %o = {A} add(%t, %y)", False),
        (f"ROOT %o = {A} fusion(%x, %y), kind=kLoop, calls=%update", True),
        (f"ROOT %o = {A} fusion(%x, %y), kind=kLoop, calls=%tanh", False),
        # with a matmul it is an update of weights where there is a backward pass
        (f"ROOT %o = {A} fusion(%x, %y), kind=kOutput, calls=%mixed", False),
        (f"{NAMED}ROOT %o = {A} fusion(%x, %z), kind=kOutput, calls=%mixed", True),
        (f"{NAMED}ROOT %o = {A} fusion(%x, %z), kind=kOutput, calls=%product", False),
        # behind copies, casts and tuples
        (f"%s = {A} subtract(%x, %y)\n%b = {A} bitcast(%s)\nROOT %o = {A} copy(%b)", True),
        (f"%k = {A} copy(%x)\nROOT %o = {A} add(%k, %y)", True),
        (f"%f = ({A}, {A}) fusion(%x, %y), kind=kLoop, calls=%both\n"
         f"ROOT %o = {A} get-tuple-element(%f), index=1", True),
        (f"%s = {A} tanh(%x)\n%b = {A} bitcast(%s)\nROOT %o = {A} copy(%b)", False),
    ],
)  # fmt: skip
def test_which_arguments_an_output_replaces(rest: str, is_update: bool) -> None:
    cap = alone(X + rest, DEFINED)
    assert any(d.outcome == "could be donated" for d in cap.memory.donations)
    found = of(cap, "not-donated")
    assert [f.instructions[0].name for f in found] == ["x"] * is_update


def test_what_is_not_donated_is_held_twice() -> None:
    def step(count: int) -> hs.Capture:
        shapes = [f"f32[{64 + k},512,512]{{2,1,0}}" for k in range(count)]
        lines = [f"%p{k} = {s} parameter({k})" for k, s in enumerate(shapes)]
        lines += [f"%s{k} = {s} add(%p{k}, %p{k})" for k, s in enumerate(shapes)]
        root = ", ".join(f"%s{k}" for k in range(count))
        return alone("\n".join([*lines, f"ROOT %o = ({', '.join(shapes)}) tuple({root})"]))

    found = only(step(1), "not-donated")
    assert found.title == "1 argument that the step replaces is not donated: 64 MiB held twice"
    assert found.evidence == (
        "`p0`: an output of the same shape is computed from it and has memory of its own"
    )
    # half of the peak, of which the chip has as much as eight times
    assert (round(found.share, 6), found.seconds, found.bytes) == (0.5, None, 64 << 20)
    found = only(step(5), "not-donated")
    assert found.title == "5 arguments that the step replaces are not donated: 330 MiB held twice"
    assert found.evidence.startswith("`p4`, `p3`, `p2` and 2 more: an output")
    assert [i.name for i in found.instructions] == ["p4", "p3", "p2", "p1", "p0"]
    assert only(step(3), "not-donated").evidence.startswith("`p2`, `p1`, `p0`: an output")


def test_what_a_chip_has_ten_times_over_is_worth_a_fifth() -> None:
    def step(mib: int, chip: str | None = "round") -> float:
        s = f"f32[{mib},512,512]{{2,1,0}}"
        text = f"%p = {s} parameter(0)\nROOT %s = {s} add(%p, %p)"
        return only(alone(text, chip=chip), "not-donated").share

    assert [step(52), step(51), step(51, None)] == [0.5, 0.1, 0.5]


def given(names: int, chip: str | None = "round", result: str = "f32[8]{0}") -> hs.Capture:
    """Arguments of 64 MiB and more, donated to a step that returns nothing like them."""
    shapes = [f"f32[{64 + k},512,512]{{2,1,0}}" for k in range(names)]
    lines = [f"%p{k} = {s} parameter({k})" for k, s in enumerate(shapes)]
    uses = ", ".join(f"%p{k}" for k in range(names))
    lines.append(f'ROOT %o = {result} custom-call({uses}), custom_call_target="f"')
    arguments = tuple(
        Argument(f"state[{k}]", (64 + k, 512, 512), "float32", donated=True, parameter=k)
        for k in range(names)
    )
    return alone("\n".join(lines), chip=chip, arguments=arguments)


def test_what_is_donated_in_vain() -> None:
    found = only(given(1), "donated-in-vain")
    assert found.title == "1 donated argument could not be used: 64 MiB in `state[0]`"
    assert found.evidence == "`state[0]`: no output is f32[64,512,512] on a device"
    # nothing would be gained, as no output could take it
    assert (found.share, found.bytes, found.advice) == (0.02, None, "")
    found = only(given(5), "donated-in-vain")
    assert found.title == (
        "5 donated arguments could not be used: 330 MiB in `state[4]`, `state[3]`, `state[2]` and"
        " 2 more"
    )
    assert [i.name for i in found.instructions] == ["p4", "p3", "p2", "p1", "p0"]
    assert only(given(3), "donated-in-vain").title.endswith("in `state[2]`, `state[1]`, `state[0]`")


# -- too much ----------------------------------------------------------------------------------


def test_what_does_not_fit() -> None:
    def step(mib: int, chip: str | None = "round") -> hs.Capture:
        s = f"f32[{mib},512,512]{{2,1,0}}"
        text = f"%p = {s} parameter(0)\nROOT %s = {s} tanh(%p), {said('tanh', 3)}"
        return alone(text, chip=chip)

    assert of(step(512), "does-not-fit") == of(step(513, None), "does-not-fit") == ()
    found = only(step(513), "does-not-fit")
    assert found.title == "The peak of 1 GiB does not fit in the 1 GiB of a Round"
    shown = "p (513 MiB), %s f32[513,512,512] (513 MiB) at m.py:3"
    assert found.evidence == f"largest at the peak: {shown}"
    assert (found.share, found.bytes, found.line) == (1.0, 2 << 20, "")
    assert [i.name for i in found.instructions] == ["p", "s"]


def padded(columns: int, rows: int, beside: int, chip: str | None = "round") -> hs.Capture:
    s, t = f"f32[{rows},{columns}]{{1,0:T(8,128)}}", f"f32[{beside},1024]{{1,0:T(8,128)}}"
    return alone(
        f"%x = {s} parameter(0)\n%w = {t} parameter(1)\n%y = {s} sine(%x), {said('sin', 5)}\n"
        f"ROOT %o = ({s}) tuple(%y)",
        chip=chip,
    )


def test_what_is_padding() -> None:
    """64 of 128 lanes: of 2 · 4 MiB a half."""
    found = only(padded(64, 1 << 14, 4096), "padding")
    assert found.title == "25 % of the peak is padding: 8 MiB"
    assert found.evidence == (
        "the most in x: f32[16384,64] takes 8 MiB for 4 MiB of data, as dimensions of 16384 and"
        " 64 are filled up to tiles of 8 × 128"
    )
    # an eighth of the peak of 32 MiB, of which the chip has ten times as much
    assert (round(found.share, 5), found.bytes) == (0.05, 8 << 20)
    assert [i.name for i in found.instructions][:2] == ["x", "y"]
    # from a tenth of the peak on: 16 MiB hold 8 of padding, beside 63 and 64 and a pointer
    assert of(padded(64, 1 << 14, 63 * 256), "padding")
    assert of(padded(64, 1 << 14, 64 * 256), "padding") == ()
    # and half a per cent of the chip: 5.12 MiB
    assert of(padded(64, 1 << 13, 1024), "padding") == ()
    assert of(padded(64, 1 << 14, 1024, None), "padding") == ()  # 64 MiB where it is unknown
    assert of(padded(64, 1 << 17, 1024, None), "padding")


# -- what is in the program --------------------------------------------------------------------


def test_large_constants() -> None:
    def held(*elements: int, more: int = 0) -> hs.Capture:
        lines = [f"%k{n} = f32[{e}]{{0}} constant({{...}})" for n, e in enumerate(elements)]
        lines += [f"%x = f32[{more},512,512]{{2,1,0}} parameter(0)"] * bool(more)
        uses = ", ".join(f"%k{n}" for n in range(len(elements)))
        return alone("\n".join([*lines, f"ROOT %o = (f32[]) tuple({uses})"]))

    assert of(held((1 << 18) - 1), "large-constant") == ()
    found = only(held(1 << 18, 3 << 18, 5), "large-constant")
    assert found.title == "4 MiB of constants are baked into the program"
    assert found.evidence == "2 of at least 1 MiB: %k1, %k0, the largest f32[786432]"
    assert found.bytes == 4 << 20
    assert [i.name for i in found.instructions] == ["k1", "k0"]
    assert only(held(1 << 18, more=500), "large-constant").share == 0.02


CALLED = """
%body (p: (s32[], f32[8])) -> (s32[], f32[8]) {
%p = (s32[], f32[8]) parameter(0)
%i = s32[] get-tuple-element(%p), index=0
%x = f32[8] get-tuple-element(%p), index=1
%one = s32[] constant(1)
%next = s32[] add(%i, %one)
%y = f32[8] custom-call(%x), custom_call_target="xla_python_cpu_callback", api_version=API_VERSION_STATUS_RETURNING
ROOT %t = (s32[], f32[8]) tuple(%next, %y)
}
%condition (p: (s32[], f32[8])) -> pred[] {
%p = (s32[], f32[8]) parameter(0)
%i = s32[] get-tuple-element(%p), index=0
%many = s32[] constant(4)
ROOT %less = pred[] compare(%i, %many), direction=LT
}
"""  # noqa: E501


def test_calls_into_the_host_are_counted() -> None:
    cap = alone(
        f"""%x = f32[8] parameter(0)
%zero = s32[] constant(0)
%begin = (s32[], f32[8]) tuple(%zero, %x)
%loop = (s32[], f32[8]) while(%begin), condition=%condition, body=%body
%a = f32[8] custom-call(%x), custom_call_target="other", {said("f", 3)}
%tok = token[] after-all()
ROOT %out = token[] outfeed(%x, %tok), outfeed_shape=f32[8], {said("g", 4)}""",
        CALLED,
    )
    found = only(cap, "host-callback")
    assert found.title == "The step calls back into the host 5 times"
    assert found.evidence == "the devices wait for Python each time: %y, %out"
    assert found.share == 0.1
    plain = alone(
        '%x = f32[8] parameter(0)\nROOT %a = f32[8] custom-call(%x), custom_call_target="f"'
    )
    assert of(plain, "host-callback") == ()


def fetched(mib: int, beside: int, chip: str | None = "round") -> hs.Capture:
    shape, there = f"f32[{mib},512,512]{{2,1,0}}", f"f32[{mib},512,512]{{2,1,0:S(5)}}"
    return alone(
        f"""%x = {there} parameter(0)
%s = ({shape}, {there}, u32[]) copy-start(%x)
{work(beside)}
%d = {shape} copy-done(%s)
ROOT %o = ({shape}) tuple(%d)""",
        chip=chip,
    )


def test_copies_from_the_host_are_said_from_a_share_on() -> None:
    # 21 MiB beside 19 s of work: two seconds are waited for, of 19 and 21
    assert figures(fetched(21, 19), "host-copies") == [(0.05, 2.0, 21 << 20, "s")]
    assert of(fetched(22, 20), "host-copies") == of(fetched(20, 30), "host-copies") == ()
    assert of(fetched(21, 1, None), "host-copies") == ()


# -- what loops store --------------------------------------------------------------------------

LOOPS = """
%forward (p: (s32[], VALUE, STACK)) -> (s32[], VALUE, STACK) {
%p = (s32[], VALUE, STACK) parameter(0)
%i = s32[] get-tuple-element(%p), index=0
%x = VALUE get-tuple-element(%p), index=1
%all = STACK get-tuple-element(%p), index=2
%one = s32[] constant(1)
%next = s32[] add(%i, %one)
%zero = s32[] constant(0)
%y = VALUE tanh(%x), FORWARD
STORED
%row = ROW reshape(%kept)
%new = STACK dynamic-update-slice(%all, %row, %i, %zero, %zero)
ROOT %t = (s32[], VALUE, STACK) tuple(%next, %y, %new)
}
%backward (p: (s32[], VALUE, STACK)) -> (s32[], VALUE, STACK) {
%p = (s32[], VALUE, STACK) parameter(0)
%i = s32[] get-tuple-element(%p), index=0
%x = VALUE get-tuple-element(%p), index=1
%all = STACK get-tuple-element(%p), index=2
%one = s32[] constant(1)
%next = s32[] add(%i, %one)
%zero = s32[] constant(0)
%row = ROW dynamic-slice(%all, %i, %zero, %zero), dynamic_slice_sizes={SIZES}
%y = VALUE custom-call(%x, %row), custom_call_target="f", BACKWARD
ROOT %t = (s32[], VALUE, STACK) tuple(%next, %y, %all)
}
%condition (p: (s32[], VALUE, STACK)) -> pred[] {
%p = (s32[], VALUE, STACK) parameter(0)
%i = s32[] get-tuple-element(%p), index=0
%many = s32[] constant(8)
ROOT %less = pred[] compare(%i, %many), direction=LT
}
"""
ENTRY = """
%x = VALUE parameter(0)
%rest = f32[BESIDE,512,512] parameter(1)
%zero = s32[] constant(0)
%none = f32[] constant(0)
%empty = STACK broadcast(%none), dimensions={}
%begin = (s32[], VALUE, STACK) tuple(%zero, %x, %empty)
%ahead = (s32[], VALUE, STACK) while(%begin), condition=%condition, body=%forward
%all = STACK get-tuple-element(%ahead), index=2
%y = VALUE get-tuple-element(%ahead), index=1
%again = (s32[], VALUE, STACK) tuple(%zero, %y, %all)
%back = (s32[], VALUE, STACK) while(%again), condition=%condition, body=%backward, BACKWARD
%last = VALUE get-tuple-element(%back), index=1
ROOT %o = (VALUE, f32[BESIDE,512,512]) tuple(%last, %rest)
"""


def stacked(
    value: str,
    kept: str,
    stored: str,
    beside: int,
    *,
    chip: str | None = "round",
    phases: tuple[str, str] = ("jvp()/tanh", "transpose(jvp())/mul"),
) -> hs.Capture:
    """Eight slices of ``kept`` are stored and read again; ``beside`` MiB are held all the time."""
    dtype, _, dims = kept.partition("[")
    words = {
        "VALUE": value, "STACK": f"{dtype}[8,{dims}", "ROW": f"{dtype}[1,{dims}",
        "SIZES": f"1,{dims[:-1]}", "STORED": stored, "BESIDE": str(beside),
        "FORWARD": said(phases[0], 3), "BACKWARD": said(phases[1], 9),
    }  # fmt: skip
    texts = [LOOPS, ENTRY]
    for word, by in words.items():
        texts = [t.replace(word, by) for t in texts]
    cap = program(texts[1], before=texts[0], chip=chip)
    assert len(cap.memory.residuals) == 1
    return cap


V, NARROW = "f32[6144,1024]", "bf16[6144,1024]"  # 24 and 12 MiB
SAME = f"%kept = {V} negate(%x), {said('jvp()/neg', 5)}"
AGAIN = f"%kept = {V} negate(%x), {said('transpose(jvp())/rematted_computation/neg', 5)}"


def test_what_loops_store_for_the_backward_pass() -> None:
    """192 MiB, three values of a slice's 24 and what is beside it are at the peak."""
    cap = stacked(V, V, SAME, 374)
    found = only(cap, "residuals")
    assert cap.memory.peak_bytes == (638 << 20) + 20
    assert found.title == "30 % of the peak is what loops store for the backward pass: 192 MiB"
    assert found.evidence == "1 stacks; the largest is f32[8,6144,1024] (192 MiB)"
    assert round(found.share, 6) == round(96 / 638, 6)
    assert (found.bytes, found.line) == (192 << 20, "m.py:5")
    assert [i.name for i in found.instructions] == ["kept"]


def test_what_loops_store_is_said_where_memory_is_scarce() -> None:
    assert of(stacked(V, V, SAME, 376), "residuals") == ()  # under 30 % of 640
    assert of(stacked(V, V, SAME, 248), "residuals")  # half of the chip
    assert of(stacked(V, V, SAME, 247), "residuals") == ()
    # without a chip nobody knows what is scarce, unless it is chosen to be computed again
    assert of(stacked(V, V, SAME, 1, chip=None), "residuals")
    assert of(stacked(V, V, AGAIN, 1, chip=None), "residuals") == ()
    assert of(stacked("f32[512,1024]", "f32[512,1024]", SAME.replace("6144", "512"), 1, chip=None),
              "residuals") == ()  # 16 MiB, where 64 are the least  # fmt: skip
    # what a simulation collects is not for a backward pass
    plain = SAME.replace("jvp()/", "")
    assert of(stacked(V, V, plain, 260, phases=("tanh", "mul")), "residuals") == ()
    assert of(stacked(V, V, plain, 260, phases=("tanh", "transpose(jvp())/mul")), "residuals")


TWICE = V.replace("6144", "12288")
GATHER = f"all-gather(%x), replica_groups={{{{0,1}}}}, dimensions={{0}}, {said('jvp()/g', 5)}"
STARTED = f"""%s = ({V}, {TWICE}) {GATHER.replace("gather(", "gather-start(")}
%kept = {TWICE} all-gather-done(%s), {said("jvp()/g", 5)}"""
WIDER = "f32[3,6144,1024]"


@pytest.mark.parametrize(
    ("value", "kept", "stored", "said_so", "saved"),
    [
        (V, TWICE, f"%kept = {TWICE} {GATHER}",
         "f32[8,12288,1024] (384 MiB), stored 2 times|gathered before it is stored: %kept", 192),
        (V, TWICE, STARTED,
         "f32[8,12288,1024] (384 MiB), stored 2 times|gathered before it is stored: %s", 192),
        (V, WIDER, f"%kept = {WIDER} broadcast(%x), dimensions={{1,2}}",
         "f32[8,3,6144,1024] (576 MiB), stored 3 times|repeated before it is stored: %y", 384),
        (NARROW, V, f"%kept = {V} convert(%x)",
         "f32[8,6144,1024] (192 MiB), stored 2 times|widened before it is stored: %y", 96),
        (V, V, SAME, "", 0),
        (V, NARROW, f"%kept = {NARROW} convert(%x)", "", 0),
    ],
)  # fmt: skip
def test_what_is_stored_larger_than_it_was_made(
    value: str, kept: str, stored: str, said_so: str, saved: int
) -> None:
    found = of(stacked(value, kept, stored, 1), "stored-larger")
    assert bool(found) is bool(said_so)
    if said_so:
        size, how = said_so.split("|")
        title, evidence = found[0].title, found[0].evidence
        assert title == f"The backward pass gets {size} the size of what it is made from"
        verb = "is" if how.startswith("repeated") else "makes it from"
        assert evidence == f"each slice is {how} {verb} {value}"
        assert found[0].bytes == saved << 20
        assert found[0].advice.startswith({"g": "name the value", "r": "", "w": ""}[how[0]])


def test_what_is_stored_larger_is_said_where_it_matters() -> None:
    """Of 192 MiB a half could be saved, beside what makes that a twentieth of the peak."""
    stored = f"%kept = {V} convert(%x)"
    peak = stacked(NARROW, V, stored, 0).memory.peak_bytes / (1 << 20)
    rest = int(96 * 20 - peak)
    found = only(stacked(NARROW, V, stored, rest), "stored-larger")
    assert round(found.share, 3) == 0.05
    assert found.bytes == 96 << 20
    assert of(stacked(NARROW, V, stored, rest + 1), "stored-larger") == ()
    # XLA:CPU widens what it multiplies
    cap = stacked(NARROW, V, stored, 1, chip=None)
    cap = hs.Capture(cap.module, Target("cpu"))
    assert of(cap, "stored-larger") == ()
    # less than half a per cent of the chip, or 64 MiB where that is unknown
    small = [s.replace("6144", "256") for s in (NARROW, V, stored)]
    assert of(stacked(*small, 1), "stored-larger") == ()
    assert of(
        stacked(*(s.replace("6144", "4096") for s in (NARROW, V, stored)), 1, chip=None),
        "stored-larger",
    )
    assert not of(
        stacked(*(s.replace("6144", "4095") for s in (NARROW, V, stored)), 1, chip=None),
        "stored-larger",
    )
