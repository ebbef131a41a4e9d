"""The stages of a program line by line: what belongs together, colours, and the sentences."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import hloscope as hs
import hloscope.analysis.provenance.linked.texts as linked_texts
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hloscope.analysis.provenance.linked.linked import Linked, Stage
from hloscope.readers import read_modules
from hloscope.show import blocks
from hloscope.view.schema import decode

D = 48


@jax.jit
def layer(x: Any, w: Any) -> Any:
    h = x @ w.T
    return jnp.tanh(h) * 2.0


def loss(weights: Any, x: Any) -> Any:
    for w in weights:
        x = layer(x, w)
    zero = (x * 7) * 0 + x
    return jnp.sum(zero**2)


@pytest.fixture(scope="module")
def step() -> hs.Capture:
    weights = [jnp.ones((D, D))] * 3
    return hs.capture(jax.jit(jax.value_and_grad(loss)), weights, jnp.ones((8, D)), passes=True)


@pytest.fixture(scope="module")
def linked(step: hs.Capture) -> Linked:
    return blocks.linked_stages(step)


def row(stage: Stage, text: str, nth: int = 0) -> int:
    assert stage.text is not None
    return [k for k, line in enumerate(stage.text.lines) if text in line][nth]


def stage(linked: Linked, name: str) -> Stage:
    found = linked.stage(name)
    assert found is not None
    return found


def test_stages_are_in_the_order_of_compiling(linked: Linked) -> None:
    assert [s.id for s in linked.stages] == ["source", "jaxpr", "stablehlo", "optimized"]
    assert linked.exact


def test_a_line_leads_through_all_stages(step: hs.Capture, linked: Linked) -> None:
    source, jaxpr = stage(linked, "source"), stage(linked, "jaxpr")
    stablehlo, own = stage(linked, "stablehlo"), stage(linked, "optimized")
    assert stablehlo.text is not None
    assert jaxpr.text is not None
    strands = set(source.places[row(source, "h = x @ w.T")])
    dots = {
        line
        for k, line in enumerate(stablehlo.text.lines)
        if "dot_general" in line and strands & set(stablehlo.places.get(k, ()))
    }
    assert dots
    assert all("loc(" not in line for line in stablehlo.text.lines)
    equations = {
        line
        for k, line in enumerate(jaxpr.text.lines)
        if strands & set(jaxpr.places.get(k, ())) and " = dot_general[" in line
    }
    assert equations
    opcodes = {
        step.module.instructions[i].opcode for i, s in own.places.items() if strands & set(s)
    }
    assert "dot" in opcodes
    assert "fusion" in opcodes
    assert "tanh" not in opcodes


def test_every_equation_is_linked_with_operations_of_its_name(
    step: hs.Capture, linked: Linked
) -> None:
    jaxpr = stage(linked, "jaxpr")
    assert jaxpr.text is not None
    assert step.module.origins is not None
    operations = step.module.origins.operations
    lines = [k for k, line in enumerate(jaxpr.text.lines) if line.startswith("    ")]
    missing = [jaxpr.text.lines[k] for k in lines if k not in jaxpr.places]
    assert not missing
    for k in lines:
        opcode = jaxpr.text.lines[k].partition(" = ")[2].partition(" ")[0].partition("[")[0]
        names = {operations[s].name.rpartition("/")[2] for s in jaxpr.places[k]}
        if opcode != "jit":
            assert names == {opcode}, jaxpr.text.lines[k]


def test_what_was_called_is_near(linked: Linked) -> None:
    source, own = stage(linked, "source"), stage(linked, "optimized")
    call = set(source.places[row(source, "x = layer(x, w)")])
    inside = [i for i, near in own.near.items() if call & set(near)]
    dot = set(source.places[row(source, "h = x @ w.T")])
    assert any(dot & set(own.places[i]) for i in inside)


def test_colours_are_of_source_lines(linked: Linked) -> None:
    source = stage(linked, "source")
    of = [{linked.colors[s] for s in source.places[k]} for k in sorted(source.places)]
    assert of == [{k} for k in range(len(of))]


def test_the_sentence_of_one_call(step: hs.Capture, linked: Linked) -> None:
    own = stage(linked, "optimized")
    dots = [
        own.told[i.index]
        for i in step.module.instructions
        if i.opcode == "dot" and "call " in own.told.get(i.index, "")
    ]
    source = Path(__file__).read_text().splitlines()
    number = next(k for k, line in enumerate(source, 1) if "h = x @ w.T" in line)
    for k in (1, 2, 3):
        found = [t for t in dots if f"`x @ w.T` in `layer` (call {k} of 3, line {number})" in t]
        assert found, dots
        assert "became one matmul in `" in found[0] or "became the matmul `" in found[0]
        assert "its transpose was simplified away by transpose-folding" in found[0]


def test_what_is_gone_says_how(linked: Linked) -> None:
    source = stage(linked, "source")
    said = source.told[row(source, "zero = (x * 7) * 0 + x")]
    assert "`(x * 7) * 0`" in said or "`x * 7`" in said
    # numbers may be NaN: XLA keeps the product of floats, and the sentence names what it became
    assert "became" in said


def test_without_passes_it_says_that_they_were_not_kept() -> None:
    cap = hs.capture(lambda x: jnp.sum(x.T @ x, axis=0), jnp.ones((D, D)))
    source = stage(blocks.linked_stages(cap), "source")
    told = " ".join(source.told.values())
    assert "matmul" in told
    assert "passes were not kept" in told or "gone" not in told


def test_that_passes_were_not_kept_is_said_once_of_an_expression() -> None:
    def f(x: Any, s: Any) -> Any:
        return jax.nn.logsumexp(x.reshape(8, 8, 8) * s, axis=(1, 2), keepdims=True).sum()

    fn = jax.jit(jax.value_and_grad(f))
    source = stage(blocks.linked_stages(hs.capture(fn, jnp.ones((8, 64)), jnp.ones(8))), "source")
    said = source.told[row(source, "jax.nn.logsumexp(x.reshape(8, 8, 8)")]
    parts = [p for p in said.split("`") if "not kept" in p]
    assert parts
    assert all(p.count("not kept") == 1 for p in parts), said


def test_a_dump_without_marks_is_inferred(step: hs.Capture) -> None:
    module = read_modules(step.text)[0]
    cap = hs.Capture(module)
    found = blocks.linked_stages(cap)
    assert not found.exact
    assert "inferred" in found.how
    source = stage(found, "source")
    assert source.text is not None
    assert source.text.note.startswith("Files that could not be read")
    assert any("layer" in line for line in source.text.lines)
    own = stage(found, "optimized")
    exact = stage(blocks.linked_stages(step), "optimized")
    # an instruction that has a line by both has the same
    lines = {}
    for name, of, at in (("exact", exact, blocks.linked_stages(step)), ("inferred", own, found)):
        text = stage(at, "source").text
        assert text is not None
        by_strand = {
            s: text.numbers[k] for k, strands in stage(at, "source").places.items() for s in strands
        }
        lines[name] = {i: by_strand.get(s[0]) for i, s in of.places.items()}
    both = [i for i in lines["exact"] if lines["exact"][i] and lines["inferred"].get(i)]
    same = [i for i in both if lines["exact"][i] == lines["inferred"][i]]
    assert len(both) > 20
    assert len(same) >= 0.95 * len(both)


def test_earlier_stages_show_what_is_before_them(step: hs.Capture) -> None:
    assert [s.id for s in blocks.linked_stages(step.at("stablehlo")).stages] == [
        "source",
        "jaxpr",
        "stablehlo",
    ]
    assert [s.id for s in blocks.linked_stages(step.at("jaxpr")).stages] == ["source", "jaxpr"]


def test_a_program_without_lines_links_nothing() -> None:
    text = "HloModule m\n\nENTRY e {\n  x = f32[8] parameter(0)\n  ROOT r = f32[8] negate(x)\n}\n"
    found = blocks.linked_stages(hs.Capture(read_modules(text)[0]))
    assert [s.id for s in found.stages] == ["optimized"] or len(found.stages) == 1
    assert not found.stages[0].places


def test_long_texts_are_cut_and_say_so(step: hs.Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linked_texts, "MOST_TEXT", 3000)
    monkeypatch.setattr(linked_texts, "MOST_FILE", 100)
    found = blocks.linked_stages(step)
    stablehlo, source = stage(found, "stablehlo"), stage(found, "source")
    assert stablehlo.text is not None
    assert source.text is not None
    assert stablehlo.text.note.startswith("StableHLO is cut after ")
    assert sum(map(len, stablehlo.text.lines)) <= 3000
    assert max(stablehlo.places) < len(stablehlo.text.lines)
    assert source.text.note.startswith("Files that are too long here")


def test_the_block_holds_all_of_it(step: hs.Capture, linked: Linked) -> None:
    header, columns = decode(blocks.stages(step))
    assert header["instructions"] == len(step.module.instructions)
    assert header["exact"] is True
    texts = columns["strings"]
    raw = columns["stage_text.bytes"].tobytes()
    for meta, own in zip(header["stages"], linked.stages, strict=True):
        rows = slice(meta["first"], meta["first"] + meta["count"])
        lines = columns["place.line"][rows]
        assert (np.diff(lines.astype(np.int64)) > 0).all()
        assert lines.tolist() == sorted({*own.places, *own.near})
        told = [texts[k] for k in columns["place.told"][rows]]
        assert told == [own.told.get(int(k), "") for k in lines]
        if own.text is not None:
            assert raw[meta["begin"] : meta["end"]].decode().split("\n") == list(own.text.lines)
    strands = columns["place_strand.values"]
    assert strands.max() < len(columns["strand.color"]) == len(linked.colors)


def test_no_mark_is_left(step: hs.Capture) -> None:
    _, columns = decode(blocks.stages(step))
    text = columns["stage_text.bytes"].tobytes().decode() + "".join(columns["strings"])
    assert not re.search(r"~\d+~", text)


def test_sentences_name_what_an_expression_is_about_and_only_what_is_there() -> None:
    def f(x: Any, i: Any) -> Any:
        picked = x[i]
        special = jax.lax.erf_inv(x * 0.5)
        top = jax.lax.top_k(special, 2)
        return picked, top, x.at[i].add(1.0)

    linked = blocks.linked_stages(hs.capture(f, jnp.ones((8, 8)), jnp.arange(4), passes=True))
    told = {k: t for s in linked.stages for k, t in s.told.items() if s.id == "source"}
    said = "\n".join(told.values())
    assert "`x[i]` in" in said
    assert re.search(r"`x\[i\]` in `[^`]*` \(line \d+\) became (one|the) gather", said), said
    assert re.search(r"`x.at\[i\].add\(1.0\)` in `[^`]*` \(line \d+\) became .*scatter", said), said
    special = re.search(r"`jax.lax.erf_inv[^`]*` in `[^`]*` \(line \d+\) became (\d+) (\w+)", said)
    assert special, said
    assert special[2] == "instructions"
    assert "chlo" not in said.lower()
    assert not re.search(r"became \d+ custom-calls", said)
    assert "1 instructions" not in said
