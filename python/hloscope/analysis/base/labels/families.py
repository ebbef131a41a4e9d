"""What kind of work an instruction is, for colour, landmarks and labels.

This is hard because the opcode often misleads: a TPU matmul is a ``convolution`` without spatial
dimensions, a GPU one a ``custom-call`` to cuBLAS, and most work hides in ``fusion``.

    %dot        dot(…)                                         → matmul
    %conv       convolution(…), dim_labels=bf_io->bf           → matmul
    %cublas     custom-call(…), custom_call_target="__cublas$gemm" → matmul
    %fusion     fusion(…), calls=%with_a_dot_inside            → matmul
    %start      async-start(…), calls=%wrapped_all_to_all      → collective

An unknown opcode is "other", never a guess.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ....hlo.collective_kinds import OPCODES as COLLECTIVES
from ....hlo.opcodes import BARRIERS
from ..collectives.async_opcodes import wrapped
from ..table import Table, per_module, table

if TYPE_CHECKING:
    from ....hlo import Instruction, Module


@dataclass(frozen=True, slots=True)
class Family:
    id: str
    label: str
    landmark: bool  # stays visible when zoomed out
    weight: int  # a fusion is what its heaviest part is


FAMILIES: tuple[Family, ...] = (
    Family("other", "other", False, 3),
    Family("matmul", "matmul", True, 15),
    Family("convolution", "convolution", True, 14),
    Family("collective", "collective", True, 13),
    Family("custom_call", "custom call", True, 12),
    Family("control_flow", "control flow", True, 11),
    Family("linear_algebra", "sort, FFT, linear algebra", True, 10),
    Family("rng", "random numbers", False, 9),
    Family("transfer", "transfer", False, 8),
    Family("reduction", "reduction", False, 7),
    Family("fusion", "elementwise fusion", False, 6),
    Family("elementwise", "elementwise", False, 5),
    Family("data_movement", "data movement", False, 4),
    Family("constant", "constant", False, 1),
    Family("parameter", "parameter", False, 0),
    Family("plumbing", "plumbing", False, 2),
)
ID: dict[str, int] = {f.id: n for n, f in enumerate(FAMILIES)}
_WEIGHT = np.array([f.weight for f in FAMILIES], np.int64)
_OF_WEIGHT = np.zeros(16, np.int64)
_OF_WEIGHT[_WEIGHT] = np.arange(len(FAMILIES))

# Opcodes by family: xla/hlo/ir/hlo_opcode.h first, then StableHLO and jaxpr names that differ.
# Names are compared lower-case, with "-" for "_" and without a dialect prefix.
_OPCODES: dict[str, str] = {
    "matmul": """dot ragged-dot scaled-dot block-scaled-dot dot-general ragged-dot-general einsum
        unary-einsum""",
    "convolution": "convolution conv-general-dilated dynamic-conv",
    "collective": " ".join(COLLECTIVES)
    + """ cross-replica-sum psum
        psum2 psum-invariant pmax pmin ppermute pbroadcast pgather psum-scatter all-gather-invariant
        reduce-scatter-p all-gather-p all-gather-reduced unreduced-psum unreduced-reduce-scatter
        collective-reduce""",
    "control_flow": """while conditional call case if scan cond pjit jit closed-call core-call
        checkpoint remat remat2 custom-jvp-call custom-vjp-call custom-vjp-call-jaxpr
        custom-jvp-call-jaxpr shard-map composite xla-call xla-pmap xmap run-state
        custom-lin linear-call manual-computation named-computation for switch""",
    "custom_call": "custom-call pallas-call bass-call ffi-call",
    "linear_algebra": """sort fft cholesky triangular-solve topk top-k eigh eig lu qr svd geqrf
        householder-product schur hessenberg tridiagonal tridiagonal-solve approx-top-k sylvester
        ormqr lu-solve lu-pivots-to-permutation""",
    "rng": """rng rng-bit-generator rng-get-and-update-state rng-uniform random-bits random-wrap
        random-unwrap random-seed random-split random-fold-in random-gamma threefry2x32
        random-clone""",
    "transfer": """infeed outfeed send send-done recv recv-done copy-start copy-done device-put
        pure-callback io-callback debug-callback debug-print host-callback-call outside-call""",
    "reduction": """reduce reduce-window select-and-scatter batch-norm-grad batch-norm-training
        reduce-sum reduce-max reduce-min reduce-prod reduce-and reduce-or reduce-xor argmax argmin
        cumsum cumprod cummax cummin cumlogsumexp reduce-window-sum reduce-window-max
        reduce-window-min select-and-scatter-add select-and-gather-add scan-op""",
    "elementwise": """abs acos acosh add and asin asinh atan atan2 atanh batch-norm-inference cbrt
        ceil clamp compare complex convert cosine cosh count-leading-zeros clz divide erf erf-inv
        erfc exponential exponential-minus-one floor imag is-finite log log-plus-one logistic map
        maximum minimum multiply negate not or popcnt popcount population-count power real
        reduce-precision remainder round-nearest-afz round-nearest-even rsqrt select shift-left
        shift-right-arithmetic shift-right-logical sign sine sinh sqrt stochastic-convert subtract
        tan tanh xor uniform-quantize uniform-dequantize mul sub div exp exp2 expm1 log1p max min
        neg sin cos pow integer-pow square select-n eq ne lt le gt ge lt-to le-to eq-to rem round
        nextafter conj convert-element-type add-any floor-divide lgamma digamma polygamma igamma
        igammac bessel-i0e bessel-i1e regularized-incomplete-beta zeta exponential-minus-1 is-inf
        is-pos-inf is-neg-inf clz-p next-after constant-like square-p addf mulf subf divf maxf minf
        maximumf minimumf cmpf addi subi muli cmpi andi ori xori exp-p log-p""",
    "data_movement": """bitcast-convert bitcast-convert-type broadcast broadcast-in-dim concatenate
        copy dynamic-broadcast-in-dim dynamic-gather dynamic-pad dynamic-reshape dynamic-slice
        dynamic-update-slice gather pad real-dynamic-slice reshape reverse rev scatter scatter-add
        scatter-mul scatter-min scatter-max scatter-sub slice split squeeze expand-dims transpose
        torch-index-select tile copy-p ragged-gather""",
    "constant": "constant iota literal arange create-token partition-id replica-id axis-index",
    "parameter": "parameter",
    "plumbing": """tuple get-tuple-element bitcast after-all add-dependency domain
        get-dimension-size set-dimension-size sharding-constraint
        mesh-cast reshard pvary pcast return func-return yield name stop-gradient copy-from-ref
        create-mesh sharding-group propagation-barrier layout-constraint """
    + " ".join(BARRIERS),
}
_FAMILY_OF: dict[str, int] = {op: ID[f] for f, ops in _OPCODES.items() for op in ops.split()}
OPCODES = frozenset(_FAMILY_OF)  # every opcode that has a family of its own

# Resolved later from what they wrap.
_ASYNC = ("async-start", "async-update", "async-done")


def opcode_family(opcode: str) -> int:
    """Index into FAMILIES from the opcode alone: HLO, ``stablehlo.add`` or a jaxpr primitive."""
    name = opcode.rsplit(".", 1)[-1].lower().replace("_", "-")
    found = _FAMILY_OF.get(name)
    if found is not None:
        return found
    if name == "fusion":
        return ID["fusion"]
    inside = wrapped(name)
    if inside is None:
        return ID["other"]
    family = opcode_family(inside[0])
    # data that moves in the background is a transfer, as copy-start is
    return ID["transfer"] if family == ID["data_movement"] else family


# Custom calls by target, first match wins.
_TARGETS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.I), family)
    for pattern, family in (
        (r"__cublas\$(gemm|lt\$(matmul|groupedmatmul)|blas)|cublas.*(gemm|matmul)", "matmul"),
        (r"__onednn\$matmul|__triton_gemm|__cutlass.*gemm|_gemm\b|\bgemm_|EigenMatMul", "matmul"),
        (r"__cudnn\$conv|__onednn\$convolution|EigenConv", "convolution"),
        (r"all_?(reduce|gather|to_?all)|reduce_?scatter|collective_?permute", "collective"),
        (r"lapack_|cusolver|hipsolver|triangularSolve|cholesky|^TopK|^PartialReduce|cufft|"
         r"ducc_|pocketfft|^Qr$|^Eigh$|^LuDecomposition|householder|cu_lu_pivots|cub.*sort",
         "linear_algebra"),
        (r"threefry|^rng|philox", "rng"),
        (r"callback|MoveTo(Host|Device)|annotate_device_placement|HostTransfer", "transfer"),
        (r"^(Sharding|SPMDFullToShardShape|SPMDShardToFullShape|xla\.sdy\.\w+|AllocateBuffer|"
         r"CreateBuffer|LayoutConstraint|X64\w+|AssumeGatherIndicesInBound|Unpin|Pin|"
         r"GatherScatterIndicesBitpacked|ResizeBuffer|SliceToDynamic|PadToStatic)$", "plumbing"),
    )
)  # fmt: skip


def target_family(target: str | None) -> int:
    """Family of a custom call by its target."""
    for pattern, family in _TARGETS:
        if target and pattern.search(target):
            return ID[family]
    return ID["custom_call"]


_WINDOW_FIELD = re.compile(r"(\w+)=([\d_x-]+)")


def convolution_is_matmul(
    window: str, dim_labels: str, lhs_dimensions: tuple[int, ...], groups: int = 1
) -> bool:
    """Whether a convolution slides over nothing, so that it is a matrix product.

    TPU turns a dot into a convolution; its batch and extra contracted dimensions become
    "spatial" ones with windows that never slide (xla/hlo/transforms, dot → convolution):
    size 1; a batch dimension as ``size=n stride=n-1 lhs_dilate=n``; a contracted one as
    a window over the whole unpadded input; an output one as ``pad=n-1_n-1`` over size 1.
    """
    if groups != 1:
        return False
    lhs = dim_labels.partition("_")[0]
    spatial = sorted(int(c) for c in lhs if c.isdecimal())
    fields = dict(_WINDOW_FIELD.findall(window))

    def per_dimension(key: str, default: str) -> list[str]:
        values = fields[key].split("x") if key in fields else []
        return values if len(values) == len(spatial) else [default] * len(spatial)

    sizes, strides = per_dimension("size", "1"), per_dimension("stride", "1")
    dilations, pads = per_dimension("lhs_dilate", "1"), per_dimension("pad", "0_0")
    for d, size_text, stride_text, dilate_text, pad in zip(
        spatial, sizes, strides, dilations, pads, strict=True
    ):
        size, stride, dilate = int(size_text), int(stride_text), int(dilate_text)
        at = lhs.index(str(d))
        extent = lhs_dimensions[at] if at < len(lhs_dimensions) else -1
        if size == 1 and pad in ("0_0", "0"):
            continue
        if dilate == size and stride == max(size - 1, 1) and pad in ("0_0", "0"):
            continue
        if dilate == 1 and size == extent and pad in ("0_0", "0"):
            continue
        if dilate == 1 and extent == 1 and pad == f"{size - 1}_{size - 1}":
            continue
        return False
    return True


def _convolution_family(instr: Instruction) -> int:
    groups = 1
    for key in ("feature_group_count", "batch_group_count"):
        raw = instr.attribute(key)
        groups *= int(raw) if raw and raw.isdecimal() else 1
    matmul = convolution_is_matmul(
        (instr.attribute("window") or "").strip("{}"),
        instr.attribute("dim_labels") or "",
        instr.operands[0].shape.dimensions if instr.operands else (),
        groups,
    )
    known = instr.attribute("dim_labels") is not None
    return ID["matmul"] if matmul and known else ID["convolution"]


@per_module
def families(module: Module) -> NDArray[np.uint8]:
    """Index into FAMILIES for every instruction of the module, in order."""
    t = table(module)
    out = t.by_opcode(opcode_family, np.int64)
    for i in t.where("custom-call", "stablehlo.custom_call"):
        out[i] = target_family(t.instructions[i].custom_call_target)
    for i in t.where("convolution"):
        out[i] = _convolution_family(t.instructions[i])
    _wrappers(t, out)
    return out.astype(np.uint8)


def _wrappers(t: Table, out: NDArray[np.int64]) -> None:
    """Fusions, one-instruction calls and async wrappers get the family of what is inside.

    Callees are nested a few levels at most (async → fusion → fusion), so a few rounds
    over the wrappers alone reach the fixed point.
    """
    fusions = t.where("fusion")
    starts = t.where("async-start")
    calls = t.where("call")
    first_called = np.full(len(out), -1, np.int64)
    some = t.called.counts > 0
    first_called[some] = t.called.values[t.called.offsets[:-1][some]]
    wrappers = np.concatenate((fusions, starts, calls))
    wrappers = wrappers[first_called[wrappers] >= 0]
    fused = np.isin(wrappers, fusions)
    # A call is what it calls only when that is one piece of work (XLA:CPU's outlined loops).
    work = t.by_opcode(lambda o: o not in _NOT_WORK, np.int64)
    pieces = t.reduce_by_computation(np.add, work, 0)
    single = ~np.isin(wrappers, calls) | (pieces[first_called[wrappers]] == 1)
    wrappers, fused = wrappers[single], fused[single]
    for _ in range(8):
        heaviest = t.reduce_by_computation(np.maximum, _WEIGHT[out], 0)
        heart = _OF_WEIGHT[heaviest[first_called[wrappers]]]
        heart = np.where(fused & (heart == ID["elementwise"]), ID["fusion"], heart)
        heart = np.where(
            fused & np.isin(heart, (ID["parameter"], ID["constant"], ID["plumbing"])),
            ID["data_movement"],
            heart,
        )
        if np.array_equal(out[wrappers], heart):
            break
        out[wrappers] = heart
    for i in t.where("async-update", "async-done"):  # operands come first in printed order
        begin, end = t.operands.offsets[i], t.operands.offsets[i + 1]
        if end > begin:
            out[i] = out[t.operands.values[begin]]


_NOT_WORK = frozenset({"parameter", "constant", "tuple", "get-tuple-element", "bitcast"})


def is_matmul(instr: Instruction) -> bool:
    """Whether it is a matrix product, by name or in disguise, or a fusion around one."""
    opcode = instr.opcode
    if opcode == "custom-call":
        return target_family(instr.custom_call_target) == ID["matmul"]
    if opcode == "convolution":
        return _convolution_family(instr) == ID["matmul"]
    if opcode == "fusion" or opcode == "async-start":
        return any(is_matmul(i) for c in instr.called_computations for i in c.instructions)
    return opcode_family(opcode) == ID["matmul"]
