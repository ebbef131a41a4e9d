"""Stacks of unusual layers: a part missing in one, work beside them, loops for layers."""

from __future__ import annotations

from typing import Any

import hloscope as hs
import jax
import jax.numpy as jnp
from hloscope.analysis.grouping.folds import folds
from hloscope.analysis.grouping.groups import group_tree
from hloscope.analysis.grouping.layers.layers import layers
from hloscope.hlo import Module
from hloscope.readers import read_modules

F = "f32[64,64]{1,0}"


def shape(*dims: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(dims, jnp.float32)


def runs(module: Module) -> list[tuple[int, bool]]:
    return [(r.stack.count, r.recedes) for r in layers(module).runs]


def chain(words: list[tuple[str, int]], layers: int, lead: str = "") -> str:
    """Layers in a row: each has these products, one after another, but for some layers."""
    dims = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    rows, x = [f"  x = {F} parameter(0)", f"  w = {F} parameter(1)"], "x"
    for n in range(layers):
        for word, missing in words:
            if n == missing:
                continue
            meta = f'metadata={{op_name="jit(f)/{lead}{word}"}}'
            rows.append(f"  {word}{n} = {F} dot({x}, w), {dims}, {meta}")
            rows.append(f"  {word}t{n} = {F} tanh({word}{n})")
            x = f"{word}t{n}"
    rows += [f"  ROOT r = {F} negate({x})"]
    return "\n".join(["HloModule m", "", "ENTRY m {", *rows, "}", ""])


def test_most_of_a_layer_may_be_missing_in_the_last() -> None:
    """The gradient of a first layer whose input needs none lacks the products that make one."""
    words = [("a", -1), ("b", -1), ("c", 4), ("d", 4), ("e", 4), ("f", 4)]
    (module,) = read_modules(chain(words, 5, "transpose(jvp())/"))
    assert runs(module) == [(5, True)]
    found = layers(module).layer
    assert module.entry is not None
    for n in range(5):
        of = [int(found[module.entry._by_name[f"{c}{n}"].index]) for c in "ab"]
        of += [int(found[module.entry._by_name[f"{c}{n}"].index]) for c in "cdef" if n < 4]
        assert of == [n] * len(of)


def test_one_product_more_than_layers_is_no_layer() -> None:
    """A head of the same name as a product of each layer."""
    words = [("a", -1), ("b", 4), ("c", 4), ("d", 4), ("e", 4)]
    (module,) = read_modules(chain(words, 5))
    assert runs(module) == [(4, False)]


def test_a_loop_counts_for_the_products_in_it() -> None:
    """Three recurrent layers are three loops and nothing else."""

    def run(params: Any, x: jax.Array) -> jax.Array:
        for p in params:

            def cell(h: jax.Array, x: jax.Array, p: Any = p) -> Any:
                h = jnp.tanh(x @ p["w"] + h @ p["u"]) * jax.nn.sigmoid(h @ p["g"])
                return h, h

            x = jax.lax.scan(cell, jnp.zeros((16, 64)), x)[1]
        return x

    one = {n: shape(64, 64) for n in "wug"}
    module = hs.capture(run, [one] * 3, shape(10, 16, 64)).module
    assert runs(module) == [(3, False)]


def beside(back: bool) -> str:
    """Four layers, and a sum of what each makes for something all of them look at.

    ``back``: the sum begins with the last layer, so that it comes after all of them.
    """
    dims = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    rows = [f"  x = {F} parameter(0)", f"  w = {F} parameter(1)"]

    def dot(name: str, left: str, right: str, word: str) -> None:
        meta = f'metadata={{op_name="jit(f)/{word}"}}'
        rows.append(f"  {name} = {F} dot({left}, {right}), {dims}, {meta}")

    x = "x"
    for n in range(4):
        for word in "abcd":
            dot(f"{word}{n}", x, "w", word)
            rows.append(f"  {word}t{n} = {F} tanh({word}{n})")
            x = f"{word}t{n}"
    rows.append(f"  s = {F} sine(w)")
    total = "s"
    for k in range(4):
        n = 3 - k if back else k
        for word in "ef":
            dot(f"{word}{n}", f"b{n}", total if word == "e" else "w", word)
        rows.append(f"  sum{n} = {F} add(e{n}, f{n})")
        rows.append(f"  next{n} = {F} cosine(sum{n})")
        total = f"next{n}"
    rows.append(f"  ROOT r = ({F}, {F}) tuple({x}, {total})")
    return "\n".join(["HloModule m", "", "ENTRY m {", *rows, "}", ""])


def test_what_each_layer_adds_to_a_sum_belongs_to_the_layer() -> None:
    (module,) = read_modules(beside(back=False))
    assert runs(module) == [(4, False)]
    found = layers(module).layer
    assert module.entry is not None
    for n in range(4):
        assert [int(found[module.entry._by_name[f"{c}{n}"].index]) for c in "abcdef"] == [n] * 6


def test_a_sum_the_other_way_round_is_a_stack_of_its_own() -> None:
    (module,) = read_modules(beside(back=True))
    found = layers(module).layer
    assert module.entry is not None
    of = {c: [int(found[module.entry._by_name[f"{c}{n}"].index]) for n in range(4)] for c in "ae"}
    assert of["a"] == [0, 1, 2, 3]
    assert of["e"] != [0, 1, 2, 3]


def module_of(rows: list[str]) -> Module:
    head = [f"  x = {F} parameter(0)", f"  w = {F} parameter(1)"]
    (module,) = read_modules("\n".join(["HloModule m", "", "ENTRY m {", *head, *rows, "}", ""]))
    return module


def dot(name: str, left: str, right: str, path: str, shape: str = F) -> str:
    dims = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    return f'  {name} = {shape} dot({left}, {right}), {dims}, metadata={{op_name="jit(f)/{path}"}}'


def layer_of(module: Module, name: str) -> int:
    assert module.entry is not None
    return int(layers(module).layer[module.entry._by_name[name].index])


def test_a_loss_is_no_part_of_the_first_gradient() -> None:
    rows, x = [], "x"
    for n in range(4):
        for word in "ab":
            rows.append(dot(f"{word}{n}", x, "w", f"jvp()/{word}"))
            x = f"{word}{n}"
    for n in range(20):
        rows.append(f'  l{n} = {F} sine({x}), metadata={{op_name="jit(f)/jvp()/sin{n}"}}')
        x = f"l{n}"
    for n in range(4):
        for word in "cd":
            rows.append(dot(f"{word}{n}", x, "w", f"transpose(jvp())/{word}"))
            x = f"{word}{n}"
    module = module_of([*rows, f"  ROOT r = {F} negate({x})"])
    assert runs(module) == [(4, False), (4, True)]
    assert [layer_of(module, f"l{n}") for n in (0, 10, 19)] == [-1] * 3


def test_a_decoder_may_begin_before_the_encoder() -> None:
    """Its first products need nothing of the encoder; those of the second layer need it all."""
    rows = [dot("a0", "x", "w", "a"), dot("b0", "a0", "w", "b")]
    seen = "w"
    for n in range(4):
        for word in "ef":
            rows.append(dot(f"{word}{n}", seen, "w", word))
            seen = f"{word}{n}"
    x = "b0"
    for n in range(4):
        for word in "ab" if n else "":
            rows.append(dot(f"{word}{n}", x, "w", word))
            x = f"{word}{n}"
        rows += [f"  t{n} = {F} tanh({x})", dot(f"c{n}", f"t{n}", seen, f"c{n}")]
        rows.append(f"  s{n} = {F} add({x}, c{n})")
        x = f"s{n}"
    module = module_of([*rows, f"  ROOT r = {F} negate({x})"])
    assert runs(module) == [(4, False), (4, False)]
    for n in range(4):
        assert layer_of(module, f"a{n}") == layer_of(module, f"c{n}") == layer_of(module, f"t{n}")


def test_levels_of_each_resolution_are_one_fold() -> None:
    """Four blocks of one line, each on half the picture of the one before."""
    rows, x, size = [], "x", 64
    for n in range(4):
        size //= 2
        half = f"f32[{size},64]{{1,0}}"
        rows.append(f"  h{n} = {half} slice({x}), slice={{[0:{size}], [0:64]}}")
        x = f"h{n}"
        for word in "ab":
            rows += [
                dot(f"{word}{n}", x, "w", word, half),
                f"  {word}t{n} = {half} tanh({word}{n})",
            ]
            x = f"{word}t{n}"
        rows += [f"  k{n}{m} = {half} sine({x})" for m in range(3)]
    module = module_of([*rows, f"  ROOT r = f32[{size},64]{{1,0}} negate({x})"])
    tree = group_tree(module)
    assert [len(f.members) for f in folds(module, tree).folds] == [4]
