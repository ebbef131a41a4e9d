"""Names of loops and of lines, shares of the work, and calls around others: all by hand."""

from __future__ import annotations

from collections.abc import Sequence

import hloscope as hs
import numpy as np
import pytest
from hloscope.analysis.grouping.code_words import BoxNames
from hloscope.analysis.grouping.groups import KINDS, GroupTree, group_tree
from hloscope.analysis.grouping.loop_names import LoopName, loop_labels, loop_names
from hloscope.analysis.grouping.worth import worth, worth_opening
from stacked import Stack, Stacks, chain_of

# -- loops -----------------------------------------------------------------------------------

Counts = dict[str, int]  # function that an iteration calls → boxes; "" for the loop's own


def towers(body: Counts, beside: int, weights: Sequence[str]) -> hs.Module:
    """``step`` calls ``tower`` for each of these arguments; a tower is a loop and some boxes."""
    stacks = Stacks()
    rows: list[str] = []
    entry = ["ENTRY main {", "  x = f32[64] parameter(0)"]
    entry += [
        f"  w{k} = f32[64] parameter({k + 1}), metadata={{op_name=\"{name}\"}}"
        for k, name in enumerate(weights)
    ]  # fmt: skip
    at = "x"
    for k in range(len(weights)):
        around: list[tuple[str, int]] = [("step", 1 + k)]

        def of(stack: Stack) -> str:
            return f"metadata={{stack_frame_id={stacks.frame(stack)}}}"

        rows += [f"body{k} {{", f"  b{k} = (f32[64], f32[64]) parameter(0)"]
        rows += [f"  v{k} = f32[64] get-tuple-element(b{k}), index=0"]
        rows += [f"  u{k} = f32[64] get-tuple-element(b{k}), index=1"]
        last = f"v{k}"
        for name, boxes in body.items():
            called = [("tower", 6), (name, 9)] if name else [("tower", 7)]
            for n in range(boxes):
                rows.append(f"  {name}{k}.{n} = f32[64] sine({last}), {of([*around, *called])}")
                last = f"{name}{k}.{n}"
        rows += [f"  ROOT o{k} = (f32[64], f32[64]) tuple({last}, u{k})", "}", ""]
        rows += [f"condition{k} {{", f"  c{k} = (f32[64], f32[64]) parameter(0)"]
        rows += [f"  ROOT t{k} = pred[] constant(true)", "}", ""]
        tower = of([*around, ("tower", 6)])
        for n in range(beside + 1):  # the first makes the argument, of nobody's
            entry.append(f"  e{k}.{n} = f32[64] cosine({at})" + (f", {tower}" if n else ""))
            at = f"e{k}.{n}"
        entry.append(f"  n{k} = f32[64] transpose(w{k}), dimensions={{0}}")
        entry.append(f"  p{k} = (f32[64], f32[64]) tuple({at}, n{k})")
        entry.append(f"  l{k} = (f32[64], f32[64]) while(p{k}), condition=condition{k}, "
                     f"body=body{k}, {tower}")  # fmt: skip
        entry.append(f"  g{k} = f32[64] get-tuple-element(l{k}), index=0")
        at = f"g{k}"
    text = "\n".join([*rows, *entry, f"  ROOT r = (f32[64]) tuple({at})", "}", ""])
    return hs.read(stacks.head() + text).module


def told(body: Counts, beside: int = 0, weights: Sequence[str] = ("p['a']", "p['b']")):
    found = loop_names(towers(body, beside, weights))
    return [(n.loop, n.turn) for _, n in sorted(found.items())]


def test_a_function_that_is_little_more_than_its_loop_names_it() -> None:
    assert told({"": 8}, 2) == [("tower · a", ""), ("tower · b", "")]
    assert told({"": 8}, 3)[0][0].startswith("loop of ")
    assert told({"block": 8}, 2) == [("block · a", "block"), ("block · b", "block")]


def test_an_iteration_is_what_most_of_it_calls() -> None:
    one = ["p['a']"]
    assert told({"block": 6, "other": 4}, 0, one) == [("block", "block")]
    assert told({"block": 5, "other": 4}, 0, one) == [("tower", "")]
    assert told({"block": 2, "": 6}, 0, one) == [("block", "block")]
    assert told({"block": 2, "": 7}, 0, one) == [("tower", "")]


def test_an_iteration_is_the_scope_of_most_of_it_below_that_of_its_loop() -> None:
    """Passes and what loops are called say nothing; the rest of the loop's own scope names it."""

    def of(loop: str, *inside: str) -> LoopName | None:
        rows = ["HloModule m", "", "body {", "  b = f32[64] parameter(0)"]
        for k, name in enumerate(inside):
            meta = f'metadata={{op_name="jit(f)/{name}/sin"}}'
            rows.append(f"  v{k} = f32[64] sine({f'v{k - 1}' if k else 'b'}), {meta}")
        rows += [f"  ROOT o = f32[64] cosine(v{len(inside) - 1})", "}", "", "condition {"]
        rows += ["  c = f32[64] parameter(0)", "  ROOT t = pred[] constant(true)", "}", ""]
        meta = f'metadata={{op_name="jit(f)/{loop}/while"}}'
        rows += ["ENTRY main {", "  x = f32[64] parameter(0)"]
        rows += [f"  ROOT w = f32[64] while(x), condition=condition, body=body, {meta}", "}"]
        module = hs.read("\n".join(rows)).module
        return loop_names(module).get(module.find("w").index)

    block, other = "net/while/body/block", "net/while/body/other"
    assert of("net", *[block] * 6) == LoopName("block", "block")
    assert of("net", *[block] * 6, *[other] * 3) == LoopName("block", "block")
    assert of("net", *[block] * 4, *[other] * 4) == LoopName("net", "")
    assert of("net/while/body/block", *[block] * 6) == LoopName("block", "")


def test_the_label_of_a_loop_is_its_name() -> None:
    module = towers({"block": 8}, 2, ["p['a']", "p['b']"])
    words = loop_labels(module, [i.name for i in module.instructions])
    changed = [w for w, i in zip(words, module.instructions, strict=True) if w != i.name]
    assert changed == ["block · a ×?", "block · b ×?"]
    assert set(loop_names(module).values()) == {
        LoopName("block · a", "block"), LoopName("block · b", "block"),
    }  # fmt: skip


# -- lines -----------------------------------------------------------------------------------


def test_groups_of_lines_bear_the_code_that_is_there() -> None:
    steps: list[Stack | None] = [[("step", 1)]] * 10 + [[("step", 2)]] * 11
    module = hs.read(chain_of(Stacks(), steps)).module
    tree = group_tree(module)
    plain = [
        name for name, kind in zip(tree.label, tree.kind, strict=True) if KINDS[kind] == "component"
    ]
    for sources, wanted in (
        ({}, plain),
        ({"other.py": "y = f(x)\nz = g(y)"}, plain),
        ({"step.py": "y = f(x)\nreturn g(y)  # twice"}, ["y = f(x)", "g(y)"]),
        ({"step.py": "\nif x:\n    g(y)\n"}, plain),
        ({"step.py": "this is no Python\n"}, plain),
    ):
        found = tree.label.copy()
        for g, name in BoxNames(module, tree, sources).groups().items():
            found[g] = name
        assert [found[g] for g, k in enumerate(tree.kind) if KINDS[k] == "component"] == wanted


# -- shares of the work ----------------------------------------------------------------------


def tree_of(module: hs.Module, parent: list[int], label: list[str], group: list[int]) -> GroupTree:
    """Groups that are scopes below a module."""
    n = np.array(parent, np.int64)
    kind = np.array([KINDS.index("module" if p < 0 else "scope") for p in parent])
    held, nothing = np.array(group, np.int64), np.full(len(parent), -1)
    empty = [False] * len(parent)
    late = frozenset(g for g, name in enumerate(label) if name == "backward")
    none = np.zeros(len(parent), np.int64)
    return GroupTree(
        n, kind, label, nothing, nothing, n, n, none, label, empty, empty, held, n, late
    )


# A product of 8·16·4 takes as long as reading and writing its float32s on a TPU v5e.
PRODUCT = 4 * (8 * 16 + 16 * 4 + 8 * 4) * 197e12 / 819e9


def products(count: int) -> hs.Module:
    """Products of 8·16·4, and a kernel."""
    dots = [
        f"  d{k} = f32[8,4] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"
        for k in range(count)
    ]
    kernel = '  k = f32[8,4] custom-call(x, w, d0), custom_call_target="tpu_custom_call"'
    head = "HloModule m\n\nENTRY main {\n  x = f32[8,16] parameter(0)\n  w = f32[16,4] parameter(1)"
    return hs.read("\n".join([head, *dots, kernel, "  ROOT r = (f32[8,4]) tuple(k)", "}"])).module


def test_the_share_of_a_group_is_that_of_its_products() -> None:
    module = products(3)
    tree = tree_of(module, [-1, 0, 0, 2], ["m", "a", "b", "c"], [0, 0, 1, 2, 3, 0, 0])
    kernel = 256 * (8 * 4 + 8 * 16 + 16 * 4)
    whole = 3 * PRODUCT + kernel
    want = [1, PRODUCT / whole, 2 * PRODUCT / whole, PRODUCT / whole]
    assert worth(module, tree).tolist() == pytest.approx(want)
    rows = [3 if i.name == "k" else 0 for i in module.instructions]
    tree = tree_of(module, [-1, 0, 0, 2], ["m", "a", "b", "c"], rows)
    assert worth(module, tree)[2:].tolist() == pytest.approx([kernel / whole] * 2)
    none = hs.read("HloModule m\n\nENTRY main {\n  ROOT x = f32[] parameter(0)\n}\n").module
    assert worth(none, tree_of(none, [-1, 0], ["m", "a"], [1])).tolist() == [0, 0]


def test_the_first_picture_opens_the_forward_pass_and_no_update() -> None:
    module = products(8)
    dots = [1, 1, 2, 3, 3, 3, 4, 4]
    group = [0, 0, *dots, 0, 0]
    kernel = next(i for i in module.instructions if i.name == "k")
    labels = ["m", "forward", "backward", "layer", "optimizer · adam"]
    share = 1 / (8 + 256 * 224 / PRODUCT)  # of one product
    assert kernel.index == 10
    for late, update in ((True, True), (False, True), (True, False)):
        names = [*labels]
        if not late:
            names[2] = "other"
        if not update:
            names[4] = "optimizers"
        tree = tree_of(module, [-1, 0, 0, 2, 0], names, group)
        model = 1 - (2 * share if late and update else 0)
        want = [1, 2 * share, 4 * share, 3 * share, 2 * share]
        if late:
            want = [1, *(s * share / model for s in (2, 0.3 * 4, 0.3 * 3, 0 if update else 2))]
        assert worth_opening(module, tree).tolist() == pytest.approx(want)


# -- calls -----------------------------------------------------------------------------------


# -- scopes and rings ------------------------------------------------------------------------
