"""Groups are the person's own calls: of a program as it is written, and of its bare dump."""

from __future__ import annotations

import importlib.util
import re
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import equinox as eqx
import flax.linen as nn
import hloscope as hs
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hloscope.analysis.base.labels.labels import labels
from hloscope.analysis.grouping.folds import folds
from hloscope.analysis.grouping.groups import KINDS, GroupTree, group_tree
from hloscope.analysis.grouping.loop_names import loop_labels
from hloscope.analysis.grouping.work import products
from hloscope.analysis.grouping.worth import worth
from hloscope.view import build_view
from hloscope.view.context import Context
from hloscope.view.schema import decode
from quickly import as_users_do


def w(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def norm(x: jax.Array) -> jax.Array:
    x = x - x.mean(-1, keepdims=True)
    return x * jax.lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-6)


def attention(p: Any, x: jax.Array) -> jax.Array:
    q, k, v = x @ p["q"], x @ p["k"], x @ p["v"]
    return jax.nn.softmax(q @ k.T) @ v @ p["o"]


def expert(p: Any, x: jax.Array) -> jax.Array:
    return jax.nn.silu(x @ p["gate"]) * (x @ p["up"]) @ p["down"]


def moe(p: Any, x: jax.Array) -> jax.Array:
    share = jax.nn.softmax(x @ p["router"])
    return sum(share[:, n : n + 1] * expert(e, x) for n, e in enumerate(p["experts"]))


def layer(p: Any, x: jax.Array) -> jax.Array:
    x = x + attention(p["attention"], norm(x))
    return x + (moe(p["moe"], norm(x)) if "moe" in p else expert(p["dense"], norm(x)))


def model(params: Any, x: jax.Array) -> jax.Array:
    x = x @ params["in"]
    for p in params["layers"]:
        x = layer(p, x)
    return norm(x) @ params["out"]


SQUARE = {n: w(32, 32) for n in "qkvo"}
DENSE = {"attention": SQUARE, "dense": {"gate": w(32, 64), "up": w(32, 64), "down": w(64, 32)}}
SPARSE = {
    "attention": SQUARE,
    "moe": {
        "router": w(32, 4),
        "experts": [{"gate": w(32, 16), "up": w(32, 16), "down": w(16, 32)}] * 4,
    },
}
PARAMS = {"in": w(16, 32), "out": w(32, 8), "layers": [DENSE] * 4}
SQUARE = {**PARAMS, "out": w(32, 16)}


def dump(function: Any, *arguments: Any) -> Any:
    """The program as text alone: what somebody sends."""
    return hs.read(hs.capture(function, *arguments, exact=False, provenance=False).text).module


def ordinary(name: str) -> Any:
    """One of the ordinary programs."""
    file = Path(__file__).parents[3] / f"benchmarks/ordinary/{name}.py"
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    return program


def both(test: Callable[[Any], None]) -> Callable[[], None]:
    """Runs a test with what its programs are captured as, then with their texts alone."""

    def with_both() -> None:
        made: list[hs.Capture] = []

        def captured(function: Any, *arguments: Any) -> Any:
            made.append(hs.capture(function, *arguments))
            return made[-1].module

        test(captured)
        texts = iter([cap.text for cap in made])
        test(lambda *_: hs.read(next(texts)).module)

    with_both.__name__, with_both.__doc__ = test.__name__, test.__doc__
    return with_both


def outline(module: Any, *more: str) -> dict[str, str]:
    """Label → label of the group around it, with folds instead of their members; loops too."""
    tree = group_tree(module)
    names = list(tree.label)
    loops = loop_labels(module, labels(module))
    for g, kind in enumerate(tree.kind):
        if KINDS[kind] == "body":
            names[g] = loops[int(tree.owner[g])]
    for fold in folds(module, tree).folds:
        for g in fold.members:
            names[g] = fold.label.partition(":")[0]
    kinds = ("scope", "body", "entry", *more)
    return {
        names[g]: names[around(tree, g)]
        for g in range(1, len(names))
        if KINDS[tree.kind[g]] in kinds
    }


def around(tree: GroupTree, g: int) -> int:
    owner = int(tree.owner[g])
    return int(tree.group[owner]) if owner >= 0 else int(tree.parent[g])


@both
def test_a_box_is_a_call(read: Any) -> None:
    found = outline(read(model, PARAMS, w(24, 16)))
    assert found["attention"] == "layer [0..3]"
    assert found["expert"] == "layer [0..3]"


@both
def test_layers_of_two_kinds_are_no_fold(read: Any) -> None:
    params = PARAMS | {"layers": [DENSE, SPARSE, SPARSE, SPARSE]}
    found = outline(read(model, params, w(24, 16)))
    assert {"layer 0", "layer [1..3]"} <= set(found)
    assert found["moe"] == "layer [1..3]"


@both
def test_passes_are_below_the_call_that_is_differentiated(read: Any) -> None:
    def loss(params: Any, x: jax.Array) -> jax.Array:
        return jnp.square(model(params, x)).mean()

    def collect(params: Any, x: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, 5, lambda _, y: jnp.tanh(model(params, y) @ y[:8]), x)

    def update(params: Any, x: jax.Array) -> Any:
        def epoch(params: Any, _: None) -> Any:
            grads = jax.grad(loss)(params, x)
            return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), None

        return jax.lax.scan(epoch, params, None, 3)[0]

    def step(params: Any, x: jax.Array) -> Any:
        return update(params, collect(params, x))

    found = outline(read(step, PARAMS, w(24, 16)))
    passes = [name for name in found if name.startswith(("forward", "backward"))]
    assert len(passes) == 2
    assert {found[name] for name in passes} == {"epoch ×3"}
    assert "model ×5" in found  # which collect runs
    assert not any(name.startswith("optimizer") for name in found)


@both
def test_what_is_recomputed_in_a_loop_is_in_the_pass_that_calls_it(read: Any) -> None:
    """The trace of the second block has no frame of ``micro``, ``loss`` or ``extra``."""

    def block(x: jax.Array, p: Any) -> Any:
        return x + expert(p, x), None

    def extra(params: Any, x: jax.Array) -> jax.Array:
        return jnp.square(norm(jax.checkpoint(block)(x @ params["out"], params["extra"])[0])).mean()

    def loss(params: Any, x: jax.Array) -> jax.Array:
        x, _ = jax.lax.scan(jax.checkpoint(block), x @ params["in"], params["layers"])
        return jnp.square(x).mean() + extra(params, x)

    def accumulate(params: Any, batches: jax.Array) -> Any:
        def micro(grads: Any, x: jax.Array) -> Any:
            return jax.tree.map(jnp.add, grads, jax.grad(loss)(params, x)), None

        return jax.lax.scan(micro, jax.tree.map(jnp.zeros_like, params), batches)[0]

    dense = DENSE["dense"]
    params = {"in": w(16, 32), "out": w(32, 32), "extra": dense}
    params["layers"] = {k: w(6, *v.shape) for k, v in dense.items()}
    tree = group_tree(read(accumulate, params, w(4, 24, 16)))

    def path(g: int) -> list[str]:
        return [*path(around(tree, g)), tree.label[g]] if g >= 0 else []

    found = [path(g)[2:5] for g, name in enumerate(tree.label) if name.startswith("block")]
    assert ["micro", "forward · loss", "extra"] in found
    assert all(len(p) > 2 for p in found)  # none stands in the loop by itself


def test_what_xla_moves_out_of_a_loop_is_no_layer() -> None:
    """Angles and a mask are the same in each turn: XLA makes them once, before the loop."""

    def layer(x: jax.Array, p: Any) -> Any:
        mask = jnp.tril(jnp.ones((24, 24), bool)) & (jnp.arange(24)[:, None] - jnp.arange(24) < 9)
        scale = 1.0 / jnp.power(10000.0, jnp.arange(0, 32, 2) / 32.0)
        angle = jnp.concatenate([jnp.sin(jnp.arange(24.0)[:, None] * scale)] * 2, -1)
        x = x * angle
        a = jax.nn.softmax(jnp.where(mask, x @ p["q"] @ x.T, -1e9)) @ x
        return jnp.tanh(a @ p["o"]), None

    def run(params: Any, x: jax.Array) -> jax.Array:
        x, _ = jax.lax.scan(layer, jnp.square(norm(x @ params["in"])), params["layers"])
        return expert(params["head"], norm(x)).mean()

    layers = {"q": w(6, 32, 32), "o": w(6, 32, 32)}
    params = {"in": w(16, 32), "head": DENSE["dense"], "layers": layers}
    names = set(outline(dump(run, params, w(24, 16))))
    assert {"layer ×6", "layer, outside its loop"} <= names
    assert "layer" not in names


@both
def test_two_calls_of_one_function_have_names_of_their_own(read: Any) -> None:
    def loss(policy: Any, reference: Any, x: jax.Array) -> jax.Array:
        a = model(policy, x)
        b = jax.lax.stop_gradient(model(reference, x))
        return jnp.square(a - b).mean()

    found = outline(read(jax.value_and_grad(loss), PARAMS, PARAMS, w(24, 16)))
    assert {"model · policy", "model · reference"} <= set(found)


@both
def test_calls_that_are_given_parts_of_one_argument_are_named_by_the_part(read: Any) -> None:
    def loss(params: Any, x: jax.Array) -> jax.Array:
        coded = model(params["encoder"], x)
        back = model(params["decoder"], x)
        return jnp.square(back - coded).mean()

    found = outline(read(loss, {"encoder": PARAMS, "decoder": PARAMS}, w(24, 16)))
    assert {"model · encoder", "model · decoder"} <= set(found)


@both
def test_calls_that_neither_their_line_nor_an_argument_tells_apart_have_both(read: Any) -> None:
    def loss(nets: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        a, b = model(nets["G"], x), model(nets["F"], y)
        c, d = model(nets["F"], a + x), model(nets["G"], b + y)
        return jnp.square(c - d).mean()

    found = outline(read(loss, {"G": SQUARE, "F": SQUARE}, w(24, 16), w(24, 16)))
    names = [name for name in found if name.startswith("model · ")]
    assert (
        sorted(name[: len("model · G")] for name in names) == ["model · F"] * 2 + ["model · G"] * 2
    )
    assert len({name.rpartition("line ")[2] for name in names}) == 2


@both
def test_two_differentiated_functions_are_a_box_each(read: Any) -> None:
    def judged(judge: Any, x: jax.Array) -> jax.Array:
        return jnp.square(model(judge, x)).mean()

    def made(maker: Any, judge: Any, z: jax.Array) -> jax.Array:
        return -judged(judge, model(maker, z) @ jnp.ones((8, 16)))

    def step(maker: Any, judge: Any, x: jax.Array, z: jax.Array) -> Any:
        a = jax.grad(judged)(judge, x)
        judge = jax.tree.map(lambda p, g: p - 0.1 * g, judge, a)
        b = jax.grad(made)(maker, judge, z)
        return judge, jax.tree.map(lambda p, g: p - 0.1 * g, maker, b)

    small = PARAMS | {"layers": [DENSE] * 2}
    module = read(step, small, small, w(24, 16), w(24, 16))
    tree = group_tree(module)
    for name in ("judged", "made"):
        inside = {
            label.partition(" ·")[0].partition("/")[0]
            for g, label in enumerate(tree.label)
            if g and tree.label[tree.parent[g]] == name
        }
        assert {"forward", "backward"} <= inside


@both
def test_parts_with_one_number_are_a_layer(read: Any) -> None:
    def numbered(params: Any, x: jax.Array) -> jax.Array:
        for n, p in enumerate(params):
            with jax.named_scope(f"attn_{n}"):
                x = x + attention(p["attention"], norm(x))
            with jax.named_scope(f"mlp_{n}"):
                x = x + expert(p["dense"], norm(x))
        return x

    found = outline(read(numbered, [DENSE] * 4, w(24, 32)))
    assert found["attn_0"] == "layer [0..3]" or found["attn_1"] == "layer [0..3]"


def test_what_jax_traced_for_another_program_has_none_of_its_calls() -> None:
    def other(key: jax.Array) -> jax.Array:
        return jax.random.normal(key, (8, 16))

    def mine(params: Any, key: jax.Array) -> jax.Array:
        return model(params, jax.random.normal(key, (8, 16)))

    key = jax.ShapeDtypeStruct((2,), jnp.uint32)
    hs.capture(other, key, exact=False, provenance=False)
    assert not any("other" in name for name in outline(dump(mine, PARAMS, key)))


@both
def test_layers_that_are_computed_again_are_in_the_forward_pass(read: Any) -> None:
    def deep(params: Any, x: jax.Array) -> jax.Array:
        for p in params["layers"]:
            x = jax.checkpoint(layer)(p, x)
        return x @ params["out"]

    def loss(params: Any, x: jax.Array) -> jax.Array:
        return jnp.square(deep(params, x)).mean()

    def step(params: Any, x: jax.Array) -> Any:
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, jax.grad(loss)(params, x))

    found = read(step, PARAMS, w(24, 32))
    tree = group_tree(found)
    of_fold = {
        tree.label[p].partition(" ")[0]
        for fold in folds(found, tree).folds
        for g in fold.members[:1]
        if fold.label.startswith("layer")
        for p in _all_around(tree, g)
    }
    assert {"forward", "backward", "deep"} <= of_fold


def _all_around(tree: GroupTree, g: int) -> list[int]:
    out = []
    while g > 0:
        g = around(tree, g)
        out.append(g)
    return out


@both
def test_what_a_library_made_has_the_name_of_its_function(read: Any) -> None:
    def step(params: Any, key: jax.Array) -> Any:
        noise = jax.random.normal(key, (24, 16))
        order = jax.random.permutation(jax.random.split(key)[0], 24)
        return model(params, noise)[order]

    found = outline(read(step, PARAMS, jax.ShapeDtypeStruct((2,), jnp.uint32)), "component")
    assert {"normal", "threefry_split", "shuffle"} <= set(found)
    assert "step" not in found


@both
def test_a_frozen_twin_has_the_name_of_its_weights(read: Any) -> None:
    def loss(params: Any, seen: jax.Array, x: jax.Array) -> jax.Array:
        return jnp.square(model(params, x) - seen).mean()

    def step(student: Any, teacher: Any, x: jax.Array) -> Any:
        return jax.value_and_grad(loss)(student, model(teacher, x), x)

    found = outline(read(step, PARAMS, PARAMS, w(24, 16)))
    assert {"model · student", "model · teacher"} <= set(found)


def test_parts_whose_names_begin_alike_are_a_section() -> None:
    def scoped(name: str, p: Any, x: jax.Array) -> jax.Array:
        with jax.named_scope(name):
            return jax.nn.relu(x @ p)

    def levels(params: Any, x: jax.Array) -> jax.Array:
        kept = []
        for k in range(3):
            for n in range(2):
                x = scoped(f"down_{k}_block_{n}", params, x)
            kept.append(x)
            x = scoped(f"down_{k}_sample", params, x)
        x = scoped("mid", params, x)
        for k in reversed(range(3)):
            x = scoped(f"up_{k}_sample", params, x) + kept[k]
            for n in range(2):
                x = scoped(f"up_{k}_block_{n}", params, x)
        return x

    found = outline(dump(levels, w(32, 32), w(8, 32)))
    assert found["down_0_sample"] == found["down_1_block_[0,1]"] == "down_[0..2]"
    assert found["up_1_block_[0,1]"] == "up_[0..2]"
    assert found["mid"] == found["up_[0..2]"]


@pytest.mark.parametrize("lost", [r", metadata=\{[^}]*\}", r" stack_frame_id=\d+"])
def test_what_lost_its_name_stays_in_its_layer(lost: str) -> None:
    """Every third of the light operations without a name or a stack, as XLA makes some."""

    def loss(params: Any, x: jax.Array) -> jax.Array:
        return jnp.square(model(params, x)).mean()

    def step(params: Any, x: jax.Array) -> Any:
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, jax.grad(loss)(params, x))

    program = jax.jit(step, compiler_options=as_users_do())
    text = hs.capture(program, PARAMS, w(24, 16), exact=False, provenance=False).text
    light = re.compile(r"\s+(?:ROOT )?%?([\w.\-]+) = .*? (?:fusion|transpose|copy|reduce)\(")
    named = [line for line in text.splitlines() if light.match(line) and "dot" not in line]
    bare = {line: re.sub(lost, "", line) for line in named[::3]}
    assert all(line != short for line, short in bare.items() if "metadata" in line)
    whole = _layers(hs.read(text).module)
    left = _layers(hs.read("\n".join(bare.get(x, x) for x in text.splitlines())).module)
    names = [match[1] for line in bare if (match := light.match(line))]
    inside = [name for name in names if whole[name][0]]
    assert len(inside) > 40
    assert sum(left[name] == whole[name] for name in inside) >= 0.85 * len(inside)


def _layers(module: Any) -> dict[str, tuple[str, bool]]:
    """For each instruction its layer, and whether it is in the backward pass."""
    tree = group_tree(module)
    out = {}
    for i in module.instructions:
        g = int(tree.group[i.index])
        found = [tree.label[x] for x in (g, *_all_around(tree, g))]
        layer = next((x for x in found if x.startswith("layer ")), "")
        out[i.name] = layer, any(x.startswith("backward") for x in found)
    return out


@both
def test_a_decaying_rate_is_no_decay_of_weights(read: Any) -> None:
    optimizer = optax.adam(optax.exponential_decay(1e-3, 100, 0.9))

    def step(p: Any, state: Any, x: jax.Array) -> Any:
        gradients = jax.grad(lambda p: model(p, x).sum())(p)
        updates, state = optimizer.update(gradients, state, p)
        return optax.apply_updates(p, updates), state

    state = jax.eval_shape(optimizer.init, PARAMS)
    found = outline(read(step, PARAMS, state, w(24, 16)))
    assert {label for label in found if label.startswith("optimizer")} == {"optimizer · adam"}


@both
def test_a_step_that_is_counted_is_no_optimizer(read: Any) -> None:
    def momentum_sgd(p: Any, v: Any, gradients: Any) -> Any:
        v = jax.tree.map(lambda v, g: 0.9 * v + g, v, gradients)
        return jax.tree.map(lambda p, v: p - 0.1 * v, p, v), v

    def step(p: Any, v: Any, at: jax.Array, x: jax.Array) -> Any:
        loss, gradients = jax.value_and_grad(lambda p: model(p, x).sum())(p)
        p, v = momentum_sgd(p, v, gradients)
        return p, v, at + 1, loss / 8

    at = jax.ShapeDtypeStruct((), jnp.int32)
    found = outline(read(step, PARAMS, PARAMS, at, w(24, 16)))
    assert "momentum_sgd" in found
    assert not [label for label in found if label.startswith("optimizer")]


@both
def test_blocks_that_call_one_of_two_kinds_are_told_apart(read: Any) -> None:
    """Attention runs eight times; four blocks are dense and four of experts."""

    def mlp(p: Any, x: jax.Array) -> jax.Array:
        return x + jax.nn.gelu(x @ p["up"]) @ p["down"]

    def experts(p: Any, x: jax.Array) -> jax.Array:
        return x + moe(p, x)

    def block(p: Any, x: jax.Array) -> jax.Array:
        x = x + attention(p, norm(x))
        return (experts if "experts" in p else mlp)(p, x)

    def net(params: Any, x: jax.Array) -> jax.Array:
        for p in params:
            x = block(p, x)
        return norm(x)

    own = {name: w(64, 64) for name in "qkvo"}
    dense = {**own, "up": w(64, 256), "down": w(256, 64)}
    one = {"gate": w(64, 128), "up": w(64, 128), "down": w(128, 64)}
    sparse = {**own, "router": w(64, 2), "experts": [one, one]}
    tree = group_tree(read(net, [dense] * 4 + [sparse] * 4, w(32, 64)))
    blocks = {label: g for g, label in enumerate(tree.label) if re.fullmatch(r"block \d", label)}
    assert sorted(blocks) == [f"block {k}" for k in range(8)]
    inside: dict[str, set[str]] = {name: set() for name in blocks}
    for g, label in enumerate(tree.label):
        at = g
        while at >= 0:
            for name, b in blocks.items():
                if at == b and label.partition(" ")[0] in ("mlp", "experts"):
                    inside[name].add(label.partition(" ")[0])
            at = int(tree.parent[at])
    assert [inside[f"block {k}"] for k in range(8)] == [{"mlp"}] * 4 + [{"experts"}] * 4


def test_a_loop_inside_a_call_does_not_make_calls_of_it() -> None:
    """Two cells and one projection: the projection runs once, and so does the call."""
    function, arguments = ordinary("rnnt_greedy").make()
    tree = group_tree(dump(function, *arguments))
    assert any("predict" in label for label in tree.label)
    assert not [label for label in tree.label if re.search(r"predict\w* \d", label)]


def test_products_of_a_library_do_not_make_calls_of_one() -> None:
    """A library's attention has four projections and two products: one call all the same."""

    class Attention(eqx.Module):
        mha: eqx.nn.MultiheadAttention

        def __call__(self, x: jax.Array, memory: jax.Array) -> jax.Array:
            return x + self.mha(x, memory, jnp.sin(memory))

    def net(attention: Attention, x: jax.Array, memory: jax.Array) -> jax.Array:
        return norm(jax.vmap(attention)(norm(x), memory))

    attention = eqx.filter_eval_shape(
        lambda key: Attention(eqx.nn.MultiheadAttention(4, 64, key=key)), jax.random.key(0)
    )
    read = dump(eqx.filter_jit(net), attention, w(2, 32, 64), w(2, 24, 64))
    assert not [label for label in group_tree(read).label if re.search(r"Attention \d", label)]


def test_a_librarys_layers_in_a_loop_are_layers_forward_and_backward() -> None:
    """Each gradient of a weight is a line and a fusion of its own: its weight says which layer."""

    class MLP(eqx.Module):
        layers: list[eqx.nn.Linear]

        def __call__(self, x: jax.Array) -> jax.Array:
            for linear in self.layers:
                x = jax.nn.gelu(linear(x))
            return x

    class Net(eqx.Module):
        encoder: MLP
        head: eqx.nn.Linear

        def __call__(self, x: jax.Array) -> jax.Array:
            return self.head(self.encoder(x))

    def build(key: jax.Array) -> Net:
        one, *keys = jax.random.split(key, 9)
        mlp = MLP([eqx.nn.Linear(64, 64, key=k) for k in keys])
        return Net(mlp, eqx.nn.Linear(64, 8, key=one))

    def loss(net: Net, x: jax.Array) -> jax.Array:
        return jnp.square(norm(jax.vmap(net)(x))).mean()

    net = eqx.filter_eval_shape(build, jax.random.key(0))
    read = dump(eqx.filter_jit(eqx.filter_value_and_grad(loss)), net, w(16, 64))
    tree = group_tree(read)
    late = [False] * len(tree.label)
    for g, label in enumerate(tree.label):  # parents come first
        late[g] = label.startswith("backward") or (tree.parent[g] >= 0 and late[tree.parent[g]])
    numbered = [late[g] for g, label in enumerate(tree.label) if re.search(r" \d$", label)]
    assert numbered.count(False) == 8
    assert numbered.count(True) >= 7  # the first one's input has no gradient


def test_two_einsums_on_one_line_do_not_make_calls_of_it() -> None:
    """jax's attention has two products and no lines of its own in a dump."""

    def attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        return jax.nn.dot_product_attention(q, k, v)

    def net(x: jax.Array, p: jax.Array, o: jax.Array) -> jax.Array:
        q, k, v = jnp.split(jnp.tanh(x @ p), 3, -1)
        heads = [y.reshape(2, 32, 4, 16) for y in (q, k, v)]
        return norm(attention(*heads).reshape(2, 32, 64) @ o)

    read = dump(net, w(2, 32, 64), w(64, 192), w(64, 64))
    found = [label for label in group_tree(read).label if "attention" in label]
    assert found
    assert not [label for label in found if re.search(r"attention \d", label)], found


def test_a_loop_of_unknown_length_says_so_and_counts_with_what_it_repeats() -> None:
    """Decoding until all are done repeats the layers: it has more of the work than one prefill."""

    def layers(p: jax.Array, x: jax.Array) -> jax.Array:
        return jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, p)[0]

    def prefill(p: jax.Array, x: jax.Array) -> jax.Array:
        return layers(p, x)

    def decode(p: jax.Array, x: jax.Array) -> jax.Array:
        return jax.lax.while_loop(lambda x: x.sum() < 9, lambda x: layers(p, x), x)

    def serve(p: jax.Array, x: jax.Array) -> jax.Array:
        return decode(p, prefill(p, x))

    module = hs.capture(serve, w(12, 64, 64), w(8, 64), exact=False).module
    tree = group_tree(module)
    loops = loop_labels(module, labels(module), tree.turns)
    assert [label for label in loops if label.endswith(" ×?")]
    held = dict(zip(tree.label, worth(module, tree).tolist(), strict=True))
    assert held["layers"] > 0.8, held  # of the loop: twelve layers in each turn, not one


def test_layers_are_in_the_stages_that_the_person_named() -> None:
    """Four stages of two blocks are not eight blocks beside them."""

    def block(x: jax.Array, p: dict[str, jax.Array]) -> jax.Array:
        return x + jnp.tanh(norm(x) @ p["up"]) @ p["down"]

    def net(x: jax.Array, params: list[Any]) -> jax.Array:
        for k, stage in enumerate(params):
            with jax.named_scope(f"stage{k + 1}"):
                x = jnp.sin(x @ stage["embed"])
                for p in stage["blocks"]:
                    x = block(x, p)
        return x

    sizes = (16, 24, 32, 48, 64)
    params = [
        {"embed": w(a, b), "blocks": [{"up": w(b, 2 * b), "down": w(2 * b, b)}] * 2}
        for a, b in pairwise(sizes)
    ]
    tree = group_tree(dump(net, w(256, 16), params))
    stages = {tree.label[int(p)] for g, p in enumerate(tree.parent) if "block" in tree.label[g]}
    assert stages == {"stage1", "stage2", "stage3", "stage4"}


def test_stages_of_a_solver_are_calls_and_not_layers_of_several_models() -> None:
    """Each stage calls the same three layers: that is six calls, not six models of two layers."""

    def squash(p: dict[str, jax.Array], x: jax.Array) -> jax.Array:
        return (x @ p["w"] + p["b"]) * jax.nn.sigmoid(p["g"])

    def velocity(params: Any, x: jax.Array) -> jax.Array:
        for p in params[:-1]:
            x = jax.nn.softplus(squash(p, x))
        return squash(params[-1], x)

    def dynamics(params: Any, x: jax.Array) -> jax.Array:
        y, pull = jax.vjp(lambda x: velocity(params, x), x)
        return y + pull(jnp.sin(x))[0]

    def attempt(x: jax.Array, params: Any) -> jax.Array:
        slopes = [dynamics(params, x)]
        for k in range(1, 6):
            slopes.append(dynamics(params, x + sum(s / (k + n) for n, s in enumerate(slopes))))
        return x + jnp.stack(slopes).mean(0)

    def solve(x: jax.Array, params: Any) -> jax.Array:
        return jax.lax.while_loop(lambda x: x.sum() < 9, lambda x: attempt(x, params), x)

    layer = {"w": w(64, 64), "b": w(64), "g": w(64)}
    tree = group_tree(dump(solve, w(256, 64), [layer] * 3))
    assert not [label for label in tree.label if re.search(r" [B-Z] \d+$", label)]
    assert len([label for label in tree.label if re.fullmatch(r"dynamics.*\d", label)]) >= 5


def test_a_loop_is_called_by_the_function_that_the_code_gives_it() -> None:
    """What it does is of lines elsewhere: a linear map that was made before it."""

    def newton(x: jax.Array, p: jax.Array) -> jax.Array:
        y, push = jax.linearize(lambda v: jnp.tanh(v @ p) @ p, x)

        def conjugate(c: jax.Array, _: None) -> tuple[jax.Array, None]:
            return push(c), None

        return jax.lax.scan(jax.checkpoint(conjugate), y, None, length=5)[0]

    capture = hs.capture(newton, w(32, 64), w(64, 64), exact=False)
    _, columns = decode(build_view(capture.module, capture.target))
    assert "conjugate ×5" in {columns["strings"][k] for k in columns["instruction.label"]}


def test_loops_inside_what_a_loop_runs_are_not_called_so() -> None:
    """Those of a library's function have the line of the loop around them, and no other."""

    def solve(x: jax.Array) -> jax.Array:
        return jax.lax.map(jnp.linalg.inv, x)

    capture = hs.capture(solve, w(5, 64, 64), exact=False)
    _, columns = decode(build_view(capture.module, capture.target))
    rows = zip(columns["instruction.label"], capture.module.opcodes_list, strict=True)
    loops = [columns["strings"][label] for label, opcode in rows if opcode == "while"]
    assert "inv ×5" in loops
    assert "inv ×64" not in loops  # the rows that it exchanges
    assert len(loops) > 1


def test_a_loop_back_has_the_name_of_the_loop_forward() -> None:
    class Cell(eqx.Module):
        w: jax.Array

        def __call__(self, x: jax.Array) -> jax.Array:
            return jax.lax.scan(lambda h, _: (jnp.tanh(h @ self.w), None), x, None, length=9)[0]

    class Block(eqx.Module):
        up: jax.Array

        def __call__(self, x: jax.Array) -> jax.Array:
            return x + jnp.sin(x @ self.up) @ self.up.T

    class Net(eqx.Module):
        blocks: Block
        cell: Cell

        def __call__(self, x: jax.Array) -> jax.Array:
            def group(x: jax.Array, of: Any) -> tuple[jax.Array, None]:
                blocks, cell = of
                x, _ = jax.lax.scan(lambda x, b: (eqx.filter_checkpoint(b)(x), None), x, blocks)
                return eqx.filter_checkpoint(cell)(x), None

            return jax.lax.scan(group, x, (self.blocks, self.cell))[0].sum()

    net = Net(Block(w(3, 5, 64, 64)), Cell(w(3, 64, 64)))
    module = dump(eqx.filter_jit(eqx.filter_grad(Net.__call__)), net, w(32, 64))
    words = labels(module)
    outer = [row for row, name in enumerate(loop_labels(module, words)) if name == "group ×3"]
    assert len(outer) == 2
    for row in outer:  # whatever most of one's turn is
        names = loop_labels(module, words, {row: "Cell"})
        assert len({names[r] for r in outer}) == 1


def test_products_of_a_few_rows_count_as_reading_their_weights_does() -> None:
    """Decoding 64 tokens has a quarter of the prompt's FLOPs, and takes most of the time."""

    def prefill(p: jax.Array, x: jax.Array) -> jax.Array:
        return jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, p)[0]

    def decode(p: jax.Array, x: jax.Array) -> jax.Array:
        def token(x: jax.Array, _: None) -> tuple[jax.Array, None]:
            return jax.lax.scan(lambda x, w: (jnp.sin(x @ w), None), x, p)[0], None

        return jax.lax.scan(token, x, None, length=64)[0]

    def serve(p: jax.Array, x: jax.Array) -> jax.Array:
        return decode(p, prefill(p, x)[-1:])

    module = hs.capture(serve, w(12, 512, 512), w(256, 512), exact=False).module
    tree = group_tree(module)
    held = dict(zip(tree.label, worth(module, tree).tolist(), strict=True))
    assert held["token"] > 0.9, held


def test_two_calls_that_are_all_layers_have_a_box_each() -> None:
    """The lines of each run three times: these are the layers of two calls, not six calls."""

    def tower(weights: jax.Array, x: jax.Array) -> jax.Array:
        for k in range(3):
            x = jax.nn.relu(x @ weights[k])
        return x

    def similarity(images: jax.Array, words: jax.Array, x: jax.Array) -> jax.Array:
        a = tower(images, x)
        b = tower(words, x)
        return a @ b.T

    tree = group_tree(dump(similarity, w(3, 16, 16), w(3, 16, 16), w(24, 16)))
    around = {
        label: tree.label[tree.parent[g]]
        for g, label in enumerate(tree.label)
        if re.fullmatch(r"tower \d", label)
    }
    assert sorted(around) == ["tower 0", "tower 1", "tower 2"]
    assert all(re.match("tower, line|tower · ", name) for name in around.values())
    assert sum(label in around for label in tree.label) == 6


def test_checkpointed_blocks_are_in_the_call_that_they_read_from_and_give_to() -> None:
    """jax gives the blocks of two calls of a model one stack, in which the call is missing."""

    def block(p: jax.Array, x: jax.Array) -> jax.Array:
        return x + jnp.tanh(x @ p) @ p.T

    def model(p: Any, x: jax.Array) -> jax.Array:
        h = jnp.sin(x @ p["in"])
        for k in range(4):
            h = jax.checkpoint(block)(p["blocks"][k], h)
        return jnp.square(h @ p["out"]).sum()

    def loss(p: Any, chosen: jax.Array, rejected: jax.Array) -> jax.Array:
        good = model(p, chosen)
        bad = model(p, rejected)
        return jax.nn.softplus(bad - good)

    p = {"in": w(16, 16), "blocks": [w(16, 16)] * 4, "out": w(16, 16)}
    tree = group_tree(dump(jax.value_and_grad(loss), p, w(24, 16), w(24, 16)))

    def path(g: int) -> list[str]:
        return [*path(int(tree.parent[g])), tree.label[g]] if g >= 0 else []

    blocks = [path(g) for g, label in enumerate(tree.label) if re.fullmatch(r"block \d", label)]
    forward = [p for p in blocks if any(name.startswith("forward") for name in p)]
    within = Counter(name for p in forward for name in p if name.startswith("model"))
    assert sorted(within.values()) == [4, 4], blocks


def test_what_jax_computes_ahead_of_a_loop_is_in_the_module_that_it_is_of() -> None:
    """A mask in a scanned block has the name ``blocks/…``, all else ``Model/blocks/…``."""

    class Attention(nn.Module):
        @nn.compact
        def __call__(self, x: jax.Array) -> jax.Array:
            n = x.shape[0]
            q, k, v = (nn.Dense(16, name=name)(x) for name in "qkv")
            angle = jnp.arange(n)[:, None] / 10.0 ** jnp.linspace(0, 1, 16)
            scores = (q * jnp.cos(angle)) @ (k * jnp.sin(angle)).T
            scores = jnp.where(jnp.arange(n)[:, None] >= jnp.arange(n), scores, -1e9)
            return jax.nn.softmax(scores) @ v

    class Block(nn.Module):
        @nn.compact
        def __call__(self, x: jax.Array, _: Any) -> tuple[jax.Array, None]:
            x = x + Attention(name="attn")(nn.LayerNorm(name="norm1")(x))
            h = jax.nn.silu(nn.Dense(64, name="up")(nn.LayerNorm(name="norm2")(x)))
            return x + nn.Dense(16, name="down")(h), None

    class Model(nn.Module):
        @nn.compact
        def __call__(self, x: jax.Array) -> jax.Array:
            x = nn.Dense(16, name="embed")(x)
            blocks = nn.scan(
                nn.remat(Block), variable_axes={"params": 0}, split_rngs={"params": True}, length=4
            )
            x, _ = blocks(name="blocks")(x, None)
            return jnp.tanh(nn.LayerNorm(name="final_norm")(x))

    model = Model()
    params = jax.eval_shape(model.init, jax.random.key(0), w(24, 16))

    def distance(x: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.square(jnp.tanh(x) - y).mean()

    def loss(params: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        return distance(model.apply(params, x), y)

    def step(params: Any, x: jax.Array, y: jax.Array) -> Any:
        value, gradients = jax.value_and_grad(loss)(params, x, y)
        return value, jax.tree.map(lambda p, g: p - 0.1 * g, params, gradients)

    tree = group_tree(dump(step, params, w(24, 16), w(24, 16)))
    assert "forward · loss" in tree.label  # which calls another function beside the model

    def path(g: int) -> list[str]:
        return [*path(int(tree.parent[g])), tree.label[g]] if g >= 0 else []

    paths = [
        [part for label in path(g) for part in label.split("/")] for g in range(len(tree.label))
    ]
    assert any("Model" in names for names in paths)
    assert [names for names in paths if names.count("Model") > 1] == []


def test_a_cast_that_xla_moved_leaves_the_layers_their_function(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A cast for the gradients has the name of a checkpointed layer, and is in none."""
    program = ordinary("llama_context_sft")
    small = {"DIM": 64, "LAYERS": 4, "HEADS": 4, "KV_HEADS": 2, "HEAD_DIM": 16, "FFN": 256}
    small |= {"VOCAB": 512, "SEQ": 512, "KEY_BLOCK": 64, "LOSS_CHUNK": 32}
    for name, size in small.items():
        monkeypatch.setattr(program, name, size)
    shape = tuple(program.MESH.values())
    mesh = jax.sharding.Mesh(np.array(jax.devices()).reshape(shape), tuple(program.MESH))
    function, arguments = program.make(mesh)
    tree = group_tree(dump(function, *arguments))
    assert [x for x in tree.label if re.fullmatch(r"layer \d", x)] == []
    assert sum(bool(re.fullmatch(r"decoder_layer \d", x)) for x in tree.label) >= 3 * 4


def test_what_is_left_of_several_calls_is_not_one_more_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A mask of all steps, the end of a gradient that XLA joined with others."""
    program = ordinary("gnn")
    monkeypatch.setattr(program, "STEPS", 4)
    function, arguments = program.make()
    tree = group_tree(dump(function, *arguments))
    calls = {x.split("/")[0] for x in tree.label if x.startswith("message_passing_step")}
    assert calls == {f"message_passing_step{x}" for x in (" 0", " 1", " 2", " 3", " · rest of 4")}


def test_calls_around_equal_turns_of_a_loop_are_the_layers() -> None:
    """Two encoders in turn, each of four layers, each with two turns of a residual branch."""

    def residual(p: Any, x: jax.Array) -> jax.Array:
        for squeeze, expand in zip(p["squeeze"], p["expand"], strict=True):
            x = x + jnp.tanh(x @ squeeze) @ expand
        return x

    def encoder_layer(p: Any, x: jax.Array) -> jax.Array:
        x = residual(p, jax.nn.gelu(x @ p["up"]))
        return jnp.sin(x @ p["out"])

    def encode(ts: Any, fs: Any, t: jax.Array, f: jax.Array) -> jax.Array:
        for te, fe in zip(ts, fs, strict=True):
            t, f = encoder_layer(te, t), encoder_layer(fe, f)
        return t.sum() + f.sum()

    def step(ts: Any, fs: Any, t: jax.Array, f: jax.Array) -> Any:
        gradients = jax.grad(encode, (0, 1))(ts, fs, t, f)
        return jax.tree.map(lambda p, g: p - 0.1 * g, (ts, fs), gradients)

    def weights(n: int, m: int) -> Any:
        branch = {"squeeze": [w(m, m // 4)] * 2, "expand": [w(m // 4, m)] * 2}
        return {"up": w(n, m), "out": w(m, m), **branch}

    ts, fs = ([weights(n, m) for n, m in pairwise((of, 32, 64, 96, 128))] for of in (8, 16))
    tree = group_tree(dump(step, ts, fs, w(40, 8), w(24, 16)))
    found = Counter(x for x in tree.label if re.fullmatch(r"encoder_layer \d", x))
    assert found == {f"encoder_layer {k}": 4 for k in range(4)}  # two encoders, forward and back
    assert [x for x in tree.label if re.fullmatch(r"residual.* [2-7]", x)] == []


def test_tangents_without_a_gradient_are_no_forward_pass() -> None:
    def residuals(x: jax.Array, p: jax.Array) -> jax.Array:
        return jnp.tanh(jnp.sort(x) @ p) @ p.T - jnp.cumsum(x)

    def step(x: jax.Array, p: jax.Array) -> jax.Array:
        jacobian = jax.jacfwd(residuals)(x, p)
        return jnp.linalg.solve(jacobian.T @ jacobian, jacobian.T @ residuals(x, p))

    module = hs.capture(step, w(16), w(16, 32), exact=False).module
    assert not any(label.startswith("forward") for label in group_tree(module).label)


def test_a_layer_that_repetition_found_is_one_turn_of_the_loop_around_its_calls() -> None:
    """Of a gradient's gradient each line has many products, but ``update`` is called once."""
    program = ordinary("painn_forces")
    function, arguments = program.make()
    found = set(group_tree(dump(function, *arguments)).label)
    assert {"layer 0", "message", "update"} <= found
    assert not any(label.startswith(("message ", "update ")) for label in found)


def test_what_is_in_a_loop_is_not_said_to_be_outside_of_it() -> None:
    """A turn's call may be a box in the loop's own."""
    function, arguments = ordinary("smoke_control").make()
    found = group_tree(dump(function, *arguments)).label
    assert "laplace" in found
    assert "laplace, outside its loop" not in found


@pytest.mark.parametrize("exact", [True, False])
def test_two_calls_on_one_line_are_told_apart_by_what_they_are_given(exact: bool) -> None:
    def dense(p: Any, x: jax.Array) -> jax.Array:
        return jax.nn.softmax(x @ p["w"] + p["b"])

    def mlp(p: Any, x: jax.Array) -> jax.Array:
        return dense(p["down"], jax.nn.gelu(dense(p["up"], x)))

    def stack(layers: Any, x: jax.Array) -> jax.Array:
        for p in layers:
            x = x + mlp(p, jnp.sort(x, 0))
        return jnp.cumsum(jnp.sin(x), 0)

    part = {"w": w(32, 32), "b": w(32)}
    layers = [{"up": part, "down": part}] * 4
    cap = hs.capture(stack, layers, w(8, 32), exact=exact, provenance=exact)
    labels_ = Context(cap.module, cap.target).group_labels
    found = [x for x in labels_ if x.startswith("dense")]
    assert sorted(found) == 4 * ["dense · down"] + 4 * ["dense · up"]


@pytest.mark.parametrize(
    ("name", "calls"),
    [
        ("pinn", {"pde_loss", "initial_loss", "boundary_loss"}),
        ("maml", {"meta_task_loss/adapt", "meta_task_loss/task_loss"}),
    ],
)
def test_losses_on_other_values_keep_their_work(name: str, calls: set[str]) -> None:
    """What jax traced once, as its rule for ``tanh``, has the lines of the first of them."""
    function, arguments = ordinary(name).make()
    cap = hs.read(hs.capture(function, *arguments, exact=False, provenance=False).text)
    tree = group_tree(cap.module, cap.target)
    found = set()
    for row in np.flatnonzero(products(cap.module)).tolist():
        at, path = int(tree.group[row]), []
        while at > 1:
            path.append(tree.label[at])
            at = int(tree.parent[at])
        found.add("/".join(reversed(path)))
    forward = [path.partition("/")[2] for path in found if path.startswith("forward")]
    assert all(any(path.startswith(call) for path in forward) for call in calls)


def alive(x: jax.Array) -> jax.Array:
    return jnp.sort(x, 0) > 0.1


def cell(weight: jax.Array, x: jax.Array) -> jax.Array:
    before = alive(x)
    y = jnp.tanh(x @ weight)
    x = x + jnp.sin(y) @ weight.T
    return x * (before & alive(x))


def grown(weight: jax.Array, x: jax.Array) -> jax.Array:
    run = jax.checkpoint(partial(cell))

    def body(x: jax.Array, _: None) -> tuple[jax.Array, None]:
        return run(weight, x), None

    x, _ = jax.lax.scan(body, x, None, length=7)
    over = jnp.abs(x - jnp.clip(x, -2.0, 2.0)).mean()
    return jnp.square(x).mean() + 0.1 * over


def grow_step(weight: jax.Array, x: jax.Array) -> Any:
    x = jnp.cumsum(x, 1)
    value, gradient = jax.value_and_grad(grown)(weight, x)
    return weight - 0.1 * gradient / (jnp.linalg.norm(gradient) + 1e-8), value


def test_a_capture_has_its_passes_at_what_is_differentiated_if_something_is_computed_again() -> (
    None
):
    cap = hs.capture(grow_step, w(32, 32), w(8, 32))
    tree = group_tree(cap.module, cap.target)
    passes = {tree.label[g] for g in tree.forward | tree.backward}
    assert passes == {"forward · grown", "backward · grown"}


def one_loop(weight: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
    def turn(x: jax.Array, _: None) -> tuple[jax.Array, None]:
        return jnp.tanh(x @ weight) + jnp.sort(x, 0), None

    x, _ = jax.lax.scan(turn, x, None, length=7)
    return (x * y).sum()


def one_loop_step(weight: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
    x = jnp.cumsum(x, 1) / jnp.abs(x).max()
    gradient = jax.grad(one_loop)(weight, x, y)
    return weight - 0.1 * gradient / (jnp.linalg.norm(gradient) + 1e-8)


def test_a_pass_that_is_one_loop_is_said_to_be_a_pass() -> None:
    cap = hs.capture(one_loop_step, w(32, 32), w(8, 32), w(8, 32), exact=False, provenance=False)
    cap = hs.read(cap.text)
    tree = group_tree(cap.module, cap.target)
    around = [
        tree.label[int(tree.group[i.index])] for i in cap.module.instructions if i.opcode == "while"
    ]
    assert {name.partition(" ")[0] for name in around} == {"forward", "backward"}
