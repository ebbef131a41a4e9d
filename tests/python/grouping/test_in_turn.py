"""The person's calls run one after another: the little that XLA did out of turn stands where it is
needed, and no arrow between calls runs back."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import hloscope as hs
import jax
import jax.numpy as jnp
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


def call_of(module: hs.Module, name: str) -> str:
    """The call whose group an instruction is in."""
    tree = group_tree(module)
    at = int(tree.group[next(i.index for i in module.instructions if i.name == name)])
    while tree.label[at] not in ("first", "second"):
        at = int(tree.parent[at])
    return tree.label[at]


def test_a_little_that_waits_for_another_call_is_in_that_call() -> None:
    found = needs(program(late=2))
    assert ("second", "first") in found
    assert ("first", "second") not in found


def test_what_waits_for_a_later_call_is_in_that_call_if_it_is_not_most_of_its_own() -> None:
    assert ("first", "second") not in needs(program(late=12))


def test_most_of_a_call_stays_where_it_is_and_is_marked() -> None:
    found = needs(program(late=40))
    assert ("second", "first") in found
    assert ("first", "second") in found


def test_what_needs_nothing_out_of_turn_is_left_alone() -> None:
    assert needs(program(late=0)) == {("second", "first")}


def shared(opcode: str, late: int = 24) -> hs.Module:
    """What two calls share, which XLA kept with the names of the ``second``; neither needs the
    other. The ``late`` last steps of the first use it."""
    stacks = Stacks()
    one, two = stacks.frame([("step", 3), ("first", 1)]), stacks.frame([("step", 4), ("second", 2)])
    rows = ["ENTRY main {", "  x = f32[64,64] parameter(0)"]

    def add(name: str, frame: int, opcode: str, *of: str) -> str:
        dims = ", lhs_contracting_dims={1}, rhs_contracting_dims={0}" if opcode == "dot" else ""
        meta = f'metadata={{op_name="jit(step)/{opcode}" stack_frame_id={frame}}}'
        rows.append(f"  {name} = f32[64,64] {opcode}({', '.join(of)}){dims}, {meta}")
        return name

    both = add("shared", two, opcode, *["x"] * (1 + (opcode == "dot")))
    for k in range(0 if opcode == "dot" else 4):
        both = add(f"shared{k}", two, opcode, both)
    ends = []
    for call, frame in (("a", one), ("b", two)):
        at = "x"
        for k in range(24):
            mine = both if call == "b" or k >= 24 - late else at
            at = add(f"{call}{k}", frame, "add", at, mine)
        ends.append(at)
    rows += [f"  ROOT r = (f32[64,64], f32[64,64]) tuple({', '.join(ends)})", "}", ""]
    return hs.read(stacks.head() + "\n".join(rows)).module


def test_what_two_calls_share_is_in_the_first_that_the_program_makes() -> None:
    assert needs(shared("cosine")) == {("second", "first")}
    few = shared("cosine", late=2)
    assert needs(few) == {("second", "first")}
    assert call_of(few, "shared") == "first"  # though less of the first waits for it
    assert call_of(few, "a23") == "first"


def test_products_stay_in_their_call() -> None:
    assert needs(shared("dot")) == {("first", "second")}


W = jax.ShapeDtypeStruct((32, 32), jnp.float32)
X = jax.ShapeDtypeStruct((8, 32), jnp.float32)


def encode(w: Any, x: Any) -> Any:
    for _ in range(3):
        x = jnp.tanh(x @ w)
    return x


def score(w: Any, x: Any) -> Any:
    return jax.nn.softmax(jnp.sin(x) @ w @ w.T)


def penalty(w: Any) -> Any:
    return jnp.abs(jnp.cumsum(jnp.exp(w), 0) @ w).max()


def step(w: Any, x: Any) -> Any:
    return (
        score(
            w,
            encode(w, x),
        ).sum()
        + penalty(w)
    )  # fmt: skip


def orders_of(program: Any, **how: Any) -> list[list[str]]:
    """Calls beside one another whose order is known, in it, of the program's dump."""
    text = hs.capture(program, W, X, exact=False, provenance=False).text
    cap = hs.read(text, **how)
    tree = group_tree(cap.module, cap.target)
    beside: dict[int, list[tuple[int, str]]] = defaultdict(list)
    for group, n in enumerate(tree.turn.tolist()):
        if n:
            beside[int(tree.parent[group])].append((n, tree.label[group]))
    return [[label for _, label in sorted(known)] for known in beside.values()]


def test_a_call_runs_after_what_its_arguments_call() -> None:
    assert orders_of(step) == [["encode", "score", "penalty"]]


def test_without_the_text_nobody_knows_which_call_is_an_argument_of_which() -> None:
    assert orders_of(step, sources=False) == []


def losses(w: Any, x: Any) -> Any:
    def loss(w: Any) -> Any:
        return score(w, encode(w, x)).sum() + penalty(w)

    return jax.value_and_grad(loss)(w)


def test_a_backward_pass_runs_the_other_way_round() -> None:
    assert orders_of(losses) == [["encode", "score", "penalty"], ["penalty", "score", "encode"]]
