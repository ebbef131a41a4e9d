"""Identity in dumps that nobody marked: inferred, said to be, and compared with marks."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import hloscope as hs
import pytest
from corpus.build import make
from corpus.by_hand import write_passes
from hloscope.analysis.passes.identity.follow import follow_identity
from hloscope.analysis.passes.identity.how import How
from hloscope.analysis.passes.identity.op_names import components, inlined
from hloscope.analysis.passes.identity.walk import IdentityWalk
from hloscope.analysis.passes.passes import passes
from hloscope.analysis.provenance.inferred import infer
from hloscope.capturing.dumps import every_pass
from hloscope.capturing.marks import marks
from hloscope.readers.files.pass_dump import read_passes
from hloscope.show.cli import main
from hloscope.show.commands import passes as passes_command


@pytest.fixture(scope="module")
def by_hand(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_passes(tmp_path_factory.mktemp("inferred"))


def test_a_dump_by_hand_knows_where_its_instructions_are_from(by_hand: Path) -> None:
    cap = hs.read(by_hand)
    assert cap.module.origins is None, "nobody marked it"
    for name, opcode in (("dot_general.5", "dot"), ("tanh.20", "tanh"), ("neg.21", "negate")):
        card = cap.origins(name)
        assert [o.operation.opcode for o in card.origins] == [opcode]
        assert card.inferred
        assert "inferred" in str(card)
        assert card.to_dict()["inferred"] == card.inferred
    assert not cap.origins("copy.3").origins, "layout assignment made it"


def test_fates_of_a_dump_by_hand(by_hand: Path) -> None:
    found = hs.read(by_hand).fates()
    assert found.inferred
    assert "inferred" in str(found)
    assert sum(found.counts.values()) == len(found) == 6
    said = {f.operation.opcode: f for f in found}
    assert said["dot"].kind == "kept"
    assert said["tanh"].kind == said["negate"].kind == "fused"
    assert said["multiply"].by == "algsimp" or said["multiply"].by == "dce"
    assert {f.kind for f in found} <= {"kept", "fused", "dead", "rewritten", "folded"}


def agreement(name: str, folder: Path) -> tuple[float, dict[How, list[bool]]]:
    """The share of instructions whose inferred operations are those of the marks."""
    marked = marks.mark(make(name).lower())
    assert marked is not None
    marked.lowered.compile(compiler_options=every_pass.options(str(folder)))
    known = passes(every_pass.collect(str(folder), marked)[0])
    found = infer(known)
    first, last = known.module(0), known.module(len(known) - 1)
    means: dict[int, set[int]] = {}
    for i, origins in zip(first.instructions, found.origins(first, 0).of, strict=True):
        for o in origins:
            means[o.operation] = {x.operation for x in i.origins}
    right: dict[How, list[bool]] = {}
    inferred = found.origins(last).of
    for i in last.instructions:
        said = {n for o in inferred[i.index] for n in means[o.operation]}
        right.setdefault(found.how(i), []).append(said == {o.operation for o in i.origins})
    every = [ok for kind in right.values() for ok in kind]
    return sum(every) / len(every), right


@pytest.mark.parametrize(
    "name", ["inner_jits", "lstm_scan", "scan_gradient", "gpt_unrolled", "fsdp_scan", "cnn_step"]
)
def test_inferred_agrees_with_exact(name: str, tmp_path: Path) -> None:
    share, right = agreement(name, tmp_path)
    assert share >= 0.95
    named = right.get(How.FIRST, []) + right.get(How.ONLY, [])
    assert sum(named) >= 0.95 * len(named), "what is said with confidence is right"


def test_trace_of_a_line_in_a_dump_says_what_became_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made: Any = make("cnn_step").lower()
    made.compile(compiler_options=every_pass.options(str(tmp_path)))
    cap = hs.read(tmp_path)
    at = next(f for i in cap.module.instructions if i.opcode == "convolution" for f in i.frames)
    place = f"{Path(at.file).name}:{at.line}"
    main(["trace", str(tmp_path), place])
    said = capsys.readouterr().out
    assert "what became of its operations" in said
    assert "inferred" in said
    main(["trace", str(tmp_path), place, "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["inferred"]
    assert found["fates"]


def test_passes_of_a_dump_say_how_sure_identity_is(
    by_hand: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["passes", str(by_hand)]) == 0
    said = capsys.readouterr().out
    found = infer(passes(read_passes(by_hand)))
    last = hs.read(by_hand).module
    assert sum(found.counts.values()) == len(last.instructions)
    assert f"inferred: of {len(last.instructions)} at the end" in said.replace("\n", " ")
    for kind, count in found.counts.items():
        assert f"{count} {kind.replace(' its ', ' their ')}" in said or not kind
    assert {*found.counts} <= {*map(str, How), ""}
    assert main(["passes", str(by_hand), "--json"]) == 0
    identity = json.loads(capsys.readouterr().out)["identity"]
    assert identity["inferred"]
    assert sum(identity["instructions"].values()) == len(last.instructions)
    monkeypatch.setattr(passes_command, "_FOLLOWED", 10)
    main(["passes", str(by_hand)])
    assert "were not followed" in capsys.readouterr().out
    main(["passes", str(by_hand), "--identity"])
    assert "inferred" in capsys.readouterr().out


def test_op_names_are_taken_apart() -> None:
    assert components("") == ()
    assert components("f/mul") == ("f/mul",)
    assert components("f/mul;f/add") == ("f/mul", "f/add")
    assert components("f/(a/mul:b/mul)") == ("f/a/mul", "f/b/mul")
    assert components("f/transpose(jvp(g))") == ("f/transpose(jvp(g))",)
    assert list(inlined("f/call/add")) == [("f", "call/add"), ("f/call", "add")]


_EQUALS = """HloModule jit_f, is_scheduled=false

ENTRY main {{
  x = f32[8] parameter(0)
  y = f32[8] parameter(1)
{body}
}}
"""


def _walk(*bodies: str) -> IdentityWalk:
    texts = [_EQUALS.format(body=b) for b in bodies]
    return follow_identity([partial(str, text) for text in texts])


def test_nothing_is_surer_than_what_it_is_taken_from() -> None:
    """Two equal operations that only their order tells apart: so are those that replace them."""
    named = 'metadata={op_name="f/neg"}'
    walk = _walk(
        f"  a = f32[8] negate(x), {named}\n  b = f32[8] negate(x), {named}\n"
        "  ROOT t = f32[8] add(a, b)",
        f"  c = f32[4] negate(y), {named}\n  d = f32[4] negate(y), {named}\n"
        "  ROOT u = f32[4] subtract(c, d)",
        f"  e = f32[2] negate(y), {named}\n  ROOT v = f32[2] sqrt(e)",
    )
    how = {walk.present(n).name: h for n, h in walk.how.items()}
    assert how["c"] is how["d"] is How.ORDER
    assert how["e"] is How.ORDER, "the only one of that op name, but of which of the two?"


def test_the_slice_and_the_dimension_tell_equal_operations_apart() -> None:
    named = 'metadata={op_name="f/slice"}'
    walk = _walk(
        f"  a = f32[1] slice(x), slice={{[0:1]}}, {named}\n"
        f"  b = f32[1] slice(x), slice={{[1:2]}}, {named}\n"
        "  ROOT t = (f32[1], f32[1]) tuple(a, b)",
        f"  c = f32[1,1] slice(y), slice={{[1:2]}}, {named}\n"
        f"  d = f32[1,1] slice(y), slice={{[0:1]}}, {named}\n"
        "  ROOT u = f32[1,1] add(c, d)",
    )
    known = {walk.present(n).name: walk.of(n) for n in walk.how}
    versions, nodes = walk.steps.versions, walk.steps.nodes
    first = {versions[n.versions[0]].line.name: (n.index,) for n in nodes if not n.first}
    assert known["c"] == first["b"]
    assert known["d"] == first["a"]


def test_the_end_of_a_transfer_is_of_the_operation_that_began_it() -> None:
    named = 'metadata={op_name="f/ppermute"}'
    pairs = "source_target_pairs={{0,1},{1,0}}"
    walk = _walk(
        f"  a = f32[8] collective-permute(x), {pairs}, {named}\n"
        f"  b = f32[8] collective-permute(a), {pairs}, {named}\n"
        f"  ROOT t = f32[8] collective-permute(b), {pairs}, {named}",
        f"  s = f32[8] collective-permute-start(x), {pairs}, {named}\n"
        f"  p = f32[8] collective-permute-done(s), {named}\n"
        f"  r = f32[8] collective-permute-start(p), {pairs}, {named}\n"
        f"  q = f32[8] collective-permute-done(r), {named}\n"
        f"  v = f32[8] collective-permute-start(q), {pairs}, {named}\n"
        f"  ROOT w = f32[8] collective-permute-done(v), {named}",
    )
    known = {walk.present(n).name: walk.of(n) for n in walk.how}
    assert known["p"] == known["s"]
    assert known["q"] == known["r"]
    assert known["w"] == known["v"]


def test_a_card_says_how_often_what_it_rests_on_was_right(by_hand: Path) -> None:
    cap = hs.read(by_hand)
    for i in cap.module.instructions:
        card = cap.origins(i)
        if card.origins:
            assert card.agreement is not None
            assert f"{card.agreement:.0%}" in str(card)
            assert card.to_dict()["agreement"] == card.agreement
        elif i.opcode != "parameter":
            assert "most likely" in str(card), "nobody followed it: no more is known"
