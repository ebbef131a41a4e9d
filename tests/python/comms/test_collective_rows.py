"""Which instructions are one collective, of texts that hold every way in which several are."""

from __future__ import annotations

import hloscope as hs
import pytest
from hloscope.analysis.base.collectives.find import Found, find, payload
from hloscope.analysis.base.collectives.halo import join_halos
from hloscope.analysis.base.collectives.windowed import join_windowed
from hloscope.hlo import Module
from text_tables import assert_table


def one(module: Module, found: Found, sized: bool = True) -> str:
    members = ", ".join(module.instructions[m].name for m in sorted(found.members))
    bytes_, arrays = payload(found) if sized else (0, ())
    size = f" {bytes_} B {[f'{t} {n}' for t, n in arrays]}" if sized else ""
    parts = "".join(f" + {p.op.name}" for p in found.transfers)
    return f"{found.kind} {found.op.name} run by {found.anchor.name}: {members}{size}{parts}"


def collectives_told(text: str) -> str:
    """Those found; then those that are joined as matmuls and exchanges of edges."""
    module = hs.read(text).module
    found = find(module)
    lines = [one(module, f) for f in found]
    joined = join_windowed(module, join_halos(module, found))
    lines += [f"joined {one(module, f, False)}" for f in joined if f.transfers]
    assert sum(len(f.transfers) or 1 for f in joined) == len(found)
    assert [f.op.index for f in joined] == sorted(f.op.index for f in joined)
    return "\n".join(lines + [f"! {w.message}" for w in module.warnings])


def test_every_collective() -> None:
    assert_table("collectives", collectives_told)


# XLA:TPU writes a gather of little as a sum of what each device puts into zeros.
WRITTEN_AS_A_SUM = """HloModule m, is_scheduled=true, num_partitions=8

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

ENTRY e {
  x = f32[8388608] parameter(0)
  y = f32[8388608] all-reduce(x), channel_id=1, replica_groups={{0,1,2,3,4,5,6,7}}, use_global_device_ids=true, to_apply=add, metadata={op_name="jit(f)/shard_map/PRIMITIVE" source_file="m.py" source_line=5}
  ROOT z = f32[8388608] sine(y)
}
"""  # noqa: E501


@pytest.mark.parametrize(
    ("primitive", "asked"),
    [("all_gather", "all_gather"), ("reduce_scatter", "reduce_scatter"), ("psum", ""),
     ("psum_invariant", ""), ("pmax", ""), ("dot_general", "")],
)  # fmt: skip
def test_what_xla_wrote_otherwise_than_it_was_asked_for_says_so(primitive: str, asked: str) -> None:
    cap = hs.read(WRITTEN_AS_A_SUM.replace("PRIMITIVE", primitive), hardware="tpu-v5e")
    (row,) = cap.collectives
    assert row.asked_as == asked
    said = f"requested  by name at m.py:5 as {asked}, of which XLA made this"
    assert (said in str(cap.why(row))) == bool(asked)
    (waits,) = cap.findings.of("exposed-collective")
    assert (f"it is %y (asked for as {asked}), 32 MiB" in waits.evidence) == bool(asked)


GATHER = (
    "all-gather(PART), channel_id=1, replica_groups={{0,1,2,3}}, dimensions={0},"
    ' use_global_device_ids=true, frontend_attributes={chain_id="0"},'
    ' metadata={op_name="jit(f)/shard_map/all_gather"}'
)
# XLA:TPU hides a transfer behind a loop: a step of it in every trip, begun before, done after.
BEHIND_A_LOOP = f"""HloModule m, is_scheduled=true, num_partitions=4

begin {{
  p = bf16[32,768] parameter(0)
  g = bf16[128,768] {GATHER.replace("PART", "p")}
  ROOT c = (bf16[32,768], bf16[128,768], u32[]) custom-call(g), custom_call_target="AsyncCollectiveStart"
}}

async_collective_fusion {{
  p = bf16[32,768] parameter(0)
  y = f32[8,8] parameter(1)
  g = bf16[128,768] {GATHER.replace("PART", "p")}
  d = f32[8,8] dot(y, y), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  ROOT t = (f32[8,8], bf16[128,768]) tuple(d, g)
}}

end {{
  p = bf16[32,768] parameter(0)
  w = bf16[128,768] parameter(1)
  g = bf16[128,768] {GATHER.replace("PART", "p")}
  ROOT c = bf16[128,768] custom-call(p, w, g), custom_call_target="AsyncCollectiveDone"
}}

body {{
  q = (s32[], bf16[32,768], f32[8,8]) parameter(0)
  n = s32[] get-tuple-element(q), index=0
  one = s32[] constant(1)
  m = s32[] add(n, one)
  x = bf16[32,768] get-tuple-element(q), index=1
  y = f32[8,8] get-tuple-element(q), index=2
  f = (f32[8,8], bf16[128,768]) fusion(x, y), kind=kOutput, calls=async_collective_fusion
  z = f32[8,8] get-tuple-element(f), index=0
  ROOT r = (s32[], bf16[32,768], f32[8,8]) tuple(m, x, z)
}}

condition {{
  q = (s32[], bf16[32,768], f32[8,8]) parameter(0)
  n = s32[] get-tuple-element(q), index=0
  k = s32[] constant(12)
  ROOT l = pred[] compare(n, k), direction=LT
}}

ENTRY e {{
  x = bf16[32,768] parameter(0)
  y = f32[8,8] parameter(1)
  s = (bf16[32,768], bf16[128,768], u32[]) fusion(x), kind=kCustom, calls=begin
  zero = s32[] constant(0)
  i = (s32[], bf16[32,768], f32[8,8]) tuple(zero, x, y)
  w = (s32[], bf16[32,768], f32[8,8]) while(i), condition=condition, body=body, backend_config={{"known_trip_count":{{"n":"12"}}}}
  b = bf16[128,768] get-tuple-element(s), index=1
  ROOT d = bf16[128,768] fusion(x, b), kind=kCustom, calls=end
}}
"""  # noqa: E501


def test_a_transfer_that_is_hidden_behind_a_loop_is_one() -> None:
    (row,) = hs.read(BEHIND_A_LOOP).collectives
    assert (row.kind, row.executions) == ("all-gather", 1)
    assert row.total_wire_bytes == 128 * 768 * 2 * 3 // 4
