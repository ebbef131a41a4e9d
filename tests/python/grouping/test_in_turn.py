"""The person's calls run one after another: the little that XLA did out of turn stands where it is
needed, and no arrow between calls runs back."""

from __future__ import annotations

import hloscope as hs
from hloscope.analysis.grouping.groups import group_tree
from stacked import Stacks


def program(late: int) -> hs.Module:
    """``first`` makes an array of eight steps and ``second`` another; ``late`` steps of ``first``
    wait for ``second``."""
    stacks = Stacks()
    one, two = stacks.frame([("step", 3), ("first", 1)]), stacks.frame([("step", 4), ("second", 2)])
    rows = ["ENTRY main {", "  x = f32[64] parameter(0)"]
    at = "x"

    def add(name: str, frame: int, *of: str) -> str:
        opcode = "add" if len(of) == 2 else "sine"
        meta = f'metadata={{op_name="jit(step)/{opcode}" stack_frame_id={frame}}}'
        rows.append(f"  {name} = f32[64] {opcode}({', '.join(of)}), {meta}")
        return name

    for k in range(30):
        at = add(f"a{k}", one, at)
    middle = at
    for k in range(30):
        at = add(f"b{k}", two, at)
    end = at
    for k in range(late):  # what ``first`` returns besides, which XLA fused with ``second``'s
        at = add(f"late{k}", one, at, middle)
    rows += [f"  ROOT r = (f32[64], f32[64]) tuple({at}, {end})", "}", ""]
    return hs.read(stacks.head() + "\n".join(rows)).module


def needs(module: hs.Module) -> set[tuple[str, str]]:
    """Which group needs which, among those beside one another."""
    tree = group_tree(module)
    entry = int(tree.of_computation[module.entry.index])  # type: ignore[union-attr]

    def call(group: int) -> str:
        while group != entry and int(tree.parent[group]) != entry:
            group = int(tree.parent[group])
        return tree.label[group]

    of = [call(g) for g in tree.group.tolist()]
    return {
        (of[i.index], of[o.index])
        for i in module.entry.instructions  # type: ignore[union-attr]
        for o in i.operands
        if of[i.index] != of[o.index] and i.opcode != "tuple" and o.opcode != "parameter"
    }


def test_a_little_that_waits_for_another_call_is_in_that_call() -> None:
    found = needs(program(late=2))
    assert ("second", "first") in found
    assert ("first", "second") not in found


def test_more_than_a_little_stays_where_it_is_and_is_marked() -> None:
    found = needs(program(late=12))
    assert ("second", "first") in found
    assert ("first", "second") in found


def test_what_needs_nothing_out_of_turn_is_left_alone() -> None:
    assert needs(program(late=0)) == {("second", "first")}
