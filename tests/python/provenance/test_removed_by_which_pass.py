"""Which pass removed an operation, and what StableHLO's simplifier did: ``fates_gone.py``.

Dumps are written as in ``numbered_hlo.py``.
"""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from hloscope.analysis.provenance.fates.removed import IMPORT, RemovedOperations
from hloscope.hlo import Module, Operation
from numbered_hlo import read
from test_removed import operations

P = "p = f32[4] parameter(0); q = f32[4] parameter(1)"
WITH = f"{P}; a = f32[4] tanh(p)@1; ROOT r = f32[4] log(a)@2"
WITHOUT = f"{P}; b = f32[4] sine(p); ROOT r = f32[4] log(b)@2"


def numbers(module: Module) -> set[int]:
    assert module.origins is not None
    return {o.operation for of in module.origins.of for o in of}


class Dumps:
    """Passes called p0, p1, …; each loses the operations that the one before still had."""

    def __init__(self, *texts: str, known: bool = True) -> None:
        self.modules = [read(t) for t in texts]
        here = [numbers(m) for m in self.modules]
        lost = [set(), *(a - b for a, b in pairwise(here))][: len(here)]
        self.rows = [
            SimpleNamespace(index=k, title=f"p{k}", lost=sorted(of)) for k, of in enumerate(lost)
        ]
        self.snapshots = [SimpleNamespace(operations=here[0] if known else None) for _ in here[:1]]
        self.reads: list[int] = []

    def module(self, row: int) -> Module:
        self.reads.append(row)
        return self.modules[row]

    def made(self, name: str) -> Any:
        first = (r for r, m in zip(self.rows, self.modules, strict=True) if m.find(name))
        return next(first, None)


def gone(*texts: str, stablehlo: str = "", known: bool = True) -> RemovedOperations:
    dumps: Any = Dumps(*texts, known=known)
    source = read(stablehlo) if stablehlo else None
    return RemovedOperations(
        operations(*([source] if source else []), *dumps.modules), dumps, source
    )


def told(found: RemovedOperations, number: int = 1, **more: Any) -> str:
    operation = found.operations[number]
    fields = {"opcode": operation.opcode, "callee": "", **more}
    return found.fate(Operation(number, **fields)).what


def test_the_pass_that_removed_it() -> None:
    found = gone(WITH, WITH, WITHOUT, WITHOUT)
    assert told(found) == "was rewritten by p2 as sine"
    assert [found.order(o) for o in found.operations[:3]] == [-1, 2, -1]


def test_what_came_back_is_gone_since_the_last_time() -> None:
    found = gone(WITH, WITHOUT, WITH, WITHOUT.replace("sine", "cosine"))
    assert told(found) == "was rewritten by p3 as cosine"


def test_what_no_pass_is_known_to_have_removed() -> None:
    found = gone(WITH, WITH)
    assert told(found) == "is gone; no pass is known that removed it"
    assert told(found, 3) == f"is gone since {IMPORT}; how is unknown"
    assert told(gone(WITH, WITH, known=False), 3) == "is gone; no pass is known that removed it"
    empty: Any = Dumps()
    nothing = RemovedOperations([Operation(0, "tanh")], empty, None)
    assert told(nothing, 0) == "is gone; no pass is known that removed it"


@pytest.mark.parametrize(
    ("opcode", "callee", "number", "said"),
    [
        ("call", "f", 1, "was inlined: nothing of it is left"),
        ("func.call", "f", 1, "was inlined: nothing of it is left"),
        ("sdy.manual_computation", "", 1, "was inlined: what it holds took its place"),
        ("custom_call", "f", 1, "was rewritten by p1 as sine"),
        ("sdy.sharding_constraint", "", 1, "was rewritten by p1 as sine"),
        ("call", "", 1, "was rewritten by p1 as sine"),
        ("call", "f", 9, "was inlined: nothing of it is left"),
    ],
)
def test_calls_are_inlined(opcode: str, callee: str, number: int, said: str) -> None:
    found = gone(WITH, WITHOUT)
    operation = Operation(number, opcode, callee=callee)
    assert found.fate(operation).what == said
    assert found.fate(operation).by == ("p1" if number == 1 else "")


def test_dumps_around_a_pass_are_read_once() -> None:
    before = f"{P}; a = f32[4] tanh(p)@1; b = f32[4] sine(p)@2; ROOT r = f32[4] add(a, b)@3"
    after = f"{P}; c = f32[4] log(p)@4; ROOT r = f32[4] add(c, c)@3"
    found = gone(before, before, after)
    dumps: Any = found.passes
    assert [told(found, n) for n in (1, 2)] == ["was rewritten by p2 as log"] * 2
    assert dumps.reads == [1, 2]


LOOP = "body: x = f32[4] parameter(0); ROOT b = f32[4] sine(x) | cond: y = f32[4] parameter(0);"
LOOP += " ROOT n = pred[] constant(1) | "
LOOPS = f"{LOOP}{P}; w = f32[4] while(p), body=body, condition=cond@1; ROOT r = f32[4] log(w)"
LEFT = f"{P}; c = f32[4] cosine(p); t = (f32[4]) tuple(c)@1; ROOT r = f32[4] log(c)"
PLAIN = f"{P}; c = f32[4] cosine(p); ROOT r = f32[4] log(c)"


@pytest.mark.parametrize(
    ("left", "said"),
    [
        (0, "was rewritten by p1 as cosine"),
        (1, "was rewritten by p1 as cosine"),
        (4, "was rewritten by p1 as cosine"),
        (5, "was removed by p6: nothing used its result"),
    ],
)
def test_a_loop_is_gone_when_only_its_tuple_is_left(left: int, said: str) -> None:
    """``left``: dumps in which a tuple still has its number; five are looked at."""
    assert told(gone(LOOPS, *[LEFT] * left, PLAIN), opcode="while") == said
    assert told(gone(LEFT, LEFT, PLAIN), opcode="while") == (
        "was removed by p2: nothing used its result"
    )


UNUSED = f"{P}; a = f32[4] tanh(p)@1; c = f32[4] cosine(p); ROOT r = f32[4] log(c)"


@pytest.mark.parametrize(
    ("left", "said"),
    [
        (1, "was rewritten by p1 as cosine"),
        (4, "was rewritten by p1 as cosine"),
        (5, "was removed by p6: nothing used its result"),
    ],
)
def test_what_was_bypassed_before_it_was_removed(left: int, said: str) -> None:
    """Unused in ``left`` dumps; four of those before it was gone are looked at."""
    assert told(gone(WITH, *[UNUSED] * left, PLAIN)) == said


def test_what_never_had_a_user_is_dead() -> None:
    assert told(gone(UNUSED, UNUSED, PLAIN)) == "was removed by p2: nothing used its result"
    result = f"{P}; ROOT a = f32[4] tanh(p)@1"
    other = f"{P}; a = f32[4] tanh(p)@1; ROOT c = f32[4] cosine(p)"
    none = f"{P}; ROOT c = f32[4] cosine(p)"
    assert told(gone(result, other, none)) == "was removed by p2: nothing used its result"


def test_merged_by_the_pass_that_made_the_combined_one() -> None:
    text = f"{P}; s = (f32[4], f32[4]) all-reduce(p, q)@2; ROOT a = f32[4] get-tuple-element(s),"
    text += " index=0@1"
    made = f"{P}; b = f32[4] all-reduce(p)@1,2"
    found = gone(made, text, f"{P}; ROOT r = f32[4] log(p)@2")
    assert told(found, opcode="all_reduce") == "was merged by p1 with all-reduce"
    assert (found.made("s"), found.made("p"), found.made("other")) == ("p1", "p0", "")


# -- from StableHLO to the first dump ----------------------------------------------------------

ARGUMENTS = "x = f32[4] parameter(0); y = f32[4] parameter(1)"

# StableHLO, the first dump, what is said of operation 1
IMPORTED = {
    "unused": (
        "t = f32[4] tanh(x)@1; u = f32[4] log(x)@2; ROOT z = f32[4] return(u)",
        "ROOT u.1 = f32[4] log(p)@2",
        f"was removed by {IMPORT}: nothing used its result"),
    "by its operand": (
        "t = f32[4] tanh(x)@1; u = f32[4] log(t)@2; ROOT z = f32[4] return(u)",
        "ROOT u.1 = f32[4] log(p)@2",
        f"was simplified away by {IMPORT}: parameter %p took its place"),
    "by an operation that it was computed from": (
        "s = f32[4] sine(x)@3; t = f32[4] tanh(s)@1; u = f32[4] log(t)@2;"
        " ROOT z = f32[4] return(u)",
        "s.1 = f32[4] sine(p)@3; ROOT u.1 = f32[4] log(s.1)@2",
        f"was simplified away by {IMPORT}: sine %s.1 took its place"),
    "by an equal one": (
        "s = f32[4] tanh(y)@3; t = f32[4] tanh(x)@1; u = f32[4] log(t)@2;"
        " v = f32[4] add(s, u)@4; ROOT z = f32[4] return(v)",
        "s.1 = f32[4] tanh(q)@3; u.1 = f32[4] log(s.1)@2; ROOT v.1 = f32[4] add(s.1, u.1)@4",
        f"was merged by {IMPORT} with tanh"),
    "by a new one": (
        "t = f32[4] tanh(x)@1; u = f32[4] log(t)@2; ROOT z = f32[4] return(u)",
        "n = f32[4] negate(p); ROOT u.1 = f32[4] log(n)@2",
        f"was rewritten by {IMPORT} as negate"),
    "by an argument of another shape": (
        "w = f32[8] parameter(2); t = f32[4] tanh(w)@1; u = f32[4] log(t)@2;"
        " ROOT z = f32[4] return(u)",
        "ROOT u.1 = f32[4] log(p)@2",
        f"was rewritten by {IMPORT} as parameter %p, there already"),
    "the user has more operands": (
        "t = f32[4] tanh(x)@1; u = f32[4] custom-call(t)@2; ROOT z = f32[4] return(u)",
        "n = f32[4] negate(p); ROOT u.1 = f32[4] custom-call(n, p)@2",
        f"is gone since {IMPORT}; how is unknown"),
    "the user has another opcode": (
        "t = f32[4] tanh(x)@1; u = f32[4] log(t)@2; ROOT z = f32[4] return(u)",
        "n = f32[4] negate(p); ROOT u.1 = f32[4] floor(n)@2",
        f"was rewritten by {IMPORT} as floor %u.1, there already, together with what used it"),
    "another name for the same opcode": (
        "t = f32[4] tanh(x)@1; u = f32[4] dot_general(t, y)@2; ROOT z = f32[4] return(u)",
        "n = f32[4] negate(p); ROOT u.1 = f32[4] dot(n, q)@2",
        f"was rewritten by {IMPORT} as negate"),
    "the only result": (
        "t = f32[4] tanh(x)@1; ROOT z = f32[4] return(t)",
        "ROOT n = f32[4] negate(p)",
        f"was rewritten by {IMPORT} as negate"),
    "the only result is a tuple now": (
        "t = f32[4] tanh(x)@1; ROOT z = f32[4] return(t)",
        "n = f32[4] negate(p); ROOT r = (f32[4]) tuple(n)",
        f"was rewritten by {IMPORT} as tuple"),
    "the second of two results": (
        "t = f32[4] tanh(x)@1; ROOT z = f32[4] return(y, t)",
        "n = f32[4] negate(p); ROOT r = (f32[4], f32[4]) tuple(q, n)",
        f"was rewritten by {IMPORT} as negate"),
    "two results, of which there are three": (
        "t = f32[4] tanh(x)@1; ROOT z = f32[4] return(y, t)",
        "n = f32[4] negate(p); ROOT r = (f32[4], f32[4], f32[4]) tuple(q, n, n)",
        f"is gone since {IMPORT}; how is unknown"),
    "two results, and no tuple": (
        "t = f32[4] tanh(x)@1; ROOT z = f32[4] return(y, t)",
        "n = f32[4] negate(p); ROOT r = (f32[4], f32[4]) custom-call(q, n)",
        f"is gone since {IMPORT}; how is unknown"),
    "operands were swapped": (
        "t = f32[4] tanh(x)@1; u = f32[4] add(t, y)@2; ROOT z = f32[4] return(u)",
        "n = f32[4] negate(p); ROOT u.1 = f32[4] add(q, n)@2",
        f"was rewritten by {IMPORT} as negate"),
    "operands were swapped with an operation": (
        "s = f32[4] sine(y)@3; t = f32[4] tanh(x)@1; u = f32[4] add(t, s)@2;"
        " ROOT z = f32[4] return(u)",
        "s.1 = f32[4] sine(q)@3; n = f32[4] negate(p); ROOT u.1 = f32[4] add(s.1, n)@2",
        f"was rewritten by {IMPORT} as negate"),
    "another argument is not the one before": (
        "w = f32[4] parameter(2); t = f32[4] tanh(x)@1; u = f32[4] add(t, y)@2;"
        " ROOT z = f32[4] return(u)",
        "n = f32[4] negate(q); ROOT u.1 = f32[4] add(p, n)@2",
        f"was simplified away by {IMPORT}: parameter %p took its place"),
}  # fmt: skip


@pytest.mark.parametrize("what", IMPORTED)
def test_before_the_first_pass(what: str) -> None:
    before, after, said = IMPORTED[what]
    assert told(gone(f"{P}; {after}", stablehlo=f"{ARGUMENTS}; {before}")) == said


def test_an_element_of_a_tuple_argument_is_an_argument() -> None:
    """The first dump may have one argument for all; StableHLO has one for each."""
    before = f"{ARGUMENTS}; t = f32[4] tanh(x)@1; u = f32[4] log(t)@2; ROOT z = f32[4] return(u)"
    after = "p = (f32[4], f32[4]) parameter(0); e = f32[4] get-tuple-element(p), index=0;"
    after += " ROOT u.1 = f32[4] log(e)@2"
    assert told(gone(after, stablehlo=before)) == (
        f"was simplified away by {IMPORT}: get-tuple-element %e took its place"
    )
    after = f"{P}; c = (f32[4], f32[4]) custom-call(p); e = f32[4] get-tuple-element(c), index=0;"
    after += " ROOT u.1 = f32[4] log(e)@2"
    assert told(gone(after, stablehlo=before)) == (
        f"was rewritten by {IMPORT} as get-tuple-element"
    )


def test_a_return_of_another_function() -> None:
    before = "f: x = f32[4] parameter(0); t = f32[4] tanh(x)@1; ROOT z = f32[4] return(t) |"
    before += " y = f32[4] parameter(0); k = f32[4] call(y), to_apply=f@3;"
    before += " ROOT s = f32[4] return(k)"
    found = gone("p = f32[4] parameter(0); ROOT n = f32[4] negate(p)@4", stablehlo=before)
    assert told(found) == f"is gone since {IMPORT}; how is unknown"


def test_without_origins_nothing_is_said_of_what_was_before() -> None:
    dumps: Any = Dumps(f"{P}; ROOT u.1 = f32[4] log(p)@2")
    text = f"{ARGUMENTS}; t = f32[4] tanh(x)@1; u = f32[4] log(t)@2; ROOT z = f32[4] return(u)"
    source = read(text)
    every = operations(source)
    assert RemovedOperations(every, dumps, source).importing is not None
    dumps.modules[0].origins = None
    assert RemovedOperations(every, dumps, source).importing is None
    source.origins = None
    assert RemovedOperations(every, dumps, source).importing is None
    empty: Any = Dumps()
    assert RemovedOperations(every, empty, read(text)).importing is None
