"""FLOPs and bytes of one instruction, counted by hand: a row an opcode, and both sides of limits."""

# ruff: noqa: E501
from __future__ import annotations

import itertools
import json
import math
from typing import Any

import hloscope as hs
import numpy as np
import pytest
from hloscope.analysis.cost.bytes_accessed import bytes_accessed
from hloscope.analysis.flops.calls import author_estimate, kernel_dtype

CALLED = """
%sum (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %ab = f32[] add(%a, %b)
}
%far (c: f32[], d: f32[]) -> f32[] {
  %c = f32[] parameter(0)
  %d = f32[] parameter(1)
  %e = f32[] exponential(%c)
  %m = f32[] multiply(%e, %d)
  ROOT %cd = f32[] add(%m, %d)
}
%least (g: f32[], h: f32[]) -> pred[] {
  %g = f32[] parameter(0)
  %h = f32[] parameter(1)
  ROOT %gh = pred[] compare(%g, %h), direction=GE
}
%rows (k: f32[3], l: f32[]) -> f32[] {
  %k = f32[3] parameter(0)
  %l = f32[] parameter(1)
  ROOT %kl = f32[] reduce(%k, %l), dimensions={0}, to_apply=%far
}
%one (o: f32[]) -> f32[] {
  %o = f32[] parameter(0)
  %o3 = f32[3] broadcast(%o), dimensions={}
  %or = f32[] call(%o3, %o), to_apply=%rows
  ROOT %oo = f32[] add(%or, %o)
}
"""


def row(line: str, **named: str) -> Any:
    """The cost of the last of some lines; operands by the shapes that ``named`` gives them."""
    given = [f"  %{n} = {shape} parameter({k})" for k, (n, shape) in enumerate(named.items())]
    text = "\n".join(
        [
            "HloModule m, num_partitions=4",
            CALLED,
            "ENTRY %main {",
            *given,
            f"  ROOT %r = {line}",
            "}",
            "",
        ]
    )
    cap = hs.read(text)
    assert not cap.module.warnings, cap.module.warnings
    cost = cap.cost()
    return cost.row(cap.module.find("r").index)


X, S = "f32[6,4]", "f32[]"


@pytest.mark.parametrize(
    ("line", "named", "flops", "heavy"),
    [
        ("f32[6,4] add(%x, %x)", {"x": X}, 24, 0),
        ("f32[6,4] tanh(%x)", {"x": X}, 0, 24),
        ("f32[6] reduce(%x, %z), dimensions={1}, to_apply=%sum", {"x": X, "z": S}, 24 - 6, 0),
        # an exponential, a product and a sum each time
        ("f32[6] reduce(%x, %z), dimensions={1}, to_apply=%far", {"x": X, "z": S}, 2 * 18, 18),
        # each of 24 elements: two of three summed by %far, and one addition
        ("f32[6,4] map(%x), dimensions={0,1}, to_apply=%one", {"x": X}, 24 * (2 * 2 + 1), 24 * 2),
        # windows of 2 by 3: five times each output element
        (
            "f32[5,2] reduce-window(%x, %z), window={size=2x3}, to_apply=%sum",
            {"x": X, "z": S},
            5 * 10,
            0,
        ),
        # a whole row summed and spread again: (7 - 1 + 4) elements, padded alike on both sides
        (
            "f32[6,4] reduce-window(%x, %z), window={size=1x7 pad=0_0x3_3}, to_apply=%sum",
            {"x": X, "z": S},
            24 // 4 + 4 - 1,
            0,
        ),
        # a running sum is padded on one side only
        (
            "f32[6,4] reduce-window(%x, %z), window={size=1x4 pad=0_0x3_0}, to_apply=%sum",
            {"x": X, "z": S},
            3 * 24,
            0,
        ),
        (
            "f32[6,4] select-and-scatter(%x, %s, %z), window={size=2x2 stride=2x2}, select=%least, scatter=%sum",
            {"x": X, "s": "f32[3,2]", "z": S},
            6 * 3 + 6,
            0,
        ),
        (  # three comparisons of four, then one of what %far does, for each of six
            "f32[6,4] select-and-scatter(%x, %s, %z), window={size=2x2 stride=2x2}, select=%least, scatter=%far",
            {"x": X, "s": "f32[3,2]", "z": S},
            6 * 3 + 6 * 2,
            6,
        ),
        (
            "f32[6,4] scatter(%x, %i, %u), update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=%sum",
            {"x": X, "i": "s32[2,1]", "u": "f32[2,4]"},
            8,
            0,
        ),
        (
            "f32[24] sort(%v), dimensions={0}, to_apply=%least",
            {"v": "f32[24]"},
            24 * 5,
            0,
        ),  # ⌈log₂ 24⌉
        ("f32[2] sort(%v), dimensions={0}, to_apply=%least", {"v": "f32[2]"}, 2, 0),
        ("f32[1] sort(%v), dimensions={0}, to_apply=%least", {"v": "f32[1]"}, 0, 0),
        ("(f32[3], s32[3]) topk(%v), k=3, largest=true", {"v": "f32[16]"}, 16 * 4, 0),
        ("c64[4,16] fft(%v), fft_type=FFT, fft_length={16}", {"v": "c64[4,16]"}, 5 * 4 * 64, 0),
        (
            "c64[4,16] fft(%v), fft_type=FFT, fft_length={4,16}",
            {"v": "c64[4,16]"},
            5 * (2 + 4) * 64,
            0,
        ),
        (
            "c64[4,9] fft(%v), fft_type=RFFT, fft_length={4,16}",
            {"v": "f32[4,16]"},
            2.5 * (2 + 4) * 64,
            0,
        ),
        (
            "f32[4,16] fft(%v), fft_type=IRFFT, fft_length={4,16}",
            {"v": "c64[4,9]"},
            2.5 * (2 + 4) * 64,
            0,
        ),
        ("c64[6] fft(%v), fft_type=FFT, fft_length={6}", {"v": "c64[6]"}, 77, 0),  # 5 · 6 log₂ 6
        ("(u64[2], u32[10]) rng-bit-generator(%k), algorithm=rng_default", {"k": "u64[2]"}, 0, 12),
        ("f32[8] rng(%z, %z), distribution=rng_uniform", {"z": S}, 0, 8),
        (
            "f32[4,6] triangular-solve(%t, %b), left_side=true, lower=true",
            {"t": "f32[4,4]", "b": "f32[4,6]"},
            2 * 4 * 24,
            0,
        ),
        ("f32[5,5] cholesky(%t), lower=true", {"t": "f32[5,5]"}, 5 * 25 // 3, 0),
        ("f32[6,4] all-reduce(%x), to_apply=%sum", {"x": X}, 24, 0),
        ("(f32[6,4], f32[3]) all-reduce(%x, %y), to_apply=%sum", {"x": X, "y": "f32[3]"}, 27, 0),
        ("f32[24,4] all-gather(%x), dimensions={0}, replica_groups={{0,1,2,3}}", {"x": X}, 0, 0),
        (
            "f32[6,5] dot(%x, %w), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
            {"x": X, "w": "f32[4,5]"},
            2 * 4 * 30,
            0,
        ),
        ('f32[6,4] custom-call(%x), custom_call_target="Sharding"', {"x": X}, 0, 0),
        ('f32[6,4] custom-call(%x), custom_call_target="whatever"', {"x": X}, math.nan, 0),
        ("f32[6,4] never-heard-of(%x)", {"x": X}, math.nan, 0),
        ("((f32[6,4], f32[6,4]), f32[6,4], u32[]) add-start(%x, %x)", {"x": X}, 24, 0),
        ("((f32[6,4]), f32[6,4], u32[]) tanh-start(%x)", {"x": X}, 0, 24),
    ],
)
def test_flops(line: str, named: dict[str, str], flops: float, heavy: float) -> None:
    found = row(line, **named)
    assert found.flops == flops or (math.isnan(flops) and math.isnan(found.flops))
    assert found.transcendentals == heavy


def gemm(target: str, shapes: tuple[str, str, str], numbers: object = None) -> Any:
    config = json.dumps(
        {"gemm_backend_config": {"alpha": 1, "dot_dimension_numbers": numbers}}
        if numbers is not None
        else {}
    )
    line = (
        f'{shapes[2]} custom-call(%a, %b), custom_call_target="{target}", backend_config={config}'
    )
    return row(line, a=shapes[0], b=shapes[1])


DIMS = {"lhs_contracting_dimensions": ["1"]}


@pytest.mark.parametrize(
    ("shapes", "numbers", "flops"),
    [
        (("f32[6,4]", "f32[4,5]", "f32[6,5]"), DIMS, 2 * 4 * 30),
        (("f32[4,6]", "f32[4,5]", "f32[6,5]"), {"lhs_contracting_dimensions": ["0"]}, 2 * 4 * 30),
        (("f32[6,4]", "f32[4,5]", "(f32[6,5], s8[9])"), DIMS, 2 * 4 * 30),  # with a workspace
        # by shapes alone: k² = lhs · rhs / out, a batch of 3 divides once more
        (("f32[6,4]", "f32[4,5]", "f32[6,5]"), None, 2 * 4 * 30),
        (("f32[3,6,4]", "f32[3,4,5]", "f32[3,6,5]"), None, 2 * 4 * 90),
        (("f32[3,6,4]", "f32[4,5]", "f32[3,6,5]"), None, 2 * 4 * 90),  # one right side for all
        (
            ("f32[6,4]", "f32[4,5]", "f32[6,5]"),
            {"lhs_contracting_dimensions": ["2"]},
            2 * 4 * 30,
        ),  # no such dimension
        (("f32[6,4]", "f32[3,5]", "f32[6,5]"), None, math.nan),  # no k fits
        (("f32[6]", "f32[6]", "f32[6]"), None, math.nan),
        (("f32[6,4]", "f32[4,0]", "f32[6,0]"), None, math.nan),
    ],
)
@pytest.mark.parametrize(
    "target", ["__cublas$gemm", "__cublas$lt$matmul", "__onednn$matmul", "__triton_gemm"]
)
def test_matmuls_of_libraries(
    target: str, shapes: tuple[str, str, str], numbers: object, flops: float
) -> None:
    found = gemm(target, shapes, numbers).flops
    assert found == flops or (math.isnan(flops) and math.isnan(found))


@pytest.mark.parametrize(
    ("operands", "fastest"),
    [
        ({"a": "f32[4]", "b": "s32[4]"}, "bf16"),
        ({"a": "bf16[4]"}, "bf16"),
        ({"a": "s32[4]", "b": "pred[4]"}, ""),
        ({"a": "f8e4m3fn[4]", "b": "f32[4]"}, "f8"),
        ({"a": "f8e4m3fn[4]"}, "f8"),
        ({"a": "s8[4]", "b": "s32[4]"}, "s8"),
        ({"a": "u4[4]", "b": "bf16[4]"}, "f8"),
        ({"a": "c64[4]"}, "bf16"),
    ],
)
def test_the_fastest_type_of_a_kernel(operands: dict[str, str], fastest: str) -> None:
    names = ", ".join(f"%{n}" for n in operands)
    config = json.dumps(
        {
            "custom_call_config": [1],
            "x": {"y": {"cost_estimate": {"flops": "12", "bytes_accessed": 7}}},
        }
    )
    line = f'f32[4] custom-call({names}), custom_call_target="tpu_custom_call", backend_config={config}'
    given = [f"  %{n} = {shape} parameter({k})" for k, (n, shape) in enumerate(operands.items())]
    text = "\n".join(["HloModule m", "ENTRY %main {", *given, f"  ROOT %r = {line}", "}", ""])
    cap = hs.read(text)
    call = cap.module.find("r")
    assert kernel_dtype(call) == fastest
    assert author_estimate(call) == {"flops": 12.0, "transcendentals": 0.0, "bytes_accessed": 7.0}
    cost = cap.cost()
    assert (cost.row(call.index).flops, cost.row(call.index).bytes_accessed) == (12, 7)
    assert cost.work.matrix_flops[call.index] == (12 if fastest else 0)
    assert cost.work.matmul_flops[call.index] == 0


BIG = "f32[100,10]"  # 4,000 bytes


@pytest.mark.parametrize(
    ("line", "named", "size"),
    [
        ("f32[100,10] negate(%x)", {"x": BIG}, 4000 + 4000),
        ("f32[100,10] add(%x, %x)", {"x": BIG}, 4000 + 4000 + 4000),
        ("f32[1000] bitcast(%x)", {"x": BIG}, 0),
        ("(f32[100,10]) tuple(%x)", {"x": BIG}, 0),
        ("f32[5,10] slice(%x), slice={[0:5],[0:10]}", {"x": BIG}, 2 * 200),
        ("f32[5,10] dynamic-slice(%x, %k, %k), dynamic_slice_sizes={5,10}", {"x": BIG, "k": "s32[]"}, 2 * 200 + 4),
        ("f32[100,10] dynamic-update-slice(%x, %u, %k, %k)", {"x": BIG, "u": "f32[5,10]", "k": "s32[]"}, 2 * 200 + 4),
        ("f32[7,10] gather(%x, %i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,10}", {"x": BIG, "i": "s32[7]"}, 2 * 280 + 28),
        ("f32[100,10] scatter(%x, %i, %u), update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=%sum", {"x": BIG, "i": "s32[7]", "u": "f32[7,10]"}, 3 * 280 + 28),
        ("(f32[100,10], f32[100,10]) scatter(%x, %x, %i, %u, %u), update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=%sum", {"x": BIG, "i": "s32[7]", "u": "f32[7,10]"}, 3 * (280 + 280) + 28),
        ("f32[10,100]{1,0} transpose(%x), dimensions={1,0}", {"x": "f32[100,10]{1,0}"}, 8000),
        ("f32[10,100]{0,1} transpose(%x), dimensions={1,0}", {"x": "f32[100,10]{1,0}"}, 0),  # renames
        ("f32[4,6] triangular-solve(%t, %b), left_side=true, lower=true", {"t": "f32[4,4]", "b": "f32[4,6]"}, 96 + 64 // 2 + 96),
        ("f32[5,5] cholesky(%t), lower=true", {"t": "f32[5,5]"}, 100),
        ("token[] outfeed(%x, %t)", {"x": BIG, "t": "token[]"}, 4000),
        ("(f32[100,10], f32[100,10], u32[]) copy-start(%x)", {"x": BIG}, 8000),
        ("f32[100,10] all-reduce-start(%x), to_apply=%sum", {"x": BIG}, 8000),
        # what a start repeats of its operands is not moved again
        ("(f32[100,10], f32[400,10]) all-gather-start(%x), dimensions={0}, replica_groups={{0,1,2,3}}", {"x": BIG}, 20_000),
        ("((f32[100,10]), f32[5,10], u32[]) slice-start(%x), slice={[0:5],[0:10]}", {"x": BIG}, 2 * 200),
        ('f32[100,10] custom-call(%x), custom_call_target="Sharding"', {"x": BIG}, 0),
        ('f32[5,10] custom-call(%x), custom_call_target="f"', {"x": BIG}, 4200),
    ],
)  # fmt: skip
def test_bytes(line: str, named: dict[str, str], size: float) -> None:
    assert row(line, **named).bytes_accessed == size


def test_what_is_cut_off_is_unknown() -> None:
    cut = (
        "f32[5,10] dynamic-slice(%x)",
        "f32[100,10] dynamic-update-slice(%x)",
        "f32[7,10] gather(%x)",
    )
    for line in cut:
        text = f"HloModule m\nENTRY %main {{\n  %x = {BIG} parameter(0)\n  ROOT %r = {line}\n}}\n"
        module = hs.read(text).module
        assert math.isnan(bytes_accessed(module, np.ones(1, bool))[1])
    assert math.isnan(row("f32[6] reduce(%x), dimensions={1}", x=X).flops)
    assert math.isnan(row("f32[4,6] triangular-solve(%x)", x="f32[4,4]").flops)


@pytest.mark.parametrize("target", ["AllocateBuffer", "ConcatBitcast", "LayoutConstraint"])
def test_calls_that_only_allocate_or_rename_access_nothing(target: str) -> None:
    cost = row(f'f32[100,10] custom-call(%x), custom_call_target="{target}"', x=BIG)
    assert (cost.flops, cost.bytes_accessed) == (0, 0)


CONVOLUTION = (
    "window={size=3x3 pad=1_1x1_1}",
    "dim_labels=b01f_01io->b01f",
    'metadata={op_name="window={size=9x9} dim_labels=x"}',
)


@pytest.mark.parametrize("order", list(itertools.permutations(CONVOLUTION)))
def test_attributes_stand_in_any_order(order: tuple[str, ...]) -> None:
    attributes = ", ".join(order)
    cost = row(
        f"f32[1,4,4,1] convolution(%x, %k), {attributes}", x="f32[1,4,4,1]", k="f32[3,3,1,1]"
    )
    assert cost.flops == 2 * (3 + 3 + 2 + 2) ** 2  # 10 valid positions along each side


SCATTER = "update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=%sum"


@pytest.mark.parametrize(
    ("root", "size"),
    [
        # 3 times the two rows of 40 bytes, and two indices of 4 bytes
        (f"ROOT %s = f32[100,10] scatter(%a, %i, %u), {SCATTER}", 3 * 80 + 8),
        # computed further, the whole result is written and all of the array read
        (
            f"%s = f32[100,10] scatter(%a, %i, %u), {SCATTER}\n  ROOT %n = f32[100,10] negate(%s)",
            2 * 4000 + 80 + 8,
        ),
    ],
)
def test_a_scatter_in_place_accesses_what_it_updates(root: str, size: float) -> None:
    text = f"""HloModule m
{CALLED}
%into (a: f32[100,10], i: s32[2,1], u: f32[2,10]) -> f32[100,10] {{
  %a = f32[100,10] parameter(0)
  %i = s32[2,1] parameter(1)
  %u = f32[2,10] parameter(2)
  {root}
}}
ENTRY %main {{
  %x = f32[100,10] parameter(0)
  %at = s32[2,1] parameter(1)
  %new = f32[2,10] parameter(2)
  ROOT %r = f32[100,10] fusion(%x, %at, %new), kind=kLoop, calls=%into
}}
""".replace("(a: f32[], b: f32[])", "(a.1: f32[], b: f32[])")
    cap = hs.read(text)
    assert not cap.module.warnings
    assert cap.cost().row(cap.module.find("r").index).bytes_accessed == size
