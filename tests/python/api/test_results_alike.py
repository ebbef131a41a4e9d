"""All results behave alike, travel to other processes, and are on the page of the docs."""

from __future__ import annotations

import copy
import inspect
import json
import pickle
import re
from pathlib import Path
from typing import Any

import hloscope as hs
import pytest
from hloscope import results
from hloscope.analysis.text.results import Row, Rows
from hloscope.api.capture import answer

TWO_DEVICES = """HloModule step, is_scheduled=true, num_partitions=2

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

ENTRY main_spmd {
  x = f32[64,64]{1,0} parameter(0), sharding={devices=[2,1]<=[2]}
  d = f32[64,64]{1,0} dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="jit(step)/dot_general" source_file="/a/train.py" source_line=7}
  ROOT r = f32[64,64]{1,0} all-reduce(d), replica_groups={{0,1}}, to_apply=add
}
"""  # noqa: E501
NOTHING = "HloModule empty\n\nENTRY e {\n  ROOT x = f32[] parameter(0)\n}\n"
STABLEHLO = """module @m {
  func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> {
    %0 = stablehlo.add %a, %a : tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}
"""
QUESTIONS = ("collectives", "shardings", "cost", "memory", "source", "findings")


def asked(cap: hs.Capture, name: str) -> Any:
    """The answer to a question, which is an attribute or a method."""
    found = getattr(cap, name)
    return found() if callable(found) else found


def answers(cap: hs.Capture) -> dict[str, Rows[Any]]:
    return {name: asked(cap, name) for name in QUESTIONS}


@pytest.fixture
def cap() -> hs.Capture:
    return hs.read(TWO_DEVICES, hardware="tpu-v5e")


@pytest.mark.parametrize("text", [TWO_DEVICES, NOTHING], ids=["program", "nothing"])
def test_results_behave_alike(text: str) -> None:
    pytest.importorskip("pandas")
    for name, result in answers(hs.read(text)).items():
        rows = list(result)
        assert len(result) == len(rows), name
        plain = result.to_dict()
        assert isinstance(plain, dict), name
        assert len(plain["rows"]) == len(rows), name
        json.dumps(plain)
        frame = result.to_pandas()
        assert list(frame.columns) == list(type(result).COLUMNS), name
        assert len(frame) == len(rows), name
        assert result[:2] == tuple(rows[:2]), name
        assert str(result) == repr(result), name
        assert result._repr_html_().startswith("<pre>"), name
        for row in rows[:3]:
            assert isinstance(row, Row), name
            assert str(row) == repr(row), name
            assert max(map(len, str(row).splitlines())) < 200, name
            json.dumps(row.to_dict())


def test_a_row_prints_as_a_card(cap: hs.Capture) -> None:
    lines = [line.split() for line in str(cap.collectives[0]).splitlines()]
    assert lines[:3] == [["Collective"], ["kind", "all-reduce"], ["name", "r"]]


def test_names_are_data_in_cells() -> None:
    found = hs.read(NOTHING.replace("ROOT x", "ROOT x").replace("empty", "a<b>"))
    assert "<b>" not in found.memory._repr_html_()


def test_looking_for_attributes_never_fails() -> None:
    for text in (TWO_DEVICES, NOTHING, STABLEHLO):
        found = hs.read(text)
        assert dict(inspect.getmembers(found))["module"] is found.module
    assert not hasattr(hs.read(STABLEHLO), "memory")
    assert "passes" not in hs.read(TWO_DEVICES).for_hosts.answers


def test_questions_that_a_stage_cannot_answer_are_refused_in_a_sentence() -> None:
    found = hs.read(STABLEHLO)
    for name in ("memory", "findings", "source", "cost", "passes", "fates"):
        with pytest.raises(ValueError, match=r"."):
            asked(found, name)


def test_captures_pickle_at_any_time(cap: hs.Capture) -> None:
    """Fresh, after every question, after it was shown; and so does every answer."""
    fresh = pickle.loads(pickle.dumps(cap))
    given = answers(cap) | {"why": cap.why(cap.collectives[0]), "diff": hs.diff(cap, fresh)}
    given["check"] = hs.check(cap, max_instructions=1)
    cap.add_values({"r": 2.0}, label="mine")
    cap._repr_mimebundle_()
    for there in (pickle.loads(pickle.dumps(cap)), copy.deepcopy(cap)):
        assert str(there) == str(cap) == str(fresh)
        assert there.text == cap.text
        for name, result in answers(there).items():
            assert str(result) == str(given[name]), name
    for name, result in given.items():
        assert str(pickle.loads(pickle.dumps(result))) == str(result), name


def test_a_deep_program_pickles() -> None:
    lines = [f"  x{k} = f32[] negate(x{k - 1})" for k in range(1, 20_000)]
    text = "\n".join(["HloModule deep", "", "ENTRY e {", "  x0 = f32[] parameter(0)", *lines, "}"])
    module = hs.read(text).module
    there = pickle.loads(pickle.dumps(module))
    assert [o.name for o in there.instructions[-1].operands] == ["x19998"]
    assert there.instructions[5].users == (there.instructions[6],)


def test_a_live_capture_leaves_its_program_behind() -> None:
    jnp = pytest.importorskip("jax.numpy")
    live = hs.capture(lambda x: jnp.tanh(x @ x), jnp.ones((8, 8)), passes=True)
    live.at("stablehlo")
    wanted = str(live.fates())
    there = pickle.loads(pickle.dumps(live))
    assert str(there) == str(live)
    assert str(there.fates()) == wanted
    assert there.at("stablehlo").text == live.at("stablehlo").text
    with pytest.raises(ValueError, match="others stayed in the process that captured it"):
        there.at("jaxpr")
    with pytest.raises(ValueError, match="captured in this process"):
        there.profile(jnp.ones((8, 8)))


def test_a_mesh_is_written_as_in_the_magic() -> None:
    one = hs.transformer(batch=2, embed=1024, heads=8, depth=2, mesh="data=2,tensor=4")
    other = hs.transformer(batch=2, embed=1024, heads=8, depth=2, mesh={"data": 2, "tensor": 4})
    assert str(one) == str(other)
    jax = pytest.importorskip("jax")
    shape = jax.ShapeDtypeStruct((8, 8), "float32")
    caps = [hs.capture(lambda x: x + 1, shape, mesh=m) for m in ("data=1", {"data": 1})]
    assert caps[0].text == caps[1].text
    with pytest.raises(hs.CaptureError, match="axis=size pairs"):
        hs.capture(lambda x: x + 1, jax.ShapeDtypeStruct((8,), "float32"), mesh="data2")


def table(repo: Path, head: str) -> list[list[str]]:
    text = (repo / "docs" / "results.md").read_text()
    body = text[text.index(head) :].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in body]


def test_the_page_of_results_is_the_code(repo: Path) -> None:
    members = {n for n in dir(hs.read(NOTHING)) if not n.startswith("_")} - {"for_hosts"}
    attributes = {row[0].strip("`").removeprefix("cap.") for row in table(repo, "| attribute |")}
    questions = table(repo, "| question |")
    asked = {row[0].strip("`").removeprefix("cap.").partition("(")[0] for row in questions}
    assert attributes | asked == members
    assert not any(inspect.isfunction(getattr(hs.Capture, name, None)) for name in attributes)
    for question, result, rows in questions:
        name = question.strip("`").removeprefix("cap.").partition("(")[0]
        member = getattr(hs.Capture, name)
        assert inspect.isfunction(member) is ("(" in question), name
        work_out = member.work_out if isinstance(member, answer) else member
        returned = str(work_out.__annotations__["return"])
        if returned == "Any":  # a class of planning, which the core does not import
            returned = str(work_out.__doc__).partition(":")[0].strip("`")
        assert re.sub(r"\[.*", "", returned) == result.strip("`"), name
        if rows:
            cls, row = getattr(results, result.strip("`")), getattr(results, rows.strip("`"))
            assert issubclass(cls, Rows), name
            assert issubclass(row, Row), name
            assert row.__name__ in str(cls.__orig_bases__), name
