"""Edges where a value changes its sharding, before and after partitioning."""

from __future__ import annotations

import hloscope as hs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hloscope.analysis.why.transitions import moved, transitions
from hloscope.show import blocks
from hloscope.view.schema import joined
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P


@pytest.fixture(scope="module")
def capture():
    mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("data", "model"))
    sharding = lambda *s: NamedSharding(mesh, P(*s))  # noqa: E731
    constrain = jax.lax.with_sharding_constraint

    def step(x, w):
        x = constrain(jnp.sin(x), sharding("data", "model"))
        y = constrain(constrain(x, sharding("data", None)) @ w, sharding("data", None))
        return constrain(y, sharding(None, "data")), jnp.sum(x)

    x = jax.ShapeDtypeStruct((16, 64), np.float32, sharding=sharding("data", None))
    w = jax.ShapeDtypeStruct((64, 64), np.float32, sharding=sharding())
    return hs.capture(jax.jit(step), x, w)


def edges(found):
    return {(t.before, t.after) for t in found}


def test_the_collectives_of_a_partitioned_module_are_edges(capture):
    found = transitions(capture.module, capture.target)
    assert edges(found) == {
        ("P('data', 'model')", "P('data', None)"),
        ("P('data', None)", "P(None, 'data')"),
    }
    kinds = {t.target: r.kind for r in capture.collectives for t in found if t.target is r.anchor}
    assert set(kinds.values()) == {"all-gather", "all-to-all"}
    assert all(t.source in t.target.operands for t in found)


def test_before_partitioning_they_are_the_annotated_edges(capture):
    before = capture.target.before_partitioning()
    found = transitions(before, capture.target)
    assert {("P('data', 'model')", "P('data', None)"), ("P('data', None)", "P(None, 'data')")} <= (
        edges(found)
    )
    assert all(t.target.opcode == "copy" for t in found)


def test_of_a_fusion_with_other_work_it_is_the_operand_that_moves():
    text = """HloModule m, num_partitions=4

%gathers (a: f32[8,8], b: f32[2,8], c: f32[2,8]) -> (f32[8,8], f32[8,8], f32[8,8]) {
  %a = f32[8,8] parameter(0)
  %b = f32[2,8] parameter(1)
  %c = f32[2,8] parameter(2)
  %e = f32[8,8] exponential(%a)
  %d = f32[2,8] bitcast(%c)
  %ag = (f32[8,8], f32[8,8]) all-gather(%d, %b), channel_id=1, replica_groups=[1,4]<=[4], dimensions={0}, use_global_device_ids=true
  %x = f32[8,8] get-tuple-element(%ag), index=0
  %y = f32[8,8] get-tuple-element(%ag), index=1
  ROOT %t = (f32[8,8], f32[8,8], f32[8,8]) tuple(%e, %x, %y)
}

ENTRY %main (p: f32[8,8], q: f32[2,8], r: f32[2,8]) -> (f32[8,8], f32[8,8], f32[8,8]) {
  %p = f32[8,8] parameter(0)
  %q = f32[2,8] parameter(1)
  %r = f32[2,8] parameter(2)
  ROOT %f = (f32[8,8], f32[8,8], f32[8,8]) fusion(%p, %q, %r), kind=kLoop, calls=%gathers
}
"""  # noqa: E501
    (row,) = hs.read(text).collectives
    assert row.anchor.name == "f"
    assert [source.name for source in moved(row)] == ["r", "q"]


def test_they_are_columns_of_the_view(capture):
    _, columns = joined(blocks.view(capture), blocks.analyses(capture))
    found = transitions(capture.module, capture.target)
    assert columns["transition.source"].tolist() == [t.source.index for t in found]
    assert columns["transition.target"].tolist() == [t.target.index for t in found]
    texts = columns["strings"]
    assert [texts[k] for k in columns["transition.after"]] == [t.after for t in found]
