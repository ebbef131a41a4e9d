"""A function is drawn as its statements: operations of one line are one box beside calls, what
XLA sums together or moves out of a loop does not change who calls what, and no arrow runs back."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hloscope as hs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from environments import REPO
from hloscope.analysis.base.labels.families import ID, families
from hloscope.analysis.base.labels.flags import QUIET, flags
from hloscope.analysis.base.labels.labels import labels
from hloscope.analysis.base.phases.gradients import gradient_labels
from hloscope.analysis.grouping.call_tree import call_tree
from hloscope.analysis.grouping.groups import KINDS, GroupTree, group_tree
from hloscope.analysis.grouping.loop_names import loop_labels, loop_names
from hloscope.analysis.grouping.worth import worth
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from stacked import Stacks


def w(*shape: int, dtype: Any = jnp.float32) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


def mlp(p: Any, x: jax.Array) -> Any:
    h = jax.nn.silu(x @ p["up"])
    h = h * jax.lax.rsqrt(jnp.square(h).mean(-1, keepdims=True) + 1e-6)
    return jnp.tanh(h @ p["down"])


def head(p: Any, x: jax.Array) -> Any:
    x = mlp(p["first"], x)
    x = mlp(p["second"], x)
    scores = x @ p["out"] + jnp.sin(x) @ p["out"] + p["bias"]
    return jnp.exp(scores) / jnp.exp(scores).sum(-1, keepdims=True)


MLP = {"up": w(64, 96), "down": w(96, 64)}
HEAD = {"first": MLP, "second": MLP, "out": w(64, 48), "bias": w(48)}


def read(function: Any, *arguments: Any) -> hs.Module:
    return hs.capture(function, *arguments, exact=False, provenance=False).module


def kind(tree: GroupTree, group: int) -> str:
    return KINDS[tree.kind[group]]


def test_operations_of_a_line_are_one_box_with_its_product() -> None:
    def step(p: Any, x: jax.Array) -> Any:
        return head(p, x), mlp(p["first"], x + 1)

    module = read(step, HEAD, w(32, 64))
    tree, known = group_tree(module), call_tree(module)
    assert known is not None
    texts = Path(__file__).read_text().splitlines()
    (line,) = [n for n, text in enumerate(texts, 1) if text.startswith("    scores = ")]
    entry = module.entry
    assert entry is not None
    drawn = [i for i in entry.instructions if not flags(module)[i.index] & QUIET]
    mine = {int(tree.group[i.index]) for i in drawn if known.line[i.index] == line}
    (box,) = mine
    assert kind(tree, box) == "component"
    held = [families(module)[i.index] for i in drawn if tree.group[i.index] == box]
    assert held.count(ID["matmul"]) == 2
    assert tree.label[int(tree.parent[box])] == "head"


def step_with_gradient(p: Any, x: jax.Array) -> Any:
    def loss(p: Any) -> jax.Array:
        probabilities = head(p, x)
        entropy = -(probabilities * jnp.log(probabilities)).sum(-1)
        return jnp.square(entropy).mean() + jnp.abs(p["out"]).mean()

    value, slopes = jax.value_and_grad(loss)(p)
    norm = jnp.sqrt(sum(jnp.square(s).sum() for s in jax.tree.leaves(slopes)))
    return value, jax.tree.map(lambda a, s: a - 0.1 * s / norm, p, slopes)


def boxes_that_need_themselves(module: hs.Module) -> Iterator[str]:
    """Statements from which a path leads out of them and back, beside what else is drawn there."""
    tree, hidden = group_tree(module), (flags(module) & QUIET) != 0
    operands = [[o.index for o in i.operands] for i in module.instructions]
    for box, parent in enumerate(tree.parent.tolist()):
        if kind(tree, box) != "component" or parent < 0:
            continue
        inside = tree.group == box
        above = tree.group == parent
        reached = np.zeros(len(hidden), bool)
        for row in np.flatnonzero(above | inside).tolist():
            before = [o for o in operands[row] if above[o] or inside[o]]
            if inside[row] and any(reached[o] for o in before):
                yield tree.label[box]
            reached[row] = above[row] and any(reached[o] or inside[o] for o in before)


@pytest.mark.parametrize("target", ["cpu", "v5e:2x2"])
def test_no_path_leads_out_of_a_statement_and_back(target: str) -> None:
    topology = {} if target == "cpu" else {"topology": target}
    capture = hs.capture(
        step_with_gradient, HEAD, w(32, 64), exact=False, provenance=False, **topology
    )
    assert list(boxes_that_need_themselves(capture.module)) == []


@pytest.mark.parametrize(("lines", "is_crowded"), [(8, False), (16, True)])
def test_more_statements_than_can_be_read_are_gathered_where_they_are_small(
    lines: int, is_crowded: bool
) -> None:
    stacks = Stacks()
    rows = ["ENTRY main {", "  x = f32[256,256] parameter(0)", "  s = f32[8] parameter(1)"]
    dims = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"

    def add(name: str, operation: str, line: int) -> None:
        called = [("step", 3), ("crowd", line)] if line < 90 else [("step", 4), ("model", line)]
        frame = stacks.frame(called)
        meta = f'metadata={{op_name="jit(step)/op" stack_frame_id={frame}}}'
        rows.append(f"  {name} = {operation}, {meta}")

    for k in range(4):
        line = 91 if k < 3 else 5  # of the model, and one in the crowd
        add(f"d{k}", f"f32[256,256] dot({f'd{k - 1}' if k else 'x'}, x), {dims}", line)
    at = "s"
    for k in range(2 * lines):
        add(f"a{k}", f"f32[8] {'sine' if k % 2 else 'cosine'}({at})", 10 + k // 2)
        at = f"a{k}"
    rows += [f"  ROOT r = (f32[256,256], f32[8]) tuple(d3, {at})", "}", ""]
    tree = group_tree(hs.read(stacks.head() + "\n".join(rows)).module)
    small = f"{2 * lines} small operations"
    assert (small in tree.label) is is_crowded


@pytest.mark.parametrize(("order", "boxes"), [
    ("7777997999", 2),  # one operation of the second line for the first: it stands there
    ("77779999777799997777", 5),  # as much each way: lines in pieces
    ("7979797979", 1),  # operations of the second line stay by themselves
])  # fmt: skip
def test_lines_that_need_one_another_are_put_in_order(order: str, boxes: int) -> None:
    stacks = Stacks()
    calls = [stacks.frame([("step", n), (name, n)]) for n, name in ((3, "first"), (4, "second"))]
    of_line = {n: stacks.frame([("step", int(n))]) for n in "79"}
    rows = ["ENTRY main {", "  x = f32[64] parameter(0)"]
    at = "x"
    frames = [f for f in calls for _ in range(20)] + [of_line[n] for n in order]
    for k, frame in enumerate(frames):
        meta = f'metadata={{op_name="jit(step)/sine" stack_frame_id={frame}}}'
        rows.append(f"  {'ROOT ' * (k == len(frames) - 1)}a{k} = f32[64] sine({at}), {meta}")
        at = f"a{k}"
    module = hs.read(stacks.head() + "\n".join([*rows, "}", ""])).module
    tree = group_tree(module)
    beside = [
        g for g, up in enumerate(tree.parent.tolist()) if up >= 0 and kind(tree, up) == "entry"
    ]
    assert {"first", "second"} < {tree.label[g] for g in beside}
    assert sum(kind(tree, g) == "component" for g in beside) == boxes
    assert list(boxes_that_need_themselves(module)) == []


def test_a_branch_is_in_the_call_that_defines_it() -> None:
    """Under ``vmap``, jax loses the calls between the loop and the branch."""

    def decide(p: Any, x: jax.Array) -> jax.Array:
        def yes(x: jax.Array) -> jax.Array:
            return mlp(p, x[None])[0]

        def no(x: jax.Array) -> jax.Array:
            return x

        x = jnp.cos(x) + 1
        return jax.lax.cond(x.sum() > 0, yes, no, x)

    def turn(p: Any, x: jax.Array) -> jax.Array:
        return decide(p, jnp.sin(x)) * 2

    def step(p: Any, xs: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, 7, lambda _, c: jax.vmap(lambda x: turn(p, x))(c), xs)

    tree = call_tree(read(step, MLP, w(8, 64)))
    assert tree is not None
    paths = [[part.partition("\x1e")[0] for part in path] for path in tree.paths]
    around = {tuple(p[: p.index("mlp")]) for p in paths if "mlp" in p}
    assert around
    assert all("decide" in path and "turn" in path for path in around)


def test_a_loop_is_the_call_whose_constants_xla_moved_out_of_it() -> None:
    def block(p: Any, x: jax.Array, places: jax.Array) -> jax.Array:
        turned = jnp.sin(places / 7) * jnp.cos(places / 3) + jnp.exp(-jnp.square(places))
        wave = jnp.tanh(turned[:, None] * jnp.sqrt(jnp.abs(turned[None, :])))
        far = jnp.where(jnp.abs(wave) > 0.5, jnp.log1p(jnp.abs(wave)), wave - 1)
        return x + mlp(p, far @ x)

    def step(ps: Any, x: jax.Array, places: jax.Array) -> jax.Array:
        return jax.lax.scan(lambda x, p: (block(p, x, places), None), x, ps)[0] @ x.T

    layers = {"up": w(6, 64, 96), "down": w(6, 96, 64)}
    module = read(step, layers, w(32, 64), w(32))
    turns = group_tree(module).turns
    named = loop_labels(module, labels(module), turns)
    loops = [n for i, n in zip(module.instructions, named, strict=True) if i.opcode == "while"]
    assert "block ×6" in loops


def test_what_a_loop_keeps_in_half_precision_is_no_box() -> None:
    """XLA:CPU writes bf16 arrays as f32, with conversions of the whole array around."""

    def loss(ps: Any, x: jax.Array) -> jax.Array:
        x, _ = jax.lax.scan(lambda x, p: (mlp(p, x), None), x, ps)
        return jnp.square(x.astype(jnp.float32)).mean()

    half = jnp.bfloat16
    layers = {"up": w(6, 64, 96, dtype=half), "down": w(6, 96, 64, dtype=half)}
    module = read(jax.grad(loss), layers, w(32, 64, dtype=half))
    drawn = [i for i in module.instructions if not flags(module)[i.index] & QUIET]
    bodies = {
        c.index for i in module.instructions if i.opcode == "while"
        for role, c in i.called if role == "body"
    }  # fmt: skip
    kept = [i for i in drawn if i.computation.index in bodies and "dynamic-update" in i.name]
    multiplies = [i for i in kept if any("dot" in c.name for c in i.called_computations)]
    assert kept == multiplies


def test_gradients_are_summed_under_their_name_and_the_loss_with_them_is_no_gradient() -> None:
    mesh = Mesh(np.array(jax.devices()[:8]), ("data",))
    whole, split = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in ((), ("data",)))
    there = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=whole), HEAD)
    x = jax.ShapeDtypeStruct((64, 64), jnp.float32, sharding=split)
    module = read(jax.jit(step_with_gradient, out_shardings=whole), there, x)
    words = gradient_labels(module, labels(module))
    sums = [words[i.index] for i in module.instructions if i.opcode == "all-reduce"]
    (found,) = [m for text in sums if (m := re.fullmatch(r"all-reduce (\d+) gradients \+1", text))]
    assert int(found[1]) >= 5
    tree = group_tree(module)
    assert {"forward · loss", "backward · loss"} <= set(tree.label)


def prefill(p: Any, x: jax.Array) -> Any:
    return jax.lax.scan(lambda c, w: (jnp.tanh(c @ w), None), x * 2.0, p)[0]


def decode(p: Any, x: jax.Array) -> Any:
    def turn(carry: Any, _: Any) -> Any:
        for k in range(3):
            carry = jnp.sin(carry @ p[k])
        return carry, carry.sum()

    return jax.lax.scan(turn, x + 1.0, None, length=7)


def test_a_function_of_few_operations_is_drawn_as_its_calls() -> None:
    def generate(p: Any, x: jax.Array) -> Any:
        return decode(p, prefill(p, x))

    module = read(generate, w(3, 64, 64), w(8, 64))
    tree = group_tree(module)
    assert module.entry is not None
    loops = [i for i in module.entry.instructions if i.opcode == "while"]
    assert [tree.label[int(tree.group[i.index])] for i in loops] == ["prefill", "decode"]


def test_a_loop_of_training_steps_is_no_optimizer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though XLA moved work of the differentiated function out of it."""
    monkeypatch.syspath_prepend(str(REPO / "benchmarks" / "ordinary"))
    program = importlib.import_module("smoke_control")
    monkeypatch.setattr(program, "N", 48)
    step, arguments = program.build()
    module = read(step, *arguments)
    tree = group_tree(module)
    assert module.entry is not None
    (loop,) = (i for i in module.entry.instructions if i.opcode == "while")
    assert kind(tree, int(tree.group[loop.index])) == "entry"


def test_work_of_a_program_without_products_is_its_arithmetic() -> None:
    """Where everything is elementwise the loop that runs most is what a picture opens first."""

    def simulate(x: jax.Array) -> jax.Array:
        def step(_: Any, x: jax.Array) -> jax.Array:
            return x + 0.1 * jnp.sin(x) * jnp.cos(jnp.roll(x, 1))

        x = jax.lax.fori_loop(0, 3, lambda _, x: jnp.tanh(x * 1.1), x)
        return jax.lax.fori_loop(0, 500, step, x)

    module = read(simulate, w(4096))
    tree = group_tree(module)
    assert module.entry is not None
    shares = worth(module, tree)
    few, many = (
        shares[tree.of_computation[dict(i.called)["body"].index]]
        for i in module.entry.instructions
        if i.opcode == "while"
    )
    assert shares[0] == 1
    assert many > 0.9
    assert 0 < few < 0.05


def test_a_force_is_no_update() -> None:
    """What a gradient does within the program turns no parameter into its new value."""

    def energy(x: jax.Array, p: jax.Array) -> jax.Array:
        apart = x[:, None] - x[None]
        return (jnp.exp(-jnp.square(apart).sum(-1)) @ p).sum()

    def simulate(x: jax.Array, v: jax.Array, p: jax.Array) -> Any:
        force = -jax.grad(energy)(x, p)
        force = jnp.tanh(force - force.mean(0)) * 0.5

        def step(_: Any, carried: Any) -> Any:
            x, v = carried
            for _ in range(3):
                v = v + 0.1 * jnp.sin(x * v)
                x = x + 0.1 * jnp.tanh(v)
            return x, v

        return jax.lax.fori_loop(0, 50, step, (x, v + 0.1 * force))

    tree = group_tree(read(simulate, w(64, 3), w(64, 3), w(64, 64)))
    assert "backward · energy" in tree.label
    assert not any("optimizer" in name for name in tree.label)


def test_a_loop_of_loops_is_named_by_what_it_calls() -> None:
    """Most of what stands directly in it is of one scope, but not most of what it does."""

    def train(p: jax.Array, xs: jax.Array) -> Any:
        def update_step(p: jax.Array, _: Any) -> Any:
            def collect(c: jax.Array, x: jax.Array) -> Any:
                return jnp.tanh(c @ p + x), c.sum()

            last, sums = jax.lax.scan(collect, xs[0], xs)
            with jax.named_scope("critic"):
                h = last
                for _ in range(5):
                    h = jnp.tanh(h @ p)
                    h = h / (1 + jnp.abs(h).sum(-1, keepdims=True))
                value = h.sum()

            def epoch(p: jax.Array, _: Any) -> Any:
                slope = jnp.cos(jnp.sin(p @ p) @ p)
                return p - 0.1 * slope * value, slope.sum()

            p, loss = jax.lax.scan(epoch, p, None, length=3)
            return p, loss.sum() + sums.sum()

        return jax.lax.scan(update_step, p, None, length=10)

    module = read(train, w(32, 32), w(8, 16, 32))
    assert module.entry is not None
    (loop,) = (i for i in module.entry.instructions if i.opcode == "while")
    assert loop_names(module)[loop.index].loop == "update_step"
