"""What XLA says on stderr, pinned to instruction and line; provoked for real where it can be."""

from __future__ import annotations

import dataclasses
import inspect

import hloscope as hs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hloscope.analysis.why.compiler_messages import REMATERIALIZED, compiler_messages
from hloscope.show import blocks
from hloscope.view.schema import joined
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P


@pytest.fixture(scope="module")
def mesh():
    return Mesh(np.array(jax.devices()).reshape(4, 2), ("x", "y"))


def reshard(mesh, x):
    """github.com/openxla/xla/issues/15207: no way between these two but through the whole."""
    constrain = jax.lax.with_sharding_constraint
    x = constrain(jnp.cos(x), NamedSharding(mesh, P("y", None, "x")))  # cut
    return jnp.sin(constrain(jnp.tan(x), NamedSharding(mesh, P(None, ("x", "y"), None))))


def capture_of(mesh, **options):
    x = jax.ShapeDtypeStruct((16, 16, 16), np.float32, sharding=NamedSharding(mesh, P()))
    return hs.capture(jax.jit(lambda x: reshard(mesh, x)), x, **options)


@pytest.fixture(scope="module")
def capture(mesh):
    return capture_of(mesh)


def line_of(word: str) -> str:
    lines, first = inspect.getsourcelines(reshard)
    return f"test_compiler_messages.py:{first + next(k for k, t in enumerate(lines) if word in t)}"


def test_a_real_rematerialization_is_pinned_to_its_gathers_and_line(capture):
    (said,) = [m for m in compiler_messages(capture.module, capture.target) if m.kind]
    assert said.kind == REMATERIALIZED
    assert (said.had, said.needs) == ("P('y', None, 'x')", "P(None, ('x', 'y'), None)")
    assert said.line.endswith(line_of("# cut"))
    gathers = [r for r in capture.collectives if r.kind == "all-gather"]
    assert gathers
    assert set(said.instructions) == {i for r in gathers for i in r.members}
    assert str(said).startswith(f"{REMATERIALIZED} of %{said.operation} f32[16,16,16]")


def test_the_finding_names_the_whole_array_and_all_of_them_are_one(capture, mesh):
    """XLA's message has the shape of a device's part."""
    (found,) = capture.findings.of("full-rematerialization")
    assert found.title == "XLA gathers all of f32[16,16,16] to change its sharding"
    assert "f32[16,16,16] at " in found.evidence
    assert "from P('y', None, 'x') to P(None, ('x', 'y'), None)" in found.evidence
    shapes = (16, 16, 16), (32, 16, 16)
    given = [jax.ShapeDtypeStruct(s, np.float32, sharding=NamedSharding(mesh, P())) for s in shapes]
    two = hs.capture(jax.jit(lambda x, y: (reshard(mesh, x), reshard(mesh, y))), *given)
    (found,) = two.findings.of("full-rematerialization")
    assert found.title == "XLA gathers all of 2 arrays to change their sharding"
    assert found.bytes == sum(r.total_wire_bytes for r in two.collectives if r.kind == "all-gather")


def test_it_is_in_the_summary_and_in_its_text(capture):
    (row,) = [m for m in capture.summary["compiler_messages"] if m["kind"]]
    assert row["line"].endswith(line_of("# cut"))
    assert f"  warning: XLA: {REMATERIALIZED} of %" in str(capture)
    (gather, *_) = [r for r in capture.collectives if r.kind == "all-gather"]
    assert row["message"] in [str(m) for m in capture.why(gather).messages]
    assert "XLA warned" in str(capture.why(gather))
    dumped = hs.read(capture.text)  # nobody knows what was said then
    assert "compiler_messages" not in dumped.summary


def test_it_is_in_the_view_and_its_warnings(capture):
    header, _ = joined(blocks.view(capture), blocks.analyses(capture))
    (row,) = header["extras"]["compiler"]
    gathers = [r for r in capture.collectives if r.kind == "all-gather"]
    assert set(row["instructions"]) == {i for r in gathers for i in r.members}
    assert any(REMATERIALIZED in w and line_of("# cut") in w for w in header["warnings"])


def test_without_the_program_before_partitioning_it_names_the_operation_only(mesh):
    found = capture_of(mesh, provenance=False)
    (said,) = [m for m in compiler_messages(found.module, found.target) if m.kind]
    assert said.instructions == ()
    assert said.op_name.endswith("/sharding_constraint")


# As XLA wrote it in 2022, 2025 and now; openxla/xla's spmd_partitioner.cc.
OLDEST = (
    "[spmd] Involuntary full rematerialization. The compiled was not able to go from sharding "
    "{devices=[4,1,1,1]0,1,2,3} to {devices=[2,1,1,2]0,1,2,3} without doing a full "
    "rematerialization of the tensor. You probably want to enrich the sharding annotations to "
    "prevent this from happening."
)
OLDER = (
    "[spmd] Involuntary full rematerialization. The compiler was not able to go from sharding "
    "{devices=[1,1,2,2]<=[4] last_tile_dim_replicate} to {devices=[2,2]<=[2,2]T(1,0) "
    "last_tile_dim_replicate} without doing a full rematerialization of the tensor for HLO "
    "operation: %pad = f64[96]{0} pad(%broadcast.690, %constant), padding=8_7, "
    'metadata={op_name="jit(f)/pad" source_file="train.py" source_line=31}. You probably want '
    "to enrich the sharding annotations to prevent this from happening."
)


def test_older_wordings(capture):
    target = dataclasses.replace(capture.target, compiler_messages=(OLDEST, OLDER, "Hm."))
    oldest, older, other = compiler_messages(capture.module, target)
    assert (oldest.kind, oldest.had) == (REMATERIALIZED, "{devices=[4,1,1,1]0,1,2,3}")
    assert (oldest.needs, oldest.operation) == ("{devices=[2,1,1,2]0,1,2,3}", "")
    assert (older.operation, older.opcode, older.shape) == ("pad", "pad", "f64[96]{0}")
    assert older.line == "train.py:31"
    assert older.instructions == ()
    assert (other.kind, str(other)) == ("", "Hm.")
