"""How findings and the headline over them are worded, ordered and left out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import hloscope as hs
import pytest
from hloscope.analysis.findings import rules as module_of_rules
from hloscope.analysis.findings.finding import Finding, Findings, Headline, names, percent
from hloscope.hlo import StackFrame
from round_chip import SUMMED, chip_file, mib, program, said, work


@pytest.fixture(autouse=True)
def _chip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOSCOPE_HARDWARE", chip_file(tmp_path))


PLAIN = Finding("some-rule", "It is so", "because", "do this", 0.5)


def test_what_a_finding_says() -> None:
    frame = StackFrame("/a/train.py", 7)
    assert str(PLAIN) == "It is so\n    because\n    Try: do this"
    assert PLAIN.line == PLAIN.at_stake == ""
    full = replace(
        PLAIN, seconds=0.25, bytes=3 << 20, bytes_of="wire", frame=frame, inferred=True,
        code="y = f(x)", scope="net/embed",
    )  # fmt: skip
    assert str(full) == (
        "It is so [250 ms modelled, 3 MiB on the wire]\n"
        "    at net/embed · /a/train.py:7 (inferred): y = f(x)\n    because\n    Try: do this"
    )
    assert replace(full, seconds=None, bytes_of="peak memory").at_stake == "3 MiB of peak memory"
    assert replace(full, seconds=0.0, bytes=0).at_stake == "0 s modelled, 0 B on the wire"
    assert "    at net/embed\n" in str(replace(PLAIN, scope="net/embed"))
    assert "    at /a/train.py:7\n" in str(replace(PLAIN, frame=frame))
    assert full.to_dict() == {
        "rule": "some-rule", "title": "It is so", "evidence": "because", "advice": "do this",
        "share": 0.5, "seconds": 0.25, "bytes": 3 << 20, "bytes_of": "wire",
        "line": "/a/train.py:7", "line_inferred": True, "code": "y = f(x)", "scope": "net/embed",
        "instructions": [],
        "proofs": [],
    }  # fmt: skip
    unknown = PLAIN.to_dict()
    assert {k for k, v in unknown.items() if v is None} == {
        "seconds", "bytes", "bytes_of", "line", "code", "scope",
    }  # fmt: skip


HEAD = Headline(
    "Round", 2.0, "modelled", True, 0.25, "memory", 0.75, 3 << 20, float(1 << 30), "argument",
    2 << 20,
)  # fmt: skip
WHOLE = (
    "step 2 s modelled on Round · MFU ≤ 25 % · bound by memory (75 % of the time)"
    " · peak memory 3 MiB of 1 GiB, most of it arguments"
)
MEASURED = (
    "step 2 s measured on Round · MFU 25 % · bound by memory (75 % of the modelled time)"
    " · peak memory 3 MiB of 1 GiB, most of it arguments"
)


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({}, WHOLE),
        ({"is_least": True}, WHOLE.replace("step 2", "step ≥ 2")),
        ({"seconds_are": "measured", "is_least": True}, MEASURED),
        ({"largest_bytes": 3 << 19}, WHOLE.removesuffix(", most of it arguments")),
        ({"memory_bytes": None}, WHOLE.replace(" of 1 GiB", "")),
        ({"seconds": None, "mfu": None, "bound_by": ""}, WHOLE.rpartition("· ")[2]),
        ({"seconds": None, "mfu": None, "bound_by": "", "is_optimised": False},
         "not optimised yet: no step time"),
        ({"peak_bytes": None}, WHOLE.rpartition(" · ")[0]),
    ],
)  # fmt: skip
def test_what_the_headline_says(changed: dict[str, Any], text: str) -> None:
    made = replace(HEAD, **changed)
    assert str(made) == text
    assert made.parts() == text.split(" · ")
    assert made.to_dict()["seconds"] == made.seconds


def test_a_measured_step_replaces_the_modelled_one() -> None:
    found = Findings((), HEAD, ("a", "b"), ())
    assert found.with_step(4.0).headline == replace(
        HEAD, seconds=4.0, seconds_are="measured", mfu=0.125
    )
    for none in ({"mfu": None}, {"seconds": None}):
        assert replace(found, headline=replace(HEAD, **none)).with_step(4.0).headline.mfu is None
    assert found.with_step(0.0).headline.mfu is None


def test_what_findings_say_together() -> None:
    found = Findings((PLAIN,), HEAD, ("some-rule", "b", "c"), ("b: oh",), ("c",))
    assert repr(found) == (
        f"{WHOLE}\n1. {PLAIN}\nnot worked out: b: oh\n"
        "1 rules need the optimised program and were not run: this is the program before"
        " optimisation."
    )
    none = replace(found, rows=(), failed=(), unasked=())
    assert repr(none) == f"{WHOLE}\nNothing to report: 3 rules ran, and none applied."
    assert (len(found), found[0], list(found), found.of("b")) == (1, PLAIN, [PLAIN], ())
    assert found.of("some-rule") == (PLAIN,)
    assert found.to_pandas()["share"].tolist() == [0.5]
    assert found.to_dict()["failed"] == ["b: oh"]
    assert found.to_dict()["unasked"] == ["c"]


def test_names_and_shares() -> None:
    rows = program(work(1) + "\nROOT %o = (f32[]) tuple(%w)").module.instructions[-3:]
    assert [i.name for i in rows] == ["w.p", "w", "o"]
    assert names(rows) == "%w.p, %w, %o"
    assert names([*rows, *rows]) == "%w.p, %w, %o and 3 more"
    assert names(rows, 2) == "%w.p, %w and 1 more"
    assert [percent(x) for x in (0.0, 0.0999, 0.1, 1.0)] == ["0.0 %", "10.0 %", "10 %", "100 %"]


# -- what is said, and in which order ----------------------------------------------------------


def told(
    monkeypatch: pytest.MonkeyPatch, *made: tuple[str, Finding], chip: str | None = "round"
) -> list[str]:
    """The titles of what rules with these findings leave, in order."""
    rules = dict.fromkeys(name for name, _ in made)
    listed = tuple(
        (name, lambda facts, n=name: [replace(f, rule=n) for m, f in made if m == n], True)
        for name in rules
    )
    monkeypatch.setattr(module_of_rules, "RULES", listed)
    cap = program(work(1) + "\nROOT %o = (f32[]) tuple(%w)", chip=chip)
    assert cap.findings.rules == tuple(rules)
    return [f.title for f in cap.findings]


def some(title: str, share: float = 0.5, **more: Any) -> Finding:
    return replace(PLAIN, title=title, share=share, **more)


def test_the_most_at_stake_is_first_and_ties_keep_the_order_of_rules(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = (
        ("one", some("b", 0.3)), ("one", some("a", 0.3)), ("one", some("last", 0.02)),
        ("two", some("0", 0.3 + 1e-8)), ("two", some("most", 0.9)), ("two", some("no", 0.0199)),
    )  # fmt: skip
    assert told(monkeypatch, *rows) == ["most", "a", "b", "0", "last"]


def test_what_is_too_little_for_anybody_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = (
        some("microsecond", seconds=1e-6),
        some("less", seconds=0.9e-6),
        some("held", seconds=0.9e-6, bytes=1, bytes_of="peak memory"),
        some("mebibyte", bytes=1 << 20, bytes_of="peak memory"),
        some("smaller", bytes=(1 << 20) - 1, bytes_of="peak memory"),
        some("wire", bytes=1, bytes_of="wire"),
        some("unknown", bytes_of="peak memory"),
    )
    left = told(monkeypatch, *(("r", f) for f in rows))
    assert left == ["mebibyte", "microsecond", "unknown", "wire"]


def test_the_code_of_a_line_and_the_scope_where_the_line_says_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = "  first\nsecond\n"
    cap = program(f"""
{work(1)}
%u = f32[1,128,1024]{{2,1,0}} negate(%w), {said("jvp(net)/jit(embed)/neg")}
ROOT %v = f32[1,128,1024]{{2,1,0}} negate(%u)""")
    by_name = {i.name: i for i in cap.module.instructions}
    u = by_name["u"]

    def found(line: int, file: str, *of: Any) -> tuple[str, str]:
        row = replace(PLAIN, frame=StackFrame(file, line) if file else None, instructions=of)
        monkeypatch.setattr(module_of_rules, "RULES", (("some-rule", lambda facts: [row], True),))
        target = replace(cap.target, sources={"a.py": text})
        made = hs.Capture(cap.module, target)
        (said_of,) = made.findings
        return said_of.code, said_of.scope

    assert [found(n, "a.py", u) for n in (0, 1, 2, 3)] == [
        ("", ""), ("first", ""), ("second", ""), ("", ""),
    ]  # fmt: skip
    assert found(1, "b.py", u) == ("", "")
    assert found(0, "", u) == ("", "net/embed")
    assert found(0, "") == ("", "")
    assert found(0, "", by_name["v"]) == ("", "")
    assert found(5, "/x/site-packages/flax/core/lift.py", u) == ("", "net/embed")


# -- the headline ------------------------------------------------------------------------------

DOT = """%a = bf16[512,512]{1,0} parameter(0)
%d = bf16[512,512]{1,0} dot(%a, %a), lhs_contracting_dims={1}, rhs_contracting_dims={0}
"""


def test_what_bounds_a_step() -> None:
    sent = f"%x = {mib(9)} parameter(1)\n%g = {mib(9)} all-reduce(%x), {SUMMED}\n"
    # 64 s of multiplying at the chip's peak, 10 s of a sum, 6 s of reading
    cap = program(f"{DOT}{sent}{work(6)}\nROOT %o = (f32[]) tuple(%d, %g, %w)")
    h = cap.findings.headline
    assert (h.seconds, h.bound_by, h.bound_share, h.mfu) == (80.0, "compute", 0.8, 0.8)
    assert (h.hardware, h.memory_bytes, h.seconds_are) == ("Round", 1 << 30, "modelled")
    cap = program(f"{sent}{work(6)}\nROOT %o = (f32[]) tuple(%g, %w)")
    h = cap.findings.headline
    assert (h.seconds, h.bound_by, h.bound_share, h.mfu) == (16.0, "communication", 10 / 16, 0.0)
    h = program(f"{sent}{work(12)}\nROOT %o = (f32[]) tuple(%g, %w)").findings.headline
    assert (h.bound_by, h.bound_share, h.is_least) == ("memory", 12 / 22, False)
    cap.hardware = None
    h = cap.findings.headline
    assert (h.hardware, h.seconds, h.seconds_are, h.bound_by, h.mfu) == (
        None, None, "unknown", "", None,
    )  # fmt: skip


def test_copies_bound_a_step_as_memory_or_as_the_host() -> None:
    """3 MiB from the host take 3 s of memory's time too: the second of work hides one of them
    for what waits, and none of what is moved."""
    shape, there = "f32[3,512,512]{2,1,0}", "f32[3,512,512]{2,1,0:S(5)}"
    entry = f"""%w = {there} parameter(0)
%x = f32[1,128,1024]{{2,1,0}} parameter(1)
%s = ({shape}, {there}, u32[]) copy-start(%w)
%y = f32[1,128,1024]{{2,1,0}} tanh(%x)
%d = {shape} copy-done(%s)
ROOT %o = ({shape}, f32[1,128,1024]{{2,1,0}}) tuple(%d, %y)"""
    cap = program(entry, devices=1)
    h = cap.findings.headline
    assert (h.seconds, h.bound_by, h.bound_share) == (
        4.0, "copies to and from the host", 0.75,
    )  # fmt: skip
    (found,) = cap.findings.of("host-copies")
    assert found.title == (
        "The chip waits 2 s (50 % of the modelled step) for 1 copy to or from the host's memory"
    )
    assert found.evidence == (
        "3 MiB a step go over the link to the host: %s; the one waited for most is of `%w`"
    )
    assert (found.share, found.seconds, found.bytes) == (0.5, 2.0, 3 << 20)
    # into fast memory at the rate of memory: a bound of memory
    cap = program(entry.replace(":S(5)", ":S(1)"), devices=1)
    assert cap.findings.headline.bound_by == "memory"
    assert cap.findings.of("host-copies") == ()
