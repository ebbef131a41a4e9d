"""Loops over layers, loops that are layers, and computations in which none are looked for."""

from __future__ import annotations

import pytest
from layered import BACKWARD, DOT, FORWARD, IN_STEP, MORE, PAIR, SHAPE, Model, body

# -- loops -------------------------------------------------------------------------------------


def scanned(forward: str, backward: str, more: str = "") -> Model:
    """A step whose layers are in a loop, and their gradients in another."""
    spec = (
        "x! table! out! w! emb=gather:table,x p=tuple:emb,w walk=while:p "
        "g=get-tuple-element:walk logits=dot:g,out loss=cosine:logits dloss=exponential:loss "
        "dout=dot:dloss,g dlast=dot:dloss,out q=tuple:dlast,w back=while:q "
        "gb=get-tuple-element:back demb=scatter:gb uout=subtract:out,dout "
        f"utable=subtract:table,demb {more} u0=sine:utable u1=sine:u0 u2=sine:u1 u3=sine:u2 "
        "u4=sine:u3 u5=sine:u4 u6=sine:u5 r=tuple:uout,u6"
    )
    where = IN_STEP | dict.fromkeys(("p", "walk", "g"), FORWARD)
    where |= dict.fromkeys(("q", "back", "gb"), BACKWARD)
    loops = {"walk": "condition=more, body=walking", "back": "condition=more, body=going_back"}
    return Model(
        spec, where, dict.fromkeys(("p", "walk", "q", "back"), PAIR),
        loops | {"g": "index=0", "gb": "index=0"},
        MORE + body("walking", forward, "jvp()/while/body")
        + body("going_back", backward, "transpose(jvp())/while/body"),
    )  # fmt: skip


def test_loops_over_the_layers_have_an_embedding_before_and_a_loss_behind() -> None:
    m = scanned("dot sine dot tanh " * 3, "dot sine dot tanh " * 3)
    assert m.stacks() == []
    assert m.of("emb") == "forward > embedding"
    assert m.of("walk") == "forward"
    assert m.at("logits loss") == {"forward > loss"}
    assert m.at("dloss dlast dout") == {"backward > loss"}
    assert m.of("back") == "backward"
    assert m.of("demb") == "backward > embedding"


def sized(rows: int) -> str:
    """Operations of a loop whose body and condition have so many rows in all."""
    return "dot sine dot" + " tanh" * (rows - 9)


@pytest.mark.parametrize(
    ("forward", "backward", "is_around"),
    [
        (12, 12, True),
        (11, 12, False),  # too little for layers
        (12, 48, True),  # a quarter of the largest
        (12, 52, False),
        (13, 52, True),
    ],
)
def test_small_loops_are_around_no_layers(forward: int, backward: int, is_around: bool) -> None:
    m = scanned(sized(forward), sized(backward))
    assert (m.of("emb") == "forward > embedding") == is_around


# -- loops that are layers ---------------------------------------------------------------------


def turns(count: int, opcodes: str, nested: bool = False) -> Model:
    """Loops one after another; ``nested``: each holds the loop that does the work."""
    spec, at = ["x! u! p=tuple:x,u"], "p"
    for k in range(count):
        spec.append(f"l{k}=while:{at} g{k}=get-tuple-element:l{k} a{k}=sine:g{k} q{k}=tuple:a{k},u")
        at = f"q{k}"
    spec += [f"e{k}=sine:{f'e{k - 1}' if k else f'a{count - 1}'}" for k in range(20)]
    inner = f"  ROOT l = {PAIR} while(c), condition=more, body=inner\n}}\n"
    walking = f"walking {{\n  c = {PAIR} parameter(0)\n{inner}"
    bodies = body("inner", opcodes) + walking if nested else body("walking", opcodes)
    more = {f"l{k}": "condition=more, body=walking" for k in range(count)}
    return Model(
        " ".join(spec), {}, {n: PAIR for k in range(count) for n in (f"l{k}", f"q{k}", "p")},
        more | {f"g{k}": "index=0" for k in range(count)}, MORE + bodies,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("count", "opcodes", "are_layers"),
    [
        (4, "dot sine", True),
        (3, "dot sine dot", True),  # two products each
        (3, "dot sine", False),
        (3, "sine", False),
        (2, "dot sine dot sine dot tanh dot", True),
        (2, "dot sine dot tanh dot", False),
    ],
)
def test_loops_are_layers_if_they_do_enough_for_their_number(
    count: int, opcodes: str, are_layers: bool
) -> None:
    assert turns(count, opcodes).stacks() == ([("layer", count, False)] if are_layers else [])


def test_what_a_loop_within_a_loop_does_counts_for_both() -> None:
    four = "dot sine dot tanh dot cosine dot"
    assert turns(2, four, nested=True).stacks() == [("layer", 2, False)]
    assert turns(3, "sine", nested=True).stacks() == []


def beside(products: int, loop: str = "denoise") -> Model:
    """Four layers, and behind them a loop of so many products."""
    spec, at = ["x! table! u!", *(f"w{k}!" for k in range(4)), "emb=gather:table,x"], "emb"
    for k in range(4):
        spec.append(f"h{k}=dot:{at},w{k} t{k}=tanh:h{k}")
        at = f"t{k}"
    spec.append(f"p=tuple:{at},u l=while:p g=get-tuple-element:l end=sine:g")
    spec.append("e0=sine:end e1=sine:e0 e2=sine:e1 r=tuple:e2")
    return Model(
        " ".join(spec), {"h": "encode", "t": "encode", "l": loop}, {"p": PAIR, "l": PAIR},
        {"l": "condition=more, body=walking", "g": "index=0"},
        MORE + body("walking", "dot sine " * products, "while"),
    )  # fmt: skip


def test_layers_before_a_loop_that_does_more_than_all_of_them_have_no_head() -> None:
    """A text encoder before a loop of denoising; not if the loop is the encoder's own."""
    assert [beside(4).of(n) for n in ("emb", "h0", "end")] == ["embedding", "encode 0", "head"]
    assert [beside(5).of(n) for n in ("emb", "h0", "end")] == ["", "encode 0", ""]
    own = beside(5, loop="encode/more")
    assert [own.of(n) for n in ("emb", "h0", "end")] == ["embedding", "encode > layer 0", "head"]


# -- where layers are looked for ---------------------------------------------------------------


@pytest.mark.parametrize(("rows", "found"), [(23, []), (24, [("layer", 4, False)])])
def test_small_computations_are_left_as_they_are(
    rows: int, found: list[tuple[str, int, bool]]
) -> None:
    spec = ["x!", *(f"w{k}!" for k in range(4))]
    spec += [f"h{k}=dot:{f'h{k - 1}' if k else 'x'},w{k}" for k in range(4)]
    spec += [f"s{k}=sine:{f's{k - 1}' if k else 'h3'}" for k in range(rows - 9)]
    m = Model(" ".join(spec), {})
    assert len(m.s.names) == rows
    assert m.stacks() == found


def test_what_is_fused_has_no_layers() -> None:
    """24 products one after another: layers, if a loop runs them."""
    inside = [f"  p = {SHAPE} parameter(0)", f"  w = {SHAPE} parameter(1)"]
    for k in range(24):
        head = "  ROOT" if k == 23 else " "
        inside.append(f"{head} i{k} = {SHAPE} dot({f'i{k - 1}' if k else 'p'}, w), {DOT}")
    before = "\n".join(["inside {", *inside, "}", ""])
    calls = {
        "fusion": "kind=kOutput, calls=inside",
        "call": "to_apply=inside",
        "custom-call": 'custom_call_target="k", called_computations={inside}',
    }
    found = {op: Model(f"x! w! f={op}:x,w r=sine:f", {}, None, {"f": more}, before).stacks()
             for op, more in calls.items()}  # fmt: skip
    assert found == {"fusion": [], "call": [], "custom-call": [("layer", 24, False)]}


@pytest.mark.parametrize(
    ("begins", "ends", "found"),
    [
        ("all-gather", "all-gather", [("layer", 3, False)]),  # two collectives a layer
        ("all-gather-start", "all-gather-done", []),  # one: too few for three layers
        ("all-reduce-start", "all-reduce-done", []),
    ],
)
def test_a_collective_that_is_printed_twice_counts_once(
    begins: str, ends: str, found: list[tuple[str, int, bool]]
) -> None:
    spec, at = ["x!"], "x"
    for k in range(3):
        spec.append(f"s{k}={begins}:{at} d{k}={ends}:s{k}")
        at = f"d{k}"
    spec += [f"e{k}=sine:{f'e{k - 1}' if k else at}" for k in range(20)]
    more = {f"{x}{k}": "replica_groups={}" for k in range(3) for x in "sd"}
    assert Model(" ".join(spec), {}, None, more).stacks() == found
