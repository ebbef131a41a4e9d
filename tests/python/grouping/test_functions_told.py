"""Groups by the user's functions, by hand: both sides of every bound, and a slow twin."""

from __future__ import annotations

import random

import hloscope as hs
import numpy as np
import pytest
from hloscope.analysis.base.lines.op_name import CALLED, FORWARD
from hloscope.analysis.base.table import Table, table
from hloscope.analysis.grouping.functions import (
    LEAST_STEPS,
    MOST_STEPS,
    TAKEN_IN,
    Budget,
    _Cut,
    calls,
    cut_by_calls,
)
from hloscope.analysis.grouping.group_nodes import Node
from stacked import Stack, Stacks, chain_of


def made(line: int, *functions: str) -> Stack:
    """Line ``line`` of ``step``, which calls these in one another."""
    return [("step", line), *((name, 100 + line) for name in functions)]


A, B, C = made(1, "a"), made(2, "b"), made(3, "c")


def cut(
    steps: list[Stack | None],
    node: Node | None = None,
    quiet: tuple[int, ...] = (),
    stay: tuple[int, ...] = (),
    budget: Budget | None = None,
) -> tuple[dict[str, list[int]], list[int]]:
    """Groups of a chain of such steps by label, and what is left; numbers of steps."""
    module = hs.read(chain_of(Stacks(), steps)).module
    t = table(module)
    row = {i.name: i.index for i in module.instructions}
    number = {row[f"i{k}"]: k for k in range(len(steps))}
    node = node or Node("entry", "main", module.entry.index)
    node.members = np.array(sorted(number), np.int64)
    for child in node.children:  # they are given in numbers of steps
        child.members = np.array([row[f"i{k}"] for k in child.members.tolist()], np.int64)
        node.members = np.setdiff1d(node.members, child.members)
    marks = [np.zeros(len(row), bool), np.zeros(len(row), bool)]
    for mark, given in zip(marks, (quiet, stay), strict=True):
        mark[[row[f"i{k}"] for k in given]] = True
    cut_by_calls(node, t, marks[0], calls(module), budget or Budget(len(row)), marks[1])
    found: dict[str, list[int]] = {}
    for child in node.children:
        label = child.label
        while label in found:
            label += "'"
        found[label] = [number[r] for r in child.members.tolist()]
    return found, [number[r] for r in node.members.tolist()]


def span(begin: int, end: int) -> list[int]:
    return list(range(begin, end))


def test_twelve_boxes_stay_and_thirteen_are_cut() -> None:
    assert cut([A] * 6 + [B] * 6) == ({}, span(0, 12))
    assert cut([A] * 6 + [B] * 7) == ({"a": span(0, 6), "b": span(6, 13)}, [])
    assert cut([A] * 6 + [B] * 7, quiet=(3,)) == ({}, span(0, 13))  # not drawn, not counted


def test_a_group_has_three_boxes() -> None:
    assert cut([A] * 2 + [B] * 5 + [C] * 7) == ({"b": span(2, 7), "c": span(7, 14)}, [0, 1])
    assert cut([A] * 3 + [B] * 5 + [C] * 7)[1] == []
    found, left = cut([A] * 3 + [B] * 5 + [C] * 7, quiet=(1,))
    assert (sorted(found), left) == (["b", "c"], span(0, 3))


def test_a_call_that_is_four_fifths_of_a_group_is_examined_instead() -> None:
    inner = [made(1, "a", "p")] * 8 + [made(1, "a", "q")] * 8
    found, left = cut([*inner, *[B] * 4])
    assert found == {"p": span(0, 8), "q": span(8, 16)}
    assert left == span(16, 20)  # b is beside what was examined
    found, left = cut([*inner[:-1], *[B] * 4])  # 15 of 19
    assert found == {"a": span(0, 15), "b": span(15, 19)}
    assert left == []


def test_two_functions_side_by_side_are_two_groups() -> None:
    """Nothing is around them; frame 1 is as good as any."""
    steps: list[Stack | None] = [[("f", 1)]] * 7 + [[("g", 2)]] * 7
    assert cut(steps) == ({"f": span(0, 7), "g": span(7, 14)}, [])
    module = hs.read(chain_of(Stacks(), steps)).module
    assert calls(module).chains == (((0, "f"), (1, "")), ((0, "g"), (2, "")))
    assert calls(module).chain.tolist() == [0] * 8 + [1] * 7 + [1]


def test_calls_of_one_function_by_two_lines_are_two_groups() -> None:
    again = made(7, "a")
    assert cut([A] * 7 + [again] * 7) == ({"a": span(0, 7), "a'": span(7, 14)}, [])


def lines(*counts: int) -> list[Stack | None]:
    """That many operations of each of the first lines of one function."""
    return [made(1 + k) for k, n in enumerate(counts) for _ in range(n)]


def test_more_than_twenty_unnamed_boxes_are_cut_by_line_and_named_ones_from_sixty_five() -> None:
    assert cut(lines(10, 10)) == ({}, span(0, 20))
    assert cut(lines(10, 11))[0] == {"step, line 1": span(0, 10), "step, line 2": span(10, 21)}
    for path, most in (((FORWARD,), 20), ((FORWARD, "mlp"), 64)):
        for boxes in (most, most + 1):
            node = Node("scope", "mlp", 0, path=path)
            found, _ = cut(lines(boxes // 2, boxes - boxes // 2), node)
            assert len(found) == (2 if boxes > most else 0)


def test_a_line_that_is_nearly_all_is_no_group_where_it_would_be_alone() -> None:
    assert cut(lines(20, 5))[0] == {"step, line 1": span(0, 20), "step, line 2": span(20, 25)}
    assert cut(lines(21, 5))[0] == {}
    beside = Node("scope", "mlp", 0, members=np.arange(26, 30))
    found, _ = cut([*lines(21, 5), *[None] * 4], Node("entry", "main", 0, children=[beside]))
    assert found["step, line 1"] == span(0, 21)


def test_a_group_is_smaller_than_what_it_is_cut_from() -> None:
    for most, n in ((38, 2), (39, 1)):  # 95 of 100, and more
        beside = Node("scope", "mlp", 0, members=np.arange(40, 44))
        node = Node("entry", "main", 0, children=[beside])
        found, left = cut([*lines(most, 40 - most), *[None] * 4], node)
        assert found == {"mlp": span(40, 44)} | ({"step, line 1": span(0, 38)} if n == 2 else {})
        assert left == (span(38, 40) if n == 2 else span(0, 40))


def test_a_little_of_another_is_taken_in() -> None:
    """Three boxes between the twenty of a call are 15 %; four are more."""
    three = [A] * 10 + [B] * 3 + [A] * 10 + [C] * 9
    assert cut(three) == ({"a": span(0, 23), "c": span(23, 32)}, [])
    found, left = cut([A] * 10 + [B] * 4 + [A] * 10 + [C] * 9)
    assert found == {"a": span(0, 10), "b": span(10, 14), "a'": span(14, 24), "c": span(24, 33)}
    assert left == []
    found, left = cut([A] * 10 + [B] * 4 + [A] * 10 + [C] * 9, quiet=(12,))
    assert found == {"a": span(0, 24), "c": span(24, 33)}


def test_what_another_group_has_is_not_taken_in() -> None:
    found, left = cut([B] * 10 + [A] + [B] * 10 + [A] * 10)
    assert found == {"b": span(0, 21), "a": span(21, 31)}
    assert left == []


@pytest.mark.parametrize(("times", "groups"), [(1, 1), (2, 2), (3, 3), (4, 2)])
def test_a_call_in_several_places_is_at_most_three_groups(times: int, groups: int) -> None:
    found, _ = cut([*([A] * 4 + [C] * 6) * times, *[B] * 20])
    mine = [rows for label, rows in found.items() if label.startswith("a")]
    assert mine == [span(10 * k, 10 * k + 4) for k in range(groups)]


def test_what_has_no_stack_goes_with_its_neighbours() -> None:
    assert cut([A] * 6 + [None] * 2 + [B] * 6)[0] == {"a": span(0, 8), "b": span(8, 14)}


def test_rows_that_stay_stay() -> None:
    found, left = cut([A] * 8 + [B] * 8, stay=(2, 15))
    assert found == {"a": [0, 1, *span(3, 8)], "b": span(8, 15)}
    assert left == [2, 15]


def test_without_steps_left_nothing_is_cut() -> None:
    none = Budget(5)
    assert none.left == LEAST_STEPS
    assert Budget(LEAST_STEPS).left == MOST_STEPS * LEAST_STEPS
    none.left = 0
    assert cut([A] * 8 + [B] * 8, budget=none)[0] == {}
    none.left = 1
    assert cut([A] * 8 + [B] * 8, budget=none)[0] == {"a": span(0, 8), "b": span(8, 16)}


@pytest.mark.parametrize(("kept", "label"), [(2, "softmax"), (1, "")])
def test_what_jax_named_goes_into_the_function_that_called_it(kept: int, label: str) -> None:
    """``softmax`` of line 4 to 6 is of both calls; one box of it is no group."""
    name = f"softmax{CALLED}"
    inside = np.array([*range(7 - kept, 7), *range(7, 10)])
    child = Node("scope", "softmax", 0, path=(name,), members=inside)
    node = Node("entry", "main", 0, children=[child])
    found, left = cut([A] * 7 + [B] * 8, node)
    assert found == {"a": span(0, 7 - kept if kept > 1 else 7), "b": span(10, 15)}
    assert left == []
    a, b = node.children
    assert [c.label for c in a.children] == ([label] if label else [])
    assert [(c.label, len(c.members), c.path) for c in b.children] == [("softmax", 3, (name,))]


def test_what_jax_named_stays_where_no_group_has_it_and_where_it_is_the_users_own() -> None:
    name = f"softmax{CALLED}"
    steps = [A] * 7 + [C] * 2 + [B] * 7
    child = Node("scope", "softmax", 0, path=(name,), members=np.array([7, 8]))
    node = Node("entry", "main", 0, children=[child])
    found, left = cut(steps, node)
    assert (found["softmax"], left) == ([7, 8], [])
    assert sorted(found) == ["a", "b", "softmax"]
    child = Node("scope", "softmax", 0, path=(name,), members=np.array([7]))
    found, left = cut(steps, Node("entry", "main", 0, children=[child]))
    assert (sorted(found), left) == (["a", "b"], [7, 8])
    child = Node("scope", "c", 0, path=(f"c{CALLED}",), members=np.array([7]))
    found, left = cut(steps, Node("entry", "main", 0, children=[child]))
    assert (sorted(found), left) == (["a", "b", "c"], [8])


def test_a_line_of_one_loop_says_so() -> None:
    text = """body {
  b = (s32[], f32[64]) parameter(0)
  n = s32[] get-tuple-element(b), index=0
  v = f32[64] get-tuple-element(b), index=1
  one = s32[] constant(1)
  next = s32[] add(n, one)
  w = f32[64] sine(v)
  ROOT o = (s32[], f32[64]) tuple(next, w)
}

condition {
  c = (s32[], f32[64]) parameter(0)
  m = s32[] get-tuple-element(c), index=0
  most = s32[] constant(7)
  ROOT t = pred[] compare(m, most), direction=LT
}

"""
    stacks = Stacks()
    steps = [made(1)] * 11 + [made(2)] * 11
    rows = chain_of(stacks, steps)
    loop = (
        "  z# = s32[] constant(0)\n  p# = (s32[], f32[64]) tuple(z#, i13)\n"
        "  w# = (s32[], f32[64]) while(p#), condition=condition, body=body, "
        f"metadata={{stack_frame_id={stacks.frame(made(2))}}}\n"
    )
    for loops, said in ((1, " · loop ×7"), (2, "")):
        more = "".join(loop.replace("#", str(k)) for k in range(loops))
        whole = rows.replace("ENTRY", f"{text}ENTRY").replace("  i14 =", f"{more}  i14 =")
        module = hs.read(whole).module
        node = Node("entry", "main", module.entry.index)
        drawn = [i for i in module.entry.instructions if i.opcode in ("sine", "cosine", "while")]
        node.members = np.array([i.index for i in drawn])
        quiet = np.zeros(len(module.instructions), bool)
        cut_by_calls(node, table(module), quiet, calls(module), Budget(1), quiet)
        assert [c.label for c in node.children] == ["step, line 1", f"step, line 2{said}"]


def test_calls_within_one_another_are_told_once() -> None:
    """XLA repeats the frames of what it inlines; wrappers and lambdas say nothing."""
    stack = [("step", 1), ("f.<locals>.<lambda>", 2), ("layer.__call__", 3), ("g.<locals>.h", 4)]
    module = hs.read(chain_of(Stacks(), [[*stack, ("step", 1), stack[2]]])).module
    assert calls(module).chains == (((0, "step"), (1, "layer"), (3, "")),)
    module = hs.read(chain_of(Stacks(), [stack])).module
    assert calls(module).chains == (((0, "step"), (1, "layer"), (3, "h"), (4, "")),)
    module = hs.read(chain_of(Stacks("/lib/site-packages/jax/_src/lax.py"), [stack])).module
    assert calls(module).chains == ()


# -- what is between -------------------------------------------------------------------------


def random_program(rng: random.Random, size: int) -> str:
    rows = ["HloModule m", "", "ENTRY main {", "  v0 = f32[8] parameter(0)"]
    for k in range(1, size):
        a, b = (rng.randrange(max(0, k - 6), k) for _ in range(2))
        says = rng.random() > 0.15  # a constant says nothing about its users
        rows.append(f"  v{k} = f32[8] " + (f"add(v{a}, v{b})" if says else "constant({...})"))
    return "\n".join([*rows, f"  ROOT r = (f32[8]) tuple(v{size - 1})", "}"])


def between(t: Table, rows: set[int], allowed: set[int]) -> set[int]:
    """What is on a path between two of ``rows`` through ``allowed``, path by path."""
    out: set[int] = set()

    def walk(at: int, path: list[int]) -> None:
        for user in t.instructions[at].users:
            r = user.index
            if r in rows:
                out.update(path)
            elif r in allowed:
                walk(r, [*path, r])

    for row in rows:
        if not t.silent[row]:
            walk(row, [])
    return out


def test_one_step_is_what_leads_from_one_member_to_another() -> None:
    rng = random.Random(11)
    seen = [0, 0, 0]
    for _ in range(150):
        module = hs.read(random_program(rng, 18)).module
        t = table(module)
        ops = [i.index for i in module.instructions if i.opcode in ("add", "constant")]
        free = sorted(rng.sample(ops, rng.randint(12, len(ops))))
        first = rng.randrange(len(free) - 8)
        rows = sorted(rng.sample(free[first : first + 10], rng.randint(4, 8)))
        quiet = np.array([rng.random() < 0.4 for _ in module.instructions])
        here = _Cut(Node("entry", "main", 0), t, quiet, calls(module), np.array(free), Budget(1))
        want = between(t, set(rows), set(range(free[0], free[-1] + 1)))
        loud = [sum(not quiet[r] for r in part) for part in (want, rows)]
        taken, found = here._one_step(np.array(rows))
        assert set(found.tolist()) == want
        if loud[0] > TAKEN_IN * loud[1]:
            assert taken is None
            seen[0] += 1
        else:
            assert taken is not None
            assert taken.tolist() == sorted({*rows, *(want & set(free))})
            seen[1 if want else 2] += 1
    assert min(seen) > 5
