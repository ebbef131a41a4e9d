# ruff: noqa: E501
"""Shapes that a text leaves out, of every opcode that has a rule: worked out by hand."""

from __future__ import annotations

import hloscope as hs
from hloscope.hlo import Module

PARAMETERS = """HloModule m

add { x = f32[] parameter(0) y = f32[] parameter(1) ROOT s = bf16[] add(x, y) }

none { x = f32[] parameter(0) }

ENTRY e {
  a = f32[2,3,5]{2,1,0} parameter(0)
  b = bf16[2,5,7]{2,1,0} parameter(1)
  d = f32[<=4,6]{1,0} parameter(2)
  z = f32[] parameter(3)
  c = c64[3,4]{1,0} parameter(4)
  i = s32[2,3]{1,0} parameter(5)
  p = pred[] parameter(6)
  h = (f32[2], (s32[3], pred[])) parameter(7)
  l = f32[2,3,5]{0,2,1} parameter(8)
  n = f32[8,9,9,3]{3,2,1,0} parameter(9)
  k = bf16[3,3,3,16]{3,2,1,0} parameter(10)
  g = f64[3,0] parameter(11)
  q = c128[3] parameter(12)
  """

# an operation → its shape, or "" where none follows
RULES = {
    "partition-id()": "u32[]",
    "replica-id()": "u32[]",
    "after-all()": "token[]",
    "get-dimension-size(a), dimensions={0}": "s32[]",
    "negate(a)": "f32[2,3,5]{2,1,0}",
    "tuple()": "()",
    "tuple(z, i)": "(f32[], s32[2,3]{1,0})",
    "get-tuple-element(h), index=1": "(s32[3], pred[])",
    "get-tuple-element(h)": "f32[2]",
    "get-tuple-element(h), index=2": "",
    "compare(a, a), direction=LT": "pred[2,3,5]{2,1,0}",
    "compare(d, d), direction=LT": "pred[<=4,6]{1,0}",
    "is-finite(z)": "pred[]",
    "abs(c)": "f32[3,4]{1,0}",
    "abs(q)": "f64[3]{0}",
    "abs(i)": "s32[2,3]{1,0}",
    "select(p, a, l)": "f32[2,3,5]{2,1,0}",
    "clamp(z, a, z)": "f32[2,3,5]{2,1,0}",
    "complex(a, a)": "c64[2,3,5]{2,1,0}",
    "complex(g, g)": "c128[3,0]{1,0}",
    "complex(i, i)": "",
    "real(c)": "f32[3,4]{1,0}",
    "imag(q)": "f64[3]{0}",
    "real(a)": "f32[2,3,5]{2,1,0}",
    "dot(a, b), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}":
        "f32[2,3,7]{2,1,0}",
    "dot(b, a), lhs_contracting_dims={1}, rhs_contracting_dims={2}": "f32[2,7,2,3]{3,2,1,0}",
    "dot(b, b), lhs_contracting_dims={0,1}, rhs_contracting_dims={0,1}": "bf16[7,7]{1,0}",
    "dot(a, b), lhs_batch_dims={3}, rhs_batch_dims={0}": "",
    "transpose(a), dimensions={2,0,1}": "f32[5,2,3]{0,2,1}",
    "transpose(l), dimensions={2,0,1}": "f32[5,2,3]{1,0,2}",
    "transpose(d), dimensions={1,0}": "f32[6,<=4]{0,1}",
    "transpose(a), dimensions={0,1}": "f32[2,3]{1,0}",
    "transpose(g), dimensions={1,0}": "f64[0,3]{0,1}",
    "concatenate(i, i, i), dimensions={1}": "s32[2,9]{1,0}",
    "concatenate(i, i), dimensions={0}": "s32[4,3]{1,0}",
    "concatenate(i, i), dimensions={0,1}": "",
    "reduce(a, z), dimensions={0,2}, to_apply=add": "f32[3]{0}",
    "reduce(d, z), dimensions={1}, to_apply=add": "f32[<=4]{0}",
    "reduce(a, i, z, z), dimensions={1}, to_apply=add": "(f32[2,5]{1,0}, f32[2]{0})",
    "pad(i, z), padding=1_2x0_0": "s32[5,3]{1,0}",
    "pad(i, z), padding=1_2_3x-1_0_1": "s32[8,4]{1,0}",
    "pad(g, z), padding=0_0x1_1_5": "f64[3,2]{1,0}",
    "pad(i, z), padding=1_2": "",
    "reduce-window(i, z), window={size=1x2}, to_apply=add": "s32[2,2]{1,0}",
    "reduce-window(i, z), window={size=2x2 stride=2x2 pad=1_0x0_1}, to_apply=add": "s32[1,2]{1,0}",
    "reduce-window(i, z), window={size=2x2 lhs_dilate=3x2 rhs_dilate=2x3}, to_apply=add": "s32[2,2]{1,0}",
    "reduce-window(i, z), window={size=3x1}, to_apply=add": "s32[0,3]{1,0}",
    "reduce-window(g, z), window={size=1x1 pad=0_0x1_1}, to_apply=add": "f64[3,2]{1,0}",
    "reduce-window(i, z), window={size=0x1}, to_apply=add": "s32[3,3]{1,0}",
    "reduce-window(i, z), to_apply=add": "s32[2,3]{1,0}",
    "reduce-window(i, a, z, z), window={size=1x1}, to_apply=add": "",
    "reduce-window(i, i, z, z), window={size=2x1}, to_apply=add": "(s32[1,3]{1,0}, s32[1,3]{1,0})",
    "convolution(n, k), window={size=3x3 stride=2x1 pad=1_1x0_0}, dim_labels=b01f_01io->b01f":
        "f32[8,5,7,16]{3,2,1,0}",
    "convolution(n, k), window={size=3x3}, dim_labels=b01f_01io->fb10, batch_group_count=2":
        "f32[16,4,7,7]{3,2,1,0}",
    "convolution(n, n), dim_labels=bfxx_oixx->bf": "f32[8,8]{1,0}",
    "gather(a, i), offset_dims={1,2}, collapsed_slice_dims={0}, index_vector_dim=1, slice_sizes={1,3,4}":
        "f32[2,3,4]{2,1,0}",
    "gather(a, i), offset_dims={0}, collapsed_slice_dims={0}, operand_batching_dims={1}, index_vector_dim=2, "
    "slice_sizes={1,1,4}": "f32[4,2,3]{2,1,0}",
    "gather(a, i), offset_dims={0,1}, collapsed_slice_dims={1}, slice_sizes={2,1,4}": "f32[2,4,3]{2,1,0}",
    "scatter(a, i, b), to_apply=add": "f32[2,3,5]{2,1,0}",
    "scatter(a, b, i, a, b), to_apply=add": "(f32[2,3,5]{2,1,0}, bf16[2,5,7]{2,1,0})",
    "sort(a)": "f32[2,3,5]{2,1,0}",
    "sort(i, i)": "(s32[2,3]{1,0}, s32[2,3]{1,0})",
    "triangular-solve(a, b)": "bf16[2,5,7]{2,1,0}",
    "set-dimension-size(i, i), dimensions={1}": "s32[2,<=3]{1,0}",
    "broadcast(z), dimensions={4,5}": "f32[4,5]{1,0}",
    "broadcast(i), dimensions={4}": "s32[4,2,3]{2,1,0}",
    "fft(a), fft_type=RFFT, fft_length={5}": "c64[2,3,3]{2,1,0}",
    "fft(a), fft_type=rfft, fft_length={3,4}": "c64[2,3,3]{2,1,0}",
    "fft(c), fft_type=IRFFT, fft_length={6}": "f32[3,6]{1,0}",
    "fft(c), fft_type=FFT, fft_length={4}": "c64[3,4]{1,0}",
    "fft(i), fft_type=RFFT, fft_length={3}": "",
    "topk(a), k=2, largest=true": "(f32[2,3,2]{2,1,0}, s32[2,3,2]{2,1,0})",
    "topk(i)": "(s32[2,0]{1,0}, s32[2,0]{1,0})",
    "batch-norm-training(a, z, z), epsilon=0.1, feature_index=1":
        "(f32[2,3,5]{2,1,0}, f32[3]{0}, f32[3]{0})",
    "batch-norm-grad(a, z, z, a, a)": "(f32[2,3,5]{2,1,0}, f32[2]{0}, f32[2]{0})",
    "call(z, z), to_apply=add": "bf16[]",
    "call(z, z), to_apply=%add": "bf16[]",
    "call(z, z), to_apply=gone": "",
    "call(z, z)": "",
    "map(a, a), dimensions={0}, to_apply=add": "bf16[2,3,5]{2,1,0}",
    "map(d, d), to_apply=add": "bf16[<=4,6]{1,0}",
    "conditional(p, z, z), true_computation=add, false_computation=none": "bf16[]",
    "conditional(z, z, z), branch_computations={%add, %none}": "bf16[]",
    "custom-call(a)": "",
    "negate()": "",
    "negate(gone)": "",
}  # fmt: skip


def read(line: str) -> Module:
    return hs.read(f"{PARAMETERS}r = {line}\n  ROOT t = tuple(z)\n}}\n").module


def test_shapes_follow_from_operands_and_attributes() -> None:
    for line, want in RULES.items():
        module = read(line)
        assert module.find("r").shape.text == want, line
        said = [w.message for w in module.warnings if "has no shape" in w.message]
        unknown = ["%r has no shape, and none follows from its operands"]
        assert said == ([] if want else unknown), line


def test_a_shape_that_follows_from_one_that_is_unknown_is_unknown() -> None:
    module = hs.read(
        f"{PARAMETERS}r = custom-call(a)\n  s = negate(r)\n  ROOT t = tuple(s, z)\n}}\n"
    ).module
    assert [module.find(n).shape.text for n in "rst"] == ["", "", ""]
    assert [w.message.split()[0] for w in module.warnings] == ["%r", "%s", "%t"]
