"""Findings at the edges of their conditions, on a chip whose figures can be worked out by hand."""

from __future__ import annotations

from pathlib import Path

import hloscope as hs
import pytest
from hloscope.analysis.findings.compute_rules import matmul_dims, share_done_again
from hloscope.analysis.findings.facts import Facts
from hloscope.hlo import Argument, Device, Target
from round_chip import CHIP, program, said
from test_findings_cut import AT, GATHER, PART, WHOLE
from test_findings_held import V, stacked
from test_findings_sent import of, only

# The same chip, with f32 at two thirds of the rate of bf16, and with a little more.
NEAR = CHIP.partition("\n[quick]")[0].replace("[round]", "[near]").replace("4_194_304", "3_145_728")
NEARER = NEAR.replace("[near]", "[nearer]").replace("3_145_728", "3_145_727")


@pytest.fixture(autouse=True)
def _chip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "hardware.toml"
    path.write_text(CHIP + NEAR + NEARER)
    monkeypatch.setenv("HLOSCOPE_HARDWARE", str(path))


# -- state -------------------------------------------------------------------------------------


def state(
    mib: int, *, devices: int = 2, sharding: str = "{replicated}", chip: str | None = "round"
) -> hs.Capture:
    """A state of so many MiB, a gradient of as many, and the state after it."""
    s = f"f32[{mib},512,512]{{2,1,0}}"
    cap = program(
        f"%mu = {s} parameter(0), sharding={sharding}\n%g = {s} parameter(1)\n"
        f"ROOT %s = {s} add(%mu, %g), {said('adam/add')}",
        devices=devices,
    )
    target = Target(
        devices=tuple(Device(k, k) for k in range(devices)),
        arguments=(
            Argument("opt_state['mu']", (mib, 512, 512), "float32", parameter=0),
            Argument("grads", (mib, 512, 512), "float32", parameter=1),
        ),
    )
    made = hs.Capture(cap.module, target)
    made.hardware = chip
    return made


def test_state_that_every_device_holds_whole() -> None:
    found = only(state(192), "replicated-state")
    assert found.title == "192 MiB of optimiser state is replicated on all 2 devices"
    assert found.evidence == "the largest: opt_state['mu'] (192 MiB), in a peak of 576 MiB of 1 GiB"
    assert (round(found.share, 6), found.bytes) == (round(96 / 576, 6), 96 << 20)
    assert [i.name for i in found.instructions] == ["mu"]
    found = only(state(192, devices=4), "replicated-state")
    assert (round(found.share, 6), found.bytes) == (0.25, 144 << 20)


def test_state_is_said_where_memory_is_scarce_and_several_devices_hold_it() -> None:
    rule = "replicated-state"
    assert of(state(35), rule)
    assert of(state(34), rule) == ()  # 102 MiB: the chip has ten times as much
    assert of(state(192, devices=1), rule) == ()
    assert of(state(192, chip=None), rule) == ()
    assert of(state(192, sharding="{devices=[2,1,1]<=[2]}"), rule) == ()
    halves = "{devices=[2,1,1,2]<=[4] last_tile_dim_replicate}"
    assert of(state(192, devices=4, sharding=halves), rule) == ()


# -- arithmetic --------------------------------------------------------------------------------


def product(n: int, op: str = "jvp(n)/dot_general", chip: str = "round") -> hs.Capture:
    s = f"f32[{n},8192]{{1,0}}"
    return program(
        f"%a = f32[8192,8192]{{1,0}} parameter(0)\n%b = {s} parameter(1)\n"
        f"ROOT %d = {s} dot(%b, %a), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}},"
        f" {said(op)}",
        devices=1,
        chip=chip,
    )


def test_half_as_fast_again_is_worth_a_narrower_type() -> None:
    assert only(product(4096, chip="near"), "wide-matmul").title.endswith("be 2× as fast")
    assert of(product(4096, chip="nearer"), "wide-matmul") == ()


def test_what_is_computed_again_is_said_up_to_half_of_the_memory() -> None:
    """256 MiB and twice those of the rows."""
    again = "checkpoint/rematted_computation/dot_general"
    cap = product(4096, again)
    assert cap.memory.peak_bytes == 512 << 20
    assert only(cap, "rematerialisation").share == pytest.approx(1.0, abs=0.01)
    assert of(product(4097, again), "rematerialisation") == ()


@pytest.mark.parametrize(
    ("how", "dims"),
    [
        ("dim_labels=bf_io->bf", (8, 32, 16)),
        ("window={}, dim_labels=bf_io->bf", (8, 32, 16)),
        ("window={size=1}, dim_labels=bf_io->bf", (8, 32, 16)),
        ("dim_labels=b0_io->bf", None),
        ("dim_labels=bf_0o->bf", None),
        ("feature_group_count=1", None),
    ],
)
def test_convolutions_that_are_matmuls(how: str, dims: tuple[int, int, int] | None) -> None:
    root = program(
        f"%a = f32[8,16] parameter(0)\n%b = f32[16,32] parameter(1)\n"
        f"ROOT %m = f32[8,32] convolution(%a, %b), {how}"
    ).module.instructions[-1]
    assert root.name == "m"
    assert matmul_dims(root) == dims


# -- what is stored and moved ------------------------------------------------------------------


def test_twice_as_large_is_repeated() -> None:
    wide = V.replace("[", "[2,")
    stored = f"%kept = {wide} broadcast(%x), dimensions={{1,2}}"
    (found,) = of(stacked(V, wide, stored, 1), "stored-larger")
    assert found.evidence.startswith("each slice is repeated before it is stored")
    assert "stored 2 times" in found.title


def fused(*rows: str) -> str:
    return "\n".join([
        "%f (u: f32[8,128,1024], n: s32[]) -> f32[4,128,1024] {",
        f"%u = {WHOLE} parameter(0)\n%n = s32[] parameter(1)\n%z = s32[] constant(0)",
        *rows,
        "}",
    ])  # fmt: skip


SLICE = "dynamic-slice(%t, %n, %z, %z), dynamic_slice_sizes={4,128,1024}"


@pytest.mark.parametrize(
    ("rows", "is_slice"),
    [
        ((f"%t = {WHOLE} negate(%u)", f"ROOT %v = {PART} {SLICE}"), True),
        ((f"%t = {WHOLE} negate(%u)", f"%d = {PART} {SLICE}", f"ROOT %v = {PART} copy(%d)"), True),
        # all of it is read, and more than a slice of that is used
        ((f"%t = {WHOLE} negate(%u)", f"%d = {PART} {SLICE}", f"ROOT %v = {PART} tanh(%d)"), False),
        ((f"%t = {WHOLE} copy(%u)", f"%d = {PART} {SLICE}", f"ROOT %v = {PART} tanh(%d)"), True),
    ],
)
def test_a_fusion_that_only_slices(rows: tuple[str, ...], is_slice: bool) -> None:
    cap = program(
        f"{AT}%x = {PART} parameter(0)\n{GATHER}\n"
        f"%c = {PART} fusion(%g, %at), kind=kLoop, calls=%f\nROOT %o = {PART} tanh(%c)",
        before=fused(*rows),
    )
    assert bool(of(cap, "gathered-then-sliced")) is is_slice


ROWS = "f32[4,64,1024]{2,1,0}"
UPDATE = "dynamic-update-slice(%t, %v, %n, %n, %n)"
LOOP = f"""
%f (u: f32[4,64,1024], v: f32[1,64,1024], n: s32[]) -> f32[4,64,1024] {{
%u = {ROWS} parameter(0)
%v = f32[1,64,1024]{{2,1,0}} parameter(1)
%n = s32[] parameter(2)
INSIDE
}}
%body (p: (s32[], {ROWS}, f32[1,64,1024])) -> (s32[], {ROWS}, f32[1,64,1024]) {{
%p = (s32[], {ROWS}, f32[1,64,1024]{{2,1,0}}) parameter(0)
%i = s32[] get-tuple-element(%p), index=0
%all = {ROWS} get-tuple-element(%p), index=1
%row = f32[1,64,1024]{{2,1,0}} get-tuple-element(%p), index=2
%one = s32[] constant(1)
%next = s32[] add(%i, %one)
%c = {ROWS} copy(%all)
%new = {ROWS} fusion(%c, %row, %i), kind=kLoop, calls=%f
ROOT %t = (s32[], {ROWS}, f32[1,64,1024]{{2,1,0}}) tuple(%next, %new, %row)
}}
%condition (p: (s32[], {ROWS}, f32[1,64,1024])) -> pred[] {{
%p = (s32[], {ROWS}, f32[1,64,1024]{{2,1,0}}) parameter(0)
%i = s32[] get-tuple-element(%p), index=0
%many = s32[] constant(4)
ROOT %less = pred[] compare(%i, %many), direction=LT
}}
"""


@pytest.mark.parametrize(
    ("inside", "is_said"),
    [
        (f"%t = {ROWS} bitcast(%u)\nROOT %d = {ROWS} {UPDATE}", True),
        (f"%t = {ROWS} bitcast(%u)\n%d = {ROWS} {UPDATE}\nROOT %b = {ROWS} bitcast(%d)", True),
        (f"%t = {ROWS} copy(%u)\n%d = {ROWS} {UPDATE}\nROOT %b = {ROWS} copy(%d)", True),
        (f"%t = {ROWS} negate(%u)\nROOT %d = {ROWS} {UPDATE}", False),
        (f"%t = {ROWS} bitcast(%u)\n%d = {ROWS} {UPDATE}\nROOT %b = {ROWS} negate(%d)", False),
    ],
)
def test_what_a_fusion_updates_behind_casts_and_copies(inside: str, is_said: bool) -> None:
    cap = program(
        f"%x = {ROWS} parameter(0)\n%r = f32[1,64,1024]{{2,1,0}} parameter(1)\n"
        f"%n = s32[] constant(0)\n"
        f"%begin = (s32[], {ROWS}, f32[1,64,1024]{{2,1,0}}) tuple(%n, %x, %r)\n"
        f"ROOT %loop = (s32[], {ROWS}, f32[1,64,1024]{{2,1,0}}) while(%begin),"
        " condition=%condition, body=%body",
        before=LOOP.replace("INSIDE", inside),
        devices=1,
    )
    assert bool(of(cap, "update-copies")) is is_said


def test_a_gather_that_gathers_nothing_stores_nothing_larger() -> None:
    alone = f"all-gather(%x), replica_groups={{{{0}},{{1}}}}, dimensions={{0}}, {said('jvp()/g')}"
    assert of(stacked(V, V, f"%kept = {V} {alone}", 1), "stored-larger") == ()


def test_the_part_of_arithmetic_that_is_done_again() -> None:
    def again(*ops: str) -> float:
        rows = [
            f"%d{k} = f32[8,8] dot(%a, %a), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}},"
            f" {said(op)}"
            for k, op in enumerate(ops)
        ]
        cap = program("\n".join(["%a = f32[8,8] parameter(0)", *rows]).replace("%d0", "ROOT %d0"))
        return share_done_again(Facts(cap.module, cap.target))

    redone = "checkpoint/rematted_computation/dot_general"
    assert again("jvp(n)/dot_general") == 0.0
    assert again(redone) == 1.0
    assert again(redone, *["jvp(n)/dot_general"] * 3) == 0.25


def test_before_xla_chose_types_wide_ones_say_nothing() -> None:
    optimised = product(4096)
    assert of(optimised, "wide-matmul")
    cap = hs.read(optimised.text.replace("is_scheduled=true, ", ""))
    cap.hardware = "round"
    assert not Facts(cap.module, cap.target).is_optimised
    assert of(cap, "wide-matmul") == ()
    narrow = optimised.text.replace("ENTRY %main {", "ENTRY %main {\n%n = bf16[8] parameter(2)")
    module = hs.read(narrow).module
    for platform, is_said in (("tpu", True), ("cpu", False)):
        made = hs.Capture(module, Target(platform))
        made.hardware = "round"
        assert bool(of(made, "wide-matmul")) is is_said, platform


def test_before_partitioning_all_devices_are_counted_together() -> None:
    cap = product(4096, "checkpoint/rematted_computation/dot_general")
    assert "550 GFLOP are in" in only(cap, "rematerialisation").evidence
    text = cap.text.replace("is_scheduled=true, ", "")
    for count, words in (("2", " (all devices together) are in"), ("1", " GFLOP are in")):
        made = hs.read(text.replace("num_partitions=1", f"num_partitions={count}"))
        assert words in only(made, "rematerialisation").evidence


FETCH = """
%body (p: (s32[], HOST)) -> (s32[], HOST) {
%p = (s32[], HOST) parameter(0)
%i = s32[] get-tuple-element(%p), index=0
%all = HOST get-tuple-element(%p), index=1
%one = s32[] constant(1)
%next = s32[] add(%i, %one)
%s = (FETCHED, HOST, u32[]) copy-start(%all)
%d = FETCHED copy-done(%s)
ROOT %t = (s32[], HOST) tuple(%next, %all)
}
%condition (p: (s32[], HOST)) -> pred[] {
%p = (s32[], HOST) parameter(0)
%i = s32[] get-tuple-element(%p), index=0
%many = s32[] constant(4)
ROOT %less = pred[] compare(%i, %many), direction=LT
}
"""
MORE = """
%x = HOST parameter(0)
%y = AFAR parameter(1)
%n = s32[] constant(0)
%o.s = (LARGE, AFAR, u32[]) copy-start(%y)
%o.d = LARGE copy-done(%o.s)
%begin = (s32[], HOST) tuple(%n, %x)
%loop = (s32[], HOST) while(%begin), condition=%condition, body=%body
ROOT %r = (LARGE) tuple(%o.d)
"""


def test_copies_from_the_host_count_as_often_as_a_loop_makes_them() -> None:
    """Four times 2 MiB, and once 3."""
    texts = [FETCH, MORE]
    for word, mib, space in (
        ("HOST", 2, ":S(5)"), ("FETCHED", 2, ""), ("AFAR", 3, ":S(5)"), ("LARGE", 3, ""),
    ):  # fmt: skip
        shape = f"f32[{mib},512,512]{{2,1,0{space}}}"
        texts = [t.replace(word, shape) for t in texts]
    found = only(program(texts[1], before=texts[0], devices=1), "host-copies")
    assert [i.name for i in found.instructions] == ["s", "o.s"]
    assert (found.seconds, found.bytes) == (11.0, 11 << 20)
    assert found.title.endswith("for 2 copies to or from the host's memory")
