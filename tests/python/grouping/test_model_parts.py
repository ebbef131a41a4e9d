"""The parts of a model in its first picture: what a name or place of an operation makes it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import hloscope as hs
import jax
import jax.numpy as jnp
import numpy as np
from hloscope.analysis.base.labels.flags import LITTLE, PLUMBING, flags
from hloscope.analysis.base.lines.op_name import parse_op_name
from hloscope.analysis.base.phases.phases import PHASES, phases
from hloscope.analysis.grouping.groups import KINDS, group_tree
from hloscope.analysis.grouping.scopes import scopes
from hloscope.analysis.grouping.work import shares
from hloscope.analysis.grouping.worth import worth, worth_opening
from hloscope.hlo import Module
from hloscope.readers import read_modules
from hloscope.show import blocks
from hloscope.view.schema import joined


def before_optimisations(fn: Callable[..., Any], *args: Any) -> Module:
    text = jax.jit(fn).lower(*args).as_text(dialect="hlo", debug_info=True)
    return read_modules(text.encode())[0]


def array(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def mlp(weights: Any, x: jax.Array) -> jax.Array:
    for w in weights:
        x = jnp.tanh(x @ w)
    return x


def test_moments_of_a_frozen_weight_are_the_optimisers() -> None:
    def step(params: Any, moments: Any, count: jax.Array, x: jax.Array) -> Any:
        def loss(trained: Any) -> jax.Array:
            return jnp.square(x @ params["frozen"] @ trained).mean()

        grads = {"trained": jax.grad(loss)(params["trained"]), "frozen": 0.0}
        count = count + 1
        bias = 1 - 0.9**count
        moments = {k: 0.9 * moments[k] + 0.1 * grads[k] for k in moments}
        return {k: params[k] - moments[k] / bias for k in params}, moments, count, x.mean()

    w = {"trained": array(8, 8), "frozen": array(8, 8)}
    module = before_optimisations(step, w, w, array(), array(4, 8))
    of = [PHASES[p] for p in phases(module)]
    entry = [i for i in module.instructions if i.computation is module.entry]
    decays = [i for i in entry if i.opcode == "multiply" and i.shape.dimensions == (8, 8)]
    assert len(decays) >= 3
    assert {of[i.index] for i in decays} == {"optimiser"}
    subtract = [i for i in entry if i.opcode == "subtract" and i.shape.dimensions == (8, 8)]
    assert [of[i.index] for i in subtract] == ["optimiser"] * 2
    # What the model reads is no state of the optimiser, however loose it hangs.
    means = [i for i in entry if i.opcode == "divide" and i.shape.dimensions == ()]
    assert "forward" in {of[i.index] for i in means}


def test_a_loop_with_more_work_than_the_layers_is_no_head() -> None:
    def generate(encoder: Any, unet: Any, prompt: jax.Array, noise: jax.Array) -> jax.Array:
        context = mlp(encoder, prompt)
        inner = jax.jit(lambda x: mlp(unet, x) + context)
        return jax.lax.fori_loop(0, 25, lambda _, x: x - 0.1 * inner(x), noise)

    weights = [array(16, 16)] * 12
    module = before_optimisations(generate, weights, weights * 2, array(4, 16), array(4, 16))
    tree = group_tree(module)
    assert not {"head", "embedding", "input"} & set(tree.label)


def test_what_meets_gradients_alone_is_of_the_loss() -> None:
    f, dims = "f32[8,8]{1,0}", "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    named = 'metadata={op_name="jit(f)/%s/%s"}'
    rows, x = [f"  x = {f} parameter(0)", f"  w = {f} parameter(1)", f"  y = {f} parameter(2)"], "x"
    for k in range(6):
        rows.append(f"  d{k} = {f} dot({x}, w), {dims}, " + named % ("jvp()", "dot_general"))
        rows.append(f"  t{k} = {f} tanh(d{k}), " + named % ("jvp()", "tanh"))
        x = f"t{k}"
    rows.append(f"  also = {f} sine(y), " + named % ("jvp()", "sin"))
    rows.append(f"  more = {f} cosine(also), " + named % ("jvp()", "cos"))
    rows.append(f"  h = {f} add({x}, more), " + named % ("transpose(jvp())", "add"))
    x = "h"
    for k in reversed(range(6)):
        rows.append(f"  n{k} = {f} subtract({x}, more), " + named % ("transpose(jvp())", "sub"))
        rows.append(
            f"  b{k} = {f} dot(n{k}, t{k}), {dims}, " + named % ("transpose(jvp())", "dot_general")
        )
        x = f"b{k}"
    text = "\n".join(["HloModule m", "ENTRY main {", *rows, f"  ROOT r = ({f}) tuple({x})", "}"])
    (module,) = read_modules(text.encode())
    tree = group_tree(module)
    found = {i.name: tree.label[tree.group[i.index]] for i in module.instructions}
    assert "loss" in found["also"]
    assert "loss" in found["more"]


def test_a_backward_pass_whose_layers_are_not_found_is_not_all_loss() -> None:
    rows = ["  x = f32[8,8]{1,0} parameter(0)"]
    last, names = "x", []
    for k in range(6):
        rows += [f"  w{k} = f32[8,8]{{1,0}} parameter({k + 1})"]
        rows += [
            f"  d{k} = f32[8,8]{{1,0}} dot({last}, w{k}), lhs_contracting_dims={{1}}, "
            f'rhs_contracting_dims={{0}}, metadata={{op_name="jit(f)/jvp()/dot_general"}}',
            f'  t{k} = f32[8,8]{{1,0}} tanh(d{k}), metadata={{op_name="jit(f)/jvp()/tanh"}}',
        ]
        last = f"t{k}"
    for k in range(6):  # each of its own kind
        shape = f"f32[{k + 1},8]{{1,0}}"
        rows += [
            f"  s{k} = {shape} slice({last}), slice={{[0:{k + 1}], [0:8]}}, "
            'metadata={op_name="jit(f)/transpose(jvp())/slice"}',
            f"  b{k} = {shape} dot(s{k}, w{5 - k}), lhs_contracting_dims={{1}}, "
            'rhs_contracting_dims={1}, metadata={op_name="jit(f)/transpose(jvp())/dot_general"}',
        ]
        names.append(f"b{k}")
    rows += [f"  ROOT r = (f32[1,8]{{1,0}}) tuple({names[0]})"]
    text = "\n".join(["HloModule m", "ENTRY main {", *rows, "}"])
    (module,) = read_modules(text.encode())
    tree = group_tree(module)
    assert "layer" in "".join(tree.label)
    for i in module.instructions:
        if i.name in names:
            label = tree.label[tree.group[i.index]]
            assert not {"loss", "embedding", "input"} & set(label.split("/"))


def test_a_table_that_the_first_layer_alone_looks_up_is_the_embedding(libtpu: None) -> None:
    def loss(params: Any, tokens: jax.Array) -> jax.Array:
        x = params["embed"][tokens]
        for w in params["layers"]:
            norm = x * jax.lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-5)
            x = x + jnp.tanh(norm @ w) @ w.T
        return jax.nn.log_softmax(x @ params["head"]).mean()

    params = {
        "embed": array(512, 256), "head": array(256, 512), "layers": [array(256, 256)] * 6,
    }  # fmt: skip
    tokens = jax.ShapeDtypeStruct((4, 64), jnp.int32)
    capture = hs.capture(jax.grad(loss), params, tokens, topology="v5e:2x2", exact=False)
    tree = group_tree(capture.module)
    around = set()
    for i in capture.module.instructions:
        if i.opcode == "fusion" and "gather" in i.name:
            around.add(tree.label[tree.group[i.index]])
    assert around
    assert not any(label.startswith("layer") for label in around)


def test_weights_brought_into_order_before_a_loop_are_one_box() -> None:
    def model(weights: Any, x: jax.Array) -> jax.Array:
        with jax.named_scope("decoder"):
            stacked = [jnp.moveaxis(w, 1, 0) for w in weights]
            x = x * 2
            x, _ = jax.lax.scan(lambda x, ws: (mlp(ws, x), None), x, stacked)
            return x + 1

    module = before_optimisations(model, [array(16, 6, 16)] * 12, array(4, 16))
    tree = group_tree(module)
    moved = [i for i in module.instructions if i.opcode == "transpose"]
    assert len(moved) == 12
    assert len({int(tree.group[i.index]) for i in moved}) == 1
    (group,) = {int(tree.group[i.index]) for i in moved}
    assert KINDS[tree.kind[group]] == "component"
    assert tree.size[group] < 15


def test_the_forward_pass_opens_first() -> None:
    def loss(weights: Any, x: jax.Array) -> jax.Array:
        return mlp(weights, x).sum()

    capture = hs.capture(jax.grad(loss), [array(64, 64)] * 6, array(64, 64))
    tree = group_tree(capture.module)
    share, rank = worth(capture.module, tree), worth_opening(capture.module, tree)
    late = tree.label.index("backward")
    assert rank[late] < share[late]
    assert np.array_equal(rank[: late - 1], share[: late - 1])


def test_an_applied_module_is_named_once() -> None:
    assert parse_op_name("jit(f)/Model.apply/Model/decoder/mul") == ("Model", "decoder")
    assert parse_op_name("jit(f)/Model.encode/Model/mul") == ("Model.encode", "Model")


CUT_SHORT = """HloModule m
ENTRY main {
  p = f32[4]{0} parameter(0)
  c = f32[4]{0} cosine(p), metadata={op_name="jit(f)/layers/cos"}
  m = f32[4]{0} multiply(p, c), metadata={op_name="jit(f)/jvp(Model)/decoder/layers/mul"}
  t = f32[4]{0} tanh(m), metadata={op_name="jit(f)/transpose(jvp(Model))/decoder/layers/tanh"}
  ROOT r = f32[4]{0} custom-call(t), custom_call_target="xla.sdy.FuncResultSharding"
}
"""


def test_a_name_that_jax_cut_short_is_in_its_place() -> None:
    (module,) = read_modules(CUT_SHORT.encode())
    found = scopes(module)
    paths = {i.name: found.paths[found.scope[i.index]] for i in module.instructions}
    assert paths["c"] == ("forward", "Model", "decoder", "layers") == paths["m"]


def test_how_a_result_is_sharded_is_no_box() -> None:
    (module,) = read_modules(CUT_SHORT.encode())
    assert flags(module)[module.instructions[-1].index] & PLUMBING


def test_pieces_of_a_fourier_transform_are_no_layers(libtpu: None) -> None:
    """A TPU makes products of transforms; what is repeated there is no part of the model."""

    def gravity(x: jax.Array) -> jax.Array:
        k = jnp.fft.fftfreq(32)
        d = jnp.fft.rfftn(x)
        both = (k[:, None, None], k[None, :, None])
        return jnp.stack([jnp.fft.irfftn(-1j * q * d, (32,) * 3) for q in both], -1)

    def energy(x: jax.Array) -> jax.Array:
        return jnp.sum(gravity(x) ** 2)

    x = jax.ShapeDtypeStruct((32, 32, 32), jnp.float32)
    tree = group_tree(hs.capture(jax.grad(energy), x, topology="v5e:1x1", exact=False).module)
    assert not [label for label in tree.label if re.search(r"^\w+ \d+$", label)]


def test_what_does_little_of_the_work_is_marked_and_nothing_else_is() -> None:
    """A sum over all of a large array is most of this program, fused or not."""

    def f(x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jax.lax.cummax(jnp.sort(x)), jnp.cumsum(y)

    capture = hs.capture(f, jnp.ones((1024, 1024)), jnp.ones(8), exact=False)
    _, columns = joined(blocks.view(capture), blocks.analyses(capture))
    module = capture.module
    little = (columns["instruction.flags"] & LITTLE) != 0
    entry = [i for i in module.entry.instructions if i.opcode not in ("parameter", "tuple")]
    large = [
        i for i in entry if i.shape.byte_size > 1 << 20 and i.opcode in ("sort", "reduce-window")
    ]
    assert large
    assert not any(little[i.index] for i in large if shares(module)[i.index] > 0.1)
    assert any(shares(module)[i.index] > 0.1 for i in large)
    assert all(little[i.index] for i in entry if i.shape.byte_size < 1 << 10)
