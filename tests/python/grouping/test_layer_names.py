"""What layers are called: by the scope that holds them, or by the function that each of them is."""

from __future__ import annotations

import pytest
from layered import FORWARD, IN_STEP, Model, step
from stacked import Stack

# -- scopes ------------------------------------------------------------------------------------


def chained(layers: int, beside: int, layer: str = "net", other: str = "net") -> Model:
    """Layers of five products, and products beside them, in these scopes."""
    spec, at = ["x! w!"], "x"
    for k in range(layers):
        for name in "abcde":
            spec.append(f"{name}{k}=dot:{at},w")
            at = f"{name}{k}"
    for name in "ijkl"[:beside]:
        spec.append(f"{name}=dot:{at},w")
        at = name
    spec += [f"s{k}=sine:{f's{k - 1}' if k else at}" for k in range(20)]
    return Model(" ".join(spec), dict.fromkeys("abcde", layer) | dict.fromkeys("ijkl", other))


@pytest.mark.parametrize(
    ("layers", "beside", "layer", "name", "place"),
    [
        (4, 0, "net", "net", "net 1"),
        (4, 2, "net", "net", "net 1"),  # two beside twenty
        (4, 3, "net", "layer", "net > layer 1"),
        (6, 3, "net", "net", "net 1"),
        (6, 4, "net", "layer", "net > layer 1"),
        (4, 0, "outer/net", "net", "outer > net 1"),
        (4, 3, "outer/net", "layer", "outer > net > layer 1"),
        (4, 0, "net/while/body", "layer", "net > while > body > layer 1"),  # no name of a layer
        (4, 0, "", "layer", "layer 1"),
    ],
)
def test_layers_are_called_like_a_scope_that_holds_little_else(
    layers: int, beside: int, layer: str, name: str, place: str
) -> None:
    m = chained(layers, beside, layer, layer)
    assert m.stacks() == [(name, layers, False)]
    assert m.of("a1") == place


def test_the_name_of_a_jitted_function_is_its_own() -> None:
    assert chained(4, 0, "jit(net)").stacks() == [("net", 4, False)]


def test_products_of_an_optimiser_in_the_same_scope_are_no_others() -> None:
    """They are in ``net`` too, but after the gradients."""
    made = "".join(f" {name}=dot:u0,u0" for name in "ijkl")
    spec = step().replace(" r=tuple:", f"{made} r=tuple:i,j,k,l,")
    where = (
        IN_STEP | dict.fromkeys("nht", "jvp(net)") | dict.fromkeys("abcd", "transpose(jvp(net))")
    )
    m = Model(spec, where | dict.fromkeys("ijkl", "net"))
    assert m.stacks() == [("net", 4, False), ("net", 4, True)]


# -- functions ---------------------------------------------------------------------------------

LOSS: Stack = [("loss", 5)]


def called(
    *inside: Stack,
    beside: Stack | None = (("loss", 9),),
    collective: Stack | None = None,
    layers: int = 4,
) -> Model:
    """Layers of two products that ``loss`` runs in its line 5, each with a Python stack."""
    first, second = inside
    spec, at = ["x!", *(f"w{k}! v{k}!" for k in range(layers))], "x"
    for k in range(layers):
        spec.append(f"h{k}=dot:{at},w{k} t{k}=tanh:h{k} g{k}=dot:t{k},v{k} s{k}=sine:g{k}")
        at = f"s{k}"
        if collective:
            spec.append(f"c{k}=all-reduce:{at}")
            at = f"c{k}"
    spec.append(f"head=cosine:{at} r=tuple:head")
    calls = {"h": first, "t": first, "g": second, "s": second, "c": collective, "head": beside}
    known = {name: stack for name, stack in calls.items() if stack}
    groups = {f"c{k}": "replica_groups={}" for k in range(layers)}
    return Model(" ".join(spec), {}, None, groups, calls=known)


def name_of(m: Model) -> str:
    (run,) = m.layers.runs
    return run.name


BLOCK: tuple[Stack, Stack] = ([*LOSS, ("block", 21)], [*LOSS, ("block", 22)])


def test_layers_are_called_like_the_function_that_each_of_them_is() -> None:
    assert name_of(called(*BLOCK)) == "block"
    assert called(*BLOCK).of("h2") == "block 2"
    # all in one line
    assert name_of(called(BLOCK[0], BLOCK[0])) == "block"
    # not like what a layer calls twice, nor like what only a part of it calls
    twice: tuple[Stack, Stack] = ([*BLOCK[0], ("dense", 31)], [*BLOCK[1], ("dense", 31)])
    assert name_of(called(*twice)) == "block"
    assert name_of(called(twice[0], BLOCK[1])) == "block"


def test_a_function_with_lines_that_no_layer_has_is_no_layer() -> None:
    assert name_of(called([("loss", 5)], [("loss", 6)])) == "layer"
    assert name_of(called(*BLOCK, beside=[*LOSS, ("block", 23)])) == "layer"
    # what a layer's own lines make is the layer's, wherever it is
    assert name_of(called(*BLOCK, beside=[*LOSS, ("block", 22)])) == "block"
    assert name_of(called(*BLOCK, beside=None)) == "block"
    assert name_of(called([("loss", 5)], [("loss", 6)], beside=[("main", 1)])) == "loss"


def test_a_function_that_calls_the_optimiser_is_the_step() -> None:
    inside: dict[str, Stack] = {name: [("step", 5)] for name in "nhtabcd"}

    def name(*update: tuple[str, int]) -> str:
        calls = inside | {"u": update, "loss": [("main", 1)]}
        return Model(step(), IN_STEP, calls=calls).stacks()[0][0]

    assert name(("adam", 3)) == "step"
    assert name(("step", 8), ("adam", 3)) == "layer"
    assert name(("step", 8)) == "layer"


def test_a_method_called_forward_names_no_layer() -> None:
    assert name_of(called([*LOSS, ("forward", 21)], [*LOSS, ("forward", 22)])) == "layer"


def test_collectives_that_belong_to_the_caller_do_not_hide_the_function() -> None:
    assert name_of(called(*BLOCK, collective=LOSS)) == "block"


def test_collectives_alone_tell_no_function() -> None:
    spec, at = ["x!"], "x"
    for k in range(6):
        spec.append(f"c{k}=all-reduce:{at} s{k}=sine:c{k} t{k}=tanh:s{k} q{k}=cosine:t{k}")
        at = f"q{k}"
    groups = {f"c{k}": "replica_groups={}" for k in range(6)}
    calls = {name: [*LOSS, ("share", 7)] for name in "cstq"}
    m = Model(" ".join([*spec, f"r=tuple:{at}"]), {}, None, groups, calls=calls)
    assert m.stacks() == [("layer", 6, False)]


def test_a_layer_that_xla_merged_with_another_does_not_hide_the_function() -> None:
    """Of twenty layers' forty products one is the caller's: more than 95 % are the function's."""
    m = called(*BLOCK, layers=20)
    assert name_of(m) == "block"
    assert FORWARD not in m.of("h0")
