"""Boxes of operations bear the code of the person, also in dumps whose files are still there."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import hloscope as hs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hloscope.show import blocks
from hloscope.show.dot import digraph
from hloscope.view.context import Context
from hloscope.view.schema import joined
from stacked import Stacks

PROGRAM = '''"""Two towers and their loss."""
import jax
import jax.numpy as jnp


def tower(w, x):
    for k in range(3):
        x = jax.nn.relu(x @ w[k])
    return x


def loss_fn(w, images, words):
    zi = tower(w["images"], images)
    zt = tower(w["words"], words)
    similarity = zi @ zt.T
    accuracy = jnp.mean(jnp.argmax(similarity, 1) == jnp.arange(len(zi)))
    zi = zi / jnp.linalg.norm(zi, axis=-1, keepdims=True)
    smoothed = jnp.cumsum(zi, axis=0) * jnp.arange(len(zi))[:, None]
    return accuracy + smoothed.sum() + jnp.where(words > 0.5, words, 2.0).max()


def step(w, images, words):
    return loss_fn(w, images, words)
'''


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    file = tmp_path_factory.mktemp("towers") / "towers.py"
    file.write_text(PROGRAM)
    spec = importlib.util.spec_from_file_location("towers", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def capture(program: ModuleType) -> hs.Capture:
    w = {"images": jnp.ones((3, 64, 64)), "words": jnp.ones((3, 64, 64))}
    return hs.capture(program.step, w, jnp.ones((32, 64)), jnp.ones((32, 64)), exact=False)


def code_of(capture: hs.Capture) -> dict[str, str]:
    """Instruction → the code on its box; group → the code on it."""
    c = Context(capture.module, capture.target)
    named = {capture.module.instructions[r].name: s for r, s in c.box_names.instructions().items()}
    return named | {c.groups.label[g]: s for g, s in c.box_names.groups().items()}


def test_boxes_bear_the_code_that_they_are_of(capture: hs.Capture) -> None:
    said = code_of(capture)
    assert "similarity" in " ".join(said.values())
    # an oracle apart: every operation inside a box that is named by one statement's variable
    # has a frame on that statement's line
    lines = {n: t for n, t in enumerate(PROGRAM.splitlines(), 1)}
    frames, ids = capture.module.source_frames()
    for name, code in said.items():
        found = [i for i in capture.module.instructions if i.name == name]
        inside = [
            j
            for i in found
            for j in (i, *(k for c in i.called_computations for k in c.instructions))
        ]
        stacks = [frames.stack(ids[i.index]) for i in inside if ids[i.index]]
        if not found or not stacks:
            continue
        word = code.partition(" ")[0].partition("(")[0]
        of_it = [
            any(word in lines.get(f.line, "") for f in s if "towers" in f.file) for s in stacks
        ]
        assert np.mean(of_it) >= 0.7, (name, code)


def test_no_box_is_named_by_the_call_that_all_around_it_is_in(capture: hs.Capture) -> None:
    said = code_of(capture)
    assert not [code for code in said.values() if code.startswith(("loss_fn(", "step("))]
    assert not [code for code in said.values() if "hs.capture" in code]


def test_the_view_has_the_code_of_each_box(capture: hs.Capture) -> None:
    _, columns = joined(blocks.view(capture), blocks.analyses(capture))
    texts = columns["strings"]
    shown = [str(texts[k]) for k in columns["instruction.code"].tolist()]
    named = code_of(capture)
    assert any(shown)
    assert shown == [named.get(i.name, "") for i in capture.module.instructions]


def test_a_dump_shows_the_code_of_files_that_are_still_what_it_says(
    capture: hs.Capture, program: ModuleType
) -> None:
    assert program.__file__ is not None
    file = Path(program.__file__)
    assert code_of(hs.read(capture.text)) == code_of(capture)
    assert not code_of(hs.read(capture.text, sources=False))
    try:
        file.write_text("\n" * 40 + PROGRAM)  # the functions are elsewhere now
        assert str(file) not in hs.read(capture.text).target.sources
        file.write_text("def step(:")
        assert str(file) not in hs.read(capture.text).target.sources
        file.unlink()
        assert str(file) not in hs.read(capture.text).target.sources
    finally:
        file.write_text(PROGRAM)


LINES = """def step(x):
    doubled = x + x
    turned = doubled.sin()
    wrong = turned - x
    return wrong * doubled
"""


@pytest.mark.parametrize(("of_lines", "named"), [
    ((8, 2), "doubled = x + x"),
    ((7, 3), "doubled = x + x · turned"),  # 7 of 11, as the fusion itself is of the second
    ((6, 4), "doubled = x + x · turned"),
    ((0, 5, 5), "turned · wrong = turned - x"),
    ((3, 2, 2, 3), "doubled, turned, wrong"),  # no two of them are most of it
    ((2, 2, 2, 4), ""),  # and what no variable has has no name
    ((8, 0, 2), "doubled = x + x"),
    ((7, 0, 2, 1), ""),  # and the second of two is not hardly any
])  # fmt: skip
def test_a_fusion_is_named_by_the_lines_that_most_of_it_comes_from(
    tmp_path: Path, of_lines: tuple[int, ...], named: str
) -> None:
    """Eleven operations, the fusion itself of the second line: seven tenths name it."""
    file = tmp_path / "lines.py"
    file.write_text(LINES)
    stacks = Stacks(str(file))
    frames = [stacks.frame([("step", line)]) for line in (2, 3, 4, 5)]
    second = frames[1]
    of_each = [frame for frame, times in zip(frames, of_lines, strict=False) for _ in range(times)]
    inner, at = ["fused {", "  p = f32[64] parameter(0)"], "p"
    for k, frame in enumerate(of_each):
        root = "ROOT " * (k == 9)
        meta = f'metadata={{op_name="jit(step)/sin" stack_frame_id={frame}}}'
        inner.append(f"  {root}i{k} = f32[64] sine({at}), {meta}")
        at = f"i{k}"
    meta = f'metadata={{op_name="jit(step)/sin" stack_frame_id={second}}}'
    entry = [
        "ENTRY main {",
        "  x = f32[64] parameter(0)",
        f"  box = f32[64] fusion(x), kind=kLoop, calls=fused, {meta}",
        f"  ROOT last = f32[64] cosine(box), {meta}",
        "}",
        "",
    ]
    dump = tmp_path / "lines.hlo"
    dump.write_text(stacks.head() + "\n".join([*inner, "}", "", *entry]))
    code = code_of(hs.read(dump)).get("box", "")
    assert code == named


def test_long_code_is_shortened_from_inside() -> None:
    def f(x: jax.Array) -> jax.Array:
        a = jnp.where(x > jnp.asarray([1.0, 2.0, 3.0, 4.0]), jnp.sin(x) * 0.1234, x)
        something = jnp.cumsum(a) + jnp.tanh(jnp.sin(jnp.cos(jnp.exp(a)))) * 0.125
        return something / jnp.max(something)

    said = code_of(hs.capture(f, jnp.ones(4), exact=False))
    assert all(len(code.partition(", line")[0]) <= 34 for code in said.values())


def test_modules_of_one_class_are_told_apart_by_the_names_they_are_called_by() -> None:
    class Level:
        def __call__(self, p: dict[str, jax.Array], x: jax.Array) -> jax.Array:
            return x + jnp.tanh(x @ p["in"]) @ p["out"]

    class Net:
        def __init__(self) -> None:
            self.down, self.up = Level(), Level()

        def __call__(self, p: dict[str, jax.Array], x: jax.Array) -> jax.Array:
            x = self.down(p, x)
            return self.up(p, 2 * x)

    weights = {name: jnp.ones((64, 64)) for name in ("in", "out")}
    said = code_of(hs.capture(Net(), weights, jnp.ones((32, 64)), exact=False))
    assert {"Level · down", "Level · up"} <= set(said.values())


def test_calls_of_one_function_are_told_apart_as_the_code_tells_them() -> None:
    """By what they are given, what they give, what takes it; calls that are alike are numbered."""

    def norm(x: jax.Array, w: jax.Array) -> jax.Array:
        return jnp.sqrt(jnp.abs(x @ w)) @ w

    def push(x: jax.Array, w: jax.Array) -> tuple[jax.Array, jax.Array]:
        h = jnp.tanh(x @ w)
        return h @ w, h.sum()

    def mix(x: jax.Array, w: jax.Array) -> jax.Array:
        return jnp.sin(x @ w) @ w

    def turn(x: jax.Array, w: jax.Array) -> jax.Array:
        return jnp.cos(x @ w) @ w

    def shift(x: jax.Array, w: jax.Array) -> jax.Array:
        return jnp.exp(-jnp.abs(x @ w)) @ w

    def pull(x: jax.Array, w: jax.Array) -> jax.Array:
        return jnp.log(jnp.abs(x @ w) + 1) @ w

    def twist(x: jax.Array, w: jax.Array) -> jax.Array:
        return jnp.arctan(x @ w) @ w

    def step(x: jax.Array, w: jax.Array) -> jax.Array:
        a, b = w.T, w + 1
        one, two = twist(x, a), twist(x, b)  # on one line
        x = one * jax.vmap(lambda r: mix(r, w))(two)
        x = jax.vmap(lambda r: mix(r, w))(x)
        x = x + mix(norm(x, w), w)
        x = x + turn(norm(x, w), w)
        x, k1 = push(x, w)
        x, k2 = push(x, w)
        x = shift(x, a)
        x = shift(x, b)
        x = x + 2 * pull(x, w)
        x = x + 2 * pull(x, w)
        return x + k1 + k2

    said = code_of(hs.capture(step, jnp.ones((32, 64)), jnp.ones((64, 64)), exact=False))
    told = {"push · k1", "push · k2", "shift · a", "shift · b", "pull 1", "pull 2"}
    told |= {"twist · a", "twist · b"}
    assert told | {"norm before mix", "norm before turn"} <= set(said.values())


def test_what_stands_beside_a_call_is_not_called_so() -> None:
    """XLA fuses the end of each call with what the statement does with it."""

    def rhs(u: jax.Array, w: jax.Array) -> jax.Array:
        h = jnp.tanh(u @ w) @ w
        k = jnp.sin(h @ w) @ w
        a = jnp.sqrt(jnp.abs(k * 3 - jnp.cos(k) / 7))
        b = jnp.log(k * k + 1) * k / 5
        return a - b

    def step(u: jax.Array, w: jax.Array) -> jax.Array:
        u1 = u + 0.1 * rhs(u, w)
        u2 = 0.75 * u + 0.25 * (u1 + 0.1 * rhs(u1, w))
        return u2 @ w

    capture = hs.capture(step, jnp.ones((32, 64)), jnp.ones((64, 64)), exact=False)
    said = code_of(capture)
    assert {"rhs · u", "rhs · u1"} <= set(said.values())
    assert not [code for code in said.values() if code.startswith("rhs(")]
    assert [code for code in said.values() if code.startswith("u1 = ")]


def test_pieces_of_one_statement_are_told_apart_by_what_they_do(tmp_path: Path) -> None:
    file = tmp_path / "lines.py"
    file.write_text(LINES)
    stacks = Stacks(str(file))
    frames = [stacks.frame([("step", line)]) for line in (2, 3)]
    first, second = (f'metadata={{op_name="jit(step)/x" stack_frame_id={f}}}' for f in frames)
    lines: list[str] = []
    for name, opcode in (("one", "sine"), ("two", "tanh"), ("three", "tanh")):
        lines += [f"{name} {{", "  p = f32[64] parameter(0)"]
        lines += [f"  a = f32[64] {opcode}(p), {first}"]
        lines += [f"  ROOT b = f32[64] negate(a), {first}", "}", ""]
    lines += ["ENTRY main {", "  x = f32[64] parameter(0)"]
    for name, value in (("one", "x"), ("two", "of_one"), ("three", "of_two")):
        lines.append(f"  of_{name} = f32[64] fusion({value}), kind=kLoop, calls={name}, {first}")
    at = "of_three"
    for k in range(3):  # what is around them is of several statements
        lines.append(f"  more{k} = f32[64] cosine({at}), {second}")
        at = f"more{k}"
    lines += [f"  ROOT last = f32[64] cosine({at}), {second}", "}", ""]
    dump = tmp_path / "lines.hlo"
    dump.write_text(stacks.head() + "\n".join(lines))
    said = code_of(hs.read(dump))
    assert said["of_one"] == "doubled = x + x · sine"
    assert said["of_two"] == "doubled = x + x · tanh 1"  # two that do the same
    assert said["of_three"] == "doubled = x + x · tanh 2"


def test_code_is_shortened_to_what_it_is_of() -> None:
    """Settings, casts and modules go before what a product is of."""

    def f(p: dict[str, jax.Array], x: jax.Array) -> jax.Array:
        y = jnp.cumsum(x, axis=0)
        y = y / (jnp.linalg.norm(y, axis=-1, keepdims=True) + 1e-6)
        z = jnp.cumsum(y, axis=1)
        z = jax.nn.gelu(jnp.einsum("ij,jk->ik", z, p["gate"].astype(jnp.float32)))
        return jnp.cumsum(z, axis=0)

    p = {"gate": jnp.ones((64, 64))}
    said = code_of(hs.capture(f, p, jnp.ones((64, 64)), exact=False)).values()
    assert any("y = y / norm(y)" in code for code in said), said
    assert any("einsum(z, p['gate'])" in code for code in said), said
    assert not [code for code in said if "astype" in code or "jnp" in code]


def test_a_fusion_of_several_statements_is_named_by_what_they_set() -> None:
    def cell(p: dict[str, jax.Array], h: jax.Array, x: jax.Array) -> jax.Array:
        reset = jax.nn.sigmoid(x + h * p["r"])
        update = jax.nn.sigmoid(x + h * p["u"])
        new = jnp.tanh(x + reset * (h * p["n"]))
        return (1 - update) * new + update * h

    p = {name: jnp.ones(64) for name in "run"}
    said = code_of(hs.capture(cell, p, jnp.ones(64), jnp.ones(64), exact=False))
    assert "reset, update, new" in said.values()


def test_a_collective_says_what_it_is_of() -> None:
    mesh = jax.make_mesh((8,), ("model",), axis_types=(jax.sharding.AxisType.Auto,))

    def f(x: jax.Array, w: jax.Array) -> jax.Array:
        y = jnp.tanh(x) @ w
        return jax.lax.with_sharding_constraint(y, jax.NamedSharding(mesh, jax.P()))

    def of(*spec: str | None) -> jax.ShapeDtypeStruct:
        at = jax.NamedSharding(mesh, jax.P(*spec))
        return jax.ShapeDtypeStruct((64, 64), jnp.float32, sharding=at)

    said = code_of(hs.capture(f, of(None, "model"), of("model", None), exact=False))
    assert "all-reduce · y = tanh(x) @ w" in said.values()


CALLS = """def layer(x):
    grown = x + x
    return grown * x


def step(x):
    out = layer(x)
    return out
"""


def test_a_line_that_only_calls_names_nothing_in_the_call(tmp_path: Path) -> None:
    """XLA gives some of a loop's body the line of the call, and takes it from the rest."""
    file = tmp_path / "calls.py"
    file.write_text(CALLS)
    stacks = Stacks(str(file))
    frames = [[("layer", 2)], [("step", 7)], [("step", 7), ("layer", 3)], [("layer", 3)]]
    inner, call, whole, last = (
        f'metadata={{op_name="jit(step)/sin" stack_frame_id={stacks.frame(f)}}}' for f in frames
    )
    lines, at = ["fused {", "  p = f32[64] parameter(0)"], "p"
    for k, meta in enumerate([inner] * 5 + [call] * 4):
        lines.append(f"  {'ROOT ' * (k == 8)}i{k} = f32[64] sine({at}), {meta}")
        at = f"i{k}"
    lines += ["}", "", "ENTRY main {", "  x = f32[64] parameter(0)"]
    lines += [f"  box = f32[64] fusion(x), kind=kLoop, calls=fused, {inner}"]
    lines += [f"  more = f32[64] cosine(box), {last}", f"  end = f32[64] tanh(more), {whole}"]
    lines += [f"  ROOT out = f32[64] tan(end), {whole}", "}", ""]
    dump = tmp_path / "calls.hlo"
    dump.write_text(stacks.head() + "\n".join(lines))
    assert code_of(hs.read(dump))["box"] == "grown = x + x"


def test_a_box_has_one_name_on_the_page_in_graphviz_and_for_a_reproducer(
    capture: hs.Capture, tmp_path: Path
) -> None:
    _, columns = joined(blocks.view(capture), blocks.analyses(capture))
    texts = columns["strings"]
    on_the_page = {
        texts[n]
        for column in ("group.label", "fold.label", "instruction.label", "instruction.code")
        for n in columns[column].tolist()
    }
    towers = sorted(name for name in on_the_page if name.startswith("tower · "))
    assert len(towers) == 2  # without the code they are lines
    drawn = digraph(capture, open=towers).source
    assert sorted(re.findall(r'label="(tower · \w+)', drawn)) == towers
    found = re.findall(r'\t[gfi]\d+ \[label=(?:"([^"]*)"|(\w+))', drawn)
    boxes = {(quoted or plain).partition("\\n")[0] for quoted, plain in found}
    assert len(boxes) > 5
    assert boxes <= on_the_page
    assert "similarity = zi @ zt.T" in boxes  # not "fusion matmul"
    alone = capture.to_reproducer(tmp_path / "one.py", towers[0]).read_text()
    assert "f32[3,64,64]" in alone  # the tower's weights


def test_calls_that_use_several_arguments_are_named_by_what_the_code_gives_them() -> None:
    def network(p: tuple[jax.Array, jax.Array], x: jax.Array) -> jax.Array:
        return jnp.tanh(jnp.sin(x @ p[0]) @ p[1])

    def distance(student: Any, teacher: Any, x: jax.Array) -> jax.Array:
        return network(student, x) - network(teacher, x)

    def scaled(p: jax.Array, x: jax.Array) -> jax.Array:
        return jnp.tanh(jnp.cos(x @ p) @ p)

    def step(state: dict[str, jax.Array], x: jax.Array) -> jax.Array:
        one, two = (state["inner"], state["outer"]), (state["first"], state["second"])
        a, b = state["left"], state["right"]
        return distance(one, two, x) * scaled(a, x) * scaled(b, x)

    names = ("inner", "outer", "first", "second", "left", "right")
    state = {name: jnp.ones((64, 64)) for name in names}
    c = hs.capture(step, state, jnp.ones((64, 64)), exact=False)
    names_of = Context(c.module, c.target)
    own, shown = set(names_of.groups.label), set(names_of.group_labels)
    assert {"network · inner outer", "network · first second"} <= own
    assert {"network · student", "network · teacher"} <= shown
    assert {"scaled · left", "scaled · right"} <= shown


AROUND = """def layer(x):
    grown = x + x
    return grown * x


def step(x):
    out = layer(x)
    scaled = out * 3.0
    return scaled
"""


def test_a_statement_around_a_whole_group_names_nothing_in_it(tmp_path: Path) -> None:
    """XLA may know of a gradient the lines of the caller alone, and all of it is in that call."""
    file = tmp_path / "around.py"
    file.write_text(AROUND)
    stacks = Stacks(str(file))
    calls = [[("step", 7), ("layer", 2)], [("step", 7), ("layer", 3)], [("step", 7)], [("step", 8)]]
    grown, last, call, scaled = (
        f'metadata={{op_name="jit(step)/sin" stack_frame_id={stacks.frame(f)}}}' for f in calls
    )
    lines, at = ["fused {", "  p = f32[64] parameter(0)"], "p"
    for k, meta in enumerate([call] * 4 + [scaled] * 4):
        lines.append(f"  {'ROOT ' * (k == 7)}i{k} = f32[64] sine({at}), {meta}")
        at = f"i{k}"
    lines += ["}", "", "ENTRY main {", "  x = f32[64] parameter(0)"]
    at = "x"
    for k, meta in enumerate([grown] * 9 + [last] * 9):
        lines.append(f"  a{k} = f32[64] cosine({at}), {meta}")
        at = f"a{k}"
    lines += [f"  box = f32[64] fusion({at}), kind=kLoop, calls=fused, {last}"]
    lines += [f"  c = f32[64] tanh(box), {last}", f"  ROOT out = f32[64] tan(c), {scaled}", "}", ""]
    dump = tmp_path / "around.hlo"
    dump.write_text(stacks.head() + "\n".join(lines))
    assert "layer" not in code_of(hs.read(dump)).get("box", "")
