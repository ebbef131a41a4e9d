"""Advice, followed: at least half of what a finding says is at stake is gained."""

from __future__ import annotations

import ast
import importlib.util
import re
from pathlib import Path

import hloscope as hs
import pytest
from advice_pairs import CALLS, COMPILE, PAIRS, PEAK, PROGRAM, SECONDS, WIRE, Pair

# Rules whose findings give no advice: nothing is known that would gain half of what is at stake.
WITHOUT_ADVICE = {
    "reduced-then-sliced",
    "full-rematerialization",
    "narrow-sums",
    "names-nothing",
    "batched-loop",
}
# Rules of which hloscope can carry the advice out; what others advise is another program.
CARRIED_OUT = {
    "not-donated", "rematerialisation", "replicated-state", "wide-matmul",
    ("residuals", "rematerialise the largest"), ("residuals", "rematerialise them"),
    ("residuals", "take jax.checkpoint from around the loop"),
    "wide-values", "saved-values", "does-not-fit",
    ("exposed-collective", "constrain the value to the sharding that it has"),
    ("exposed-collective", "gather it once, before the loop"),
    ("redundant-work", "shard one of its operands over the devices that do the same"),
}  # fmt: skip


def gained(pair: Pair, before: hs.Capture, after: hs.Capture) -> float:
    if pair.gains == SECONDS:
        a, b = before.findings.headline.seconds, after.findings.headline.seconds
        assert a is not None
        assert b is not None
        return a - b
    if pair.gains == PEAK:
        return before.memory.peak_bytes - after.memory.peak_bytes
    if pair.gains == WIRE:
        return (before.collectives.wire_bytes or 0) - (after.collectives.wire_bytes or 0)
    if pair.gains == COMPILE:
        return (before.target.compile_seconds or 0) - (after.target.compile_seconds or 0)
    return _counted(pair, before) - _counted(pair, after)


def _counted(pair: Pair, cap: hs.Capture) -> float:
    """Bytes of constants, instructions or calls of Python, as the rule counts them."""
    instructions = cap.module.instructions
    if pair.rule == "large-constant":
        return sum(i.shape.byte_size for i in instructions if i.opcode == "constant")
    if pair.gains == CALLS:
        return sum("callback" in (i.custom_call_target or "") for i in instructions)
    return len(instructions)


def at_stake(pair: Pair, before: hs.Capture, found: list[hs.results.Finding]) -> float:
    if pair.gains == COMPILE:
        return sum(slow.seconds for slow in before.target.slow_to_compile)
    if pair.gains == CALLS or pair.rule == "unrolled":  # the title says how many
        return sum(max(int(n.replace(",", "")) for n in _NUMBER.findall(of)) for of in _said(found))
    kind = {SECONDS: "seconds", PEAK: "bytes", WIRE: "bytes", PROGRAM: "bytes"}[pair.gains]
    return float(sum(getattr(f, kind) for f in found))


_NUMBER = re.compile(r"\d[\d,]*")


def _said(found: list[hs.results.Finding]) -> list[str]:
    """``25,230`` of "25,230 of 25,724 instructions"."""
    return [f.title.rpartition(": ")[2].partition(" of ")[0] for f in found]


@pytest.mark.parametrize("pair", PAIRS, ids=lambda p: f"{p.rule}: {p.followed}")
def test_half_of_what_is_at_stake_is_gained(pair: Pair) -> None:
    if pair.platform == "tpu" and importlib.util.find_spec("libtpu") is None:
        pytest.skip('libtpu is not installed (pip install "hloscope[tpu]")')
    before, after = pair.make(False), pair.make(True)
    assert before.findings.failed == after.findings.failed == ()
    found = [f for f in before.findings.of(pair.rule) if pair.branch in f.advice]
    assert found, str(before.findings)
    assert gained(pair, before, after) >= at_stake(pair, before, found) / 2 > 0
    is_carried_out = bool(CARRIED_OUT & {pair.rule, (pair.rule, pair.branch)})
    is_carried_out &= "by hand" not in found[0].advice
    assert {bool(f.changes) for f in found} == {is_carried_out}
    if is_carried_out:
        prove(pair, before)


def prove(pair: Pair, before: hs.Capture) -> None:
    """The changes that a rule states gain what its advice does."""
    found = [f for f in before.findings.prove().of(pair.rule) if pair.branch in f.advice]
    for finding in found:
        best = finding.proofs[0]
        assert best.is_proved, str(finding)
        had, has = best.peak if pair.gains == PEAK else best.step
        assert had is not None
        assert has is not None
        assert had - has >= at_stake(pair, before, [finding]) / 2 > 0


def test_every_rule_that_advises_has_a_pair() -> None:
    cap = hs.read("HloModule m\n\nENTRY e {\n  ROOT x = f32[8] parameter(0)\n}\n")
    assert {p.rule for p in PAIRS} == set(cap.findings.rules) - WITHOUT_ADVICE


def test_the_page_on_findings_lists_every_pair(repo: Path) -> None:
    page = (repo / "docs" / "findings.md").read_text()
    for pair in PAIRS:
        assert f"| `{pair.rule}` | {pair.followed} |" in page


def test_every_branch_of_every_advice_has_a_pair(repo: Path) -> None:
    """Read from the rules themselves: what no program here triggers has to be proven, too."""
    checked = 0
    for file in sorted((repo / "python/hloscope/analysis/findings").glob("*.py")):
        tree = ast.parse(file.read_text())
        known = {
            t.id: n.value for n in tree.body if isinstance(n, (ast.Assign, ast.AnnAssign))
            for t in (n.targets if isinstance(n, ast.Assign) else [n.target])
            if isinstance(t, ast.Name) and n.value is not None
        }  # fmt: skip
        calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and len(n.args) > 3]
        advised = [
            (n.args[0].value, n.args[3]) for n in calls
            if isinstance(n.func, ast.Name) and n.func.id == "Finding"
            and isinstance(n.args[0], ast.Constant)
        ]  # fmt: skip
        if "_WORDS" in known:  # (what a collective is for, advice)
            words = known["_WORDS"]
            assert isinstance(words, ast.Dict)
            advised += [
                ("exposed-collective", v.elts[1]) for v in words.values if isinstance(v, ast.Tuple)
            ]
        for rule, node in advised:
            for text in filter(None, _texts(node, known)):
                checked += 1
                assert any(p.rule == rule and p.branch in text for p in PAIRS), (rule, text)
    assert checked > 30


def _texts(node: ast.expr, known: dict[str, ast.expr]) -> list[str]:
    """Everything that an expression of literals, choices and names of such may say."""
    if isinstance(node, ast.Constant):
        return [str(node.value)]
    if isinstance(node, ast.IfExp):
        return _texts(node.body, known) + _texts(node.orelse, known)
    if isinstance(node, ast.BinOp):
        left, right = _texts(node.left, known), _texts(node.right, known)
        return [a + b for a in left for b in right]
    if isinstance(node, ast.JoinedStr):
        said = (v.value if isinstance(v, ast.Constant) else "bf16" for v in node.values)
        return ["".join(map(str, said))]  # what is filled in is a type
    if isinstance(node, ast.Subscript):
        node = node.value
    if isinstance(node, ast.Name) and node.id in known:
        node = known[node.id]
        if isinstance(node, ast.Dict):
            return [t for v in node.values for t in _texts(v, known)]
        return _texts(node, known)
    assert isinstance(node, ast.Name), ast.dump(node)
    return []  # of words(), which are read from _WORDS
