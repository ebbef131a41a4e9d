"""Programs as people write them; ``benchmarks/ways_of_writing.py`` asks more, and of all."""

from __future__ import annotations

import contextlib
from typing import Any

import hloscope as hs
import jax
import pytest
from ways import WAYS

TPU = "v5e:2x4"
REFUSED = {
    "nnx_lowered": "is for its own devices already",
    "nnx_compiled": "is for its own devices already",
    "exported_sharded": "was exported for cpu, not for tpu",
    "pmap": "holds shardings of another mesh",
}


def captured(name: str, **options: Any) -> Any:
    way = WAYS[name]()
    plainly: dict[str, Any] = {"exact": False, "provenance": False}
    with way.context() if way.context else contextlib.nullcontext():
        return hs.capture(way.function, *way.arguments, **way.options, **plainly, **options)


def names(cap: Any) -> list[str]:
    return [a.name for a in cap.target.arguments]


@pytest.mark.parametrize(
    "name", "explicit_under_set_mesh explicit_axes_as_text explicit_abstract_mesh "
    "explicit_gradient explicit_unreduced explicit_reduced mixed_axes automatic_inside_explicit "
    "shard_map_inside_explicit".split(),
)  # fmt: skip
def test_explicit_axes_are_captured_for_a_topology(name: str) -> None:
    here, there = captured(name), captured(name, topology=TPU)
    assert there.target.platform == "tpu"
    assert [a.sharding for a in there.target.arguments] == [
        a.sharding for a in here.target.arguments
    ]
    assert there.target.mesh.axis_names == ("data", "model")
    assert len(there.html()) > 100_000  # the page has the jaxpr, in which unreduced axes stand


def test_what_is_unreduced_is_part_of_a_sharding() -> None:
    text = captured("explicit_unreduced").at("jaxpr").text
    assert "unreduced={'model'}" in text


def test_flax_nnx_is_captured_with_its_own_names() -> None:
    cap = captured("nnx_jit")
    assert names(cap)[:2] == ["model.linear.bias.value", "model.linear.kernel.value"]
    moved = captured("nnx_sharded", topology=TPU)
    assert {a.sharding for a in moved.target.arguments} >= {"P(None, 'model')"}
    assert hs.capture(WAYS["nnx_lowered"]().function).collectives is not None


def test_equinox_is_captured_with_its_own_names_and_donations() -> None:
    for where in ({}, {"topology": TPU}):
        cap = captured("equinox_donating", **where)
        assert {"x", "model.layers[0].weight", "model.layers[0].bias"} <= set(names(cap))
        assert {a.name for a in cap.target.arguments if a.donated} == {"x"}
        assert "dot_general" in cap.at("jaxpr").text
    assert captured("equinox_compiled").module.instructions


def test_haiku_is_captured() -> None:
    assert "parameters['mlp/~/linear_0']['w']" in names(captured("haiku", topology=TPU))


def test_a_bound_method_and_a_partial_keep_their_jit() -> None:
    assert names(captured("jitted_method")) == ["x", "w"]
    assert names(captured("partial_of_a_jit")) == ["x", "w"]


def test_an_exported_program_is_compiled_for_its_platforms() -> None:
    assert captured("exported_for_both").target.platform == "cpu"
    assert captured("exported_for_both", topology=TPU).target.platform == "tpu"
    shardings = [a.sharding for a in captured("exported_sharded").target.arguments]
    assert shardings == ["P('data')", "P(None, 'model')"]
    with pytest.raises(hs.CaptureError, match="was exported for cpu, not for tpu: export it"):
        captured("exported_for_cpu", topology=TPU)


def test_an_exported_program_with_open_sizes_takes_arguments() -> None:
    from jax import export

    rows = jax.ShapeDtypeStruct((export.symbolic_shape("rows")[0], 8), "float32")
    program = export.export(jax.jit(lambda x: x * 2))(rows)
    with pytest.raises(hs.CaptureError, match=r"open dimensions \(rows, 8\): give arguments"):
        hs.capture(program)
    cap = hs.capture(program, jax.ShapeDtypeStruct((4, 8), "float32"), exact=False)
    assert cap.target.arguments[0].shape == (4, 8)


def test_a_file_that_is_no_exported_program_is_said(tmp_path: Any) -> None:
    with pytest.raises(hs.CaptureError, match=r"cannot read .*gone\.jaxexport: No such file"):
        hs.capture(tmp_path / "gone.jaxexport")
    (tmp_path / "bad.jaxexport").write_bytes(b"nothing of the kind")
    with pytest.raises(hs.CaptureError, match=r"bad\.jaxexport"):
        hs.capture(tmp_path / "bad.jaxexport")


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_cannot_move_to_a_topology_is_said_in_one_line(name: str) -> None:
    with pytest.raises(hs.CaptureError) as caught:
        captured(name, topology=TPU)
    assert REFUSED[name] in str(caught.value)
    assert "\n" not in str(caught.value)
