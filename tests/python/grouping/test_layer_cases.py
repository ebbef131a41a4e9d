"""What an explorer shows around layers and what it calls them, on programs of a few rows."""

from __future__ import annotations

import pytest
from layered import BACKWARD, FORWARD, IN_STEP, Model, step


def after(spec: str, name: str, new: str) -> str:
    """``spec`` with more instructions behind one of them."""
    end = spec.index(" ", spec.index(f" {name}=") + 1)
    return f"{spec[:end]} {new}{spec[end:]}"


# -- a training step ---------------------------------------------------------------------------


def test_a_step_is_shown_as_its_passes_layers_and_what_is_around_them() -> None:
    m = Model(step(), IN_STEP)
    assert m.stacks() == [("layer", 4, False), ("layer", 4, True)]
    assert m.of("emb") == "forward > embedding"
    for k in range(4):
        assert m.at(f"n{k} h{k} t{k}") == {f"forward > layer {k}"}
        assert m.at(f"a{k} b{k} c{k} d{k}") == {f"backward > layer {k}"}
    assert m.at("logits loss") == {"forward > loss"}
    assert m.at("dloss dlast dout") == {"backward > loss"}  # the loss's own weights too
    assert m.of("demb") == "backward > embedding"
    assert m.at("u0 u3 uout utable") == {"optimizer"}


def test_without_gradients_there_are_no_passes_and_the_end_is_the_head() -> None:
    inference = step().partition(" dloss")[0]
    m = Model(f"{inference} e0=sine:loss e1=sine:e0 e2=tuple:e1", {})
    assert m.of("emb") == "embedding"
    assert m.at("n3 h3 t3") == {"layer 3"}
    assert m.at("logits loss e1") == {"head"}


def test_where_no_table_is_looked_up_it_is_the_input() -> None:
    """An input has no gradient: what is left of the backward pass is in no box."""
    m = Model(step(embed="sine:x", skip=True), IN_STEP)
    assert m.of("emb") == "forward > input"
    assert m.of("demb") == "backward"


def test_what_only_the_forward_pass_needs_is_in_none_of_the_gradients() -> None:
    """Figures that are reported, of the last layer and of the loss; one of the gradient."""
    spec = step().replace("r=tuple:", "q0=cosine:t3 q1=cosine:loss q2=add:emb,t3 q3=sine:d0 "
                          "r=tuple:q0,q1,q2,q3,")  # fmt: skip
    m = Model(spec, IN_STEP | {"q": FORWARD, "q3": BACKWARD})
    assert m.at("q0 q1 q2") == {"forward > loss"}
    assert m.of("q3") == "backward > embedding"


def test_what_is_done_again_for_the_gradient_is_where_it_was_first() -> None:
    """XLA computes a value of the embedding once more for the loss's gradient."""
    spec = after(step(), "dloss", "l.remat=sine:t3 l=multiply:l.remat,dloss")
    m = Model(spec.replace("dlast=dot:dloss", "dlast=dot:l"),
              IN_STEP | {"l": BACKWARD, "l.remat": BACKWARD})  # fmt: skip
    assert m.of("l.remat") == "backward > embedding"
    assert m.of("l") == "backward > loss"


def test_scopes_of_the_user_stay_where_no_layers_are_and_functions_are_within_the_ends() -> None:
    where = IN_STEP | {"emb": "jvp(jit(embed))", "logits": "jvp(head)", "loss": "jvp(jit(crit))"}
    m = Model(step(), where | {"demb": "transpose(jvp(jit(embed)))"})
    assert m.of("emb") == "forward > embedding > embed()"
    assert m.of("logits") == "forward > head"
    assert m.of("loss") == "forward > loss > crit()"
    assert m.of("demb") == "backward > embedding > embed()"


def test_a_layer_of_another_kind_before_the_others_is_no_embedding() -> None:
    """Four products before layers of one: more than half of six, the least that a layer does."""

    def of(products: int) -> str:
        at, made = "emb0", ["emb0=gather:table,x"]
        for name in "ijkl"[:products]:
            made.append(f"{name}=dot:{at},table")
            at = name
        spec = step(skip=True).replace("emb=gather:table,x", " ".join([*made, f"emb=sine:{at}"]))
        return Model(spec, IN_STEP | dict.fromkeys("ijkl", FORWARD)).of("emb")

    assert of(3) == "forward > embedding"
    assert of(4) == "forward > before layers"


def test_what_no_pass_names_is_of_the_pass_that_it_serves() -> None:
    """``s`` is in no scope: once the loss is made from it, once the loss's gradient."""
    spec = after(step(), "logits", "s=sine:out")
    assert Model(spec.replace("cosine:logits", "multiply:logits,s"), IN_STEP).of("s") == (
        "forward > loss"
    )
    spec = after(step(), "loss", "s=sine:t3")
    assert Model(spec.replace("exponential:loss", "multiply:loss,s"), IN_STEP).of("s") == (
        "backward > loss"
    )


def test_layers_that_no_pass_names_are_the_forward_passs() -> None:
    """A frozen network is differentiated in none of its layers."""
    m = Model(step(), IN_STEP | dict.fromkeys("nht", ""))
    assert [m.of(f"h{k}") for k in range(4)] == [f"forward > layer {k}" for k in range(4)]


def test_what_has_nothing_to_do_with_layers_is_in_none_of_the_boxes_around_them() -> None:
    m = Model(step().replace("r=tuple:", "q=sine:table r=tuple:q,"), IN_STEP | {"q": FORWARD})
    assert m.of("q") == "forward"
    assert m.at("x table out w0") == {"forward"}  # arguments


def test_where_gradients_have_no_layers_nothing_is_called_after_what_is_around_them() -> None:
    spec = step().partition(" dout=")[0]
    spec += (" dout=dot:dloss,t3 dlast=dot:dloss,out d=multiply:dlast,n3 q=sine:d "
             "uout=subtract:out,dout utable=subtract:table,q r=tuple:uout,utable")  # fmt: skip
    m = Model(spec, IN_STEP | {"q": BACKWARD})
    assert m.stacks() == [("layer", 4, False)]
    assert m.of("loss") == "forward > loss"
    assert m.at("dloss dout dlast d q") == {"backward"}


# -- the optimiser -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scope", "place"),
    [
        ("sgd", "optimizer · sgd"),  # the scope says what the box says
        ("sgd/inner", "optimizer · sgd > inner"),
        ("mine/sgd", "optimizer · sgd > mine > sgd"),
        ("mine", "optimizer > mine"),
    ],
)
def test_updates_are_in_the_optimisers_box(scope: str, place: str) -> None:
    m = Model(step(), IN_STEP | {"u2": scope})
    assert m.of("u2") == place
    assert m.of("u1") == place.partition(" >")[0]


def test_products_of_an_optimiser_are_no_layers_but_its_collectives_are_the_layers() -> None:
    """Muon's products of each weight, one after another, in four steps."""
    spec = step()
    made = " ".join(f"m{k}=dot:{f'm{k - 1}' if k else 'u0'},u0" for k in range(6))
    m = Model(spec.replace(" r=tuple:u0", f" {made} r=tuple:m5"), IN_STEP)
    assert m.stacks() == [("layer", 4, False), ("layer", 4, True)]
    assert m.at("m0 m5") == {"optimizer"}


def test_what_the_updated_model_predicts_is_outside_the_optimisers_box() -> None:
    m = Model(step().replace(" r=tuple:", " guess=dot:u0,uout told=slice:guess r=tuple:told,"),
              IN_STEP, {"told": "f32[4,4]"}, {"told": "slice={[0:4], [0:4]}"})  # fmt: skip
    assert m.at("guess told") == {""}
    assert m.of("u0") == "optimizer"


# -- names of layers ---------------------------------------------------------------------------


def scoped(count: int, names: int = 99) -> dict[str, str]:
    """Scopes ``block_0, block_1, …`` of the layers, the last of them for all others."""
    where = dict(IN_STEP)
    for k in range(count):
        n = min(k, names - 1)
        where |= {f"{x}{k}": f"jvp(block_{n})" for x in "nht"}
        where |= {f"{x}{k}": f"transpose(jvp(block_{n}))" for x in "abcd"}
    return where


def test_layers_that_the_user_named_keep_their_names() -> None:
    m = Model(step(), scoped(4))
    for k in range(4):
        assert m.at(f"n{k} h{k} t{k}") == {f"forward > block_{k}"}
        assert m.at(f"a{k} b{k} c{k} d{k}") == {f"backward > block_{k}"}
    model, gradients = m.layers.runs
    assert model.scopes == {("forward", f"block_{k}") for k in range(4)}
    assert gradients.scopes == {("backward", f"block_{k}") for k in range(4)}
    assert m.of("emb") == "forward > embedding"


def test_names_for_three_in_five_layers_tell_them_apart() -> None:
    three = Model(step(5), scoped(5, names=3))
    assert three.at("h2 h3 h4") == {"forward > block_2"}
    assert three.layers.runs[0].scopes == frozenset()  # but none is that of one layer alone
    two = Model(step(5), scoped(5, names=2))
    assert [two.of(f"h{k}") for k in range(5)] == [
        f"forward > block_{min(k, 1)} > layer {k}" for k in range(5)
    ]


def within(*names: str) -> dict[str, str]:
    """All layers in one scope, with these instructions."""
    where = (
        IN_STEP | dict.fromkeys("nht", "jvp(net)") | dict.fromkeys("abcd", "transpose(jvp(net))")
    )
    return where | {name: "jvp(net)" for name in names}


def test_a_scope_that_holds_only_layers_is_what_they_are_called() -> None:
    m = Model(step(), within())
    assert m.stacks() == [("net", 4, False), ("net", 4, True)]
    assert m.at("n1 h1 t1") == {"forward > net 1"}
    assert m.at("a1 b1 c1 d1") == {"backward > net 1"}


def test_a_scope_that_holds_a_product_more_is_around_the_layers() -> None:
    m = Model(step(), within("logits"))
    assert m.at("n1 h1 t1") == {"forward > net > layer 1"}
    assert m.at("a1 b1 c1 d1") == {"backward > net > layer 1"}
    assert m.of("logits") == "forward > net"


def test_gradients_whose_names_lack_the_scope_are_shown_where_their_layers_are() -> None:
    m = Model(step(), within("logits") | dict.fromkeys("abcd", BACKWARD))
    assert m.at("a1 b1 c1 d1") == {"backward > net > layer 1"}


def levels(first: list[str], second: list[str] | None = None) -> list[str]:
    """Layers of two products, the first and the second in these scopes."""
    n = len(first)
    spec = ["x!", *(f"w{k}!" for k in range(n))]
    at = "x"
    for k in range(n):
        spec.append(f"h{k}=dot:{at},w{k} t{k}=tanh:h{k} g{k}=dot:t{k},w{k} s{k}=sine:g{k}")
        at = f"s{k}"
    where: dict[str, str | None] = {"loss": "net/head", "end": "net/head"}
    for names, paths in (("ht", first), ("gs", second or first)):
        where |= {f"{c}{k}": path for c in names for k, path in enumerate(paths)}
    m = Model(" ".join([*spec, f"loss=dot:{at},x end=dot:loss,x r=tuple:end"]), where)
    return [m.of(f"h{k}") for k in range(n)]


def down(*numbers: int, below: str = "") -> list[str]:
    return [f"net/down_{n}{below}" for n in numbers]


def test_levels_that_hold_layers_stay_around_them() -> None:
    of = (0, 0, 1, 1, 2, 2)
    assert levels(down(*of)) == [f"net > down_{n} > layer {k}" for k, n in enumerate(of)]
    # what is in a level is in its layers
    assert levels(down(*of, below="/res")) == [
        f"net > down_{n} > layer {k} > res" for k, n in enumerate(of)
    ]


def test_scopes_that_are_no_levels_are_within_the_layers() -> None:
    twice = (0, 0, 1, 1, 0, 0)  # two turns through one
    assert levels(down(*twice)) == [f"net > layer {k} > down_{n}" for k, n in enumerate(twice)]
    # the last layers are half in one, half in another
    first, second = (0, 0, 1, 1, 1, 1), (0, 0, 1, 1, 2, 2)
    assert levels(down(*first), down(*second)) == [
        f"net > layer {k} > down_{n}" for k, n in enumerate(first)
    ]


# -- several stacks ----------------------------------------------------------------------------

ENCODE, DECODE = ("h", "t", "w"), ("g", "s", "v")


def two(count: int = 4, turned: bool = True) -> tuple[str, dict[str, str | None]]:
    """An encoder and a decoder, and their gradients, ``turned``: the other way round."""
    spec = ["x!", *(f"{w}{k}!" for w in "wv" for k in range(count)), "emb=gather:x,x"]
    at = "emb"
    for h, t, w in (ENCODE, DECODE):
        for k in range(count):
            spec.append(f"{h}{k}=dot:{at},{w}{k} {t}{k}=tanh:{h}{k}")
            at = f"{t}{k}"
        spec.append("mid=cosine:" + at if h == "h" else f"loss=sine:{at} dl=cosine:loss")
        at = "mid" if h == "h" else "dl"
    back = [("p", "q", "g", "v"), ("y", "z", "h", "w")][:: 1 if turned else -1]
    for p, q, h, w in back:
        for k in reversed(range(count)):
            spec.append(f"{p}{k}=multiply:{at},{h}{k} {q}{k}=dot:{p}{k},{w}{k}")
            at = f"{q}{k}"
        spec.append(f"dx=scatter:{at} r=tuple:dx" if p == back[1][0] else f"dmid=sine:{at}")
        at = "dmid"
    where: dict[str, str | None] = {n: FORWARD for n in "emb h t mid g s loss".split()}
    return " ".join(spec), where | {n: BACKWARD for n in "dl p q dmid y z dx".split()}


def test_an_encoder_and_a_decoder_are_two_stacks_with_something_between_them() -> None:
    m = Model(*two())
    assert m.stacks() == [("layer", 4, False), ("layer B", 4, False),
                          ("layer B", 4, True), ("layer", 4, True)]  # fmt: skip
    assert [m.of(n) for n in ("emb", "h0", "t3", "mid", "g0", "s3", "loss")] == [
        "forward > embedding", "forward > layer 0", "forward > layer 3", "forward > between layers",
        "forward > layer B 0", "forward > layer B 3", "forward > loss",
    ]  # fmt: skip


def test_gradients_of_a_decoder_come_before_those_of_its_encoder() -> None:
    m = Model(*two())
    assert [m.of(n) for n in ("dl", "p3", "q0", "dmid", "y3", "z0", "dx")] == [
        "backward > loss", "backward > layer B 3", "backward > layer B 0",
        "backward > between layers", "backward > layer 3", "backward > layer 0",
        "backward > embedding",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("scope", "wanted"),
    [
        ("", ["layer", "layer B", "layer C"]),
        ("netB", ["netB", "netB B", "netB C"]),  # the letter is a part of the name
        ("net B", ["net B", "net C", "net D"]),
        ("net b", ["net b", "net b B", "net b C"]),
    ],
)
def test_stacks_of_one_name_have_letters(scope: str, wanted: list[str]) -> None:
    at, arguments, rows = "x", ["x!"], []
    for s in "abc":
        for k in range(4):
            arguments.append(f"w{s}{k}!")
            rows.append(f"{s}h{k}=dot:{at},w{s}{k} {s}t{k}=tanh:{s}h{k}")
            at = f"{s}t{k}"
        rows.append(f"{s}m=sine:{at}")
        at = f"{s}m"
    where = {f"{s}{c}": scope for s in "abc" for c in "ht"}
    m = Model(" ".join([*arguments, *rows, f"r=tuple:{at}"]), where)
    assert [name for name, _, _ in m.stacks()] == wanted


def test_towers_side_by_side_have_the_gradients_of_their_own_lines() -> None:
    """Theirs are in the order of the towers; lines of the code say which is whose."""
    lines: dict[str, list[tuple[str, int]]] = {n: [("encode", 1)] for n in "hz"}
    lines |= {n: [("decode", 2)] for n in "gq"}
    m = Model(*two(turned=False), calls=lines)
    assert m.stacks() == [("encode", 4, False), ("decode", 4, False),
                          ("encode", 4, True), ("decode", 4, True)]  # fmt: skip
    assert [m.of(n) for n in ("z3", "z0", "q3", "q0")] == [
        "backward > encode 3", "backward > encode 0",
        "backward > decode 3", "backward > decode 0",
    ]  # fmt: skip
