"""Why a collective is there: programs whose answer is known by how they were written."""

from __future__ import annotations

import inspect
from dataclasses import dataclass

import hloscope as hs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hloscope.analysis.why.provenance import Provenance
from hloscope.analysis.why.provenance_card import Why
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P


@pytest.fixture(scope="module")
def mesh():
    return Mesh(np.array(jax.devices()).reshape(2, 4), ("data", "model"))


@dataclass
class Case:
    """``expect``: for each collective (kind), names or markers its card must hold."""

    name: str
    shapes: dict[str, tuple[tuple[int, ...], P]]
    function: object
    expect: list[tuple[str, set[str]]]  # kind → {"w", "# marker"}


def constrain(mesh, *spec):
    return lambda x: jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P(*spec)))


# Each function is called with the mesh and its arguments. A comment "# one" marks the line of
# a constraint; an expected name is an argument's, an expected "one" that line.
def gathered_by_constraint(mesh, x):
    return jnp.sin(constrain(mesh, "data", None)(x))  # one


def gathered_in_two_steps(mesh, x):
    x = constrain(mesh, "data", "model")(jnp.sin(x))  # one
    x = constrain(mesh, "data", None)(x)  # two
    return jnp.cos(x)


def contracted_argument(mesh, x, w):
    return jnp.tanh(constrain(mesh, "data", None)(x @ w))


def contracted_both(mesh, x, w, v):
    return constrain(mesh, "data", None)(jnp.tanh(x @ w) @ v)


def weight_gathered(mesh, x, w):
    return constrain(mesh, "data", None)(x @ w)  # one


def moved_between_dimensions(mesh, x):
    x = constrain(mesh, None, "model")(jnp.sin(x))  # one
    return jnp.cos(constrain(mesh, "model", None)(x))  # two


def argument_moved(mesh, x):
    return jnp.cos(constrain(mesh, "model", None)(x))  # one


def summed_over_rows(mesh, x):
    return jnp.sum(x, axis=0)


def mean_of_all(mesh, x):
    return jnp.mean(x)


def summed_after_constraint(mesh, x):
    return jnp.sum(constrain(mesh, "model", None)(jnp.sin(x)), axis=0)  # one


def maximum(mesh, x):
    return jnp.max(jnp.exp(x), axis=1)


def sequence_parallel(mesh, x, w, v):
    x = constrain(mesh, "data", "model", None)(jnp.sin(x))  # one
    y = constrain(mesh, "data", None, None)(x)  # two
    y = jnp.tanh(y @ w) @ v
    return constrain(mesh, "data", None, None)(y)  # three


def embedding(mesh, table, tokens):
    return constrain(mesh, "data", None, None)(table[tokens])  # one


def expert_dispatch(mesh, x):
    x = constrain(mesh, "data", None, None)(jnp.sin(x))  # one
    return jnp.cos(constrain(mesh, None, "data", None)(x))  # two


def twin_constraints(mesh, x, y):
    x = constrain(mesh, "data", "model")(jnp.sin(x))  # one
    y = constrain(mesh, "data", "model")(jnp.cos(y))  # two
    a = constrain(mesh, "data", None)(x)  # three
    b = constrain(mesh, None, "model")(y)  # four
    return jnp.exp(a), jnp.exp(b)


def softmax_over_cut(mesh, x):
    return jnp.exp(x) / jnp.sum(jnp.exp(x), axis=1, keepdims=True)


def loop_of_layers(mesh, x, w):
    def body(c, w):
        return constrain(mesh, "data", None)(jnp.tanh(c) @ w), None

    return jax.lax.scan(body, constrain(mesh, "data", None)(x), w)[0]


def gradient(mesh, x, w):
    def loss(w):
        return jnp.sum(jnp.tanh(constrain(mesh, "data", None)(x @ w)))  # one

    return constrain(mesh, None, None)(jax.grad(loss)(w))


def outer_product(mesh, x, y):
    return constrain(mesh, "model", None)(jnp.einsum("bi,bj->ij", x, y))


def output_needs_whole(mesh, x, w):
    return constrain(mesh, None, None)(jnp.tanh(x @ w))  # one


X = ((16, 64), P("data", "model"))
CASES = [
    Case("constraint", {"x": X}, gathered_by_constraint, [("all-gather", {"x", "one"})]),
    Case("two steps", {"x": X}, gathered_in_two_steps, [("all-gather", {"one", "two"})]),
    Case(
        "contracted", {"x": ((16, 64), P("data", "model")), "w": ((64, 32), P("model", None))},
        contracted_argument, [("all-reduce", {"x", "w"})],
    ),
    Case(
        "two products",
        {"x": ((16, 64), P("data", None)), "w": ((64, 128), P(None, "model")),
         "v": ((128, 64), P("model", None))},
        contracted_both, [("all-reduce", {"w", "v"})],
    ),
    Case(
        "weight gathered",
        {"x": ((16, 64), P("data", None)), "w": ((64, 32), P(None, "model"))},
        weight_gathered, [("all-gather", {"w"})],
    ),
    Case("moved", {"x": ((64, 64), P(None, "model"))}, moved_between_dimensions,
         [("all-to-all", {"one", "two"})]),
    Case("argument moved", {"x": ((64, 64), P(None, "model"))}, argument_moved,
         [("all-to-all", {"x", "one"})]),
    Case("rows", {"x": ((16, 64), P("data", None))}, summed_over_rows, [("all-reduce", {"x"})]),
    Case("mean", {"x": ((16, 64), P("data", None))}, mean_of_all, [("all-reduce", {"x"})]),
    Case("sum after", {"x": ((16, 64), P(None, None))}, summed_after_constraint,
         [("all-reduce", {"one"})]),
    Case("maximum", {"x": ((16, 64), P(None, "model"))}, maximum, [("all-reduce", {"x"})]),
    Case(
        "sequence parallel",
        {"x": ((4, 32, 64), P("data", "model", None)), "w": ((64, 128), P(None, "model")),
         "v": ((128, 64), P("model", None))},
        sequence_parallel,
        [("all-gather", {"one", "two"}), ("all-reduce", {"w", "v"})],
    ),
    Case(
        "embedding", {"table": ((128, 32), P("model", None)), "tokens": ((8, 16), P("data", None))},
        embedding, [("all-reduce", {"table"})],
    ),
    Case("experts", {"x": ((8, 16, 32), P("data", None, None))}, expert_dispatch,
         [("all-to-all", {"one", "two"})]),
    Case("twins", {"x": ((64, 64), P(None, None)), "y": ((64, 64), P(None, None))},
         twin_constraints, [("all-gather", {"one", "three"}), ("all-gather", {"two", "four"})]),
    Case("softmax", {"x": ((16, 64), P("data", "model"))}, softmax_over_cut,
         [("all-reduce", {"x"})]),
    Case(
        "loop", {"x": ((16, 64), P("data", None)), "w": ((6, 64, 64), P(None, "model", None))},
        loop_of_layers, [("all-reduce", {"w"})],
    ),
    Case(
        "gradient", {"x": ((16, 64), P("data", None)), "w": ((64, 32), P(None, None))},
        gradient, [("all-reduce", {"x", "one"})],
    ),
    Case(
        "outer", {"x": ((16, 64), P("data", "model")), "y": ((16, 32), P("data", None))},
        outer_product, [("all-reduce", {"x", "y"})],
    ),
    Case(
        "output", {"x": ((16, 64), P("data", None)), "w": ((64, 32), P(None, None))},
        output_needs_whole, [("all-gather", {"x", "one"})],
    ),
]  # fmt: skip


def marked_lines(function) -> dict[str, str]:
    lines, first = inspect.getsourcelines(function)
    return {
        line.partition("  # ")[2].strip(): f"test_why.py:{first + at}"
        for at, line in enumerate(lines)
        if "  # " in line
    }


def named_in(card: Why, arguments: set[str], lines: dict[str, str]) -> set[str]:
    """Argument names and line markers that the card's origins name."""
    found = {o.name for o in card.origins if o.kind == "argument"}
    for marker, line in lines.items():
        if any(at.endswith(line) for o in card.origins for at in o.stack):
            found.add(marker)
    return found


def test_cards_name_the_constraint_or_argument_and_never_a_wrong_one(mesh):
    right, wrong, blank = 0, [], []
    for case in CASES:
        arguments = [
            jax.ShapeDtypeStruct(
                shape,
                np.int32 if name == "tokens" else np.float32,
                sharding=NamedSharding(mesh, spec),
            )
            for name, (shape, spec) in case.shapes.items()
        ]
        function = case.function
        names = list(case.shapes)
        scope = {"function": function, "mesh": mesh}
        listed = ", ".join(names)
        exec(f"def program({listed}): return function(mesh, {listed})", scope)
        capture = hs.capture(jax.jit(scope["program"]), *arguments)
        why = Provenance(capture.target)
        lines = marked_lines(function)
        waiting = list(case.expect)
        for row in capture.collectives:
            card = why.why(row)
            named = named_in(card, set(names), lines)
            hit = next((w for w in waiting if w[0] == row.kind and named and named <= w[1]), None)
            if hit is not None:
                waiting.remove(hit) if len(waiting) > 1 else None
                right += 1
            elif not card.is_known or not named:
                blank.append((case.name, row.kind, str(card)))
            else:
                wrong.append((case.name, row.kind, named, str(card)))
    total = right + len(wrong) + len(blank)
    assert not wrong, wrong
    assert right >= 0.9 * total, "\n".join(map(str, blank))
    assert total >= len(CASES)


def test_the_way_an_axis_was_propagated(mesh):
    """Forwards from an argument, backwards from a constraint, and none where it is direct."""

    def program(x, w, v):
        y = jnp.tanh(jnp.sin(x @ w) * 2) @ v
        z = constrain(mesh, None, "model")(jnp.exp(jnp.cos(y)))  # one
        return constrain(mesh, "data", None)(z)

    shapes = {
        "x": ((16, 64), P("data", None)),
        "w": ((64, 128), P(None, "model")),
        "v": ((128, 64), P("model", None)),
    }
    arguments = [
        jax.ShapeDtypeStruct(shape, np.float32, sharding=NamedSharding(mesh, spec))
        for shape, spec in shapes.values()
    ]
    capture = hs.capture(jax.jit(program), *arguments)
    why = Provenance(capture.target)
    ways = {
        (o.name or o.kind): o.via
        for row in capture.collectives
        for o in why.why(row).origins
        if row.kind in ("all-reduce", "reduce-scatter")
    }
    assert ways["w"] == ("tanh", "multiply", "sine", "dot")
    assert ways["v"] == ()


def test_without_dumps_the_card_says_so(mesh):
    x = jax.ShapeDtypeStruct((16, 64), np.float32, sharding=NamedSharding(mesh, P("data", "model")))
    capture = hs.capture(jax.jit(lambda x: gathered_by_constraint(mesh, x)), x, provenance=False)
    (row,) = capture.collectives
    card = Provenance(capture.target).why(row)
    assert not card.is_known
    assert card.unknown == "the program before partitioning was not captured"
    assert capture.why(row).unknown == card.unknown


def embedding_of(mesh, table_spec):
    """FSDP's embedding: the table is cut over the axis that the batch is cut over."""

    def program(table, tokens):
        return constrain(mesh, "fsdp", None, None)(jnp.sin(table[tokens]))

    arguments = [
        jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec))
        for shape, dtype, spec in (
            ((512, 256), np.float32, table_spec),
            ((16, 64), np.int32, P("fsdp", None)),
        )
    ]
    return hs.capture(jax.jit(program), *arguments)


def test_a_move_in_two_steps_is_of_the_table_when_its_tiles_move(mesh):
    two = Mesh(mesh.devices.reshape(4, 2), ("fsdp", "model"))
    capture = embedding_of(two, P("fsdp", None))
    steps = [r for r in capture.collectives if r.kind in ("collective-permute", "all-gather")]
    assert [r.kind for r in steps] == ["collective-permute", "all-gather"]
    for row in steps:
        card = capture.why(row)
        assert (card.opcode, card.operand, card.had) == ("gather", "table", "P('fsdp', None)")
        said = [(o.axis, o.kind, o.name) for o in card.origins if o.of == "operand"]
        assert said == [("fsdp", "argument", "table")]


def test_indices_that_move_are_not_taken_for_the_table(mesh):
    two = Mesh(mesh.devices.reshape(4, 2), ("fsdp", "model"))
    capture = embedding_of(two, P("model", "fsdp"))
    moved = [r for r in capture.collectives if r.parts[0].shape.startswith("s32")]
    assert any(r.kind == "collective-permute" for r in moved)
    for row in moved:
        card = capture.why(row)
        assert card.operand != "table"
        assert all(o.name != "table" for o in card.origins)
    tables = [c for c in map(capture.why, capture.collectives) if c.operand == "table"]
    assert tables


def test_the_card_of_a_capture(mesh):
    def program(x, w, v):
        y = jnp.tanh(x @ w) @ v
        return jax.lax.with_sharding_constraint(y, NamedSharding(mesh, P("data", None)))

    shapes = {"x": P("data", None), "w": P(None, "model"), "v": P("model", None)}
    arguments = [
        jax.ShapeDtypeStruct((64, 64), np.float32, sharding=NamedSharding(mesh, spec))
        for spec in shapes.values()
    ]
    capture = hs.capture(jax.jit(program), *arguments)
    (row,) = capture.collectives
    card = capture.why(row)
    assert capture.why(row.name) == capture.why(f"%{row.name}") == card
    lines = str(card).splitlines()
    assert lines[0] == f"{row.name} over model"
    assert lines[1].split() == ["requested", "by", "dot", "f32[64,64]", "at", row.line]
    assert "operand's model from argument v" in str(card)
    assert "unknown" not in str(card)  # the other operand has the axis too, by the first product
    assert repr(card) == str(card)
    plain = card.to_dict()
    assert {o["name"] for o in plain["origins"]} >= {"v"}
    assert (plain["collective"], plain["unknown"]) == (lines[0], None)
    with pytest.raises(ValueError, match=f"called 'all-reduc'; there are {row.name}"):
        capture.why("all-reduc")
    with pytest.raises(ValueError, match="a collective of another capture"):
        hs.read(capture.text).why(row)
    capture.hardware = "h100"  # the rows stay those of the capture
    assert capture.why(row) == card


def test_a_collective_that_the_program_asks_for(mesh):
    def program(x):
        return jax.shard_map(
            lambda x: jax.lax.psum(x, "model"),
            mesh=mesh, in_specs=P("data", "model"), out_specs=P("data", None),
        )(x)  # fmt: skip

    x = jax.ShapeDtypeStruct((16, 64), np.float32, sharding=NamedSharding(mesh, P("data", "model")))
    capture = hs.capture(jax.jit(program), x)
    (row,) = capture.collectives
    card = capture.why(row)
    assert card.by_user
    assert card.is_known
    assert str(card).splitlines()[1].split()[:3] == ["requested", "by", "name"]
