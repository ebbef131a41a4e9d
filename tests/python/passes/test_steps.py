"""Instructions followed from dump to dump: each rule of ``follow.py`` on a few lines.

Dumps are written as in ``pass_dumps.py``. Nodes are numbered as they appear, so those of the first
dump are 0, 1, … from left to right.
"""

from __future__ import annotations

import pytest
from hloscope.analysis.passes.follow import PassWalk, follow
from hloscope.analysis.passes.steps import (
    ATTRIBUTES,
    BORN,
    LAYOUT,
    OPCODE,
    OPERANDS,
    RENAMED,
    RESULT,
    SHAPE,
    SOURCE,
    USERS,
    Steps,
)
from hloscope.readers.hlo.pass_lines import Reader
from pass_dumps import dump


def steps(*dumps: str) -> Steps:
    texts = [d if d.startswith("HloModule") else dump(d) for d in dumps]
    return follow([lambda text=text: text for text in texts])


def lives(found: Steps) -> list[tuple[str, int, int]]:
    return [(found.name(n), n.first, n.last) for n in found.nodes]


def listed(found: Steps, row: int) -> list[str]:
    """The lines that a pass changed, with their signs."""
    return [
        f"{kind}{found.versions[v].line.name}"
        for _, lines in found.diffs[row]
        for kind, v in lines
        if kind != " "
    ]


def links(found: Steps) -> set[tuple[int, int, int, int]]:
    assert len({*found.links}) == len(found.links), "each is told once"
    return {(x.row, x.old, x.new, x.how) for x in found.links}


P = "p = f32[2]{0} parameter(0); q = f32[2]{0} parameter(1)"

# a line, the same one after the pass, what is said to have changed
CHANGES = {
    "nothing": ("a = f32[2]{0} tanh(p)", "a = f32[2]{0} tanh(p)", None),
    "only its metadata": ("a = f32[2]{0} tanh(p)", "a = f32[2]{0} tanh(p)@f", None),
    "the opcode": ("a = f32[2]{0} tanh(p)", "a = f32[2]{0} sine(p)", OPCODE),
    "the shape": ("a = f32[2]{0} tanh(p)", "a = f32[3]{0} tanh(p)", SHAPE),
    "the layout": ("a = f32[2]{0} tanh(p)", "a = f32[2]{0:T(8)} tanh(p)", LAYOUT),
    "an operand": ("a = f32[2]{0} tanh(p)", "a = f32[2]{0} tanh(q)", OPERANDS),
    "the order of operands": ("a = f32[2]{0} add(p, q)", "a = f32[2]{0} add(q, p)", OPERANDS),
    "a constant's value": ("a = f32[] constant(1)", "a = f32[] constant(2)", OPERANDS),
    "how operands are written": ("a = f32[2]{0} tanh(p)", "a = f32[2]{0} tanh(f32[2] p)", 0),
    "an attribute": ("a = s32[] iota(), dim=0", "a = s32[] iota(), dim=1", ATTRIBUTES),
    "it is the result": ("a = f32[] constant(1)", "ROOT a = f32[] constant(1)", ATTRIBUTES),
    "three things": ("a = f32[2]{0} tanh(p)", "a = f32[] add(p, q), x=1",
                     OPCODE | SHAPE | OPERANDS | ATTRIBUTES),
}  # fmt: skip


@pytest.mark.parametrize("what", CHANGES)
def test_what_changed(what: str) -> None:
    before, after, bits = CHANGES[what]
    found = steps(f"{P}; {before}", f"{P}; {after}")
    assert lives(found) == [("p", 0, 2), ("q", 0, 2), ("a", 0, 2)]
    versions = [found.versions[v] for v in found.nodes[2].versions]
    assert [(v.row, v.changed) for v in versions] == [(0, BORN)] + (
        [] if bits is None else [(1, bits)]
    )
    assert listed(found, 1) == (["-a", "+a"] if bits else [])
    assert versions[-1].line.op_name == ("f" if "metadata" in what else "")
    assert found.diffs[0] == []


CHAIN = "{} = f32[2] parameter(0); {} = f32[{}] tanh({})@f/tanh; ROOT {} = f32[2] sine({})@f/sin"


def chain(p: str, a: str, b: str, size: int) -> str:
    return CHAIN.format(p, a, size, p, b, a)


def test_only_new_names_are_no_change_of_the_text() -> None:
    found = steps(chain("p", "a", "b", 2), chain("x", "y", "z", 2))
    assert lives(found) == [("x", 0, 2), ("y", 0, 2), ("z", 0, 2)]
    assert [found.versions[n.versions[1]].changed for n in found.nodes] == [RENAMED] * 3
    assert found.diffs == [[], []]
    assert not found.links


def test_what_changed_beside_its_name_is_listed() -> None:
    found = steps(chain("p", "a", "b", 2), chain("x", "y", "z", 3))
    assert [found.versions[n.versions[1]].changed for n in found.nodes] == [
        RENAMED, RENAMED | SHAPE, RENAMED,
    ]  # fmt: skip
    assert listed(found, 1) == ["-a", "+y"]


def test_names_that_were_given_out_again() -> None:
    """Of four instructions two have new names, so all was written anew."""
    text = (
        "{0} = f32[] parameter(0); {1} = f32[] tanh({0})@f/tanh; {2} = f32[] sine({1})@f/sin; {3}"
    )
    first = text.format("p", "a", "b", "ROOT r = f32[] log(b)@f/log")
    swapped = text.format("p1", "b", "a", "ROOT r1 = f32[] log(a)@f/log")
    assert lives(steps(first, swapped)) == [("p1", 0, 2), ("b", 0, 2), ("a", 0, 2), ("r1", 0, 2)]
    another = text.format("p1", "c", "a", "ROOT r1 = f32[] exponential(a)@f/exp")
    assert lives(steps(first, another)) == [
        ("p1", 0, 2), ("c", 0, 2), ("a", 0, 2), ("r", 0, 1), ("r1", 1, 2),
    ]  # fmt: skip
    taken = text.format("p1", "c", "b1", "ROOT a = f32[] exponential(b1)@f/exp")
    assert lives(steps(first, taken))[3:] == [("r", 0, 1), ("a", 1, 2)]


def test_when_each_appeared_and_was_removed() -> None:
    found = steps(
        "p = f32[] parameter(0); ROOT a = f32[] tanh(p)",
        "p = f32[] parameter(0); b = f32[] sine(p); ROOT a = f32[] tanh(p)",
        "p = f32[] parameter(0); b = f32[] sine(p); ROOT a = f32[] tanh(b)",
        "p = f32[] parameter(0); c = f32[] log(p); b = f32[] sine(c); ROOT d = f32[] copy(b)",
    )
    assert lives(found) == [("p", 0, 4), ("a", 0, 3), ("b", 1, 4), ("c", 3, 4), ("d", 3, 4)]
    assert [listed(found, row) for row in range(4)] == [
        [], ["+b"], ["-a", "+a"], ["+c", "-b", "+b", "+d", "-a"],
    ]  # fmt: skip
    [place] = found.places
    assert (place.first, place.last, place.entry) == (0, 4, True)
    assert [found.name(found.nodes[n]) for n in place.order] == ["p", "c", "b", "d", "a"]
    assert found.rows == 4


def test_new_ones_come_behind_what_is_printed_before_them() -> None:
    found = steps(
        "p = f32[] parameter(0); ROOT a = f32[] tanh(p)",
        "x = f32[] constant(1); y = f32[] constant(2); p = f32[] parameter(0);"
        " u = f32[] sine(p); v = f32[] cosine(p); ROOT a = f32[] tanh(p); z = f32[] log(a)",
        "p = f32[] parameter(0); w = f32[] floor(p); ROOT a = f32[] tanh(p)",
    )
    order = [found.name(found.nodes[n]) for n in found.places[0].order]
    assert order == ["x", "y", "p", "w", "u", "v", "a", "z"]


INNER = "x = f32[] parameter(0); ROOT n = f32[] {}(x)"


def test_a_computation_that_is_gone_ends_with_all_in_it() -> None:
    entry = "p = f32[] parameter(0); ROOT c = f32[] call(p), to_apply=%f"
    plain = "p = f32[] parameter(0); ROOT c = f32[] negate(p)"
    found = steps(
        dump(entry, f=INNER.format("negate")),
        dump(entry, f=INNER.format("negate")),
        dump(plain),
        dump(entry, f=INNER.format("negate")),
    )
    assert [(p.name, p.first, p.last) for p in found.places] == [
        ("f", 0, 2), ("e", 0, 4), ("f", 3, 4),
    ]  # fmt: skip
    assert lives(found) == [
        ("x", 0, 2), ("n", 0, 2), ("p", 0, 4), ("c", 0, 4), ("x", 3, 4), ("n", 3, 4),
    ]  # fmt: skip
    assert listed(found, 2) == ["-x", "-n", "-c", "+c"]
    assert listed(found, 3) == ["+x", "+n", "-c", "+c"]
    assert [place for place, _ in found.diffs[3]] == [2, 1]


def test_names_of_a_computation() -> None:
    """Its contents are the same each time, so it is followed by them."""
    entry = "p = f32[] parameter(0); ROOT c = f32[] call(p), to_apply=%{}"
    found = steps(*(dump(entry.format(n), **{n: INNER.format("negate")}) for n in "fffgh"))
    assert found.places[0].names() == [(0, 3, "f"), (3, 4, "g"), (4, 5, "h")]
    assert found.places[1].names() == [(0, 5, "e")]
    assert found.places[0].name == "h"


# before, after, (old, new, how): nodes by their numbers
PLACES: dict[str, tuple[str, str, set[tuple[int, int, int]]]] = {
    "a user reads another": (
        "p = f32[] parameter(0); a = f32[] tanh(p); ROOT r = f32[] log(a)",
        "p = f32[] parameter(0); b = f32[] sine(p); ROOT r = f32[] log(b)",
        {(1, 3, USERS)},
    ),
    "the second operand is another": (
        "p = f32[] parameter(0); a = f32[] tanh(p); ROOT r = f32[] add(p, a)",
        "p = f32[] parameter(0); b = f32[] sine(p); ROOT r = f32[] add(p, b)",
        {(1, 3, USERS)},
    ),
    "what was read before is still there": (
        "p = f32[] parameter(0); a = f32[] tanh(p); ROOT r = f32[] log(a)",
        "p = f32[] parameter(0); a = f32[] tanh(p); b = f32[] sine(a); ROOT r = f32[] log(b)",
        set(),
    ),
    "the user has more operands": (
        "p = f32[] parameter(0); a = f32[] tanh(p); ROOT r = f32[] tuple(a)",
        "p = f32[] parameter(0); b = f32[] sine(p); ROOT r = f32[] tuple(b, p)",
        set(),
    ),
    "the first instruction was read": (
        "a = f32[] constant(1); p = f32[] parameter(0); ROOT r = f32[] add(a, p)",
        "b = f32[] iota(); p = f32[] parameter(0); ROOT r = f32[] add(b, p)",
        {(0, 3, USERS)},
    ),
    "another result": (
        "p = f32[] parameter(0); q = f32[] parameter(1); ROOT a = f32[] tanh(p)",
        "p = f32[] parameter(0); q = f32[] parameter(1); ROOT b = f32[] sine(p)",
        {(2, 3, RESULT)},
    ),
    "the result is still there": (
        "p = f32[] parameter(0); ROOT a = f32[] tanh(p)",
        "p = f32[] parameter(0); a = f32[] tanh(p); ROOT b = f32[] sine(a)",
        set(),
    ),
    "the first instruction was the result": (
        "ROOT a = f32[] constant(1); p = f32[] parameter(0); q = f32[] parameter(1)",
        "ROOT b = f32[] iota(); p = f32[] parameter(0); q = f32[] parameter(1)",
        {(0, 3, RESULT)},
    ),
    "the first instruction became the result": (
        "p = f32[] parameter(0); q = f32[] parameter(1); ROOT a = f32[] tanh(p)",
        "ROOT p = f32[] parameter(0); q = f32[] parameter(1)",
        {(2, 0, RESULT)},
    ),
    "no result before": (
        "p = f32[] parameter(0); q = f32[] parameter(1)",
        "p = f32[] parameter(0); q = f32[] parameter(1); ROOT b = f32[] sine(p)",
        set(),
    ),
    "no result after": (
        "p = f32[] parameter(0); q = f32[] parameter(1); ROOT a = f32[] tanh(p)",
        "p = f32[] parameter(0); q = f32[] parameter(1)",
        set(),
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", PLACES)
def test_what_took_the_place_of_what(what: str) -> None:
    before, after, want = PLACES[what]
    assert links(steps(before, after)) == {(1, *x) for x in want}


# Nothing uses them, so only op names tell; "a:tanh:f" is an instruction, its opcode and op name.
SOURCES = {
    "the same opcode and op name": ("a:tanh:f", "b:tanh:f", {("a", "b")}),
    "another opcode": ("a:tanh:f", "b:sine:f", {("a", "b")}),
    "another op name": ("a:tanh:f", "b:tanh:g", set()),
    "no op name": ("a:tanh:", "b:tanh:", set()),
    "of two the one of the same opcode": ("a:tanh:f c:sine:f", "b:sine:f", {("c", "b")}),
    "one by two": ("a:tanh:f", "b:tanh:f c:tanh:f", {("a", "b"), ("a", "c")}),
    "four by one": ("a:tanh:f c:tanh:f d:tanh:f e:tanh:f", "b:tanh:f",
                    {("a", "b"), ("c", "b"), ("d", "b"), ("e", "b")}),
    "five by one": ("a:tanh:f c:tanh:f d:tanh:f e:tanh:f g:tanh:f", "b:tanh:f", set()),
}  # fmt: skip


def sources(text: str) -> str:
    made = [x.split(":") for x in text.split()]
    return "".join(f"; {n} = f32[] {opcode}(p)@{f}" for n, opcode, f in made)


@pytest.mark.parametrize("what", SOURCES)
def test_what_has_the_op_name_of_what_is_gone(what: str) -> None:
    before, after, want = SOURCES[what]
    # five that stay, so that the dump was not written anew
    kept = "; ".join(f"k{k} = f32[] parameter({k})" for k in range(5)) + "; ROOT p = f32[] tuple()"
    found = steps(kept + sources(before), kept + sources(after))
    assert {(found.name(found.nodes[x.old]), found.name(found.nodes[x.new])) for x in
            found.links} == want  # fmt: skip
    assert len(found.links) == len(want)
    assert all((x.row, x.how) == (1, SOURCE) for x in found.links)


# before, after: what is paired already, and by whom
TOLD: dict[str, tuple[str, str, set[tuple[int, int, int]]]] = {
    "once is enough": (
        "a = f32[] tanh(p)@f; ROOT r = f32[] log(a)",
        "b = f32[] tanh(p)@f; ROOT r = f32[] log(b)",
        {(2, 4, USERS)},
    ),
    "the new one stands for another": (
        "a = f32[] tanh(p)@f; c = f32[] cosine(p)@g; ROOT r = f32[] log(c)",
        "b = f32[] sine(p)@f; ROOT r = f32[] log(b)",
        {(3, 5, USERS)},
    ),
    "another stands for the old one": (
        "a = f32[] tanh(p)@f; ROOT r = f32[] log(a)",
        "b = f32[] sine(p)@f; c = f32[] cosine(p)@g; ROOT r = f32[] log(c)",
        {(2, 5, USERS)},
    ),
    "the same opcode counts all the same": (
        "a = f32[] tanh(p)@f; ROOT r = f32[] log(a)",
        "b = f32[] tanh(p)@f; c = f32[] cosine(p)@g; ROOT r = f32[] log(c)",
        {(2, 5, USERS), (2, 4, SOURCE)},
    ),
}


@pytest.mark.parametrize("what", TOLD)
def test_op_names_tell_what_users_do_not(what: str) -> None:
    before, after, want = TOLD[what]
    kept = "p = f32[] parameter(0); q = f32[] parameter(1); "
    assert links(steps(kept + before, kept + after)) == {(1, *x) for x in want}


def test_links_of_an_earlier_pass_do_not_count() -> None:
    """``b`` took the place of ``a``; one pass later ``c`` has the op name of ``b``."""
    text = "p = f32[] parameter(0); q = f32[] parameter(1); {} ROOT r = f32[] log({})"
    found = steps(
        text.format("a = f32[] tanh(p);", "a"),
        text.format("b = f32[] sine(p)@f;", "b"),
        text.format("c = f32[] cosine(p)@f; d = f32[] tanh(p);", "d"),
        text.format("", "p"),
    )
    assert links(found) == {(1, 2, 4, USERS), (2, 4, 6, USERS), (3, 6, 0, USERS)}
    found = steps(
        text.format("a = f32[] tanh(p);", "a"),
        text.format("b = f32[] sine(p)@f;", "b"),
        text.format("c = f32[] cosine(p)@f;", "p"),
    )
    assert links(found) == {(1, 2, 4, USERS), (2, 4, 0, USERS)}


def test_progress_is_told_before_each_dump_and_may_stop() -> None:
    told: list[tuple[int, int]] = []
    texts = [lambda: dump("p = f32[] parameter(0)")] * 3
    follow(texts, lambda done, of: told.append((done, of)))
    assert told == [(0, 3), (1, 3), (2, 3)]

    def stop(done: int, of: int) -> None:
        if done == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        follow(texts, stop)


def test_what_is_there_lasts_while_dumps_are_still_read() -> None:
    """Of three dumps two were read: identities are found meanwhile."""
    walk, reader = PassWalk(3), Reader()
    walk.step(0, reader.read(dump("p = f32[] parameter(0); ROOT a = f32[] tanh(p)")))
    walk.step(1, reader.read(dump("p = f32[] parameter(0); ROOT b = f32[] sine(p)")))
    assert lives(walk.steps) == [("p", 0, 3), ("a", 0, 1), ("b", 1, 3)]
