"""Layers are found by repetition where no scope names them; what stands around them is named."""

from __future__ import annotations

from typing import Any

import hloscope as hs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hloscope.analysis.base.labels.families import ID, families
from hloscope.analysis.base.phases.phases import OPTIMISER, PHASES, phases
from hloscope.analysis.grouping.folds import folds
from hloscope.analysis.grouping.groups import KINDS, GroupTree, group_tree
from hloscope.analysis.grouping.layers.layers import layers
from hloscope.hlo import Module
from hloscope.readers import read_modules


def rms(x: jax.Array, w: jax.Array) -> jax.Array:
    return x * jax.lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-5) * w


def attention(p: Any, x: jax.Array) -> jax.Array:
    q, k, v = x @ p["q"], x @ p["k"], x @ p["v"]
    return (jax.nn.softmax(q @ k.swapaxes(-1, -2), -1) @ v) @ p["o"]


def mlp(p: Any, x: jax.Array) -> jax.Array:
    return jax.nn.silu(x @ p["up"]) @ p["down"]


def block(p: Any, x: jax.Array) -> jax.Array:
    x = x + attention(p, rms(x, p["n"]))
    return x + mlp(p, rms(x, p["n"]))


def loss(params: Any, tokens: jax.Array) -> jax.Array:
    x = params["embed"][tokens]
    for p in params["layers"]:
        x = block(p, x)
    return jnp.square(jax.nn.log_softmax(x @ params["head"])).mean()


def adam(params: Any, mean: Any, tokens: jax.Array) -> Any:
    grads = jax.grad(loss)(params, tokens)
    mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, mean, grads)
    return jax.tree.map(lambda p, m: p - m, params, mean), mean


@pytest.fixture(scope="module")
def module() -> Module:
    def w(*shape: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, jnp.float32)

    one = {k: w(32, 32) for k in "qkvo"} | {"up": w(32, 64), "down": w(64, 32), "n": w(32)}
    params = {"embed": w(100, 32), "head": w(32, 100), "layers": [one] * 5}
    tokens = jax.ShapeDtypeStruct((2, 16), jnp.int32)
    return hs.capture(adam, params, params, tokens).module


def top(tree: GroupTree, above: str) -> list[str]:
    """Labels of the scopes directly in the scopes of one label."""
    at = {g for g, x in enumerate(tree.label) if x.startswith(above)}
    return [x for g, x in enumerate(tree.label) if int(tree.parent[g]) in at]


def test_a_python_loop_over_layers_is_five_blocks_forward_and_five_backward(
    module: Module,
) -> None:
    runs = layers(module).runs
    assert [(r.name, r.stack.count, r.recedes) for r in runs] == [
        ("block", 5, False),
        ("block", 5, True),
    ]
    assert runs[1].identity == runs[0].identity[::-1]  # the gradient of a layer knows its layer
    tree = group_tree(module)
    folded = [(f.label, len(f.members)) for f in folds(module, tree).folds]
    assert [n for label, n in folded if label == "block [0..4]"] == [5, 5]
    assert "attention" in top(tree, "block 3")
    assert "mlp" in top(tree, "block 3")


def test_every_product_of_a_layer_is_in_it(module: Module) -> None:
    found = layers(module)
    assert module.entry is not None
    matmul = families(module) == ID["matmul"]
    forward = [
        i
        for i in module.entry.instructions
        if matmul[i.index] and "jvp" in i.op_name and "transpose" not in i.op_name
    ]
    forward = [i for i in forward if found.layer[i.index] >= 0]  # not the head
    per_layer = np.bincount(found.layer[[i.index for i in forward]])
    assert per_layer.tolist() == [8] * 5
    # a later layer is never needed by an earlier one
    for i in forward:
        for o in i.operands:
            if found.layer[o.index] >= 0:
                assert found.layer[o.index] <= found.layer[i.index]


def test_what_stands_around_the_layers_is_named(module: Module) -> None:
    tree = group_tree(module)
    (entry,) = (g for g, k in enumerate(tree.kind) if KINDS[k] == "entry")
    first = [x for g, x in enumerate(tree.label) if tree.parent[g] == entry]
    assert sorted(x for x in first if not x.startswith("fused")) == [
        "backward · loss",
        "forward · loss",
        "optimizer · adam",
    ]


def test_momentum_that_only_the_optimiser_uses_is_the_optimisers() -> None:
    names = {
        "forward": "jit(step)/jvp()/dot_general",
        "backward": "jit(step)/transpose(jvp())/dot_general",
        "decayed": "jit(step)/mul",
        "mean": "jit(step)/add",
        "scaled": "jit(step)/mul",
    }
    (module,) = read_modules(
        f"""HloModule m
ENTRY %main {{
  %w = f32[4,4]{{1,0}} parameter(0)
  %m = f32[4,4]{{1,0}} parameter(1)
  %scaled = f32[4,4]{{1,0}} multiply(%w, %w), metadata={{op_name="{names["scaled"]}"}}
  %decayed = f32[4,4]{{1,0}} multiply(%m, %m), metadata={{op_name="{names["decayed"]}"}}
  %forward = f32[4,4]{{1,0}} dot(%scaled, %w), lhs_contracting_dims={{1}},
    rhs_contracting_dims={{0}}, metadata={{op_name="{names["forward"]}"}}
  %backward = f32[4,4]{{1,0}} dot(%forward, %w), lhs_contracting_dims={{1}},
    rhs_contracting_dims={{0}}, metadata={{op_name="{names["backward"]}"}}
  ROOT %mean = f32[4,4]{{1,0}} add(%decayed, %backward), metadata={{op_name="{names["mean"]}"}}
}}
""".replace(",\n    ", ", ")
    )
    got = {i.name: PHASES[p] for i, p in zip(module.instructions, phases(module), strict=True)}
    assert got["decayed"] == got["mean"] == PHASES[OPTIMISER]
    assert got["scaled"] == "forward"


def test_two_products_in_a_row_are_no_layers() -> None:
    def f(x: jax.Array, w: jax.Array) -> jax.Array:
        for _ in range(2):
            x = jnp.sort(jnp.tanh(jnp.cumsum(x, 0)), -1) @ w
        return jnp.cumsum(jnp.sort(x, 0), 1)

    a = jax.ShapeDtypeStruct((64, 64), jnp.float32)
    assert layers(hs.capture(f, a, a).module).runs == ()


def test_an_encoder_and_a_decoder_stay_apart() -> None:
    def f(x: jax.Array, y: jax.Array, ws: Any, vs: Any) -> jax.Array:
        for w in ws:
            x = jnp.tanh(x @ w["a"]) @ w["b"]
        for v in vs:
            y = jnp.tanh(y @ v["a"]) @ v["b"] + jax.nn.softmax(y @ x.T) @ x
        return y

    a = jax.ShapeDtypeStruct((64, 64), jnp.float32)
    one = {"a": a, "b": a}
    module = hs.capture(f, a, a, [one] * 4, [one] * 4).module
    assert [r.stack.count for r in layers(module).runs] == [4, 4]


def test_layers_are_called_by_their_function_where_xla_merged_their_reductions() -> None:
    mesh = jax.make_mesh((4, 2), ("data", "model"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    spec, named = jax.sharding.PartitionSpec, jax.sharding.NamedSharding

    def encode(p: Any, x: jax.Array) -> jax.Array:
        up = jax.nn.silu(rms(x, p["n"]) @ p["up"] + p["wide"])
        return x + up @ p["down"] @ p["o"] + p["b"]

    def total(params: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        for p in params["encoder"]:
            x = encode(p, x)
        for p in params["decoder"]:
            y = block(p, y + x)
        return jnp.square(y).mean()

    def array(*dims: int) -> jax.ShapeDtypeStruct:
        cut = {1: spec(), 2: spec("data", "model"), 3: spec("data")}[len(dims)]
        sharding = named(mesh, cut)
        return jax.ShapeDtypeStruct(dims, jnp.float32, sharding=sharding)

    small = {"up": array(32, 64), "down": array(64, 32), "n": array(32), "o": array(32, 32)}
    small |= {"wide": array(64), "b": array(32)}
    large = small | {k: array(32, 32) for k in "qkvo"}
    params = {"encoder": [small] * 4, "decoder": [large] * 6}
    found = hs.capture(jax.grad(total), params, array(8, 16, 32), array(8, 16, 32)).module
    runs = {(r.stack.count, r.name) for r in layers(found).runs}
    assert {(4, "encode"), (6, "block")} <= runs
    assert "layer" not in {name for _, name in runs}


def _stack_with_two_products_a_line(layers: int = 5) -> str:
    """Layers whose q and k are of one line; another stack reads q again."""
    a, w = "f32[64,64]{1,0}", "f32[64,64]{1,0}"
    dims = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    rows = [f"  x = {a} parameter(0)", f"  w = {w} parameter(1)", f"  c0 = {a} tanh(x)"]

    def dot(name: str, left: str, right: str, what: str) -> None:
        meta = f'metadata={{op_name="jit(f)/{what}"}}'
        rows.append(f"  {name} = {a} dot({left}, {right}), {dims}, {meta}")

    x = "x"
    for n in range(layers):
        dot(f"q{n}", x, "w", "project")
        dot(f"k{n}", x, "w", "project")
        dot(f"s{n}", f"q{n}", f"k{n}", "scores")
        dot(f"o{n}", f"s{n}", "w", "out")
        rows.append(f"  x{n} = {a} add({x}, o{n})")
        x = f"x{n}"
    dot("head", x, "w", "head")
    seen = "head"
    for n in range(layers):
        dot(f"read{n}", seen, f"q{layers - 1 - n}", "again")
        seen = f"read{n}"
    for n in range(24):  # large enough to be looked at
        rows.append(f"  t{n} = {a} tanh({seen})")
        seen = f"t{n}"
    rows.append(f"  ROOT r = {a} negate({seen})")
    return "\n".join(["HloModule m", "", "ENTRY e {", *rows, "}", ""])


def test_what_opens_a_layer_is_not_in_the_layer_before() -> None:
    (m,) = read_modules(_stack_with_two_products_a_line())
    found = layers(m).layer
    for n in range(5):
        of = [int(found[m.entry._by_name[f"{name}{n}"].index]) for name in "qkso"]  # type: ignore[union-attr]
        assert of == [n] * 4


def test_two_stacks_of_one_name_are_told_apart() -> None:
    a = "f32[64,64]{1,0}"
    rows = [f"  x = {a} parameter(0)", f"  w = {a} parameter(1)"]
    x = "x"
    for stack, (size, words) in enumerate(((6, "ab"), (4, "cd"))):
        for n in range(size):
            for word in words:
                meta = f'metadata={{op_name="jit(f)/{word}"}}'
                name = f"{word}{n}"
                dims = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
                rows.append(f"  {name} = {a} dot({x}, w), {dims}, {meta}")
                rows.append(f"  {name}t = {a} tanh({name})")
                x = f"{name}t"
        rows.append(f"  between{stack} = {a} sine({x})")
        x = f"between{stack}"
    rows.append(f"  ROOT r = {a} negate({x})")
    (m,) = read_modules("\n".join(["HloModule m", "", "ENTRY e {", *rows, "}", ""]))
    tree = group_tree(m)
    assert sorted(len(f.members) for f in folds(m, tree).folds) == [4, 6]


def test_layers_are_called_by_the_function_that_one_of_them_is() -> None:
    """Not by ``loss``, which has lines of its own, nor by ``two``, which a layer calls twice."""
    text = _steps(called=("process", "two", "two"))
    (run,) = layers(read_modules(text)[0]).runs
    assert (run.name, run.stack.count) == ("process", 4)
    (run,) = layers(read_modules(_steps(called=("", "", "")))[0]).runs
    assert (run.name, run.stack.count) == ("layer", 4)


def _steps(called: tuple[str, str, str]) -> str:
    """Four layers of two products each in a loop of ``loss``, with frames that say so."""
    around, first, second = called
    names = ["loss", *dict.fromkeys(n for n in called if n)]
    inner = around or "loss"
    # function, line and caller's frame: the loss itself, its loop, a layer's lines, what they call
    frames = [("loss", 9, 0), ("loss", 5, 0)]
    frames += [(inner, n, 2 if around else 0) for n in (21, 22)]
    frames += [(f or inner, 31 if f else n, k if f else 0)
               for f, n, k in ((first, 21, 3), (second, 22, 4))]  # fmt: skip
    tables = ["FileNames", '1 "/home/me/model.py"', "", "FunctionNames"]
    tables += [f'{k} "{n}"' for k, n in enumerate(names, 1)]
    tables += ["", "FileLocations"]
    tables += [
        f"{k} {{file_name_id=1 function_name_id={names.index(f) + 1} line={n} end_line={n} "
        "column=1 end_column=2}"
        for k, (f, n, _) in enumerate(frames, 1)
    ]
    tables += ["", "StackFrames"]
    tables += [
        f"{k} {{file_location_id={k} parent_frame_id={above + 1}}}"
        for k, (_, _, above) in enumerate(frames, 1)
    ]

    def row(name: str, what: str, frame: int) -> str:
        said = f'metadata={{op_name="jit(f)/op" stack_frame_id={frame}}}'
        return f"  {name} = f32[8,8]{{1,0}} {what}, {said}"

    body = ["  x = f32[8,8]{1,0} parameter(0)"]
    body += [f"  w{k} = f32[8,8]{{1,0}} parameter({k + 1})" for k in range(8)]
    at, dims = "x", "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    for k in range(8):
        body.append(row(f"d{k}", f"dot({at}, w{k}), {dims}", 5 + k % 2))
        body.append(row(f"t{k}", f"tanh(d{k})", 5 + k % 2))
        at = f"t{k}"
    body += [row("s", f"sine({at})", 1), row("ROOT r", "cosine(s)", 1)]
    return "\n".join(["HloModule m", "", *tables, "", "ENTRY e {", *body, "}", ""])
