"""Halo exchanges and rings that begin before their loop: one row each, and budgets see through."""

from __future__ import annotations

import hloscope as hs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P


def convolved(axes, spec, layers=3):
    """Convolutions in a Python loop: one source line, one op name, an exchange each."""
    mesh = Mesh(np.array(jax.devices()).reshape(tuple(axes.values())), tuple(axes))

    def array(shape, *spec):
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, P(*spec)))

    def f(kernels, x):
        for k in kernels:
            dims = ("NHWC", "HWIO", "NHWC")
            x = jnp.tanh(lax.conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=dims))
        return x

    kernels = [array((3, 3, 8, 8)) for _ in range(layers)]
    return hs.capture(f, kernels, array((8, 32, 64, 8), *spec))


def printed_permutes(cap):
    return [line for line in cap.text.splitlines() if " collective-permute(" in line]


@pytest.fixture(scope="module")
def rows_cut():
    return convolved({"data": 2, "space": 4}, ("data", "space"))


@pytest.fixture(scope="module")
def both_cut():
    return convolved({"data": 2, "high": 2, "wide": 2}, ("data", "high", "wide"), layers=2)


def test_each_convolution_has_its_exchange(rows_cut):
    rows = rows_cut.collectives
    assert [(r.kind, r.axes, len(r.parts)) for r in rows] == [("halo-exchange", "space", 2)] * 3
    edge = 4 * 1 * 64 * 8 * 4
    assert [r.payload_bytes for r in rows] == [2 * edge] * 3
    for row in rows:
        sent = rows.traffic([row]).sum(axis=1)
        assert sent.max() == row.total_wire_bytes == 2 * edge
        assert sent.min() == edge  # the ends of a chain have one neighbour


def test_two_cut_dimensions_are_one_exchange_over_both(both_cut):
    rows = both_cut.collectives
    assert [(r.kind, r.axes) for r in rows] == [("halo-exchange", "high+wide")] * 2
    assert sum(len(r.parts) for r in rows) == len(printed_permutes(both_cut))
    for row in rows:
        assert rows.traffic([row]).sum(axis=1).max() == row.total_wire_bytes


def test_a_budget_counts_what_a_row_stands_for(rows_cut, both_cut):
    for cap in (rows_cut, both_cut):
        report = hs.check(cap, forbid=["collective-permute"])
        assert not report
        assert len(report.breaches) == len(cap.collectives)
        assert "of a halo-exchange" in str(report)
        assert not hs.check(cap, forbid=["halo-exchange"])
        assert not hs.check(cap, forbid=["collective"])
    assert not hs.check(rows_cut, forbid=["collective-permute over space"])
    assert hs.check(rows_cut, forbid=["collective-permute over data", "collective-matmul"])


# A ring of four in both directions; the first permute of one stands before the loop.
RING = """HloModule ring, is_scheduled=true, num_partitions=4

%body (p: (bf16[8,8], bf16[8,8], s32[])) -> (bf16[8,8], bf16[8,8], s32[]) {
  %p = (bf16[8,8], bf16[8,8], s32[]) parameter(0)
  %a = bf16[8,8] get-tuple-element(%p), index=0
  %b = bf16[8,8] get-tuple-element(%p), index=1
  %n = s32[] get-tuple-element(%p), index=2
  %one = s32[] constant(1)
  %next = s32[] add(%n, %one)
  %left = bf16[8,8] collective-permute(%a), channel_id=2, DOWN, AT_DOT
  %right = bf16[8,8] collective-permute(%b), channel_id=3, UP, AT_DOT
  ROOT %out = (bf16[8,8], bf16[8,8], s32[]) tuple(%left, %right, %next)
}

%cond (q: (bf16[8,8], bf16[8,8], s32[])) -> pred[] {
  %q = (bf16[8,8], bf16[8,8], s32[]) parameter(0)
  %m = s32[] get-tuple-element(%q), index=2
  %two = s32[] constant(2)
  ROOT %less = pred[] compare(%m, %two), direction=LT
}

ENTRY %main (w: bf16[8,8]) -> bf16[8,8] {
  %w = bf16[8,8] parameter(0), metadata={op_name="w"}
  %first = bf16[8,8] collective-permute(%w), channel_id=1, UP, INSERTED, AT_DOT
  %zero = s32[] constant(0)
  %init = (bf16[8,8], bf16[8,8], s32[]) tuple(%w, %first, %zero)
  %loop = (bf16[8,8], bf16[8,8], s32[]) while(%init), condition=%cond, body=%body, TWICE, AT_DOT
  ROOT %got = bf16[8,8] get-tuple-element(%loop), index=0
}
"""

SHORT = {
    "AT_DOT": 'metadata={op_name="jit(f)/dot_general" source_file="f.py" source_line=7}',
    "DOWN": "source_target_pairs={{0,3},{1,0},{2,1},{3,2}}",
    "UP": "source_target_pairs={{0,1},{1,2},{2,3},{3,0}}",
    "INSERTED": 'frontend_attributes={is_spmd_generated="true"}',
    "TWICE": 'backend_config={"known_trip_count":{"n":"2"}}',
}


@pytest.mark.parametrize("name", ["body", "windowed_dot_general_body_ag"])
def test_the_permute_before_a_windowed_loop_is_of_the_loop(tmp_path, name):
    path = tmp_path / "ring.hlo"
    text = RING.replace("%body", f"%{name}")
    for short, whole in SHORT.items():
        text = text.replace(short, whole)
    path.write_text(text)
    cap = hs.read(path)
    rows = cap.collectives
    runs = sum(r.executions * sum(p.executions for p in r.parts) for r in rows)
    assert runs == 1 + 2 * 2
    assert sum(r.total_payload_bytes for r in rows) == runs * 128
    if name != "body":
        (row,) = rows
        assert (row.kind, row.moves.name) == ("collective-matmul", "w")
        assert [p.executions for p in row.parts] == [2, 2, 1]
