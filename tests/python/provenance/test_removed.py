"""How an operation was removed, from the dumps around the pass that did: ``fates_gone.py``.

Dumps are written as in ``numbered_hlo.py``; an operation's opcode is that of its first instruction.
"""

from __future__ import annotations

import pytest
from hloscope.analysis.provenance.fates.removed import RemovalStep
from hloscope.hlo import Module, Operation
from numbered_hlo import read

P = "p = f32[4] parameter(0); q = f32[4] parameter(1)"


def operations(*modules: Module) -> list[Operation]:
    opcodes: dict[int, str] = {}
    for module in modules:
        assert module.origins is not None
        for i in module.instructions:
            for o in module.origins.of[i.index]:
                opcodes.setdefault(o.operation, i.opcode)
    return [Operation(n, opcodes.get(n, "tanh")) for n in range(12)]


def step(before: str, after: str, by: str = "fuse") -> RemovalStep:
    a, b = read(before), read(after)
    return RemovalStep(operations(a, b), a, b, by, lambda name: f"maker of {name}")


def told(before: str, after: str, number: int = 1, by: str = "fuse") -> str:
    found = step(before, after, by)
    return found.fate(found.operations[number]).what


GONE = f"{P}; a = f32[4] tanh(p)@1"
UNKNOWN = "is gone since fuse; how is unknown"

# before, after, what is said of operation 1
REPLACED = {
    "no instruction before": (f"{P}; ROOT r = f32[4] log(p)@2", P, UNKNOWN),
    "unused": (f"{GONE}; ROOT r = f32[4] log(p)", f"{P}; ROOT r = f32[4] log(p)",
               "was removed by fuse: nothing used its result"),
    "nameless": (f"{GONE}; ROOT r = f32[4] log(a)",
                 f"{P}; a = f32[4] tanh(p); ROOT r = f32[4] log(a)",
                 "was rewritten by fuse as tanh without a name"),
    "by another opcode under its name": (
        f"{GONE}; ROOT r = f32[4] log(a)", f"{P}; a = f32[4] sine(p); ROOT r = f32[4] log(a)",
        "was rewritten by fuse as sine"),
    "by a new one": (
        f"{GONE}; ROOT r = f32[4] log(a)", f"{P}; b = f32[4] sine(p); ROOT r = f32[4] log(b)",
        "was rewritten by fuse as sine"),
    "by an argument": (
        f"{GONE}; ROOT r = f32[4] log(a)", f"{P}; ROOT r = f32[4] log(q)",
        "was rewritten by fuse as parameter %q, there already"),
    "by its operand": (
        f"{GONE}; ROOT r = f32[4] log(a)", f"{P}; ROOT r = f32[4] log(p)",
        "was simplified away by fuse: parameter %p took its place"),
    "by a constant": (
        f"{GONE}; ROOT r = f32[4] log(a)",
        f"{P}; c = f32[] constant(0); b = f32[4] broadcast(c); ROOT r = f32[4] log(b)",
        "was folded to a constant by fuse"),
    "a constant by a constant": (
        f"{P}; a = f32[4] constant(1)@1; ROOT r = f32[4] log(a)",
        f"{P}; c = f32[4] constant(0); ROOT r = f32[4] log(c)",
        "was folded into another constant by fuse"),
    "numbers by a constant": (
        f"{P}; a = f32[4] iota()@1; ROOT r = f32[4] log(a)",
        f"{P}; c = f32[4] constant(0); ROOT r = f32[4] log(c)",
        "was folded into another constant by fuse"),
    "by numbers": (
        f"{GONE}; ROOT r = f32[4] log(a)", f"{P}; c = f32[4] iota(); ROOT r = f32[4] log(c)",
        "was rewritten by fuse as iota"),
    "by an equal one": (
        f"{GONE}; b = f32[4] tanh(p)@2; ROOT r = f32[4] add(a, b)",
        f"{P}; b = f32[4] tanh(p)@2; ROOT r = f32[4] add(b, b)",
        "was merged by fuse with tanh"),
    "by another part of itself": (
        f"{GONE}; b = f32[4] tanh(p)@1; ROOT r = f32[4] add(a, b)",
        f"{P}; b = f32[4] tanh(p)@1; ROOT r = f32[4] add(b, b)",
        "was rewritten by fuse as tanh %b, there already"),
    "by one of no operation": (
        f"{GONE}; b = f32[4] tanh(p); ROOT r = f32[4] add(a, b)",
        f"{P}; b = f32[4] tanh(p); ROOT r = f32[4] add(b, b)",
        "was rewritten by fuse as tanh %b, there already"),
    "by one of another opcode": (
        f"{GONE}; b = f32[4] sine(q)@2; ROOT r = f32[4] add(a, b)",
        f"{P}; b = f32[4] sine(q)@2; ROOT r = f32[4] add(b, b)",
        "was rewritten by fuse as sine %b, there already"),
    "the second user tells": (
        f"{GONE}; b = f32[4] sine(a); ROOT r = f32[4] log(a)",
        f"{P}; c = f32[4] cosine(p); ROOT r = f32[4] log(c)",
        "was rewritten by fuse as cosine"),
    "the user has another opcode": (
        f"{GONE}; ROOT r = f32[4] log(a)", f"{P}; b = f32[4] sine(p); ROOT r = f32[4] floor(b)",
        UNKNOWN),
    "the user has more operands": (
        f"{GONE}; ROOT r = f32[4] custom-call(a)",
        f"{P}; b = f32[4] sine(p); ROOT r = f32[4] custom-call(b, p)",
        UNKNOWN),
    "operands were swapped": (
        f"{GONE}; ROOT r = f32[4] add(a, q)",
        f"{P}; b = f32[4] sine(p); ROOT r = f32[4] add(q, b)",
        "was rewritten by fuse as sine"),
    "operands were swapped, and it was the second": (
        f"{GONE}; ROOT r = f32[4] add(q, a)",
        f"{P}; b = f32[4] sine(p); ROOT r = f32[4] add(b, q)",
        "was rewritten by fuse as sine"),
    "operands of a difference are not swapped": (
        f"{GONE}; ROOT r = f32[4] subtract(a, q)",
        f"{P}; b = f32[4] sine(p); ROOT r = f32[4] subtract(q, b)",
        "was rewritten by fuse as parameter %q, there already"),
    "another result": (
        f"{P}; ROOT a = f32[4] tanh(p)@1", f"{P}; ROOT b = f32[4] sine(p)",
        "was rewritten by fuse as sine"),
    "the result of a computation that is gone too": (
        "f: x = f32[4] parameter(0); ROOT a = f32[4] tanh(x)@1 | "
        f"{P}; ROOT r = f32[4] call(p), to_apply=f",
        f"{P}; ROOT r = f32[4] log(p)", UNKNOWN),
    "first of a combined one": (
        f"{P}; s = (f32[4], f32[4]) all-reduce(p, q)@2; ROOT a = f32[4] get-tuple-element(s),"
        " index=0@1,3",
        P, "was merged by maker of s with all-reduce"),
    "its own opcode, not its helper's": (
        f"{P}; ROOT r = f32[4] log(b); h = f32[4] convert(p)@1; b = f32[4] sine(q)@0;"
        " k = f32[4] floor(h)",
        f"{P}; ROOT r = f32[4] log(b); b = f32[4] sine(q)@0; k = f32[4] floor(q)",
        "was rewritten by fuse as parameter %q, there already"),
}  # fmt: skip


@pytest.mark.parametrize("what", REPLACED)
def test_what_took_its_place(what: str) -> None:
    before, after, said = REPLACED[what]
    if "combined" in what:
        found = step(before, after)
        said_of = found.fate(Operation(1, "all_reduce")).what
        assert said_of == said
        return
    assert told(before, after) == said


def test_its_own_instruction_tells_before_its_helpers() -> None:
    before = f"{P}; h = f32[4] convert(p)@1; a = f32[4] tanh(h)@1; ROOT r = f32[4] add(a, h)"
    after = f"{P}; b = f32[4] sine(p); ROOT r = f32[4] add(b, q)"
    found = step(before, after)
    other = "was rewritten by fuse as parameter %q, there already"
    assert found.fate(Operation(1, "tanh")).what == "was rewritten by fuse as sine"
    assert found.fate(Operation(1, "convert")).what == other
    assert found.fate(Operation(1, "log")).what == other, "the first"


WHILE = "body: x = f32[4] parameter(0); {} | cond: y = f32[4] parameter(0); {} | "
BODY = "k = f32[4] negate(x)@2; ROOT b = f32[4] sine(k)@3"
LOOP = WHILE.format(BODY, "ROOT n = pred[] constant(1)@5") + (
    f"{P}; ROOT w = f32[4] while(p), body=body, condition=cond@1"
)
TURNS = {
    "once": ("k1 = f32[4] negate(p)@2; ROOT b1 = f32[4] sine(k1)@3",
             "was simplified away by fuse: what its body does stands in its place"),
    "three times": ("k1 = f32[4] negate(p)@2; k2 = f32[4] negate(p)@2; k3 = f32[4] negate(p)@2;"
                    " ROOT b1 = f32[4] sine(k1)@3",
             "was simplified away by fuse: what its body does stands in its place, 3 times"),
    "never": ("ROOT r = f32[4] floor(p)@4", "was rewritten by fuse as floor"),
    "as other operations": ("ROOT r = f32[4] floor(p)@2", "was rewritten by fuse as floor"),
}  # fmt: skip


@pytest.mark.parametrize("what", TURNS)
def test_a_loop_that_its_body_replaced(what: str) -> None:
    after, said = TURNS[what]
    assert told(LOOP, f"{P}; {after}") == said


def test_what_was_around_a_loop_before_is_not_its_body() -> None:
    before = LOOP.replace("ROOT w", "u = f32[4] negate(p)@2; ROOT w")
    after = f"{P}; u = f32[4] negate(p)@2; ROOT r = f32[4] floor(u)"
    assert told(before, after) == "was rewritten by fuse as floor"
    carries = WHILE.format("ROOT t = (f32[4]) tuple(x)@2", "ROOT n = pred[] constant(1)")
    before = f"{carries} {P}; ROOT w = f32[4] while(p), body=body, condition=cond@1"
    after = f"{P}; ROOT t1 = (f32[4]) tuple(p)@2"
    assert told(before, after) == "was rewritten by fuse as tuple"
    call = WHILE.format(BODY, "ROOT n = pred[] constant(1)") + (
        f"{P}; ROOT w = f32[4] call(p), to_apply=body@1"
    )
    after = f"{P}; k1 = f32[4] negate(p)@2; ROOT b1 = f32[4] sine(k1)@3"
    assert told(call, after) == "was rewritten by fuse as sine", "only loops"


def test_the_end_of_a_loop_that_is_gone() -> None:
    text = WHILE.format(BODY, "ROOT n = pred[] less-than(y, y)@1") + (
        f"{P}; ROOT w = f32[4] while(p), body=body, condition=cond"
    )
    assert told(text, f"{P}; ROOT r = f32[4] sine(p)") == (
        "was removed by fuse: the loop whose end it decides is gone"
    )
    renamed = text.replace("cond", "cond.1").replace(" n = ", " n1 = ")
    assert told(text, renamed) == UNKNOWN, "the loop is still there"
    assert told(text, text.replace("n = pred[] less-than", "m = pred[] greater-than")) == (
        "was rewritten by fuse as greater-than"
    )
    body = text.replace("sine(k)@3", "sine(k)@4")
    assert told(body, f"{P}; ROOT r = f32[4] floor(p)", 4) == UNKNOWN, "not its end"


# its users are gone too; before, after, what is said
WITH_USERS = {
    "they were unused": (
        f"{GONE}; b = f32[4] log(a); ROOT r = f32[4] floor(p)", f"{P}; ROOT r = f32[4] floor(p)",
        "was removed by fuse: what used it, log %b, no longer needed it"),
    "they were replaced": (
        f"{GONE}; b = f32[4] log(a); ROOT r = f32[4] floor(b)",
        f"{P}; c = f32[4] sine(q); ROOT r = f32[4] floor(c)",
        "was rewritten by fuse as sine, together with what used it"),
    "two after another were replaced": (
        f"{GONE}; b = f32[4] log(a); c = f32[4] cosine(b); ROOT r = f32[4] floor(c)",
        f"{P}; d = f32[4] sine(q); ROOT r = f32[4] floor(d)",
        "was rewritten by fuse as sine, together with what used it"),
    "they became a constant": (
        f"{GONE}; b = f32[4] log(a); ROOT r = f32[4] floor(b)",
        f"{P}; c = f32[4] constant(0); ROOT r = f32[4] floor(c)",
        "was removed by fuse: what used it, log %b, no longer needed it"),
    "they became a constant, and all it read is one": (
        f"{P}; z = f32[4] constant(1); a = f32[4] tanh(z)@1; b = f32[4] log(a);"
        " ROOT r = f32[4] floor(b)",
        f"{P}; c = f32[4] constant(0); ROOT r = f32[4] floor(c)",
        "was folded to a constant with what used it by fuse"),
    "they were unused, and all it read is a constant": (
        f"{P}; z = f32[4] constant(1); a = f32[4] tanh(z)@1; b = f32[4] log(a);"
        " ROOT r = f32[4] floor(p)",
        f"{P}; ROOT r = f32[4] floor(p)",
        "was removed by fuse: what used it, log %b, no longer needed it"),
    "a constant whose user became one": (
        f"{P}; a = f32[4] constant(1)@1; b = f32[4] log(a); ROOT r = f32[4] floor(b)",
        f"{P}; c = f32[4] constant(0); ROOT r = f32[4] floor(c)",
        "was folded to a constant with what used it by fuse"),
    "of its operands only one is a constant": (
        f"{P}; z = f32[4] constant(1); a = f32[4] add(z, p)@1; b = f32[4] log(a);"
        " ROOT r = f32[4] floor(b)",
        f"{P}; c = f32[4] constant(0); ROOT r = f32[4] floor(c)",
        "was removed by fuse: what used it, log %b, no longer needed it"),
    "they were merged": (
        f"{GONE}; b = f32[4] log(a)@2; c = f32[4] log(q)@3; ROOT r = f32[4] add(b, c)",
        f"{P}; c = f32[4] log(q)@3; ROOT r = f32[4] add(c, c)",
        "was merged by fuse with an equal one, as was what used it"),
    "one unused, one replaced": (
        f"{GONE}; b = f32[4] log(a); c = f32[4] cosine(a); ROOT r = f32[4] floor(c)",
        f"{P}; d = f32[4] sine(q); ROOT r = f32[4] floor(d)",
        "was rewritten by fuse as sine, together with what used it"),
    "only the fifth user tells": (
        f"{GONE}; " + "".join(f"b{k} = f32[4] custom-call(a, p); " for k in range(4))
        + "c = f32[4] cosine(a); ROOT r = f32[4] floor(c)",
        f"{P}; " + "".join(f"b{k} = f32[4] custom-call(p); " for k in range(4))
        + "d = f32[4] sine(q); ROOT r = f32[4] floor(d)",
        UNKNOWN),
    "only the fourth user tells": (
        f"{GONE}; " + "".join(f"b{k} = f32[4] custom-call(a, p); " for k in range(3))
        + "c = f32[4] cosine(a); ROOT r = f32[4] floor(c)",
        f"{P}; " + "".join(f"b{k} = f32[4] custom-call(p); " for k in range(3))
        + "d = f32[4] sine(q); ROOT r = f32[4] floor(d)",
        "was rewritten by fuse as sine, together with what used it"),
    "only the result of all holds it": (
        f"{GONE}; ROOT r = (f32[4], f32[4]) tuple(a, p)", f"{P}; ROOT s = (f32[4]) tuple(p)",
        UNKNOWN),
    "another tuple held it": (
        f"{GONE}; t = (f32[4], f32[4]) tuple(a, p); ROOT r = f32[4] custom-call(t)",
        f"{P}; s = (f32[4]) tuple(q); ROOT r = f32[4] custom-call(s)",
        "was rewritten by fuse as tuple, together with what used it"),
}  # fmt: skip


@pytest.mark.parametrize("what", WITH_USERS)
def test_what_was_removed_with_its_users(what: str) -> None:
    before, after, said = WITH_USERS[what]
    assert told(before, after) == said


@pytest.mark.parametrize(
    ("by", "said"),
    [("dce", "was removed by dce: nothing used its result"),
     ("dce.2", "was removed by dce.2: nothing used its result"),
     ("hlo-module-dce", "was removed by hlo-module-dce: nothing used its result"),
     ("tuple-simplifier", "was removed by tuple-simplifier: nothing used its result"),
     ("my-dce", "is gone since my-dce; how is unknown")],
)  # fmt: skip
def test_passes_that_only_remove(by: str, said: str) -> None:
    text = f"{GONE}; ROOT r = (f32[4], f32[4]) tuple(a, p)"
    assert told(text, f"{P}; ROOT r = (f32[4]) tuple(p)", by=by) == said


@pytest.mark.parametrize(("length", "known"), [(12, True), (13, False)])
def test_twelve_users_after_another_are_followed(length: int, known: bool) -> None:
    chain = "; ".join(f"x{k} = f32[4] log(x{k - 1})" for k in range(1, length + 1))
    before = f"{P}; x0 = f32[4] tanh(p)@1; {chain}; ROOT r = f32[4] floor(x{length})"
    after = f"{P}; y = f32[4] sine(q); ROOT r = f32[4] floor(y)"
    said = "was rewritten by fuse as sine, together with what used it"
    assert told(before, after) == (said if known else UNKNOWN)


NEEDED = "was removed by fuse: what used it, {} %s, no longer needed it"
# of what chose among operands, one was left; before without GONE, after without P
CHOICES = {
    "the other branch": (
        "s = f32[4] select(m, a, q); ROOT r = f32[4] floor(s)", "ROOT r = f32[4] floor(q)",
        NEEDED.format("select")),
    "the condition": (
        "s = f32[4] select(a, q, q); ROOT r = f32[4] floor(s)", "ROOT r = f32[4] floor(q)",
        "was simplified away by fuse: parameter %q took its place, together with what used it"),
    "its own operand": (
        "s = f32[4] select(m, a, q); ROOT r = f32[4] floor(s)", "ROOT r = f32[4] floor(p)",
        "was simplified away by fuse: parameter %p took its place, together with what used it"),
    "something else": (
        "s = f32[4] select(m, a, q); ROOT r = f32[4] floor(s)", "ROOT r = f32[4] floor(m)",
        "was simplified away by fuse: parameter %m took its place, together with what used it"),
    "what only the other branch was computed from": (
        "u = f32[4] sine(v); s = f32[4] select(m, a, u); ROOT r = f32[4] floor(s)",
        "ROOT r = f32[4] floor(v)",
        NEEDED.format("select")),
    "what both were computed from": (
        "u = f32[4] sine(p); s = f32[4] select(m, a, u); ROOT r = f32[4] floor(s)",
        "ROOT r = f32[4] floor(p)",
        "was simplified away by fuse: parameter %p took its place, together with what used it"),
    "a new one of the other": (
        "s = f32[4] select(m, a, q); ROOT r = f32[4] floor(s)",
        "n = f32[4] negate(q); ROOT r = f32[4] floor(n)",
        NEEDED.format("select")),
    "a new one of both": (
        "s = f32[4] select(m, a, q); ROOT r = f32[4] floor(s)",
        "n = f32[4] atan2(q, p); ROOT r = f32[4] floor(n)",
        "was rewritten by fuse as atan2, together with what used it"),
    "a new one of none": (
        "s = f32[4] select(m, a, q); ROOT r = f32[4] floor(s)",
        "n = f32[4] iota(); ROOT r = f32[4] floor(n)",
        "was rewritten by fuse as iota, together with what used it"),
    "the first of those joined": (
        "s = f32[8] concatenate(a, q); ROOT r = f32[8] floor(s)", "ROOT r = f32[8] floor(q)",
        NEEDED.format("concatenate")),
    "a sum does not choose": (
        "s = f32[4] atan2(a, q); ROOT r = f32[4] floor(s)", "ROOT r = f32[4] floor(q)",
        "was simplified away by fuse: parameter %q took its place, together with what used it"),
    "what chose was used by what is gone": (
        "s = f32[8] concatenate(a, q); t = f32[8] negate(s); ROOT r = f32[8] floor(t)",
        "n = f32[8] negate(q); ROOT r = f32[8] floor(n)",
        NEEDED.format("concatenate")),
}  # fmt: skip


@pytest.mark.parametrize("what", CHOICES)
def test_what_was_not_chosen(what: str) -> None:
    before, after, said = CHOICES[what]
    more = "; m = pred[4] parameter(2); v = f32[4] parameter(3)"
    before = f"{P}{more}; a = f32[4] tanh(p)@1; {before}"
    assert told(before, f"{P}{more}; {after}") == said


ABSORBED = "was rewritten by fuse into dot (%e), which reads its operand"
OPERANDS = {
    "what it read": ("e = f32[4] dot(p, q)@2; ROOT r = f32[4] ceil(e)", ABSORBED),
    "what it read, second": ("e = f32[4] dot(q, p)@2; ROOT r = f32[4] ceil(e)", ABSORBED),
    "something else": ("e = f32[4] dot(q, q)@2; ROOT r = f32[4] ceil(e)", UNKNOWN),
    "in another operation": ("e = f32[4] dot(p, q)@3; ROOT r = f32[4] ceil(e)", UNKNOWN),
    "by another opcode": ("e = f32[4] multiply(p, q)@2; ROOT r = f32[4] ceil(e)", UNKNOWN),
}  # fmt: skip


@pytest.mark.parametrize("what", OPERANDS)
def test_a_user_reads_its_operand_directly(what: str) -> None:
    after, said = OPERANDS[what]
    before = f"{P}; a = f32[4] transpose(p)@1; d = f32[4] dot(a, q)@2; ROOT r = f32[4] floor(d)"
    assert told(before, f"{P}; {after}") == said


def test_what_was_rewired() -> None:
    text = f"{GONE}; b = f32[4] sine(a); ROOT r = f32[4] add(a, b)"
    found = step(text, f"{GONE}; b = f32[4] sine(a); ROOT r = f32[4] add(q, b)")
    a = found.before.find("a")
    assert a is not None
    fate = found.rewired(found.operations[1], [a])
    assert fate is not None
    assert fate.what == "was rewritten by fuse as parameter %q, there already"
    same = step(text, text)
    assert same.rewired(found.operations[1], [*same.before.instructions]) is None
