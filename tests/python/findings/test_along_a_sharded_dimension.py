"""Operations along a sharded dimension: what is exchanged for them, and what is done in parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hloscope as hs
import jax
import jax.numpy as jnp
import pytest
from findings_programs import F32, shaped
from jax.sharding import AbstractMesh, NamedSharding
from jax.sharding import PartitionSpec as P

CUT = (
    "goes along dimension 1, which is sharded: it is cut along another dimension before, and put"
    " back afterwards"
)


def on_tpu(fn: Callable[[Any], Any], rows: tuple[int, int], *spec: Any) -> hs.Capture:
    cut = NamedSharding(AbstractMesh((8,), ("x",)), P(*spec))
    given = jax.ShapeDtypeStruct(rows, F32, sharding=cut)
    cap = hs.capture(jax.jit(fn), given, topology="v5e:2x4", mesh={"x": 8})
    assert cap.findings.failed == ()
    return cap


@pytest.mark.usefixtures("libtpu")
@pytest.mark.parametrize("fn", [jnp.sort, jnp.argsort, lambda x: jnp.median(x, axis=1)])
def test_exchanges_around_a_sort_say_so(fn: Callable[[Any], Any]) -> None:
    rows = (2048, 256)  # short ones: libtpu writes the steps of a sort out
    cap = on_tpu(fn, rows, None, "x")
    (found,) = cap.findings.of("exposed-collective")
    assert {i.opcode for i in found.instructions} == {"all-to-all"}
    assert f"Sort {CUT}" in found.evidence
    assert "unknown" not in found.evidence
    assert len(on_tpu(fn, rows, "x", None).collectives) == 0


@pytest.mark.usefixtures("libtpu")
@pytest.mark.parametrize("fn", [lambda x: jax.lax.top_k(x, 8), lambda x: jnp.cumsum(x, 1)])
def test_what_a_tpu_does_in_parts_is_not_called_whole(fn: Callable[[Any], Any]) -> None:
    """Each device takes the largest of its part, or sums it; only these results are gathered."""
    cap = on_tpu(fn, (64, 4096), None, "x")
    gathers = [c for c in cap.collectives if c.kind == "all-gather"]
    assert gathers
    assert all(c.payload_bytes < 64 * 4096 * 4 for c in gathers)
    assert cap.findings.of("gathered-for-one") == ()


DUMP = """HloModule m, is_scheduled=true, num_partitions=8

less {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT l = pred[] compare(a, b), direction=LT
}

ENTRY e {
  x = f32[64,512] parameter(0)
  parts = f32[8,8,512] bitcast(x)
  all = f32[8,8,512] all-to-all(parts), replica_groups={{0,1,2,3,4,5,6,7}}, dimensions={0}
  rows = f32[8,4096] bitcast(all)
  ROOT s = f32[8,4096] sort(rows), dimensions={ALONG}, to_apply=less
}
"""


def test_a_dump_shows_it_by_its_shapes() -> None:
    for along, said in ((1, True), (0, False)):
        cap = hs.read(DUMP.replace("ALONG", str(along)))
        cap.hardware = "tpu-v5e"
        (found,) = cap.findings.of("exposed-collective")
        assert (CUT in found.evidence) is said


def test_the_largest_of_a_row_that_is_gathered_whole_still_says_so() -> None:
    on = jax.sharding.Mesh(jax.devices(), ("x",))
    cap = hs.capture(lambda x: jax.lax.top_k(x, 8), shaped((64, 1 << 17), F32, on, None, "x"))
    assert len(cap.findings.of("gathered-for-one")) == 1
