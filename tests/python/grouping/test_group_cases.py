"""The tree of groups of programs written by hand: what called what, what is in which scope."""

from __future__ import annotations

import hloscope as hs
import pytest
from hloscope.analysis.base.labels.labels import labels
from hloscope.analysis.grouping.groups import BESIDE, FLAT, KINDS, group_tree, plain_tree
from hloscope.hlo import Module
from stacked import Stack, Stacks

F = "f32[8]"


def computation(name: str, *rows: str, head: str = "") -> str:
    """One with a parameter ``<name>p``, whose last row is its root."""
    body = [f"  {row}" for row in (f"{name}p = {F} parameter(0)", *rows)]
    body[-1] = "  ROOT" + body[-1][1:]
    return "\n".join([f"{head}{name} {{", *body, "}", "", ""])


def chain(name: str, count: int, at: str = "", begin: str = "") -> list[str]:
    """``<name>0 …``: so many in a row from ``begin`` on, in a scope; "." is in none by name."""
    meta = f', metadata={{op_name="jit(f)/{at}/sin"}}'.replace("/./", "/") if at else ""
    return [
        f"{name}{k} = {F} sine({f'{name}{k - 1}' if k else begin or 'mainp'}){meta}"
        for k in range(count)
    ]


def read(*parts: str) -> Module:
    return hs.read("HloModule m\n\n" + "".join(parts)).module


def told(module: Module, plain: bool = False) -> list[str]:
    """``kind label: instructions of its own (in all)`` of each group, indented by depth."""
    tree = (plain_tree if plain else group_tree)(module)
    names = [i.name for i in module.instructions]
    out = []

    def say(g: int, depth: int) -> None:
        mine = [names[r] for r in range(len(names)) if tree.group[r] == g]
        kind = KINDS[tree.kind[g]]
        out.append(f"{'  ' * depth}{kind} {tree.label[g]}: {len(mine)} ({tree.size[g]})")
        for c in below[g]:
            assert tree.parent[c] == g < c
            say(c, depth + 1)

    below = tree.children()
    say(0, 0)
    for c in module.computations:
        g = int(tree.of_computation[c.index])
        assert tree.computation[g] == c.index
    return out


# -- what called what ------------------------------------------------------------------------

CALLED = "".join(
    computation(name, f"{name}r = {F} negate({name}p)")
    for name in ("fused", "body", "condition", "left", "right", "sub", "kernel", "each", "later")
) + computation("order", "orderr = pred[] constant(true)")


def test_what_is_called_is_a_group_of_its_role() -> None:
    entry = computation(
        "main",
        f"a = {F} fusion(mainp), kind=kLoop, calls=fused",
        f"b = {F} while(a), condition=condition, body=body",
        "i = s32[] constant(0)",
        f"c = {F} conditional(i, b, b), branch_computations={{left, right}}",
        f"d = {F} call(c), to_apply=sub",
        f'e = {F} custom-call(d), custom_call_target="k", called_computations={{kernel}}',
        f"f = {F} map(e), to_apply=each",
        f"g = (({F}), {F}, u32[]) async-start(f), calls=later",
        f"h = {F} async-done(g)",
        f"s = {F} sort(h), dimensions={{0}}, to_apply=order",
        head="ENTRY ",
    )
    assert told(read(CALLED, entry)) == [
        "module m: 0 (31)",
        "  entry main: 11 (31)",
        "    fusion fused: 2 (2)",
        "    condition condition: 2 (2)",
        "    body body: 2 (2)",
        "    branch branch 0: 2 (2)",
        "    branch branch 1: 2 (2)",
        "    call sub: 2 (2)",
        "    call kernel: 2 (2)",
        "    call each: 2 (2)",
        "    call later: 2 (2)",
        "    reducer order: 2 (2)",
    ]


def test_branches_of_a_predicate_are_true_and_false() -> None:
    row = f"c = {F} conditional(q, mainp, mainp), "
    yes = computation("yes", *chain("y", 3, begin="yesp"))

    def said(entry: str) -> list[str]:
        lines = [line.strip() for line in told(read(CALLED, yes, entry))]
        return [line.removeprefix("branch ") for line in lines if line.startswith("branch ")]

    entry = entry_of(
        "q = pred[] constant(true)", f"{row}true_computation=yes, false_computation=right"
    )
    assert said(entry) == ["true branch: 4 (4)", "false branch: 2 (2)"]
    entry = entry_of(f"{row}branch_computations={{yes, right, left}}")
    assert said(entry) == ["branch 0: 4 (4)", "branch 1: 2 (2)", "branch 2: 2 (2)"]


def test_a_windowed_loop_is_named_by_its_body() -> None:
    name = "windowed_dot_general_body_ag"
    body = computation(name, f"o = {F} negate({name}p)")
    entry = computation(
        "main", f"w = {F} while(mainp), condition=condition, body={name}", head="ENTRY "
    )
    assert "    body all-gather × matmul, windowed: 2 (2)" in told(read(CALLED, body, entry))


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("more", [0, 1, 3])
def test_what_nothing_calls_is_beside_entry_or_together(more: int, plain: bool) -> None:
    """The largest ten one by one; each calls another, which is in it."""
    assert BESIDE == 10
    alone = "".join(
        computation(f"f{k}", f"z{k} = {F} negate(f{k}p)")
        + computation(f"c{k}", *chain(f"x{k}_", k + 1, begin=f"c{k}p"),
                      f"y{k} = {F} fusion(c{k}p), kind=kLoop, calls=f{k}")
        for k in range(BESIDE + more)
    )  # fmt: skip
    said = told(read(alone, computation("main", *chain("e", 2), head="ENTRY ")), plain)
    beside = [line for line in said if line.startswith("  unreachable")]
    assert sorted(beside) == sorted(
        f"  unreachable c{k}: {k + 3} ({k + 5})" for k in range(more, BESIDE + more)
    )
    rest = [line for line in said if line.startswith("    unreachable")]
    assert sorted(rest) == [f"    unreachable c{k}: {k + 3} ({k + 5})" for k in range(more)]
    size = sum(k + 5 for k in range(more))
    assert [line for line in said if "section" in line] == [
        f"  section {more} more computations: 0 ({size})" for _ in range(min(more, 1))
    ]


def test_what_nothing_calls_is_entry_where_none_is_marked() -> None:
    sub = computation("sub", f"s = {F} negate(subp)")
    assert told(read(sub, computation("top", f"t = {F} call(topp), to_apply=sub"))) == [
        "module m: 0 (4)", "  entry top: 2 (4)", "    call sub: 2 (2)",
    ]  # fmt: skip
    assert told(hs.read("HloModule m\n").module) == ["module m: 0 (0)"]


def test_each_computation_is_under_its_first_caller_alone() -> None:
    entry = computation(
        "main",
        f"a = {F} call(mainp), to_apply=sub",
        f"b = {F} call(a), to_apply=sub",
        head="ENTRY ",
    )
    assert sum("call sub" in line for line in told(read(CALLED, entry))) == 1


# -- scopes ----------------------------------------------------------------------------------


def entry_of(*rows: str) -> str:
    return computation("main", *rows, head="ENTRY ")


def test_a_dozen_boxes_need_no_scopes() -> None:
    half = FLAT // 2
    few = [*chain("a", half, "one"), *chain("b", half, "two", f"a{half - 1}")]
    assert told(read(entry_of(*few, f"r = ({F}) tuple(b0)")))[1:] == ["  entry main: 14 (14)"]
    more = [*chain("a", half, "one"), *chain("b", half + 1, "two", f"a{half - 1}")]
    assert told(read(entry_of(*more, f"r = ({F}) tuple(b0)")))[1:] == [
        "  entry main: 2 (15)",  # its argument and result
        "    scope one: 6 (6)",
        "    scope two: 7 (7)",
    ]


def test_scopes_in_a_loop_are_below_that_of_the_loop() -> None:
    body = computation(
        "body", *chain("a", 7, "net/one", "bodyp"), *chain("b", 7, "net/two", "a6"),
        *chain("c", 3, "net/two/deep", "b6"), f"o = {F} copy(c2)",
    )  # fmt: skip
    loop = f'w = {F} while(mainp), condition=condition, body=body, metadata={{op_name="NAME"}}'
    inside = ["scope one: 7 (7)", "scope two: 7 (11)", "  scope deep: 4 (4)"]  # the copy is its
    for name, scopes in (
        ("jit(f)/net/while", inside),
        ("jit(f)/while", inside),  # one scope around all of them says nothing
        ("jit(f)/net/two/while", ["scope net/one: 7 (7)", "scope deep: 4 (4)"]),
    ):
        entry = entry_of(loop.replace("NAME", name))
        said = told(read(CALLED.replace("body", "nobody"), body, entry))
        assert [line[6:] for line in said if line.startswith("      ")] == scopes, name


def order(*rows: str) -> list[str]:
    """Labels of ENTRY's groups in order."""
    inside = [line[4:] for line in told(read(entry_of(*rows))) if line.startswith("    ")]
    return [line.split(":")[0] for line in inside if line[0] != " "]


def test_groups_are_in_the_order_of_their_boxes() -> None:
    """What a constant alone makes is early: it says nothing about where its scope is."""
    meta = 'metadata={op_name="jit(f)/late/b"}'
    early = [f"z{k} = {F} broadcast(k), {meta}" for k in range(12)]
    rows = ["k = f32[] constant(0)", *early, *chain("a", 7, "early"), *chain("b", 4, "late", "a6")]
    rows += [f"m{k} = {F} add({f'm{k - 1}' if k else 'b3'}, z{k}), {meta}" for k in range(12)]
    assert order(*rows, f"r = ({F}) tuple(m11)") == ["scope early", "scope late"]
    # a group of groups is where those are
    parts = [*chain("b", 5, "late/x", "a6"), *chain("c", 5, "late/y", "b4")]
    assert order(*chain("a", 7, "early"), *parts, f"r = ({F}) tuple(c4)") == [
        "scope early", "scope late",
    ]  # fmt: skip
    before = [*chain("b", 5, "first/x"), *chain("c", 5, "first/y", "b4")]
    after = chain("a", 7, "second", "c4")
    assert order(*before, *after, f"r = ({F}) tuple(a6)") == ["scope first", "scope second"]


@pytest.mark.parametrize(
    ("inner", "outer", "label"),
    [(6, 4, "layer"), (5, 5, "body"), (0, 10, "body"), (10, 0, "layer")],
)
def test_a_loops_body_is_the_function_of_three_fifths_of_it(
    inner: int, outer: int, label: str
) -> None:
    """``step`` around it is that of ENTRY too; the loop's own line is not known."""
    stacks = Stacks()

    def sines(name: str, count: int, stack: Stack, begin: str) -> list[str]:
        meta = f", metadata={{stack_frame_id={stacks.frame(stack)}}}"
        return [row + meta for row in chain(name, count, begin=begin)]

    rows = sines("a", inner, [("step", 1), ("layer", 5)], "bodyp")
    rows += sines("b", outer, [("step", 2)], f"a{inner - 1}" if inner else "bodyp")
    body = computation("body", *rows)
    entry = entry_of(
        *sines("c", 3, [("step", 3)], "mainp"),
        f"w = {F} while(c2), condition=condition, body=body",
    )
    whole = stacks.head() + CALLED.replace("body", "nobody") + body + entry
    kinds = [line.split(":")[0].strip() for line in told(hs.read(whole).module)]
    assert f"body {label}" in kinds


def test_a_body_is_no_call_that_has_another_one_beside_it() -> None:
    """A step that is mostly its loss is not called so, and what else it calls is seen."""
    stacks = Stacks()
    rows, at = [], "bodyp"
    for name, line, count in (("act", 2, 30), ("loss", 3, 70)):
        stack = [("train", 1), ("step", line), (name, 9)]
        frame = f'metadata={{op_name="jit(train)/sine" stack_frame_id={stacks.frame(stack)}}}'
        rows += [
            f"{row.partition(', metadata')[0]}, {frame}" for row in chain(name, count, begin=at)
        ]
        at = f"{name}{count - 1}"
    loop = f"w = {F} while(mainp), condition=condition, body=body"
    whole = CALLED.replace("body", "nobody") + computation("body", *rows) + entry_of(loop)
    said = [line.split(":")[0].strip() for line in told(hs.read(stacks.head() + whole).module)]
    assert {"scope act", "scope loss"} < set(said)
    assert "body loss" not in said


def test_a_called_function_has_its_name_without_the_number_that_xla_gave_it() -> None:
    """What the person numbered keeps its number."""
    inner = computation("block_3.17", *chain("k", 4, begin="block_3.17p"))
    module = read(inner, entry_of(f"c = {F} call(mainp), to_apply=block_3.17"))
    tree = group_tree(module)
    (call,) = [i for i in module.instructions if i.opcode == "call"]
    assert labels(module)[call.index] == "call block_3"
    assert "block_3" in tree.label


# -- what is gathered ------------------------------------------------------------------------


def flat(before: int, after: int) -> list[str]:
    """ENTRY's groups, for so many boxes around a sort."""
    rows = chain("a", before, ".")
    row = "dimensions={0}"
    rows.append(f'n2 = {F} sort(a{before - 1}), {row}, metadata={{op_name="jit(f)/sort"}}')
    rows += chain("b", after, ".", "n2")
    said = told(read(CALLED, entry_of(*rows, f"r = ({F}) tuple(b{after - 1})")))
    return [line[4:] for line in said if line.startswith("    ") and "unreach" not in line]


def test_boxes_around_a_sort_are_gathered_in_entry() -> None:
    assert flat(7, 6) == []  # few enough to be read without groups
    assert flat(8, 7) == ["component inputs: 8 (8)", "component outputs: 7 (7)"]


def test_a_plain_tree_has_computations_alone() -> None:
    rows = [*chain("a", 9, "one"), *chain("b", 9, "two", "a8")]
    assert told(read(entry_of(*rows)), plain=True)[1:] == ["  entry main: 19 (19)"]
    assert len(told(read(entry_of(*rows)))) > 2
