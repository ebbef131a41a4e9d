"""What belongs to gradients, to a table's lookup, to a loop beside layers: rows in a few words."""

from __future__ import annotations

import hloscope as hs
import numpy as np
import pytest
from hloscope.analysis.base.lines.op_name import BACKWARD, FORWARD
from hloscope.analysis.grouping.layers.ends import LOOP, looks_up, of_gradients, of_loops, only_for
from hloscope.analysis.grouping.layers.layers import layers
from hloscope.analysis.grouping.layers.repeats import NEVER, Repeats, Stack
from small_graphs import Small

# -- the backward pass -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "backward", "forward", "wanted"),
    [
        ("x! a:x b:a c:x", "a", "", "a b"),  # what needs a gradient is one; x serves c too
        ("x! a:x b:a c:b d:a", "b", "", "b c"),
        ("x! a:x b:a", "b", "", "a b"),  # what only gradients use
        ("x! a:x b:a", "b", "a", "b"),  # but not what is of the forward pass by its name
        ("x! a:x b:a", "b", "x a", "b"),
        ("x! y! a:x b:a,y c:a", "b", "", "y b"),  # a has another user
        ("x! a:x b:x,a c:a", "b", "", "b"),
        ("x! a:x b:a c:b d:b", "d", "", "d"),
        ("x! a:x b:a c:b d:b", "c d", "", "b c d"),
        ("x! y! a:x b:y", "b", "", "y b"),
        ("x! a:x b:x", "a b", "", "x a b"),
        ("x! a:x b:x", "a", "", "a"),
        ("x! a:x b:x", "x", "", "x a b"),  # the first row may be one
        ("x! a:x b:x c:a d:b", "c", "", "a c"),
        ("x! a:x b:a", "", "", ""),
        ("x! b:a a:x", "a", "", "x a"),  # used before it is made, as damaged text may have it
    ],
)
def test_what_needs_a_gradient_or_only_gradients_use_is_of_the_backward_pass(
    spec: str, backward: str, forward: str, wanted: str
) -> None:
    s = Small(spec)
    said = {name: (BACKWARD,) for name in backward.split()}
    said |= {name: (FORWARD,) for name in forward.split()}
    late = of_gradients(s.t, s.first, [said.get(name, ()) for name in s.names])
    assert " ".join(n for n, is_one in zip(s.names, late, strict=True) if is_one) == wanted


# -- lookups -----------------------------------------------------------------------------------

INSIDE = """picked {
  p = f32[8,8] parameter(0)
  ROOT q = f32[8,8] gather(p, p)
}
made {
  p = f32[8,8] parameter(0)
  ROOT q = f32[8,8] negate(p)
}
"""


def test_a_lookup_is_a_gather_or_a_fusion_of_one_or_called_like_one() -> None:
    names = {"n": "one_hot/eq", "m": "Embedder/dot", "l": "jvp(take)/mul"}
    names |= {"k": "mistake/mul", "j": "embedding", "i": "retake_/mul"}
    names = {x: f"jit(f)/{name}" for x, name in names.items()}
    fusions = {x: f"kind=kLoop, calls={c}" for x, c in (("f", "picked"), ("h", "made"))}
    s = Small("x! g=gather:x,x f=fusion:x h=fusion:x n:x m:x l:x k:x j:x i:x", names,
              more=fusions, before=INSIDE)  # fmt: skip
    found = {name: looks_up(s.t, np.array(s.rows(name))) for name in "gfhnmlkji"}
    assert "".join(name for name, is_one in found.items() if is_one) == "gfnmlj"
    assert looks_up(s.t, np.array(s.rows("h k f")))  # one of several
    assert looks_up(s.t, np.array(s.rows("h f")))
    assert not looks_up(s.t, np.array(s.rows("x h k")))
    assert not looks_up(s.t, np.array([], np.int64))


# -- loops beside layers -----------------------------------------------------------------------


def beside(
    spec: str, work: dict[str, int], taken: str = "", late: str = "", layer: str = "a"
) -> str:
    """What a loop, and all that only it needs, is beside the layers.

    ``taken``: rows that may not be; ``late``: what depends on a layer; ``layer``: one of its rows.
    """
    s = Small(spec, more={n: "condition=i, body=i" for n in "lk"},
              before="i {\n  ROOT i0 = f32[8,8] parameter(0)\n}\n")  # fmt: skip
    size = len(s.names)
    after = np.full(size, -1, np.int64)
    after[s.here(late)] = 0
    free = np.ones(size, bool)
    free[s.here(f"{taken} {layer}")] = False
    products = np.ones(len(s.module.instructions), np.int64)
    for name, count in work.items():
        products[s.at(name)] = count
    spine = Stack(s.c, ((s.at(layer), s.at(layer)),))
    found = Repeats((spine,), s.first, (0,), after, after, np.full(size, NEVER, np.int64))
    out = of_loops(s.t, found, free, products)
    return " ".join(n for n, is_one in zip(s.names, out, strict=True) if is_one)


SPEC = "x! y! p:x q:p l=while:q g:l a:y,g"


@pytest.mark.parametrize(
    ("spec", "more", "wanted"),
    [
        (SPEC, {}, "p q l"),
        (SPEC, {"work": {"l": LOOP - 1}}, ""),  # less than a layer's work
        (SPEC, {"work": {"l": LOOP, "a": LOOP}}, "p q l"),  # no loop, no part
        (SPEC, {"taken": "l"}, ""),
        (SPEC, {"taken": "p"}, "q l"),
        (SPEC, {"late": "p"}, "q l"),  # what a layer made
        ("x! y! p:x q:p l=while:q g:l a:y,g,p", {}, "q l"),  # the layer needs p
        ("x! y! p:x q:x l=while:p a:q", {}, "p l"),
        ("x! y! p:x l=while:p k=while:l a:k", {}, "p l"),
        ("x! y! p:x l=while:p k=while:l a:k", {"work": {"l": LOOP, "k": LOOP}}, "p l k"),
        ("x! y! p:x l=while:p k=while:p a:k", {}, "l"),
        ("x! p:x a:p", {"work": {}}, ""),
        ("x! e:x a:e p:a l=while:p g:l", {"late": "p"}, "l"),  # it needs the layer, which needs e
    ],
)
def test_a_loop_that_does_a_layers_work_stands_beside_them_with_what_it_alone_needs(
    spec: str, more: dict[str, dict[str, int]], wanted: str
) -> None:
    given: dict = {"work": {"l": LOOP}} | more
    assert beside(spec, **given) == wanted


# -- what only the loss needs ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "loose", "ends", "wanted"),
    [
        ("x! a:x b:a", "a", "b", "a"),
        ("x! a:x c:a b:c", "a c", "b", "a c"),  # through another of them
        ("x! a:x c:a b:a", "a", "b", ""),  # c needs it too
        ("x! a:x c:a b:a", "a c", "b", ""),  # and nobody needs c
        ("x! a:x b:a c:a", "a", "b c", "a"),
        ("x! a:x b:x", "a", "b", ""),  # nobody needs it
        ("x! a:x b:a", "a", "", ""),
        ("x! a:x b:a", "", "b", ""),
        ("x! a:x c:a d:c b:a", "a c", "b d", "a c"),
        ("x! a:x c:a d:c b:a", "a c", "b", ""),  # d needs c, and c needs a
        ("x! a:x b=tuple:a", "a", "b", ""),  # a result
        ("x! a:x b:a c=tuple:a,b", "a", "b c", ""),
    ],
)
def test_what_only_the_loss_needs_is_found_through_others(
    spec: str, loose: str, ends: str, wanted: str
) -> None:
    s = Small(spec)
    masks = []
    for names in (loose, ends):
        masks.append(np.zeros(len(s.names), bool))
        masks[-1][s.here(names)] = True
    spine = Stack(s.c, ((s.at("x"), s.at("x")),))
    nowhere = np.full(len(s.names), -1, np.int64)
    found = Repeats((spine,), s.first, (0,), nowhere, nowhere, nowhere)
    out = only_for(s.t, found, masks[0], masks[1])
    assert " ".join(n for n, is_one in zip(s.names, out, strict=True) if is_one) == wanted


def test_labels_are_in_the_loss_and_words_for_a_gradient_in_the_embedding() -> None:
    def op(name: str, of: str, at: str, scope: str = "jvp()") -> str:
        code = {"dot": "dot", "tanh": "tanh"}.get(of, of)
        dims = ", lhs_contracting_dims={1}, rhs_contracting_dims={0}" if code == "dot" else ""
        meta = f'metadata={{op_name="jit(f)/{scope}/{of}"}}'
        return f"  {name} = f32[8,8] {code}({at}){dims}, {meta}"

    rows = ["HloModule m, is_scheduled=true", "", "ENTRY main {"]
    rows += [f"  w{k} = f32[8,8] parameter({k})" for k in range(4)]
    rows += [f"  {n} = f32[8,8] parameter({k + 4})" for k, n in enumerate(("x", "words", "labels"))]
    rows += [op("index", "negate", "words"), op("hot", "cosine", "labels"), op("e", "sine", "x")]
    at, back = "e", "transpose(jvp())"
    for k in range(4):
        rows += [op(f"d{k}", "dot", f"{at}, w{k}"), op(f"t{k}", "tanh", f"d{k}")]
        at = f"t{k}"
    rows += [op("loss", "multiply", f"{at}, hot"), op("g4", "sqrt", "loss", back)]
    for k in range(3, -1, -1):
        rows += [
            op(f"b{k}", "dot", f"g{k + 1}, w{k}", back),
            op(f"g{k}", "multiply", f"b{k}, d{k}", back),
        ]
    rows += [op("scatter", "add", "g0, index", back), "  ROOT r = f32[8,8] negate(scatter)", "}"]
    module = hs.read("\n".join(rows)).module
    found = layers(module).scopes
    of = {i.name: found.paths[found.scope[i.index]] for i in module.entry.instructions}
    assert of["hot"] == of["loss"] == ("forward", "loss")
    assert of["index"] == ("forward", "input")
