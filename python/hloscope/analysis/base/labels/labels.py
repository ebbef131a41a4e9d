"""A short label for each instruction's box: what it does, not what XLA called it.

matmul [2048×8192]·[8192×2048]      all-reduce f32[2048,8192]
fusion tanh·multiply·add            params['layers'][0]['w1']
while ×16                           tpu_custom_call
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from ....hlo.collective_kinds import KINDS, is_collective
from ..loops.trips import trip_count
from ..table import Table, per_module, per_table, table
from .elements import element_names
from .families import ID, families, opcode_family, target_family

if TYPE_CHECKING:
    from ....hlo import Instruction, Module, Shape

MAX_LABEL = 72  # characters

# What distinguishes fusions, most distinctive first; others are named only if alone.
_TELLING_TEXT = """
    dot convolution custom-call COLLECTIVES
    sort fft cholesky triangular-solve while conditional rng-bit-generator rng scatter gather
    reduce-window select-and-scatter reduce tanh exponential logistic erf log
    log-plus-one exponential-minus-one rsqrt sqrt cbrt power cosine sine atan2 tan
    dynamic-update-slice dynamic-slice divide remainder maximum minimum clamp multiply add subtract
    select compare transpose concatenate pad reverse slice convert copy reshape broadcast
    bitcast-convert iota negate
"""
# At most 62, so that the content of a computation is one 64-bit mask; the last help least.
_TELLING = _TELLING_TEXT.replace("COLLECTIVES", " ".join(KINDS)).split()[:62]
_RANK = {op: n for n, op in enumerate(_TELLING)}
_QUIET = frozenset(
    ["convert", "copy", "reshape", "broadcast", "bitcast-convert", "iota", "negate", "compare"]
)


_SERIAL = re.compile(r"\.\d+\Z")
_NESTED = 4  # fusions in fusions


def shorten(text: str, limit: int = MAX_LABEL) -> str:
    """Cuts in the middle, where long names differ least."""
    if len(text) <= limit:
        return text
    head = (limit - 1) * 2 // 3
    return f"{text[:head]}…{text[-(limit - 1 - head) :]}"


def _dims(shape: Shape) -> str:
    return "[" + "×".join(map(str, shape.dimensions)) + "]"


def matmul_label(instr: Instruction) -> str:
    """``matmul [2048×8192]·[8192×2048]``, operand shapes as printed."""
    arrays = [o.shape for o in instr.operands[:2] if o.shape.is_array]
    if len(arrays) < 2:
        return "matmul"
    return f"matmul {_dims(arrays[0])}·{_dims(arrays[1])}"


def words_of_mask(mask: int, matmul: bool = False) -> list[str]:
    """The three most telling opcodes of a set given as bits of ``_TELLING``."""
    words = [op for n, op in enumerate(_TELLING) if mask >> n & 1]
    loud = [w for w in words if w not in _QUIET] or words
    if matmul:
        loud = ["matmul", *(w for w in loud if w not in ("dot", "convolution", "custom-call"))]
    return loud[:3]


def is_words_of_opcodes(label: str) -> bool:
    """Whether a label is what ``words_of_mask`` says, with a shape or a number after it or not."""
    words = label.partition(" ")[0].split("·")
    return all(w in _RANK or w == "matmul" for w in words)


@per_table
def _bits(t: Table) -> np.ndarray:
    out = np.asarray(t.by_opcode(lambda o: 1 << _RANK[o] if o in _RANK else 0, np.int64))
    for i in t.where("custom-call").tolist():  # one that only carries a sharding does nothing
        if target_family(t.instructions[i].custom_call_target) == ID["plumbing"]:
            out[i] = 0
    return out


def telling_mask(t: Table, members: np.ndarray) -> int:
    """Bits of ``_TELLING`` for the opcodes of some instructions and of their fusions."""
    interior = interior_masks(t)
    mask = int(np.bitwise_or.reduce(_bits(t)[members])) if len(members) else 0
    for i in members[t.called.counts[members] > 0].tolist():
        for c in _called(t, i):
            mask |= int(interior[c])
    return mask


@per_table
def interior_masks(t: Table) -> np.ndarray:
    """One row per computation: bits of ``_TELLING`` for the opcodes in it, nested fusions too."""
    bits = _bits(t)
    masks = t.reduce_by_computation(np.bitwise_or, bits, 0)
    fusions = t.where("fusion")
    nested = [(int(t.computation[i]), int(c)) for i in fusions for c in _called(t, i)]
    callees = {b for _, b in nested}
    inner = [(a, b) for a, b in nested if a in callees]
    for _ in range(_NESTED):
        for outer, callee in inner:
            masks[outer] |= masks[callee]
    return np.asarray(masks)


def _called(t: Table, i: int | np.int64) -> list[int]:
    return list(t.called.values[t.called.offsets[i] : t.called.offsets[i + 1]].tolist())


@per_module
def labels(module: Module) -> list[str]:
    """One label per instruction; never empty, at most ``MAX_LABEL`` characters."""
    t = table(module)
    family = families(module)
    names = [o.rpartition(".")[2] for o in t.opcodes]
    out = list(map(names.__getitem__, t.opcode.tolist()))

    def write(rows: np.ndarray, label: object) -> None:
        for i in rows.tolist():
            out[i] = shorten(label(t.instructions[i])) or out[i]  # type: ignore[operator]

    _parameters(t, out)
    write(t.where("constant"), _constant)
    for row, number in module.tuple_indices.items():
        out[row] = f"element {'?' if number is None else number}"
    write(t.where("custom-call"), lambda i: _target(i.custom_call_target))
    write(t.where("while"), _loop)
    write(t.where("compare"), lambda i: _with(i, "direction"))
    write(np.flatnonzero(_is_collective(t)), lambda i: f"{i.opcode} {_payload(i)}")
    direct = (family == ID["matmul"]) & ~_is(t, "fusion", "async-start", "async-done", "call")
    write(np.flatnonzero(direct), matmul_label)
    _fusions(t, family, out)
    _wrapped(t, out)
    for row, name in element_names(t, out).items():
        out[row] = shorten(name)
    return out


def _is(t: Table, *names: str) -> np.ndarray:
    return np.asarray(t.by_opcode(lambda o: o in names, bool))


def _is_collective(t: Table) -> np.ndarray:
    return np.asarray(t.by_opcode(is_collective, bool))


def _fusions(t: Table, family: np.ndarray, out: list[str]) -> None:
    masks = interior_masks(t)
    cache: dict[tuple[int, bool], str] = {}
    for i in t.where("fusion").tolist():
        called = _called(t, i)
        if not called:
            continue
        key = (int(masks[called[0]]), bool(family[i] == ID["matmul"]))
        if key not in cache:
            cache[key] = "fusion " + "·".join(words_of_mask(*key))
        out[i] = cache[key] if any(key) else _plain(t, called[0])


def _plain(t: Table, computation: int) -> str:
    """The label of a fusion of unlisted opcodes: their own names."""
    first = int(t.first[computation])
    inside = t.opcode[first : first + int(t.size[computation])]
    ops = dict.fromkeys(t.opcodes[o] for o in inside.tolist())
    for quiet in ("parameter", "constant", "tuple", "bitcast"):
        if len(ops) > 1:
            ops.pop(quiet, None)
    return shorten("fusion " + "·".join(list(ops)[:3]))


def _wrapped(t: Table, out: list[str]) -> None:
    """Labels outlined calls and async wrappers by what they wrap, a done by what it ends."""
    for i in np.concatenate((t.where("call"), t.where("async-start"))).tolist():
        inside = [
            j
            for c in _called(t, i)[:1]
            for j in range(int(t.first[c]), int(t.first[c] + t.size[c]))
            if opcode_family(t.opcodes[t.opcode[j]])
            not in (ID["parameter"], ID["constant"], ID["plumbing"])
        ]
        if len(inside) == 1:
            suffix = "-start" if t.opcodes[t.opcode[i]] == "async-start" else ""
            out[i] = shorten(out[inside[0]] + suffix)
        elif t.opcodes[t.opcode[i]] == "call" and _called(t, i):
            name = t.instructions[i].called_computations[0].name
            out[i] = shorten(f"call {without_serial(name)}")
    for i in np.concatenate((t.where("async-update"), t.where("async-done"))).tolist():
        begin = t.operands.offsets[i]
        if t.operands.offsets[i + 1] > begin:
            source = out[t.operands.values[begin]].removesuffix("-start").removesuffix("-update")
            out[i] = shorten(source + t.opcodes[t.opcode[i]][len("async") :])


def without_serial(name: str) -> str:
    """A computation's name without the number that XLA gives it: ``block_3.17`` is ``block_3``."""
    return _SERIAL.sub("", name) or name


def _parameters(t: Table, out: list[str]) -> None:
    """The argument's path as JAX wrote it, for ENTRY; else its number."""
    known: dict[str, str] = {}
    for row in t.where("parameter").tolist():
        i = t.instructions[row]
        path = i.op_name if i.computation.is_entry else ""
        if path:
            out[row] = shorten(path)
            continue
        raw = i.argument_text
        if raw not in known:
            number = i.parameter_number
            known[raw] = "" if number is None else f"parameter {number}"
        out[row] = known[raw] or shorten(i.name) or out[row]


def _constant(instr: Instruction) -> str:
    value = (instr.literal or "").strip()
    return value if 0 < len(value) <= 16 and value != "{...}" else "constant"


def _target(target: str | None) -> str:
    return target or "custom-call"


def _loop(instr: Instruction) -> str:
    trips = trip_count(instr)
    return f"while ×{trips:,}" if trips is not None else "while"


def _with(instr: Instruction, attribute: str) -> str:
    value = instr.attribute(attribute)
    return f"{instr.opcode} {value}" if value else instr.opcode


def _payload(instr: Instruction) -> str:
    """The array moved; for a tuple the first and how many more."""
    shape = instr.shape
    if instr.opcode.endswith("-start") and shape.tuple_shapes:
        shape = shape.tuple_shapes[-1] if len(shape.tuple_shapes) == 2 else shape.tuple_shapes[0]
    leaves = list(shape.leaves())
    if not leaves:
        return ""
    more = f" +{len(leaves) - 1}" if len(leaves) > 1 else ""
    return leaves[0].dense_text + more
