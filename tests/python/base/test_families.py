"""What kind of work an instruction is: opcodes, disguises, fusions, labels."""

from __future__ import annotations

import re

import hloscope as hs
import pytest
from hloscope.analysis.base.labels.families import (
    FAMILIES,
    ID,
    convolution_is_matmul,
    families,
    is_matmul,
    opcode_family,
    target_family,
)
from hloscope.analysis.base.labels.flags import (
    INLINE,
    LANDMARK,
    OUTPUT,
    PARAMETER,
    PLUMBING,
    QUIET,
    ROOT,
    TURN,
    flags,
)
from hloscope.analysis.base.labels.labels import MAX_LABEL, labels, shorten
from hloscope.readers import read_modules

# xla/hlo/ir/hlo_opcode.h, all of them.
HLO_OPCODES = """
abs acos acosh add add-dependency after-all all-gather all-gather-done all-gather-start all-reduce
all-reduce-done all-reduce-start all-to-all and asin asinh async-done async-start async-update
atan2 atanh batch-norm-grad batch-norm-inference batch-norm-training bitcast bitcast-convert
broadcast call cbrt ceil cholesky clamp collective-broadcast collective-permute
collective-permute-done collective-permute-start compare complex concatenate conditional constant
convert convolution copy copy-done copy-start cosine cosh count-leading-zeros custom-call divide
domain dot dynamic-reshape dynamic-slice dynamic-update-slice erf exponential
exponential-minus-one fft floor fusion gather get-dimension-size get-tuple-element imag infeed
iota is-finite log log-plus-one logistic map maximum minimum multiply negate not opt-barrier or
outfeed pad parameter partition-id popcnt power ragged-all-to-all ragged-dot real recv recv-done
reduce reduce-precision reduce-scatter reduce-window remainder replica-id reshape reverse rng
rng-bit-generator rng-get-and-update-state round-nearest-afz round-nearest-even rsqrt scaled-dot
scatter select select-and-scatter send send-done set-dimension-size shift-left
shift-right-arithmetic shift-right-logical sign sine sinh slice sort sqrt stochastic-convert
subtract tan tanh topk transpose triangular-solve tuple while xor
""".split()


def family_of(module, name):
    i = module.find(name)
    return FAMILIES[families(module)[i.index]].id


def test_every_hlo_opcode_has_a_family():
    wrappers = {"async-start", "async-update", "async-done"}
    unknown = [o for o in HLO_OPCODES if opcode_family(o) == ID["other"] and o not in wrappers]
    assert unknown == []


@pytest.mark.parametrize(
    ("opcode", "family"),
    [
        ("stablehlo.dot_general", "matmul"),
        ("stablehlo.add", "elementwise"),
        ("mhlo.all_reduce", "collective"),
        ("dot_general", "matmul"),
        ("psum", "collective"),
        ("select_n", "elementwise"),
        ("scan", "control_flow"),
        ("reduce_sum", "reduction"),
        ("threefry2x32", "rng"),
        ("frobnicate", "other"),
        ("stablehlo.frobnicate", "other"),
    ],
)
def test_other_dialects_and_unknown_opcodes(opcode, family):
    assert FAMILIES[opcode_family(opcode)].id == family


@pytest.mark.parametrize(
    ("target", "family"),
    [
        ("__cublas$gemm", "matmul"),
        ("__cublas$lt$matmul", "matmul"),
        ("__cublas$lt$matmul$f8", "matmul"),
        ("__onednn$matmul", "matmul"),
        ("__triton_gemm", "matmul"),
        ("__cudnn$convForward", "convolution"),
        ("__cudnn$convBiasActivationForward", "convolution"),
        ("lapack_sgetrf_ffi", "linear_algebra"),
        ("__cublas$triangularSolve", "linear_algebra"),
        ("TopK", "linear_algebra"),
        ("xla_ffi_python_cpu_callback", "transfer"),
        ("MoveToHost", "transfer"),
        ("Sharding", "plumbing"),
        ("tpu_custom_call", "custom_call"),
        ("my_kernel", "custom_call"),
        (None, "custom_call"),
    ],
)
def test_custom_calls_by_target(target, family):
    assert FAMILIES[target_family(target)].id == family


@pytest.mark.parametrize(
    ("window", "labels_", "lhs", "groups", "expected"),
    [
        ("", "bf_io->bf", (8, 16), 1, True),
        ("", "bf_oi->bf", (8, 16), 1, True),
        ("size=1", "0bf_oi0->0bf", (1, 8, 16), 1, True),
        ("size=4 stride=3 lhs_dilate=4", "0bf_0oi->0bf", (4, 8, 16), 1, True),  # a batch
        ("size=4", "0fb_0io->bf0", (4, 8, 16), 1, True),  # contracts the whole dimension
        ("size=3x3 pad=1_1x1_1", "b01f_01io->b01f", (8, 32, 32, 16), 1, False),
        ("size=3", "b0f_0io->b0f", (8, 32, 16), 1, False),
        ("size=1x1", "b01f_01io->b01f", (8, 32, 32, 16), 1, True),
        ("size=1x1", "b01f_01io->b01f", (8, 32, 32, 16), 16, False),  # depthwise
        ("size=3 pad=1_1", "b0f_0io->b0f", (8, 3, 16), 1, False),
    ],
)
def test_a_convolution_that_slides_over_nothing_is_a_matmul(window, labels_, lhs, groups, expected):
    assert convolution_is_matmul(window, labels_, lhs, groups) is expected


TEXT = """HloModule m, is_scheduled=true

%inner (p: f32[4,8], q: f32[8,2]) -> f32[4,2] {
  %p = f32[4,8]{1,0} parameter(0)
  %q = f32[8,2]{1,0} parameter(1)
  ROOT %d = f32[4,2]{1,0} dot(%p, %q), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}

%outer (p.1: f32[4,8], q.1: f32[8,2]) -> f32[4,2] {
  %p.1 = f32[4,8]{1,0} parameter(0)
  %q.1 = f32[8,2]{1,0} parameter(1)
  %nested = f32[4,2]{1,0} fusion(%p.1, %q.1), kind=kOutput, calls=%inner
  ROOT %t = f32[4,2]{1,0} tanh(%nested)
}

%moves (p.2: f32[4,8]) -> f32[8,4] {
  %p.2 = f32[4,8]{1,0} parameter(0)
  ROOT %tr = f32[8,4]{1,0} transpose(%p.2), dimensions={1,0}
}

%a2a (p.3: f32[4,8]) -> f32[4,8] {
  %p.3 = f32[4,8]{1,0} parameter(0)
  ROOT %all-to-all = f32[4,8]{1,0} all-to-all(%p.3), replica_groups={{0,1}}, dimensions={0}
}

ENTRY %main (x: f32[4,8], w: f32[8,2]) -> (f32[4,2], f32[8,4], f32[4,8]) {
  %x = f32[4,8]{1,0} parameter(0), metadata={op_name="params['x']"}
  %w = f32[8,2]{1,0} parameter(1)
  %zero = f32[] constant(0)
  %fill = f32[4,8]{1,0} broadcast(%zero), dimensions={}
  %f = f32[4,2]{1,0} fusion(%x, %w), kind=kOutput, calls=%outer
  %g = f32[8,4]{1,0} fusion(%x), kind=kLoop, calls=%moves
  %s = ((f32[4,8]), f32[4,8]) async-start(%x), calls=%a2a
  %e = f32[4,8]{1,0} async-done(%s), calls=%a2a
  %odd = f32[4,8]{1,0} frobnicate(%e, %fill)
  ROOT %r = (f32[4,2], f32[8,4], f32[4,8]) tuple(%f, %g, %odd)
}
"""


@pytest.fixture(scope="module")
def module():
    return read_modules(TEXT)[0]


def test_wrappers_take_the_family_of_what_they_wrap(module):
    assert family_of(module, "f") == "matmul"
    assert family_of(module, "g") == "data_movement"
    assert family_of(module, "s") == family_of(module, "e") == "collective"
    assert family_of(module, "odd") == "other"
    assert is_matmul(module.find("f"))
    assert not is_matmul(module.find("g"))


def test_flags(module):
    bits = dict(zip((i.name for i in module.instructions), flags(module).tolist(), strict=True))
    assert bits["zero"] & INLINE
    assert bits["fill"] & INLINE
    assert bits["x"] & PARAMETER
    assert bits["r"] & PLUMBING
    assert bits["r"] & ROOT
    assert bits["f"] & LANDMARK
    assert bits["odd"] & OUTPUT
    assert not bits["x"] & OUTPUT


def test_labels_say_what_a_box_does(module):
    found = dict(zip((i.name for i in module.instructions), labels(module), strict=True))
    assert found["x"] == "params['x']"
    assert found["d"] == "matmul [4×8]·[8×2]"
    assert found["f"] == "fusion matmul·tanh"
    assert found["g"] == "fusion transpose"
    assert found["s"] == "all-to-all f32[4,8]-start"
    assert found["e"] == "all-to-all f32[4,8]-done"
    assert found["zero"] == "0"
    assert found["p"] == "parameter 0"
    assert shorten("x" * 500) == "x" * 47 + "…" + "x" * 24
    assert all(0 < len(label) <= MAX_LABEL for label in labels(module))


@pytest.mark.parametrize(
    ("seed", "matmuls"), [("000", 5), ("001", 2), ("004", 151)], ids=["000", "001", "004"]
)
def test_matmuls_of_real_dumps(seeds, seed, matmuls):
    module = read_modules(next(seeds.glob(f"{seed}_*")).read_bytes())[0]
    direct = [i for i in module.instructions if i.opcode != "fusion" and is_matmul(i)]
    assert len(direct) == matmuls
    by_column = [
        i
        for i, f in zip(module.instructions, families(module), strict=True)
        if f == ID["matmul"] and i.opcode != "fusion"
    ]
    assert by_column == direct
    assert all(re.match(r"matmul \[\d+×\d+(×\d+)*\]·\[", labels(module)[i.index]) for i in direct)


def test_loops_say_how_often_they_run(compiled):
    module = compiled("fori_matmul").module
    loops = [i for i in module.instructions if i.opcode == "while"]
    assert loops
    assert labels(module)[loops[0].index] == "while ×16"
    assert FAMILIES[families(module)[loops[0].index]].id == "control_flow"


def test_what_only_spreads_a_constant_or_a_scale_is_drawn_as_one():
    """As XLA writes them on a CPU for all that use them: no box of their own, no arrow."""
    module = read_modules(SPREAD)[0]
    bits = dict(zip((i.name for i in module.instructions), flags(module).tolist(), strict=True))
    assert bits["half"] & INLINE
    assert bits["spread"] & INLINE
    assert not bits["cast"] & INLINE
    assert not bits["doubled"] & INLINE
    assert not bits["vector"] & INLINE  # a cast is work
    assert not bits["ones"] & INLINE  # a result has a box


SPREAD = """HloModule m

spread_c { p = f32[16]{0} parameter(0)
  ROOT b = f32[8,16]{1,0} broadcast(p), dimensions={1} }
half_c { p = f32[] constant(0.5)
  ROOT b = f32[8,16]{1,0} broadcast(p), dimensions={} }
cast_c { p = f32[8,16]{1,0} parameter(0)
  ROOT b = bf16[8,16]{1,0} convert(p) }
vector_c { p = f32[16]{0} parameter(0)
  ROOT b = bf16[16]{0} convert(p) }
doubled_c { p = f32[16]{0} parameter(0)
  a = f32[16]{0} add(p, p)
  ROOT b = f32[8,16]{1,0} broadcast(a), dimensions={1} }
ENTRY main {
  scale = f32[16]{0} parameter(0)
  x = f32[8,16]{1,0} parameter(1)
  half = f32[8,16]{1,0} fusion(), kind=kLoop, calls=half_c
  spread = f32[8,16]{1,0} fusion(scale), kind=kLoop, calls=spread_c
  cast = bf16[8,16]{1,0} fusion(x), kind=kLoop, calls=cast_c
  doubled = f32[8,16]{1,0} fusion(scale), kind=kLoop, calls=doubled_c
  vector = bf16[16]{0} fusion(scale), kind=kLoop, calls=vector_c
  ones = f32[8,16]{1,0} fusion(scale), kind=kLoop, calls=spread_c
  sum = f32[8,16]{1,0} add(half, spread)
  ROOT r = (f32[8,16], bf16[8,16], f32[8,16], bf16[16], f32[8,16])
    tuple(sum, cast, doubled, vector, ones)
}
"""


def test_what_a_loop_takes_counts_and_keeps_is_no_box():
    """``lax.scan`` writes a slice of each array before a turn and each result after it."""
    module = read_modules(SCAN)[0]
    bits = dict(zip((i.name for i in module.instructions), flags(module).tolist(), strict=True))
    quiet = {name for name, b in bits.items() if b & TURN}
    assert quiet == {"slice", "fused_slice", "next", "kept", "kept_part"}
    assert bits["slice"] & INLINE
    assert bits["kept"] & PLUMBING  # what made it is the loop's result
    # a product is the turn's own work wherever it is written; a slice of it is taken from no array
    assert not bits["kept_product"] & TURN
    assert not bits["of_product"] & TURN


def test_a_sum_over_one_row_is_how_a_tpu_writes_a_reshape():
    """Of the slice of a bias; a sum over several rows is work."""
    reduce = """row_c { p = f32[6,16]{1,0} parameter(0)
  i = s32[] parameter(1)
  z = s32[] constant(0)
  none = f32[] constant(-0)
  d = f32[ROWS,16]{1,0} dynamic-slice(p, i, z), dynamic_slice_sizes={ROWS,16}
  ROOT s = f32[16]{0} reduce(d, none), dimensions={0}, to_apply=add_c }
add_c { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
body {"""
    text = SCAN.replace(
        "bias = f32[16]{0} reshape(slice)",
        "bias = f32[16]{0} fusion(b, i), kind=kLoop, calls=row_c",
    )
    for rows, is_taken in ((1, True), (2, False)):
        module = read_modules(text.replace("body {", reduce.replace("ROWS", str(rows)), 1))[0]
        bias = next(i for i in module.instructions if i.name == "bias")
        assert bool(flags(module)[bias.index] & TURN) is is_taken


def test_a_loop_that_only_moves_is_shown():
    module = read_modules(COPIED)[0]
    bits = dict(zip((i.name for i in module.instructions), flags(module).tolist(), strict=True))
    assert not bits["slice"] & QUIET
    assert not bits["kept"] & QUIET


def test_what_a_scan_does_around_its_turns_is_no_box_of_a_real_program():
    """Of a scanned stack only the layer is seen, on a CPU and compiled from jax."""
    import jax
    import jax.numpy as jnp

    def layer(x, w):
        return jnp.tanh(x @ w), x

    x, w = jnp.ones((32, 32)), jnp.ones((6, 32, 32))
    module = hs.capture(lambda x, w: jax.lax.scan(layer, x, w), x, w).module
    names = [i.opcode for i in module.instructions]
    assert any("dynamic-update-slice" in n for n in names)
    loops = [i for i in module.instructions if i.opcode == "while"]
    bodies = [c for loop in loops for c in loop.called_computations if len(c.instructions) > 8]
    drawn = [i for c in bodies for i in c.instructions if not flags(module)[i.index] & QUIET]
    assert not [i.name for i in drawn if "dynamic" in i.name or "slice" in i.name]
    assert any("tanh" in i.name or i.opcode == "fusion" for i in drawn)


SCAN = """HloModule m

slice_c { p = f32[6,16,16]{2,1,0} parameter(0)
  i = s32[] parameter(1)
  z = s32[] constant(0)
  d = f32[1,16,16]{2,1,0} dynamic-slice(p, i, z, z), dynamic_slice_sizes={1,16,16}
  ROOT b = f32[16,16]{1,0} bitcast(d) }
keep_c { p = f32[6,16]{1,0} parameter(0)
  v = f32[16]{0} parameter(1)
  i = s32[] parameter(2)
  z = s32[] constant(0)
  t = f32[16]{0} tanh(v)
  u = f32[1,16]{1,0} bitcast(t)
  ROOT d = f32[6,16]{1,0} dynamic-update-slice(p, u, i, z) }
keep_product_c { p = f32[6,16]{1,0} parameter(0)
  q = f32[16]{0} parameter(1)
  r = f32[16,16]{1,0} parameter(2)
  i = s32[] parameter(3)
  z = s32[] constant(0)
  t = f32[16]{0} dot(q, r), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  u = f32[1,16]{1,0} bitcast(t)
  ROOT d = f32[6,16]{1,0} dynamic-update-slice(p, u, i, z) }
body {
  c = (s32[], f32[16], f32[6,16,16], f32[6,16], f32[6,16], f32[6,16], f32[6,1,16]) parameter(0)
  i = s32[] get-tuple-element(c), index=0
  x = f32[16]{0} get-tuple-element(c), index=1
  w = f32[6,16,16]{2,1,0} get-tuple-element(c), index=2
  ys = f32[6,16]{1,0} get-tuple-element(c), index=3
  zs = f32[6,16]{1,0} get-tuple-element(c), index=4
  b = f32[6,16]{1,0} get-tuple-element(c), index=5
  ps = f32[6,1,16]{2,1,0} get-tuple-element(c), index=6
  zero = s32[] constant(0)
  one = s32[] constant(1)
  slice = f32[1,16]{1,0} dynamic-slice(b, i, zero), dynamic_slice_sizes={1,16}
  fused_slice = f32[16,16]{1,0} fusion(w, i), kind=kLoop, calls=slice_c
  product = f32[16]{0} dot(x, fused_slice), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  bias = f32[16]{0} reshape(slice)
  sum = f32[16]{0} add(product, bias)
  of_product = f32[8]{0} slice(product), slice={[0:8]}
  root_mean = f32[8]{0} sqrt(of_product)
  padding = f32[] constant(0)
  wide = f32[16]{0} pad(root_mean, padding), padding=0_8
  out = f32[16]{0} multiply(sum, wide)
  kept = f32[6,16]{1,0} fusion(ys, sum, i), kind=kLoop, calls=keep_c
  kept_product = f32[6,16]{1,0} fusion(zs, out, fused_slice, i), kind=kOutput, calls=keep_product_c
  part = f32[1,1,16]{2,1,0} reshape(slice)
  kept_part = f32[6,1,16]{2,1,0} dynamic-update-slice(ps, part, i, zero, zero)
  next = s32[] add(i, one)
  ROOT r = (s32[], f32[16], f32[6,16,16], f32[6,16], f32[6,16], f32[6,16], f32[6,1,16])
    tuple(next, out, w, kept, kept_product, b, kept_part)
}
cond {
  c = (s32[], f32[16], f32[6,16,16], f32[6,16], f32[6,16], f32[6,16], f32[6,1,16]) parameter(0)
  i = s32[] get-tuple-element(c), index=0
  six = s32[] constant(6)
  ROOT less = pred[] compare(i, six), direction=LT
}
ENTRY main {
  given = (s32[], f32[16], f32[6,16,16], f32[6,16], f32[6,16], f32[6,16], f32[6,1,16]) parameter(0)
  ROOT loop = (s32[], f32[16], f32[6,16,16], f32[6,16], f32[6,16], f32[6,16], f32[6,1,16])
    while(given), condition=cond, body=body
}
"""

COPIED = """HloModule m

body {
  c = (s32[], f32[6,16], f32[6,16]) parameter(0)
  i = s32[] get-tuple-element(c), index=0
  x = f32[6,16]{1,0} get-tuple-element(c), index=1
  y = f32[6,16]{1,0} get-tuple-element(c), index=2
  zero = s32[] constant(0)
  one = s32[] constant(1)
  slice = f32[1,16]{1,0} dynamic-slice(x, i, zero), dynamic_slice_sizes={1,16}
  kept = f32[6,16]{1,0} dynamic-update-slice(y, slice, i, zero)
  next = s32[] add(i, one)
  ROOT r = (s32[], f32[6,16], f32[6,16]) tuple(next, x, kept)
}
cond {
  c = (s32[], f32[6,16], f32[6,16]) parameter(0)
  i = s32[] get-tuple-element(c), index=0
  six = s32[] constant(6)
  ROOT less = pred[] compare(i, six), direction=LT
}
ENTRY main {
  given = (s32[], f32[6,16], f32[6,16]) parameter(0)
  ROOT loop = (s32[], f32[6,16], f32[6,16]) while(given), condition=cond, body=body
}
"""
