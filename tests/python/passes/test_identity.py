"""Which of the first instructions each one of a later dump comes from.

Small dumps are written as in ``pass_dumps.py``; those that XLA wrote are compared with their marks.
"""

from __future__ import annotations

import hloscope as hs
import pytest
from hloscope.analysis.passes.identity.follow import follow_identity
from hloscope.analysis.passes.identity.how import How
from hloscope.analysis.provenance.inferred import infer
from hloscope.readers import read_modules
from kept_passes import FOLDER, load, parsed
from pass_dumps import dump

# What stays in every dump, so that none was written anew.
KEPT = "; ".join(f"k{k} = f32[{k + 9}] parameter({k + 9})" for k in range(9))
P = f"{KEPT}; p = f32[4] parameter(0); q = f32[4] parameter(1)"


def known(*dumps: str) -> dict[str, tuple[list[str], How]]:
    """Instruction of the last dump → those of the first, and what that is based on."""
    texts = [d if d.startswith("HloModule") else dump(d) for d in dumps]
    found = follow_identity([lambda text=text: text for text in texts])
    nodes, versions = found.steps.nodes, found.steps.versions
    return {
        found.present(n).name: (
            [versions[nodes[k].versions[0]].line.name for k in found.of(n)], found.how[n],
        )
        for n in found.how
        if nodes[n].last == found.steps.rows
    }  # fmt: skip


def said(found: dict[str, tuple[list[str], How]], names: str) -> str:
    return " ".join(f"{n}={'+'.join(found[n][0])}:{found[n][1].name}" for n in names.split())


# dumps, instructions of the last one, from which each is and how that is known
CASES: dict[str, tuple[list[str], str, str]] = {
    "the same name": (
        [f"{P}; a = f32[4] tanh(p)@f/tanh"] * 2, "a p", "a=a:FIRST p=p:FIRST"),
    "the only one of its op name": (
        [f"{P}; a = f32[4] tanh(p)@f/tanh", f"{P}; b = f32[4] sine(p)@f/tanh"], "b", "b=a:ONLY"),
    "the same name, another opcode": (
        [f"{P}; a = f32[4] tanh(p)@f/tanh", f"{P}; a = f32[4] sine(p)@f/tanh"], "a", "a=a:ONLY"),
    "a new op name": (
        [f"{P}; a = f32[4] tanh(p)@f/tanh", f"{P}; b = f32[4] sine(p)@f/sin"], "b", "b=:FIRST"),
    "the op name of one that was gone before": (
        [f"{P}; a = f32[4] tanh(p)@f/tanh", P, f"{P}; b = f32[4] tanh(p)@f/tanh"], "b",
        "b=a:ONLY"),
    "equal ones by their operands": (
        [f"{P}; a = f32[4] tanh(p)@f; b = f32[4] tanh(q)@f; r = f32[4] add(a, b)@g",
         f"{P}; d = f32[4] tanh(q)@f; c = f32[4] tanh(p)@f"], "c d",
        "c=a:NEIGHBOURS d=b:NEIGHBOURS"),
    "equal ones by their user": (
        [f"{P}; a = f32[4] tanh(p)@f; b = f32[4] tanh(p)@f; r = f32[4] atan2(a, b)@g",
         f"{P}; d = f32[4] tanh(p)@f; c = f32[4] tanh(p)@f; r = f32[4] atan2(c, d)@g"], "c d r",
        "c=a:NEIGHBOURS d=b:NEIGHBOURS r=r:FIRST"),
    "equal ones in their order": (
        [f"{P}; a = f32[4] tanh(p)@f; b = f32[4] tanh(p)@f",
         f"{P}; c = f32[4] tanh(p)@f; d = f32[4] tanh(p)@f"], "c d", "c=a:ORDER d=b:ORDER"),
    "twice as many equal ones": (
        [f"{P}; a = f32[4] tanh(p)@f; b = f32[4] tanh(p)@f",
         f"{P}; c = f32[4] tanh(p)@f; d = f32[4] tanh(p)@f; e = f32[4] tanh(p)@f;"
         " g = f32[4] tanh(p)@f"], "c d e g", "c=a:ORDER d=a:ORDER e=b:ORDER g=b:ORDER"),
    "one more": (
        [f"{P}; a = f32[4] tanh(p)@f; b = f32[4] tanh(p)@f",
         f"{P}; c = f32[4] tanh(p)@f; d = f32[4] tanh(p)@f; e = f32[4] tanh(p)@f"], "c d e",
        "c=a:ORDER d=b:ORDER e=b:ORDER"),
    "one fewer": (
        [f"{P}; a = f32[4] tanh(p)@f; b = f32[4] tanh(p)@f; c = f32[4] tanh(p)@f",
         f"{P}; d = f32[4] tanh(p)@f; e = f32[4] tanh(p)@f"], "d e", "d=a:ORDER e=b:ORDER"),
    "what is told by one that is only guessed": (
        [f"{P}; a = f32[4] tanh(p)@f; b = f32[4] tanh(p)@f; u = f32[4] log(a)@g;"
         " v = f32[4] log(b)@g",
         f"{P}; c = f32[4] tanh(p)@f; d = f32[4] tanh(p)@f; w = f32[4] log(d)@g;"
         " x = f32[4] log(c)@g"], "c d w x", "c=a:ORDER d=b:ORDER w=v:GUESSED x=u:GUESSED"),
    "no more certain than what it comes from": (
        [f"{P}; a = f32[4] tanh(p)@f; b = f32[4] tanh(p)@f",
         f"{P}; c = f32[4] tanh(p)@f; d = f32[4] tanh(p)@f",
         f"{P}; c = f32[4] tanh(p)@f; e = f32[4] sine(p)@f;"], "c", "c=a:ORDER"),
    "two op names that were merged": (
        [f"{P}; a = f32[4] tanh(p)@f; b = f32[4] log(q)@g", f"{P}; c = f32[4] add(p, q)@f&g"],
        "c", "c=a+b:ONLY"),
    "only another op name": (
        [f"{P}; a = f32[4] tanh(p)@f; b = f32[4] log(q)@g",
         f"{P}; a = f32[4] tanh(p)@f&g"], "a", "a=a+b:ONLY"),
    "another op name around its own": (
        [f"{P}; a = f32[4] tanh(p)@f", f"{P}; a = f32[4] tanh(p)@h/f"], "a", "a=a:FIRST"),
    "another op name within its own": (
        [f"{P}; a = f32[4] tanh(p)@h/f", f"{P}; a = f32[4] tanh(p)@f"], "a", "a=a:FIRST"),
    "an op name that ends alike is another": (
        [f"{P}; a = f32[4] tanh(p)@f", f"{P}; a = f32[4] tanh(p)@hf"], "a", "a=:FIRST"),
    "no op name, and another opcode": (
        [f"{P}; a = f32[4] copy(p)", f"{P}; a = f32[4] bitcast(p)"], "a", "a=a:FIRST"),
    "another op name and another opcode": (
        [f"{P}; a = f32[4] tanh(p)@f", f"{P}; a = f32[4] sine(p)@g"], "a", "a=:FIRST"),
    "an op name for what had none": (
        [f"{P}; a = f32[4] copy(p)", f"{P}; a = f32[4] bitcast(p)@f"], "a", "a=:FIRST"),
    "an argument's op name": (
        ["p = f32[4] parameter(0)@x", "p = f32[4] parameter(0)@y"], "p", "p=p:FIRST"),
}  # fmt: skip


@pytest.mark.parametrize("what", CASES)
def test_where_it_comes_from(what: str) -> None:
    dumps, names, want = CASES[what]
    assert said(known(*dumps), names) == want


# -- parts of it -------------------------------------------------------------------------------


def right(cap: hs.Capture) -> tuple[int, int]:
    """Instructions of the last dump whose operations are found without marks, of all with any."""
    passes = cap.passes()
    found = infer(passes)
    first, last = passes.module(0), passes.module(len(passes) - 1)
    marks = [{o.operation for o in i.origins} for i in first.instructions]
    means: dict[int, set[int]] = {}
    for origins, numbers in zip(found.origins(read_modules(passes.text(0))[0], 0).of, marks,
                                strict=True):  # fmt: skip
        means |= {o.operation: numbers for o in origins}
    inferred = found.origins(last).of
    compared = [
        (
            {o.operation for o in i.origins},
            {n for o in inferred[i.index] for n in means[o.operation]},
        )
        for i in last.instructions
    ]
    return sum(bool(a) and a == b for a, b in compared), sum(bool(a) for a, _ in compared)


@pytest.mark.parametrize(
    ("group", "expected", "whole"),
    [
        ("gradient", 58, 60), ("layered", 421, 425), ("mixed", 33, 33), ("sharded", 42, 43),
        ("small", 146, 146),
    ],
)  # fmt: skip
def test_identities_agree_with_marks(group: str, expected: int, whole: int) -> None:
    found = [right(load(made)) for made in parsed(FOLDER / f"{group}.marked.xz").values()]
    assert (sum(n for n, _ in found), sum(n for _, n in found)) == (expected, whole)
