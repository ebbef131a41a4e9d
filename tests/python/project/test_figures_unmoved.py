"""Figures do not follow what means nothing: the order of computations, names, lost metadata."""

from __future__ import annotations

import re

import hloscope as hs

SUM = """%sum (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %add = f32[] add(%a, %b)
}"""
GATHER = (
    "channel_id=3, replica_groups={{0,1,2,3}}, dimensions={0}, use_global_device_ids=true,"
    ' metadata={op_name="jit(f)/dot_general"}'
)
STARTS = f"""%starts (p: bf16[256,512]) -> (bf16[256,512], bf16[1024,512]) {{
  %p = bf16[256,512]{{1,0}} parameter(0)
  %gather.1 = bf16[1024,512]{{1,0}} all-gather(%p), {GATHER}
  ROOT %begun = (bf16[256,512]{{1,0}}, bf16[1024,512]{{1,0}}) custom-call(%gather.1), \
custom_call_target="AsyncCollectiveStart"
}}"""
BESIDE = f"""%async_collective_fusion (q: bf16[256,512], r: bf16[1024,512]) -> bf16[1024,512] {{
  %q = bf16[256,512]{{1,0}} parameter(0)
  %r = bf16[1024,512]{{1,0}} parameter(1)
  %gather.2 = bf16[1024,512]{{1,0}} all-gather(%q), {GATHER}
  ROOT %both = bf16[1024,512]{{1,0}} add(%gather.2, %r)
}}"""
MAIN = """ENTRY %main (w: bf16[256,512]) -> bf16[1024,512] {
  %w = bf16[256,512]{1,0} parameter(0)
  %start = (bf16[256,512]{1,0}, bf16[1024,512]{1,0}) fusion(%w), kind=kCustom, calls=%starts
  %shard = bf16[256,512]{1,0} get-tuple-element(%start), index=0
  %room = bf16[1024,512]{1,0} get-tuple-element(%start), index=1
  ROOT %end = bf16[1024,512]{1,0} fusion(%shard, %room), kind=kCustom, \
calls=%async_collective_fusion
}"""
HEAD = "HloModule m, is_scheduled=true, num_partitions=4"


def read(*parts: str) -> hs.Capture:
    return hs.read("\n\n".join((HEAD, *parts)))


def test_what_starts_a_transfer_speaks_for_it_wherever_it_is_printed():
    for parts in ((STARTS, BESIDE, MAIN), (BESIDE, STARTS, MAIN)):
        (row,) = read(*parts).collectives
        assert (row.name, row.anchor.name) == ("gather.1", "start")
        assert row.moves is not None
        assert row.moves.name == "%w"
        assert row.payload_bytes == 1024 * 512 * 2


SHIFT = """ENTRY %main (x: bf16[8,512], w: bf16[512,256]) -> bf16[8,256] {
  %x = bf16[8,512]{1,0} parameter(0)
  %w = bf16[512,256]{1,0} parameter(1)
  %shifted = bf16[8,512]{1,0} collective-permute(%x), channel_id=1, \
source_target_pairs={{0,1},{1,2},{2,3}}, frontend_attributes={is_spmd_generated="true"}META
  ROOT %out = bf16[8,256]{1,0} convolution(%shifted, %w), dim_labels=bf_io->bfMORE
}"""
NAME = ', metadata={op_name="jit(f)/slice"}'


def test_a_product_that_the_compiler_calls_a_convolution_has_no_halo():
    """XLA:TPU prints dots as convolutions; half of its instructions have no name."""
    for meta in (NAME, ""):
        text = SHIFT.replace("META", meta).replace("MORE", "")
        (row,) = read(text).collectives
        assert (row.kind, row.payload_bytes) == ("collective-permute", 8 * 512 * 2)


def test_an_image_still_has_one():
    image = re.sub(r"bf16\[8,512\]\{1,0\}", "bf16[8,16,512]{2,1,0}", SHIFT)
    image = image.replace("bf16[8,512]", "bf16[8,16,512]")
    image = image.replace("bf16[512,256]{1,0}", "bf16[3,512,256]{2,1,0}")
    image = image.replace("bf16[512,256]", "bf16[3,512,256]")
    image = image.replace("bf16[8,256]{1,0}", "bf16[8,14,256]{2,1,0}")
    image = image.replace("bf16[8,256]", "bf16[8,14,256]").replace("bf_io->bf", "b0f_0io->b0f")
    image = image.replace("META", "").replace("MORE", ", window={size=3}")
    (row,) = read(image).collectives
    assert row.kind == "halo-exchange"


def test_a_computation_that_nothing_calls_changes_no_row():
    dead = (SUM + "\n").replace("%sum", "%dead").replace("ROOT %add", "%add", 1)
    dead = dead.replace(
        "\n}", "\n  ROOT %moved = f32[] all-reduce(%add), replica_groups={{0,1},{2,3}},"
        " channel_id=3, use_global_device_ids=true, to_apply=%sum\n}",
    )  # fmt: skip
    (alone,) = read(STARTS, BESIDE, MAIN).collectives
    mine = [r for r in read(SUM, dead, STARTS, BESIDE, MAIN).collectives if r.executions]
    (beside,) = mine
    for what in ("name", "payload_bytes", "wire_bytes", "axes_or_groups", "phase"):
        assert getattr(beside, what) == getattr(alone, what)
    assert len(beside.members) == len(alone.members)
