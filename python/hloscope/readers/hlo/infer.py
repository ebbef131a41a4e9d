"""The shape of an instruction that was written without one, as XLA infers it.

Texts written by hand may leave out shapes that follow from the operands (XLA's parser allows
it for the opcodes here, ShapeInference has the rules). None if nothing follows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from ...hlo.module import Computation, Instruction
from ...hlo.opcodes import BARRIERS
from ...hlo.shape import ELEMENT_BITS, Shape, parse_shape

_NUMBER = re.compile(r"-?\d+")
_SAME = frozenset(
    """
    abs acos acosh asin asinh atanh add add-dependency and atan2 cbrt ceil cholesky copy cosine
    cosh count-leading-zeros divide domain erf exponential exponential-minus-one floor log
    log-plus-one logistic maximum minimum multiply mulhi negate not or popcnt power
    remainder reverse round-nearest-afz round-nearest-even
    rsqrt shift-left shift-right-arithmetic shift-right-logical sign sine sinh sqrt subtract tan
    tanh while xor copy-done batch-norm-inference select-and-scatter
    """.split()
) | {*BARRIERS}
_FIXED = {
    "partition-id": "u32[]",
    "replica-id": "u32[]",
    "after-all": "token[]",
    "get-dimension-size": "s32[]",
}
_COMPLEX = {"f32": "c64", "f64": "c128"}
_REAL = {"c64": "f32", "c128": "f64"}


def shape_of(i: Instruction, computations: Mapping[str, Computation]) -> Shape | None:
    """The shape that follows from operands and attributes; None if none does."""
    if i.opcode in _FIXED:
        return parse_shape(_FIXED[i.opcode])
    shapes = [o.shape for o in i.operands]
    if any(not s.text for s in shapes):
        return None
    rule = _RULES.get(i.opcode)
    try:
        if rule is not None:
            return rule(i, shapes)
        if i.opcode in _CALLS:
            return _called(i, computations)
        return shapes[0] if i.opcode in _SAME and shapes else None
    except (IndexError, ValueError, KeyError):
        return None


def _array(kind: str, dimensions: Sequence[int | str]) -> Shape:
    sizes = [str(d) for d in dimensions]
    order = ",".join(str(k) for k in reversed(range(len(sizes))))
    return parse_shape(f"{kind}[{','.join(sizes)}]" + (f"{{{order}}}" if sizes else ""))


def _sizes(s: Shape) -> list[int | str]:
    """Dimensions as written, dynamic ones with their mark."""
    return [f"<={d}" if mark else d for d, mark in zip(s.dimensions, s.dynamic, strict=True)]


def _tuple(shapes: Sequence[Shape]) -> Shape:
    text = "(" + ", ".join(s.text for s in shapes) + ")"
    return Shape(text, "tuple", tuple_shapes=tuple(shapes))


def _ints(i: Instruction, key: str) -> list[int]:
    return [int(n) for n in _NUMBER.findall(i.attribute(key) or "")]


_CALLS = {"call": "to_apply", "conditional": "branch_computations", "map": "to_apply"}


def _called(i: Instruction, computations: Mapping[str, Computation]) -> Shape | None:
    raw = i.attribute(_CALLS[i.opcode]) or i.attribute("true_computation") or ""
    names = [n.strip().lstrip("%") for n in raw.strip("{}").split(",")]
    c = computations.get(names[0])
    if c is None or c.root is None:
        return None
    if i.opcode == "map":
        return _array(c.root.shape.element_type, _sizes(i.operands[0].shape))
    return c.root.shape


def _dot(i: Instruction, shapes: list[Shape]) -> Shape:
    left, right = shapes[:2]
    batch, contracted = _ints(i, "lhs_batch_dims"), _ints(i, "lhs_contracting_dims")
    others = {*_ints(i, "rhs_batch_dims"), *_ints(i, "rhs_contracting_dims")}
    a, b = _sizes(left), _sizes(right)
    dims = [a[d] for d in batch]
    dims += [n for d, n in enumerate(a) if d not in {*batch, *contracted}]
    dims += [n for d, n in enumerate(b) if d not in others]
    return _array(_wider(left.element_type, right.element_type), dims)


def _wider(a: str, b: str) -> str:
    return a if ELEMENT_BITS.get(a, 0) >= ELEMENT_BITS.get(b, 0) else b


def _transpose(i: Instruction, shapes: list[Shape]) -> Shape:
    sizes, order = _sizes(shapes[0]), _ints(i, "dimensions")
    found = _array(shapes[0].element_type, [sizes[d] for d in order])
    layout = shapes[0].layout
    kept = layout.minor_to_major if layout is not None else tuple(reversed(range(len(sizes))))
    if sorted(kept) != sorted(order):
        return found
    minor = ",".join(str(order.index(d)) for d in kept)
    return parse_shape(f"{found.dense_text}{{{minor}}}")


def _concatenate(i: Instruction, shapes: list[Shape]) -> Shape:
    (d,) = _ints(i, "dimensions")
    sizes = _sizes(shapes[0])
    sizes[d] = sum(s.dimensions[d] for s in shapes)
    return _array(shapes[0].element_type, sizes)


def _reduce(i: Instruction, shapes: list[Shape]) -> Shape:
    gone = set(_ints(i, "dimensions"))
    results = [
        _array(v.element_type, [n for d, n in enumerate(_sizes(s)) if d not in gone])
        for s, v in zip(shapes[: len(shapes) // 2], shapes[len(shapes) // 2 :], strict=True)
    ]
    return results[0] if len(results) == 1 else _tuple(results)


def _pad(i: Instruction, shapes: list[Shape]) -> Shape:
    out = []
    for n, text in zip(
        shapes[0].dimensions, (i.attribute("padding") or "").split("x"), strict=True
    ):
        low, high, inside = [*(int(p) for p in text.split("_")), 0][:3]
        out.append(n + low + high + max(0, n - 1) * inside)
    return _array(shapes[0].element_type, out)


def _window(i: Instruction, sizes: Sequence[int]) -> list[int]:
    """Output sizes of a window over dimensions of these sizes (xla InferWindowOutputShape)."""
    raw = (i.attribute("window") or "{}").strip("{} ")
    fields = dict(f.split("=") for f in raw.split())
    rank = len(sizes)

    def numbers(key: str, default: int) -> list[int]:
        text = fields.get(key)
        return [int(n) for n in text.split("x")] if text else [default] * rank

    pads = [[int(n) for n in p.split("_")] for p in fields.get("pad", "").split("x") if p]
    pads = pads or [[0, 0]] * rank
    rows = zip(
        sizes, numbers("size", 1), numbers("stride", 1), pads,
        numbers("lhs_dilate", 1), numbers("rhs_dilate", 1), strict=True,
    )  # fmt: skip
    out = []
    for n, size, stride, (low, high), base, dilation in rows:
        padded = ((n - 1) * base + 1 if n else 0) + low + high
        reach = (size - 1) * dilation + 1 if size else 0
        out.append(0 if padded < reach else (padded - reach) // stride + 1)
    return out


def _reduce_window(i: Instruction, shapes: list[Shape]) -> Shape:
    half = len(shapes) // 2
    results = [_array(s.element_type, _window(i, s.dimensions)) for s in shapes[:half]]
    return results[0] if half == 1 else _tuple(results)


def _convolution(i: Instruction, shapes: list[Shape]) -> Shape:
    left, _, rest = (i.attribute("dim_labels") or "").partition("_")
    right, _, result = rest.partition("->")
    spatial = [left.index(str(k)) for k in range(sum(c.isdigit() for c in left))]
    places = [shapes[0].dimensions[d] for d in spatial]
    window = _window(i, places) if spatial else []
    groups = int(i.attribute("batch_group_count") or 1)
    sizes = {"b": shapes[0].dimensions[left.index("b")] // groups}
    sizes["f"] = shapes[1].dimensions[right.index("o")]
    sizes |= {str(k): n for k, n in enumerate(window)}
    kind = _wider(shapes[0].element_type, shapes[1].element_type)
    return _array(kind, [sizes[c] for c in result])


def _gather(i: Instruction, shapes: list[Shape]) -> Shape:
    offsets, slices = _ints(i, "offset_dims"), _ints(i, "slice_sizes")
    gone = {*_ints(i, "collapsed_slice_dims"), *_ints(i, "operand_batching_dims")}
    vector = int(i.attribute("index_vector_dim") or 0)
    kept = [n for d, n in enumerate(slices) if d not in gone]
    batch = [n for d, n in enumerate(shapes[1].dimensions) if d != vector]
    rank = len(kept) + len(batch)
    rows, columns = iter(kept), iter(batch)
    return _array(
        shapes[0].element_type,
        [next(rows) if d in offsets else next(columns) for d in range(rank)],
    )


def _element(i: Instruction, shapes: list[Shape]) -> Shape:
    return shapes[0].tuple_shapes[int(i.attribute("index") or 0)]


def _real(i: Instruction, shapes: list[Shape]) -> Shape:
    kind = shapes[0].element_type
    return _array(_REAL.get(kind, kind), _sizes(shapes[0]))


def _several(shapes: list[Shape]) -> Shape:
    return shapes[0] if len(shapes) == 1 else _tuple(shapes)


def _set_dimension_size(i: Instruction, shapes: list[Shape]) -> Shape:
    sizes = _sizes(shapes[0])
    (d,) = _ints(i, "dimensions")
    sizes[d] = f"<={shapes[0].dimensions[d]}"
    return _array(shapes[0].element_type, sizes)


def _broadcast(i: Instruction, shapes: list[Shape]) -> Shape:
    return _array(shapes[0].element_type, [*_ints(i, "dimensions"), *_sizes(shapes[0])])


def _fft(i: Instruction, shapes: list[Shape]) -> Shape:
    kind, sizes = (i.attribute("fft_type") or "").upper(), _sizes(shapes[0])
    element = shapes[0].element_type
    lengths = _ints(i, "fft_length")
    if kind == "RFFT":
        return _array(_COMPLEX[element], [*sizes[:-1], lengths[-1] // 2 + 1])
    if kind == "IRFFT":
        return _array(_REAL[element], [*sizes[:-1], lengths[-1]])
    return shapes[0]


def _top_k(i: Instruction, shapes: list[Shape]) -> Shape:
    sizes = [*_sizes(shapes[0])[:-1], int(i.attribute("k") or 0)]
    return _tuple([_array(shapes[0].element_type, sizes), _array("s32", sizes)])


def _normalised(i: Instruction, shapes: list[Shape]) -> Shape:
    feature = shapes[0].dimensions[int(i.attribute("feature_index") or 0)]
    part = _array(shapes[0].element_type, [feature])
    return _tuple([shapes[0], part, part])


_RULES: dict[str, Callable[[Instruction, list[Shape]], Shape]] = {
    "tuple": lambda i, s: _tuple(s),
    "get-tuple-element": _element,
    "compare": lambda i, s: _array("pred", _sizes(s[0])),
    "is-finite": lambda i, s: _array("pred", _sizes(s[0])),
    "abs": lambda i, s: _real(i, s) if s[0].element_type in _REAL else s[0],
    "select": lambda i, s: s[1],
    "clamp": lambda i, s: s[1],
    "complex": lambda i, s: _array(_COMPLEX[s[0].element_type], _sizes(s[0])),
    "real": _real,
    "imag": _real,
    "dot": _dot,
    "transpose": _transpose,
    "concatenate": _concatenate,
    "reduce": _reduce,
    "pad": _pad,
    "reduce-window": _reduce_window,
    "convolution": _convolution,
    "gather": _gather,
    "scatter": lambda i, s: _several(s[: len(s) // 2]),
    "sort": lambda i, s: _several(s),
    "triangular-solve": lambda i, s: s[1],
    "set-dimension-size": _set_dimension_size,
    "broadcast": _broadcast,
    "fft": _fft,
    "topk": _top_k,
    "batch-norm-training": _normalised,
    "batch-norm-grad": _normalised,
}
