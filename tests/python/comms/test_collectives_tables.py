"""Rows of collectives and what they say of themselves, as tables: nothing is compiled."""

# ruff: noqa: E501
from __future__ import annotations

from dataclasses import replace
from typing import Any

import hloscope as hs
import numpy as np
import pytest
from hloscope.analysis.comms.apparent import apparent
from hloscope.analysis.comms.collective import total_of
from hloscope.analysis.comms.collectives import is_inserted
from hloscope.analysis.comms.spec_text import spec_words
from hloscope.hlo import Device, Mesh, Target

SUM = """%sum (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %ab = f32[] add(%a, %b)
}
"""
EVERYONE = "channel_id=1, replica_groups={{0,1,2,3}}, use_global_device_ids=true"
NAMED = 'metadata={op_name="jit(f)/block/attention/NAME" source_file="m.py" source_line=LINE}'


def read(body: str, before: str = "") -> hs.Capture:
    text = f"HloModule m, num_partitions=4\n\n{SUM}{before}\nENTRY %main_spmd {{\n{body.strip(chr(10))}\n}}\n"
    cap = hs.read(text.replace("EVERYONE", EVERYONE))
    assert not cap.module.warnings, cap.module.warnings
    return cap


def named(name: str, line: int) -> str:
    return NAMED.replace("NAME", name).replace("LINE", str(line))


PRODUCT = f"""
  %x = f32[8,16] parameter(0)
  %w = f32[16,8] parameter(1)
  %d = f32[8,8] dot(%x, %w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}, {named("dot", 7)}
"""
FUSED = """%half (p: f32[8,16], q: f32[16,8]) -> bf16[8,8] {
  %p = f32[8,16] parameter(0)
  %q = f32[16,8] parameter(1)
  %in = f32[8,8] dot(%p, %q), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT %cast = bf16[8,8] convert(%in)
}
"""


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (PRODUCT + "  ROOT %r = f32[8,8] all-reduce(%d), EVERYONE, to_apply=%sum",
         "it adds up partial products of %d (attention/dot, line 7): the dimension that it contracts is split over groups of 4 devices"),
        # through casts, sums and a fusion; the nearest first
        (PRODUCT + "  %c = bf16[8,8] convert(%d)\n  %s = bf16[8,8] add(%c, %c)\n"
         "  ROOT %r = bf16[8,8] all-reduce(%s), EVERYONE, to_apply=%sum", "partial products of %d (attention/dot, line 7)"),
        ("  %x = f32[8,16] parameter(0)\n  %w = f32[16,8] parameter(1)\n  %f = bf16[8,8] fusion(%x, %w), kind=kOutput, calls=%half\n"
         "  ROOT %r = bf16[8,8] all-reduce(%f), EVERYONE, to_apply=%sum", "partial products of %in: the dimension"),
        ("  %x = f32[8,16] parameter(0)\n  %z = f32[] constant(0)\n"
         f"  %p = f32[8] reduce(%x, %z), dimensions={{1}}, to_apply=%sum, {named('reduce_sum', 9)}\n"
         "  ROOT %r = f32[8] all-reduce(%p), EVERYONE, to_apply=%sum",
         "it adds up partial sums of %p (attention/reduce_sum, line 9): the dimension that it reduces is split over groups of 4 devices"),
        ('  %x = f32[8,16] parameter(0)\n  %p = f32[8] custom-call(%x), custom_call_target="__cublas$gemm"\n'
         "  ROOT %r = f32[8] all-reduce(%p), EVERYONE, to_apply=%sum", "partial products of %p: the"),
        ('  %x = f32[8,16] parameter(0)\n  %p = f32[8] custom-call(%x), custom_call_target="other"\n'
         "  ROOT %r = f32[8] all-reduce(%p), EVERYONE, to_apply=%sum", ""),
        ("  %x = f32[8,16] parameter(0)\n  %e = f32[8,16] exponential(%x)\n"
         "  ROOT %r = f32[8,16] all-reduce(%e), EVERYONE, to_apply=%sum", ""),
        ("  %x = f32[2,16] parameter(0)\n  %g = f32[8,16] all-gather(%x), EVERYONE, dimensions={0}\n  %c = f32[8,16] copy(%g)\n"
         f"  ROOT %t = f32[8,16] tanh(%c), {named('tanh', 11)}",
         "%t (attention/tanh, line 11) needs the array whole along the dimension that is split over groups of 4 devices"),
        ("  %x = f32[8,16] parameter(0)\n  %g = f32[8,16] all-to-all(%x), EVERYONE, dimensions={0}\n  ROOT %t = f32[8,16] tanh(%g)",
         "%t needs the array split differently"),
        # nothing takes it but the result
        ("  %x = f32[2,16] parameter(0)\n  %g = f32[8,16] all-gather(%x), EVERYONE, dimensions={0}\n  ROOT %t = (f32[8,16]) tuple(%g)", ""),
        ("  %x = f32[2,16] parameter(0)\n  %s = (f32[2,16], f32[8,16]) all-gather-start(%x), EVERYONE, dimensions={0}\n"
         "  %d = f32[8,16] all-gather-done(%s)\n  ROOT %t = f32[8,16] tanh(%d)", "%t needs the array whole"),
    ],
)  # fmt: skip
def test_what_the_program_itself_shows(body: str, said: str) -> None:
    cap = read(body, FUSED)
    (row,) = cap.collectives
    found = apparent(row)
    assert said in found
    assert bool(found) == bool(said)
    over = apparent(replace(row, axes="model"))
    assert over == found.replace("groups of 4 devices", "model")


BASE = PRODUCT + "  ROOT %r = f32[8,8] all-reduce(%d), EVERYONE, to_apply=%sum"


@pytest.mark.parametrize(
    ("runs", "most", "text", "counted", "unknown"),
    [
        (8, 8, "8", 8, False),
        (1200, None, "1,200", 1200, False),
        (0, None, "0", 0, False),
        (None, 1, "0–1", 1, False),
        (None, 3000, "0–3,000", 3000, False),
        (None, None, "unknown", 1, True),
    ],
)
def test_how_often_a_row_runs(runs: Any, most: Any, text: str, counted: int, unknown: bool) -> None:
    (row,) = read(BASE).collectives
    row = replace(row, executions=runs, most_executions=most)
    assert (row.executions_text, row.counted, row.is_unknown) == (text, counted, unknown)
    assert row.multiplicity == runs
    # f32[8,8] is 256 B; a ring of 4 sends 2 · 3/4 of them
    assert row.total_payload_bytes == 256 * counted
    assert row.total_wire_bytes == 384 * counted
    assert replace(row, wire_bytes=None).total_wire_bytes is None
    known = total_of(("k",), [row, replace(row, wire_bytes=None)])
    assert (known.count, known.payload_bytes, known.wire_bytes) == (2, 512 * counted, 384 * counted)
    assert known.is_lower_bound
    assert known.wire_is_unknown == (counted == 0)
    assert total_of((), [row]).is_lower_bound == unknown
    lost = total_of((), [replace(row, wire_bytes=None)])
    assert (lost.known_wire_bytes, lost.wire_bytes, lost.wire_is_unknown) == (None, 0, True)


@pytest.mark.parametrize(
    ("op", "who"),
    [
        ("f32[8,8] all-reduce(%d), EVERYONE, to_apply=%sum", "one group of 4"),
        (
            "f32[8,8] all-reduce(%d), channel_id=1, replica_groups={{0,1},{2,3}}, use_global_device_ids=true, to_apply=%sum",
            "2 groups of 2",
        ),
        (
            "f32[8,8] collective-permute(%d), channel_id=1, source_target_pairs={{0,1},{1,0},{2,3}}",
            "3 pairs",
        ),
    ],
)
def test_who_takes_part(op: str, who: str) -> None:
    cap = read(PRODUCT + f"  ROOT %r = {op}").collectives
    (row,) = (replace(r, axes=None) for r in cap)
    assert row.axes_or_groups == who
    assert replace(row, axes="data").axes_or_groups == "data"


@pytest.mark.parametrize(
    ("op_name", "marked", "inserted"),
    [
        ("jit(f)/psum", "", False),
        ("jit(f)/shard_map/all_gather[axis=x]", "", False),
        ("jit(f)/dot_general", "", True),
        ("jit(f)/psum", ', frontend_attributes={is_spmd_generated="true"}', True),
        ("jit(f)/dot_general;jit(f)/psum", "", None),
        ("jit(f)/dot_general;jit(f)/add", "", True),
        ("", "", None),
    ],
)
def test_who_wrote_it(op_name: str, marked: str, inserted: bool | None) -> None:
    (row,) = read(BASE + marked).collectives
    i = row.instruction
    assert is_inserted(i, i, op_name) is inserted
    assert is_inserted(i.operands[0], i, op_name) is inserted
    words = {True: "partitioner", False: "user", None: "unknown"}[inserted]
    assert replace(row, inserted=inserted, op_name="jit(f)/psum").written_by == words
    autodiff = replace(row, inserted=False, op_name="jit(f)/transpose(jvp())/psum")
    assert autodiff.written_by == "autodiff"


MESH = Mesh(("data", "model"), (2, 2), (0, 1, 2, 3))
BETWEEN = """
  %x = f32[16] parameter(0)
  %t = token[] after-all()
  %s = (f32[16], u32[], token[]) send(%x, %t), channel_id=9, frontend_attributes={_xla_host_transfer_rendezvous="psum.5_0",_xla_megascale_target="WHICH",_xla_megascale_transfer_type="KIND"}
  %r = (f32[16], u32[], token[]) recv(%t), channel_id=9, frontend_attributes={_xla_host_transfer_rendezvous="psum.5_0",_xla_megascale_target="WHICH",_xla_megascale_transfer_type="KIND"}
  %sd = token[] send-done(%s), channel_id=9
  %rd = (f32[16], token[]) recv-done(%r), channel_id=9
  ROOT %g = f32[16] get-tuple-element(%rd), index=0
"""


@pytest.mark.parametrize(
    ("slices", "which", "kind", "found", "rows", "who"),
    [
        (
            2,
            "{1,2}x{0:3}",
            "ALL_REDUCE",
            "all-reduce",
            [[0, 4], [1, 5], [2, 6], [3, 7]],
            "4 groups of 2",
        ),
        (
            3,
            "{1,3}x{0:3}",
            "ALL_REDUCE",
            "all-reduce",
            [[0, 8], [1, 9], [2, 10], [3, 11]],
            "4 groups of 2",
        ),
        (2, "{1,2}x{0:3}", "ONE_TO_ONE", "collective-permute", None, "8 pairs"),
        (
            2,
            "",
            "ALL_GATHER",
            "all-gather",
            [[0, 4], [1, 5], [2, 6], [3, 7]],
            "4 groups of 2",
        ),  # of two it can be no other
        (3, "", "ALL_GATHER", "all-gather", None, "unknown"),
        (2, "{1,3}x{0:3}", "ALL_REDUCE", "all-reduce", None, "unknown"),  # there is no third
    ],
)
def test_transfers_between_slices(
    slices: int, which: str, kind: str, found: str, rows: Any, who: str
) -> None:
    body = BETWEEN.replace("WHICH", which).replace("KIND", kind)
    devices = tuple(Device(k, k, "TPU v5e", slice=k // 4) for k in range(4 * slices))
    module = read(body).module
    collectives = hs.Capture(module, Target(devices=devices, mesh=MESH)).collectives
    (row,) = collectives
    names = [module.instructions[m].name for m in row.members]
    assert (row.kind, row.network, row.name, names) == (found, "dcn", "s", ["s", "r", "sd", "rd"])
    assert (collectives.num_slices, collectives.num_devices) == (slices, 4 * slices)
    assert row.payload_bytes == 64
    assert row.axes_or_groups == who
    if rows is not None:
        assert row.groups.rows() == rows
    if kind == "ONE_TO_ONE":
        assert sorted(map(tuple, row.groups.pairs.tolist())) == sorted(
            [(k, k + 4) for k in range(4)] + [(k + 4, k) for k in range(4)]
        )
        assert row.wire_bytes == 64
    assert "wire per device and network: dcn" in str(collectives)


def test_words_for_specs() -> None:
    table = {
        (("data",), ()): "P('data', None)",
        (("data", "model"), ()): "P(('data', 'model'), None)",
        (("data",),): "P('data',)",
        ((), ()): "replicated",
        (): "replicated",
        None: "unknown",
    }
    assert {spec: spec_words(spec) for spec in table} == table


def test_a_device_that_sends_most_of_several_permutes() -> None:
    """A chain of four: the ends send to one neighbour, the two between them to both."""
    cap = read(
        PRODUCT
        + "  ROOT %r = f32[8,8] collective-permute(%d), source_target_pairs={{0,1},{1,2},{2,3}}"
    )
    (row,) = cap.collectives
    assert row.wire_bytes == 256
    assert np.argwhere(cap.collectives.traffic()).tolist() == [[0, 1], [1, 2], [2, 3]]
    still = read(
        PRODUCT + "  ROOT %r = f32[8,8] collective-permute(%d), source_target_pairs={{0,0},{1,1}}"
    )
    assert [r.wire_bytes for r in still.collectives] == [0]
    nobody = read(PRODUCT + "  ROOT %r = f32[8,8] collective-permute(%d)")
    assert [r.wire_bytes for r in nobody.collectives] == [None]
