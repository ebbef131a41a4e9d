"""Lines, differences and budgets of small programs, with every figure worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import hloscope as hs
import pytest
from hloscope.analysis.diff.differences import Change, CollectiveItem, Delta, Item, Place
from hloscope.analysis.diff.result import Diff
from hloscope.analysis.diff.text import amount, signed, text
from hloscope.hlo import Argument, Target
from round_chip import GATHERED, SUMMED, chip_file, mib, program, said


@pytest.fixture(autouse=True)
def _chip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOSCOPE_HARDWARE", chip_file(tmp_path))


# -- by line -----------------------------------------------------------------------------------

LINED = f"""
%x = {mib(1)} parameter(0)
%a = {mib(1)} add(%x, %x), {said("jvp(n)/add", 3, "/me/train.py")}
%g = {mib(1)} all-reduce(%a), {SUMMED}, {said("psum", 3, "/me/train.py")}
%b = {mib(1)} multiply(%g, %g), {said("mul", 5, "/me/train.py")}
%c = {mib(1)} add(%b, %b), {said("add", 8, "/usr/site-packages/flax/x.py")}
ROOT %d = {mib(1)} copy(%c)
"""


def lined(chip: str | None = "round") -> hs.Capture:
    cap = program(LINED, chip=chip)
    sources = {"/me/train.py": "one\ntwo\n  y = x + x\nfour\nz = y * y"}
    made = hs.Capture(cap.module, replace(cap.target, sources=sources))
    made.hardware = chip
    return made


def test_what_lines_cost() -> None:
    """Adding and multiplying read 2 MiB and write one, the sum takes 1 s and 1 MiB."""
    found = lined().source
    rows = {(Path(x.file).name, x.line): x for x in found.lines}
    add, mul = rows["train.py", 3], rows["train.py", 5]
    one = 1 << 20
    flops = 1 << 18
    assert (add.own.flops, mul.own.flops) == (2 * flops, flops)  # the sum over devices adds too
    assert (add.own.wire_bytes, mul.own.wire_bytes) == (one, 0)
    assert (add.text, mul.text, rows["x.py", 8].text) == ("  y = x + x", "z = y * y", None)
    assert [x.is_library for x in found.lines] == [False, False, True]
    assert [(Path(x.file).name, x.line) for x in found] == [("train.py", 3), ("train.py", 5)]
    assert add.own.seconds == mul.own.seconds + 2  # half a second twice, and 1 MiB
    assert len(found) == 2
    assert [Path(f).name for f in found.files] == ["train.py", "x.py"]
    total = sum(x.own.seconds for x in found.lines) + found.unattributed.seconds
    assert total == lined().findings.headline.seconds
    assert found.inferred.seconds == 2.0  # %d copies what line 8 of flax made
    assert rows["x.py", 8].inferred.seconds == 2.0
    assert found.has_seconds
    assert found.unknown == {}
    assert len(found.to_dict()["rows"]) == len(found.to_pandas()) == 2
    assert found.to_dict()["unattributed"]["seconds"] == found.unattributed.seconds


def test_what_is_printed_of_lines() -> None:
    assert repr(lined().source).splitlines() == [
        "line               FLOPs  modelled   wire  live at peak                     source",
        "train.py:3     524 kFLOP       5 s  1 MiB         1 MiB                  y = x + x",
        "train.py:5     262 kFLOP       3 s    0 B           0 B                  z = y * y",
        "no line known     0 FLOP       0 s    0 B         1 MiB  what no line accounts for",
    ]
    assert repr(lined(None).source).splitlines()[1].split() == [
        "train.py:3", "524", "kFLOP", "1", "MiB", "1", "MiB", "y", "=", "x", "+", "x",
    ]  # fmt: skip


# -- differences -------------------------------------------------------------------------------


def test_changes_of_a_figure() -> None:
    assert [amount(2048, "B"), amount(0.5, "s"), amount(1e6, "FLOP"), amount(1234, "")] == [
        "2 KiB", "500 ms", "1 MFLOP", "1,234",
    ]  # fmt: skip
    assert amount(None, "B") == "unknown"
    table = {
        (4.0, 6.0): "+2 (+50.0%)", (6.0, 4.0): "-2 (-33.3%)", (0.0, 3.0): "+3", (5.0, 5.0): "",
        (None, 3.0): "unknown", (3.0, None): "unknown", (100000.0, 100001.0): "+1",
        (3.0, 0.0): "-3 (-100.0%)",
    }  # fmt: skip
    assert {k: signed(Delta("n", "", *k)) for k in table} == table
    assert Delta("n", "", 4.0, 6.0).change == 2.0


ITEM = Item("a.1", "add", "f32[8]", "main", "jit(f)/add", "/me/t.py:3", 32)
SENT = CollectiveItem("all-reduce", "data", 1 << 20, 1 << 20, 4, "/me/t.py:9")
DIFF = Diff(
    "one", "two", (Delta("instructions", "", 4, 6), Delta("FLOPs", "FLOP", 5, 5)),
    (Delta("add", "", 1, 2),), (Delta("kLoop", "", 0, 1),),
    (Delta("all-reduce over data", "B", 0, 1 << 20),),
    (Delta("argument", "B", 1 << 20, 0),), 1234,
    (ITEM, replace(ITEM, inside=7, line="")), (replace(ITEM, name="b", line="", op_name=""),),
    (Change(ITEM, replace(ITEM, name="z"), (("opcode", "add", ""),)),
     Change(ITEM, replace(ITEM, line="/me/t.py:4"),
            (("shape", "", "f32[9]"), ("value", "1", "2")))),
    (SENT, SENT), (replace(SENT, executions=1, wire_bytes=None, line=""),),
    (Place("t.py:3 x", (1.0, 2.0), (0.0, 1 << 20), (5.0, 5.0)),),
    (Place("n", (None, 2.0), (0.0, 0.0), None), Place("m", (1.0, 1.0), (1.0, 0.0), None)),
    plumbing=3,
)  # fmt: skip
TOLD = """a: one
b: two
1,234 instructions match, 2 of them changed; 2 removed, 1 added; 3 more in tuples and their elements

totals:
  instructions  4 → 6  +2 (+50.0%)

collectives, wire bytes per device:
  all-reduce over data  0 B → 1 MiB  +1 MiB

by source line:
  t.py:3 x: 1 s → 2 s, wire 0 B → 1 MiB

by scope:
  n: \n  m: wire 1 B → 0 B

collectives only in a:
  all-reduce over data: 2 alike, each 1 MiB, 1 MiB on the wire × 4  /me/t.py:9

collectives only in b:
  all-reduce over data: 1 MiB

memory live at the peak:
  argument  1 MiB → 0 B  -1 MiB (-100.0%)

fusions:
  kLoop  0 → 1  +1

opcodes:
  add  1 → 2  +1 (+100.0%)

changed:
  %a.1 (%z) add  opcode: add → (none)  /me/t.py:3
  %a.1 add  shape: (none) → f32[9]; value: 1 → 2  /me/t.py:4

removed:
  %a.1 = f32[8] add  in main  /me/t.py:3
  %a.1 = f32[8] add with 7 instructions inside  in main  jit(f)/add

added:
  %b = f32[8] add  in main"""


def test_what_a_difference_says() -> None:
    assert str(DIFF) == TOLD
    assert bool(DIFF)
    one = text(DIFF, 1)
    assert one.count("… and 1 more") == 3  # a change, a removal, a scope
    assert "… and" not in text(DIFF, 2)
    same = Diff("one", "two", (), (), (), (), (), 1234, (), (), (), (), ())
    assert str(same) == "a: one\nb: two\nno difference: 1,234 instructions match"
    assert not same
    for part in (
        {"plumbing": 1},
        {"removed": (ITEM,)},
        {"added": (ITEM,)},
        {"changed": DIFF.changed},
    ):
        assert replace(same, **part)


BODY = """
%{n} (u: f32[8,128,1024]) -> f32[8,128,1024] {{
%u = f32[8,128,1024]{{2,1,0}} parameter(0)
%v = f32[8,128,1024]{{2,1,0}} {op}(%u)
ROOT %w = f32[8,128,1024]{{2,1,0}} negate(%v)
}}
"""
S = "f32[8,128,1024]{2,1,0}"
FIRST = f"""
%x = {S} parameter(0)
%a = {S} fusion(%x), kind=kLoop, calls=%f, {said("net/tanh", 3, "t.py")}
%g = {S} all-reduce(%a), {SUMMED}, {said("net/psum", 4, "t.py")}
%b = {S} add(%g, %x), {said("net/add", 5, "t.py")}
ROOT %o = ({S}, {S}) tuple(%b, %g)
"""


def test_what_differs_between_two_programs() -> None:
    one = program(FIRST, before=BODY.format(n="f", op="tanh"))
    another = f"%k2 = {S} negate(%a), {said('net/neg', 6, 't.py')}"
    two = program(
        FIRST.replace(", calls=%f", ", calls=%h").replace("%b", "%k")
        .replace(f"%k = {S} add", f"{another}\n%k = {S} subtract"),
        before=BODY.format(n="h", op="sine"),
    )  # fmt: skip
    found = hs.diff(one, two)
    totals = {d.name: (d.a, d.b) for d in found.totals}
    count = len(one.module.instructions)
    assert totals["instructions"] == (count, count + 1)
    assert totals["fusions"] == (1, 1)
    assert totals["collectives"] == (1, 1)
    assert totals["wire bytes"] == (4 << 20, 4 << 20)
    assert totals["parameter bytes"] == (4 << 20, 4 << 20)
    assert totals["modelled step"] == (8 + 5 + 12, 8 + 5 + 12 + 8)
    assert totals["exposed communication"] == (5, 5)
    assert {d.name: d.change for d in found.opcodes} == {
        "sine": 1, "subtract": 1, "negate": 1, "add": -1, "tanh": -1,
    }  # fmt: skip
    assert [
        (c.a.name, c.b.name, c.fields) for c in sorted(found.changed, key=lambda c: c.a.name)
    ] == [
        ("b", "k", (("opcode", "add", "subtract"),)),
        ("v", "v", (("opcode", "tanh", "sine"),)),
    ]
    assert [i.name for i in found.added] == ["k2"]
    assert found.removed == ()
    assert found.matched == count
    assert [(p.name, p.seconds) for p in found.lines] == [("t.py:6", (0.0, 8.0))]
    assert [(p.name, p.seconds) for p in found.scopes] == [("net", (25.0, 33.0))]


def test_collectives_that_one_of_them_has() -> None:
    more = FIRST.replace("%b =", f"%g2 = {S} all-reduce(%x), {SUMMED}\n%b =")
    one, two = (program(t, before=BODY.format(n="f", op="tanh")) for t in (FIRST, more))
    found = hs.diff(one, two)
    assert found.removed_collectives == ()
    assert found.added_collectives == (
        CollectiveItem("all-reduce", "one group of 2", 4 << 20, 4 << 20, 1, ""),
    )
    (sent,) = found.collectives
    assert (sent.name, sent.a, sent.b) == ("all-reduce over one group of 2", 4 << 20, 8 << 20)
    assert hs.diff(two, one).removed_collectives == found.added_collectives


def test_what_goes_with_a_caller_is_counted() -> None:
    gone = FIRST.replace("fusion(%x), kind=kLoop, calls=%f", "tanh(%x)")
    one, two = program(FIRST, before=BODY.format(n="f", op="tanh")), program(gone)
    (change,) = hs.diff(one, two).changed
    assert change.fields[0] == ("opcode", "fusion", "tanh")
    bare = program(f"%x = {S} parameter(0)\nROOT %o = ({S}, {S}) tuple(%x, %x)")
    insides = {i.name: i.inside for i in hs.diff(one, bare).removed}
    assert insides["a"] == 3
    assert insides["g"] in (3, 0)
    assert insides["b"] == 0


# -- budgets -----------------------------------------------------------------------------------


def held(entry: str, **budgets: Any) -> list[str]:
    """Everything a check says, a line each."""
    report = hs.check(program(entry), **budgets)
    return str(report).splitlines()[1:]


SENDING = f"""
%x = {mib(2)} parameter(0), metadata={{op_name="params['w']"}}
%y = {mib(1)} parameter(1), metadata={{op_name="batch"}}
%g = {mib(2)} all-reduce(%x), {SUMMED}, {said("psum", 4)}
%h = {mib(2)} all-gather(%y), {GATHERED}, {said("all_gather", 6)}
ROOT %o = {mib(2)} add(%g, %h), {said("add", 7)}
"""


def test_budgets_are_kept_up_to_the_last_byte() -> None:
    peak = program(SENDING).memory.peak_bytes
    sent = 3 << 20
    count = len(program(SENDING).module.instructions)
    assert held(SENDING, max_peak=peak, max_wire_bytes=sent, max_instructions=count) == [
        "  ok: max_peak: 7 MiB of 7 MiB (simulated)",
        "  ok: max_wire_bytes[total]: 3 MiB of 3 MiB",
        f"  ok: max_instructions: {count} of {count}",
    ]
    assert held(
        SENDING, max_peak=peak - 1, max_wire_bytes=sent - 1, max_instructions=count - 1
    ) == [
        "  m.py:6: max_peak: 7 MiB of 7 MiB (simulated), reached at %h",
        "  m.py:4: max_wire_bytes[total]: 3 MiB of 3 MiB; most by all-reduce %g: 2 MiB",
        f"  max_instructions: {count} of {count - 1}",
    ]
    assert hs.check(program(SENDING), max_peak={"vmem": 5}).status == 2


def test_what_is_forbidden_is_found_by_line() -> None:
    assert held(SENDING, forbid=["collective", "all-gather", "add", "f64", "f32"]) == [
        "  m.py:4: forbid: collective: %g moves 2 MiB over one group of 2",
        "  m.py:6: forbid: collective: %h moves 2 MiB over one group of 2",
        "  m.py:6: forbid: all-gather: %h moves 2 MiB over one group of 2",
        "  forbid: add: %add = f32[] add",
        "  m.py:7: forbid: add: %o = f32[2,512,512] add",
        "  forbid: f32: %add = f32[] add and 2 more",
        "  m.py:4: forbid: f32: %g = f32[2,512,512] all-reduce",
        "  m.py:6: forbid: f32: %h = f32[2,512,512] all-gather",
        "  m.py:7: forbid: f32: %o = f32[2,512,512] add",
        "  ok: forbid: f64: none",
    ]


@pytest.mark.parametrize(
    ("line", "is_transfer"),
    [
        ('%h = f32[8] custom-call(%x), custom_call_target="xla_ffi_python_cpu_callback"', True),
        ('%h = f32[8] custom-call(%x), custom_call_target="MoveToHost"', True),
        ('%h = f32[8] custom-call(%x), custom_call_target="gemm"', False),
        ("%h = f32[8]{0:S(5)} copy(%x)", True),
        ("%h = f32[8]{0:S(1)} copy(%x)", False),
        ("%h = f32[8]{0} copy(%x)", False),
        ("%t = token[] after-all()\n%h = (f32[8], token[]) infeed(%t)", True),
        ("%t = token[] after-all()\n%h = (f32[8], u32[], token[]) send(%x, %t), channel_id=3,"
         " is_host_transfer=true", True),
        ("%t = token[] after-all()\n%h = (f32[8], u32[], token[]) send(%x, %t), channel_id=3",
         False),
    ],
)  # fmt: skip
def test_what_goes_to_the_host(line: str, is_transfer: bool) -> None:
    entry = f"%x = f32[8]{{0}} parameter(0)\n{line}\nROOT %o = (f32[8]) tuple(%x)"
    assert hs.check(program(entry), forbid="host-transfer").status == int(is_transfer)


def test_what_is_donated_has_to_be_used() -> None:
    def said_of(wanted: Any, alias: str = "", donated: tuple[int, ...] = ()) -> list[str]:
        cap = program(SENDING, header=alias and f", input_output_alias={{ {{}}: ({alias}, {{}}) }}")
        arguments = tuple(
            Argument(f"given[{k}]", (), "float32", donated=True, parameter=k) for k in donated
        )
        made = hs.Capture(cap.module, Target(arguments=arguments))
        return str(hs.check(made, require_donation=wanted)).splitlines()[1:]

    ok, start = "  ok: require_donation: ", "  require_donation: "
    assert said_of(True) == [f"{start}no argument is donated"]
    assert said_of(True, "0") == [f"{ok}1 arguments"]
    assert said_of(True, "0", (0,)) == [f"{ok}1 arguments"]
    assert said_of(True, "0", (1,)) == [f"{start}given[1] is not reused for any output"]
    assert said_of(["params*"], "0") == [f"{ok}1 arguments"]
    assert said_of(["*"], "0") == [f"{start}batch is not reused for any output"]
    assert said_of(["batch"], "0") == [f"{start}batch is not reused for any output"]
    assert said_of("nobody", "0")[0].startswith(
        "  cannot be evaluated: require_donation: no argument matches nobody; arguments are params"
    )
