"""Which op before partitioning each op after it is part of, and what a name is called by."""

# ruff: noqa: E501
from __future__ import annotations

import hloscope as hs
import pytest
from hloscope.analysis.why.alignment import Alignment, full_name
from hloscope.hlo import Module
from why_written import text


def aligned(before: str, after: str) -> tuple[Alignment, dict[str, str]]:
    """The alignment, and its pairs by name: of the program after partitioning, before it."""
    whole, local = (hs.read(text(body)).module for body in (before, after))
    assert not whole.warnings, whole.warnings
    assert not local.warnings, local.warnings
    found = Alignment(whole, local)
    of = {i.name: o.name for i in local.instructions if (o := found.of(i)) is not None}
    return found, of


def pairs(before: str, after: str) -> dict[str, str]:
    return aligned(before, after)[1]


NAMES = """
%add_up (s: f32[8]) -> f32[8] {
  %s = f32[8] parameter(0)
  ROOT %up = f32[8] negate(%s)  # 3 up
}
%body (p: (f32[8])) -> (f32[8]) {
  %p = (f32[8]) parameter(0)
  %p0 = f32[8] get-tuple-element(%p), index=0
  %mul = f32[8] multiply(%p0, %p0), metadata={op_name="while/body/mul"}
  %all = f32[8] sine(%mul)  # 4 while/body/sin
  ROOT %r = (f32[8]) tuple(%all)
}
%cond (q: (f32[8])) -> pred[] {
  %q = (f32[8]) parameter(0)
  ROOT %yes = pred[] constant(true), metadata={op_name="while/cond/lt"}
}
%inner (a: f32[8]) -> f32[8] {
  %a = f32[8] parameter(0)
  %t = (f32[8]) tuple(%a)
  %w = (f32[8]) while(%t), condition=%cond, body=%body, metadata={op_name="while"}
  ROOT %g = f32[8] get-tuple-element(%w), index=0
}
%nameless (n: f32[8]) -> f32[8] {
  %n = f32[8] parameter(0)
  ROOT %of = f32[8] cosine(%n), metadata={op_name="cos"}
}
ENTRY %main (x: f32[8]) -> f32[8] {
  %x = f32[8] parameter(0)
  %c = f32[8] call(%x), to_apply=%inner, metadata={op_name="jit(f)/inner"}
  ROOT %d = f32[8] call(%c), to_apply=%nameless
}
"""


def test_a_loop_in_a_called_function_is_named_after_who_calls_the_function() -> None:
    module = hs.read(text(NAMES)).module
    names = {n: full_name(module.find(n)) for n in ("mul", "all", "yes", "w", "of", "p")}
    assert names == {
        "mul": "jit(f)/inner/while/body/mul",
        "all": "jit(f)/while/body/sin",  # it says all of it already
        "yes": "jit(f)/inner/while/cond/lt",
        "w": "jit(f)/inner/while",
        "of": "cos",  # its caller has no name
        "p": "",
    }


BEFORE = """
  %x = f32[16,64] parameter(0), sharding=D_  # =x
  %y = f32[16,64] parameter(1), sharding=D_  # =y
"""
AFTER = """
  %x.1 = f32[8,64] parameter(0), sharding=D_  # =x
  %y.1 = f32[8,64] parameter(1), sharding=D_  # =y
"""


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        # by opcode, name and line
        ("%a = f32[16,64] tanh(%x)  # 3 tanh", "%it = f32[8,64] tanh(%x.1)  # 3 tanh", "a"),
        ("%a = f32[16,64] tanh(%x)  # 3 tanh", "%it = f32[8,64] tanh(%x.1)  # 4 tanh", ""),
        ("%a = f32[16,64] tanh(%x)  # 3 tanh", "%it = f32[8,64] sine(%x.1)  # 3 tanh", ""),
        # without a name only what has no name in any program
        ("%a = f32[16,64] tanh(%x)", "%it = f32[8,64] tanh(%x.1)", ""),
        ("%a = s32[16] iota(), iota_dimension=0", "%it = s32[8] iota(), iota_dimension=0", "a"),
        # no tile of it: larger, or of another rank
        ("%a = f32[16,64] tanh(%x)  # 3 tanh", "%it = f32[8,65] tanh(%x.1)  # 3 tanh", ""),
        ("%a = f32[16,64] tanh(%x)  # 3 tanh", "%it = f32[512] tanh(%x.1)  # 3 tanh", ""),
        # the one op of that name is it, whatever it computes with, ...
        ("%a = f32[16,64] tanh(%x)  # 3 tanh", "%it = f32[8,64] tanh(%y.1)  # 3 tanh", "a"),
        # ... but for what the partitioner inserts under the names of others
        ("%a = f32[16,64] add(%x, %x)  # 3 add", "%it = f32[8,64] add(%x.1, %x.1)  # 3 add", "a"),
        ("%a = f32[16,64] add(%x, %x)  # 3 add", "%it = f32[8,64] add(%y.1, %y.1)  # 3 add", ""),
        # of two the one that computes with the same
        ("%a = f32[16,64] tanh(%x)  # 3 tanh\n%a2 = f32[16,64] tanh(%y)  # 3 tanh",
         "%it = f32[8,64] tanh(%y.1)  # 3 tanh", "a2"),
        ("%a = f32[16,64] tanh(%x)  # 3 tanh\n%a2 = f32[16,64] tanh(%x)  # 3 tanh",
         "%it = f32[8,64] tanh(%x.1)  # 3 tanh", "a"),
        # a collective named after a product is not that product
        ("%a = f32[16,16] dot(%x, %y), lhs_contracting_dims={1}, rhs_contracting_dims={1}  # 3 dot",
         "%it = f32[8,64] all-reduce(%x.1), channel_id=1, ALONG_MODEL, to_apply=%sum  # 3 dot", ""),
    ],
)  # fmt: skip
def test_what_an_op_is_part_of(before: str, after: str, found: str) -> None:
    root = "\nROOT %r{} = (f32[{},64]) tuple(%x{})\n"
    of = pairs(
        BEFORE + before + root.format("", 16, ""), AFTER + after + root.format(".1", 8, ".1")
    )
    assert of.get("it", "") == found
    assert (of["x.1"], of["y.1"]) == ("x", "y")


def test_duplicates_are_matched_in_order() -> None:
    two = "%a{0} = f32[{1},64] tanh(%x{0})  # 3 tanh\n%b{0} = f32[{1},64] tanh(%x{0})  # 3 tanh\n%c{0} = f32[{1},64] tanh(%x{0})  # 3 tanh"
    of = pairs(BEFORE + two.format("", 16), AFTER + two.format(".1", 8))
    assert {k: v for k, v in of.items() if k.endswith(".1") and k[0] in "abc"} == {
        "a.1": "a",
        "b.1": "b",
        "c.1": "c",
    }


def test_what_a_program_returns_is_what_it_returned() -> None:
    tuples = "%t0{0} = (f32[{1},64]) tuple(%x{0})\nROOT %t{0} = (f32[{1},64]) tuple(%x{0})"
    alone = "ROOT %t.1 = (f32[8,64]) tuple(%x.1)"
    assert pairs(BEFORE + tuples.format("", 16), AFTER + alone)["t.1"] == "t"
    # the end of one array may be the partitioner's own
    of = pairs(BEFORE + "ROOT %e = f32[16,64] tanh(%x)  # 3 tanh",
               AFTER + "%e.1 = f32[8,64] tanh(%x.1)  # 3 tanh\nROOT %f = f32[8,64] copy(%e.1)  # 3 tanh")  # fmt: skip
    assert "f" not in of
    assert of["e.1"] == "e"
    mixed = pairs(BEFORE + "ROOT %e = f32[16,64] tanh(%x)  # 3 tanh", AFTER + alone)
    assert "t.1" not in mixed


LOOP = """
%body{2} (p: (f32[{1},64], f32[{1},64])) -> (f32[{1},64], f32[{1},64]) {{
  %p{0} = (f32[{1},64], f32[{1},64]) parameter(0)
  %p0{0} = f32[{1},64] get-tuple-element(%p{0}), index=0
  %p1{0} = f32[{1},64] get-tuple-element(%p{0}), index=1
  ROOT %r{0} = (f32[{1},64], f32[{1},64]) tuple(%p1{0}, %p0{0})
}}
%cond{2} (q: (f32[{1},64], f32[{1},64])) -> pred[] {{
  %q{0} = (f32[{1},64], f32[{1},64]) parameter(0)
  ROOT %yes{0} = pred[] constant(true)
}}
ENTRY %main{2} (x: f32[{1},64], y: f32[{1},64]) -> f32[{1},64] {{
  %x{0} = f32[{1},64] parameter(0)
  %y{0} = f32[{1},64] parameter(1)
  %t{0} = (f32[{1},64], f32[{1},64]) tuple(%x{0}, %y{0})
  %w{0} = (f32[{1},64], f32[{1},64]) while(%t{0}), condition=%cond{2}, body=%body{2}  # 5 while
  %o{0} = (f32[{1},64], f32[{1},64]) opt-barrier(%w{0})
  %w1{0} = f32[{1},64] get-tuple-element(%w{0}), index=1
  %w0{0} = f32[{1},64] get-tuple-element(%w{0}), index=0
  %o0{0} = f32[{1},64] get-tuple-element(%o{0}), index=0
  ROOT %e{0} = f32[{1},64] add(%w0{0}, %w1{0})  # 6 add
}}
"""


def test_elements_of_loops_are_told_by_their_numbers() -> None:
    of = pairs(LOOP.format("", 16, ""), LOOP.format(".1", 8, "_spmd"))
    assert {k: v for k, v in of.items() if k.endswith(".1")} == {
        **{f"{n}.1": n for n in ("p", "p0", "p1", "r", "q", "x", "y", "t", "w", "w1", "w0", "e")},
    }  # not the constant, which the partitioner may have made, nor what has no counterpart


WINDOW = """
%window (p: (f32[8,64])) -> (f32[8,64]) {
  ROOT %p = (f32[8,64]) parameter(0)
}
%wcond (q: (f32[8,64])) -> pred[] {
  %q = (f32[8,64]) parameter(0)
  ROOT %yes = pred[] constant(true)
}
ENTRY %main_spmd (x: f32[8,64], y: f32[8,64]) -> f32[8,64] {
  %x.1 = f32[8,64] parameter(0)
  %y.1 = f32[8,64] parameter(1)
  %at = f32[8,64] LOOPED
  %t = (f32[8,64]) tuple(%at)
  %w = (f32[8,64]) while(%t), condition=%wcond, body=%window  # 3 dot
  ROOT %e = f32[8,64] get-tuple-element(%w), index=0
}
"""
DOTS = (
    BEFORE
    + """
  %s = s32[16,64] iota(), iota_dimension=0
  %a = f32[16,16] dot(%x, %x), lhs_contracting_dims={1}, rhs_contracting_dims={1}  # 3 dot
  %b = f32[16,16] dot(%y, %y), lhs_contracting_dims={1}, rhs_contracting_dims={1}  # 3 dot
"""
)


@pytest.mark.parametrize(
    ("looped", "dot"),
    [("copy(%x.1)", "a"), ("copy(%y.1)", "b"), ('custom-call(), custom_call_target="f"', "")],
)
def test_of_two_products_of_a_line_a_loop_is_the_one_of_what_goes_round(
    looped: str, dot: str
) -> None:
    assert pairs(DOTS, WINDOW.replace("LOOPED", looped)).get("w", "") == dot
    # the only product of that line is it, whatever goes round
    one = "\n".join(line for line in DOTS.splitlines() if "%b" not in line)
    assert pairs(one, WINDOW.replace("LOOPED", looped))["w"] == "a"


def test_values_are_followed_through_glue_but_masks_and_counters_are_no_data() -> None:
    before = (
        BEFORE + "%i = s32[16] iota(), iota_dimension=0\nROOT %e = f32[16,64] tanh(%x)  # 3 tanh"
    )
    after = AFTER + """
  %i.1 = s32[8] iota(), iota_dimension=0
  %n = f32[8] convert(%i.1)
  %k = f32[8,64] broadcast(%n), dimensions={0}
  %m = pred[8,64] compare(%x.1, %k), direction=LT
  %s = f32[8,64] select(%m, %x.1, %k)
  %d = f32[8,64] dynamic-update-slice(%s, %s)
  ROOT %e.1 = f32[8,64] tanh(%d)  # 3 tanh
"""  # fmt: skip
    found, _ = aligned(before, after)
    local = found.after
    assert [i.name for i in found.sources(local.find("d"))] == ["x.1"]
    assert [i.name for i in found.sources(local.find("k"))] == ["i.1"]  # nothing else is there
    assert [(i.name, k) for i, k in found.users(local.find("s"))] == [("e.1", 0)]
    assert [(i.name, k) for i, k in found.users(local.find("y.1"))] == []
    assert found.users(local.find("m")) == [(local.find("e.1"), 0)]


ALIKE = """
  %x = f32[16,64] parameter(0)  # =x
  %y = f32[16,64] parameter(1)  # =y
  %n = f32[16,64] negate(%x)  # 3 neg
  %n2 = f32[16,64] negate(%x)  # 4 neg
  %ny = f32[16,64] negate(%y)  # 3 neg
  %e = f32[16,64] exponential(%x)  # 3 neg
  %l = f32[16,32] slice(%x), slice={[0:16],[0:32]}  # 5 split
  %l2 = f32[16,32] slice(%x), slice={[0:16],[0:32]}, sharding=D_  # 6 split
  %h = f32[16,32] slice(%x), slice={[0:16],[32:64]}  # 5 split
  %f = f32[8,64] reshape(%l)
  %g = f32[4,128] reshape(%l)
  %s = f32[16,64] add(%n, %ny)
  %s2 = f32[16,64] add(%n2, %ny)
  %s3 = f32[16,64] add(%ny, %n)
"""


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        ("n", "n", True),
        ("n", "n2", True),  # the line does not matter
        ("n", "ny", False),
        ("n", "e", False),
        ("x", "x", True),
        ("x", "y", False),  # arguments are never duplicates
        ("l", "l2", True),
        ("l", "h", False),  # the other half
        ("f", "g", False),
        ("s", "s2", True),
        ("s", "s3", False),
    ],
)
def test_which_ops_compute_the_same(a: str, b: str, same: bool) -> None:
    module: Module = hs.read(text(ALIKE)).module
    first, second = module.find(a), module.find(b)
    assert first is not None
    assert second is not None
    numbers = Alignment(module, module)
    assert (numbers.number(first) == numbers.number(second)) is same


def test_halves_of_one_array_are_told_apart() -> None:
    split = """
  %l{0} = f32[{1},32] slice(%x{0}), slice={{[0:{1}],[0:32]}}  # 3 split
  %h{0} = f32[{1},32] slice(%x{0}), slice={{[0:{1}],[32:64]}}  # 4 split
"""
    before = (
        BEFORE
        + split.format("", 16)
        + """
  %tl = f32[16,32] tanh(%l)  # 5 tanh
  %th = f32[16,32] tanh(%h)  # 5 tanh
"""
    )
    after = AFTER + split.format(".1", 8) + """
  %th.1 = f32[8,32] tanh(%h.1)  # 5 tanh
  %tl.1 = f32[8,32] tanh(%l.1)  # 5 tanh
"""  # fmt: skip
    of = pairs(before, after)
    assert (of["th.1"], of["tl.1"]) == ("th", "tl")
