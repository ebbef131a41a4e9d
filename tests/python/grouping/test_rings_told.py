"""What a ring around a product holds, and in which group it is, by hand."""

from __future__ import annotations

import hloscope as hs
import numpy as np
import pytest
from hloscope.analysis.base.labels.flags import QUIET, flags
from hloscope.analysis.grouping import rings as at_rings
from hloscope.analysis.grouping.group_nodes import Node
from hloscope.analysis.grouping.rings import gather_rings, loop_label, rings

UP, DOWN = "{{0,1},{1,2},{2,3},{3,0}}", "{{0,3},{3,2},{2,1},{1,0}}"
AT, ELSE = "jit(f)/dot_general", "jit(f)/tanh"
F = "f32[8,8]"
GATHERED, SCATTERED = "all-gather × matmul, windowed ×4", "matmul × reduce-scatter, windowed ×4"


def row(name: str, op: str, of: str, at: str = AT, shape: str = F) -> str:
    named = f', metadata={{op_name="{at}"}}' if at else ""
    more = {
        "permute": f', source_target_pairs={UP}, frontend_attributes={{is_spmd_generated="true"}}',
        "down": f', source_target_pairs={DOWN}, frontend_attributes={{is_spmd_generated="true"}}',
        "dot": ", lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    }.get(op, "")
    opcode = {"permute": "collective-permute", "down": "collective-permute"}.get(op, op)
    return f"  {name} = {shape} {opcode}({of.replace(' ', ', ')}){more}{named}"


def read(*rows: str, before: str = "") -> hs.Module:
    aside = (
        f"aside {{\n  a0 = {F} parameter(0)\n  a1 = {F} negate(a0)\n  ROOT a2 = {F} copy(a1)\n}}\n"
    )
    head = f"HloModule m, num_partitions=4\n{aside}{before}\nENTRY main {{\n"
    given = f"  x = {F} parameter(0)\n  w = {F} parameter(1)\n  k = {F} constant({{...}})\n"
    module = hs.read(head + given + "\n".join([*rows, f"  ROOT r = ({F}) tuple(x)", "}\n"])).module
    assert module.warnings == ()
    return module


def told(*rows: str, before: str = "") -> dict[str, str]:
    """The labels of rings, and what is in each."""
    module = read(*rows, before=before)
    names = [i.name for i in module.instructions]
    return {label: " ".join(names[r] for r in held.tolist()) for label, held in rings(module)}


# each permute's value is multiplied, or what was multiplied is sent on and added to
GATHER = [
    row("p1", "permute", "x"),
    row("d1", "dot", "p1 w"),
    row("p2", "permute", "p1"),
    row("d2", "dot", "p2 w"),
    row("s", "add", "d1 d2"),
]
SCATTER = [
    row("d0", "dot", "x w"),
    row("p1", "permute", "d0"),
    row("d1", "dot", "k w"),
    row("a1", "add", "p1 d1"),
    row("p2", "permute", "a1"),
    row("d2", "dot", "k w"),
    row("a2", "add", "p2 d2"),
]


def test_a_ring_holds_its_products() -> None:
    assert told(*GATHER) == {GATHERED: "p1 d1 p2 d2 s"}
    assert told(*SCATTER) == {SCATTERED: "d0 p1 d1 a1 p2 d2 a2"}
    # another product's permute of what it makes says nothing about it
    assert told(*GATHER, row("e", "permute", "s", ELSE)) == {GATHERED: "p1 d1 p2 d2 s"}
    # without a product it is none
    assert told(*(r.replace("dot(", "add(") for r in GATHER)) == {}
    assert told(*(r for r in GATHER if "dot(" not in r and "add(" not in r)) == {}


def test_a_start_and_its_done_are_of_the_ring() -> None:
    pair = f"({F}, {F}, u32[], u32[])"
    both = [
        row("p1s", "permute", "x", shape=pair).replace("permute(", "permute-start("),
        row("p1", "collective-permute-done", "p1s"),
    ]
    assert told(*both, *GATHER[1:]) == {GATHERED: "p1s p1 d1 p2 d2 s"}


@pytest.mark.parametrize(
    ("foreign", "quiet", "is_ring"), [(1, 0, True), (1, 3, True), (2, 0, False)]
)
def test_a_fifth_of_a_ring_may_be_of_another_line(foreign: int, quiet: int, is_ring: bool) -> None:
    """Five boxes: one between a product and the sum is taken in, and what is not drawn."""
    between = [f"f{k}" for k in range(foreign)] + [f"b{k}" for k in range(quiet)]
    rows = [
        row(name, "tanh" if name[0] == "f" else "bitcast", at, ELSE)
        for name, at in zip(between, ["d1", *between], strict=False)
    ]
    found = told(*GATHER[:4], *rows, row("s", "add", f"{between[-1]} d2"))
    assert found == ({GATHERED: " ".join(["p1 d1 p2 d2", *between, "s"])} if is_ring else {})


def test_with_more_of_another_line_a_ring_is_what_only_it_uses() -> None:
    """Products with a constant are made of the ring alone; what follows them is not."""
    rows = [
        row("t", "transpose", "x"),
        row("p1", "permute", "t"),
        row("d1", "dot", "p1 k"),
        row("n1", "negate", "d1"),
        row("p2", "permute", "p1"),
        row("d2", "dot", "p2 k"),
        *(row(f"f{k}", "tanh", f"f{k - 1}" if k else "n1", ELSE) for k in range(6)),
        row("s", "add", "f5 d2"),
        row("e", "tanh", "s", ELSE),
    ]
    assert told(*rows) == {GATHERED: "t p1 d1 n1 p2 d2"}


def test_arguments_and_loops_of_the_same_name_are_not_of_a_ring() -> None:
    named = [r.replace("k w", "v w") for r in SCATTER]
    given = row("v", "add", "x x", ELSE)
    assert told(given, *named) == {SCATTERED: "d0 p1 d1 a1 p2 d2 a2"}
    again = [*GATHER, row("z", "constant", "{...}"), row("u", "add", "s z")]
    assert told(*again) == {GATHERED: "p1 d1 p2 d2 s u"}


@pytest.mark.parametrize(
    ("steps", "name", "label"),
    [(0, AT, SCATTERED), (11, "", SCATTERED), (12, "", GATHERED), (1, ELSE, GATHERED)],
)
def test_a_product_is_sent_on_within_a_dozen_steps(steps: int, name: str, label: str) -> None:
    """The sum with what came is a step too."""
    chain = [row(f"c{k}", "negate", f"c{k - 1}" if k else "d1", name) for k in range(steps)]
    last = f"c{steps - 1}" if steps else "d1"
    rows = [
        row("p1", "permute", "x"), row("d1", "dot", "p1 w"), *chain,
        row("q", "add", f"{last} p1"), row("p2", "permute", "q"), row("d2", "dot", "p2 w"),
    ]  # fmt: skip
    assert list(told(*rows)) == [label]


def test_rings_that_are_far_apart_in_the_schedule_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(at_rings, "FARTHEST", 2)
    assert told(*GATHER) == {GATHERED: "p1 d1 p2 d2 s"}
    assert told(*GATHER[:2], row("e", "tanh", "x", ELSE), *GATHER[2:]) == {}


def test_loops_are_rings_by_the_names_of_their_bodies() -> None:
    whole = GATHERED.removesuffix(" ×4"), SCATTERED.removesuffix(" ×4")
    body = "windowed_dot_general_body"
    for name, label in (
        (f"{body}_ag", whole[0]), (f"{body}_ag.3", whole[0]), (f"{body}_rs_spmd", whole[1]),
        (f"{body}_x", "collective matmul"), (body, "collective matmul"), ("body_ag", ""),
    ):  # fmt: skip
        assert loop_label(name) == label


# -- groups ----------------------------------------------------------------------------------


def gathered(groups: dict[str, str], *rows: str, of: str = "") -> dict[str, str]:
    """Labels and members of groups, and of rings in them; ``of`` is around the others."""
    module = read(*rows)
    at = {i.name: i.index for i in module.instructions}
    entry = module.entry.index

    def node(label: str, names: str) -> Node:
        made = Node("scope", label, entry, path=(label,))
        made.members = np.array(sorted(at[n] for n in names.split()), np.int64)
        return made

    nodes = [node(label, names) for label, names in groups.items()]
    if of:
        (around,) = [n for n in nodes if n.label == of]
        around.children = [n for n in nodes if n is not around]
    held = {n.label: list(n.children) for n in nodes}
    gather_rings(module, nodes, (flags(module) & QUIET) != 0)
    name = {k: n for n, k in at.items()}
    out = {}
    for before, n in zip(held, nodes, strict=True):
        made = [c for c in n.children if c not in held[before]]
        for m in (n, *made):
            inside = "" if m is n else f"{n.label}/"
            assert m.computation == entry
            if m is not n:
                assert m.path == (*n.path, m.label)
            out[inside + m.label] = " ".join(name[r] for r in m.members.tolist())
    return out


def test_a_ring_is_a_group_in_the_group_that_holds_it() -> None:
    more = row("e", "tanh", "x", ELSE)
    assert gathered({"a": "p1 d1 p2 d2 s e"}, *GATHER, more) == {
        "a": "e", f"a/{GATHERED}": "p1 d1 p2 d2 s",
    }  # fmt: skip
    # what is not drawn stays; what is a ring and no more is called so
    quiet = {"a": "x w p1 d1 p2 d2 s"}
    assert gathered(quiet, *GATHER) == {GATHERED: "x w p1 d1 p2 d2 s"}
    # unless there are groups in it
    assert gathered({"a": "p1 d1 p2 d2 s", "b": "e"}, *GATHER, more, of="a") == {
        "a": "", f"a/{GATHERED}": "p1 d1 p2 d2 s", "b": "e",
    }  # fmt: skip


def test_a_ring_of_two_groups_is_in_the_one_with_at_least_half_of_it() -> None:
    found = gathered({"a": "p1 d1", "b": "p2 d2 s"}, *GATHER)
    assert found == {"a": "p1 d1", GATHERED: "p2 d2 s"}
    four = [*GATHER[:4]]
    assert gathered({"a": "p1 d1", "b": "p2 d2"}, *four) == {GATHERED: "p1 d1", "b": "p2 d2"}
    parts = {"a": "p1 d1", "b": "p2 d2", "c": "s"}
    assert gathered(parts, *GATHER) == parts
    assert gathered({"a": "p1 d1"}, *GATHER) == {"a": "p1 d1"}  # the rest is nowhere
    assert gathered({"a": "x w"}, *GATHER) == {"a": "x w"}


def test_permutes_alone_are_no_product() -> None:
    rows = [*GATHER[:4], row("p3", "permute", "p2"), row("s", "add", "d1 d2")]
    parts = {"a": "p1 p2 p3 s", "b": "d1 d2"}
    assert gathered(parts, *rows) == parts
    assert gathered({"a": "p1 p2 p3 d1", "b": "d2 s"}, *rows)[GATHERED] == "p1 d1 p2 p3"


def test_what_two_rings_share_is_of_the_first() -> None:
    """Two rings in one direction from x; a product of both is between the permutes of each."""
    rows = [
        row("p1", "permute", "x"), row("q1", "permute", "w"),
        row("d1", "dot", "p1 w"), row("e1", "dot", "q1 w"),
        row("both", "dot", "d1 e1"),
        row("p2", "permute", "p1"), row("q2", "permute", "q1"),
        row("a", "add", "p2 both"), row("b", "add", "q2 both"),
    ]  # fmt: skip
    module = read(*rows)
    names = [i.name for i in module.instructions]
    held = [{names[r] for r in of.tolist()} for _, of in rings(module)]
    assert len(held) == 2
    assert "both" in held[0] & held[1]
    more = row("e", "tanh", "x", ELSE)
    found = gathered({"all": "p1 q1 d1 e1 both p2 q2 a b e"}, *rows, more)
    assert list(found) == ["all", f"all/{GATHERED}"]
    assert set(found[f"all/{GATHERED}"].split()) == held[0]


def test_rings_of_another_computation_are_not_looked_for() -> None:
    head = f"inside {{\n  x = {F} parameter(0)\n  w = {F} parameter(1)\n"
    lines = [*GATHER, row("e", "tanh", "s", ELSE), "}\n"]
    call = row("c", "call", "x w", ELSE) + ", to_apply=inside"
    module = read(call, before=head + "\n".join(lines))
    names = [i.name for i in module.instructions]
    assert [" ".join(names[r] for r in held) for _, held in rings(module)] == ["p1 d1 p2 d2 s"]
    for computation in module.computations:
        held = np.array([i.index for i in computation.instructions], np.int64)
        node = Node("scope", "a", computation.index, members=held)
        gather_rings(module, [node], (flags(module) & QUIET) != 0)
        assert len(node.children) == (computation.name == "inside")
