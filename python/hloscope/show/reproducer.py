"""``to_reproducer``: a part of a program as a file of its own, for a bug report.

    a fusion, a loop, a group, some instructions
      ──▶  HLO with an ENTRY: what they read from outside becomes parameters, what others read
           of them the result; constants come along, so that loops count as they did
      ──▶  a Python file with that text, random inputs, a run and its time

It is compiled again where it runs: fusions are calls in it, which XLA fuses as it likes. Layouts
and settings of one backend are left out, so that what was compiled for a TPU runs anywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..api.files import written
from ..hlo import Computation, Instruction, Shape, opcodes
from ..hlo.collective_kinds import OPCODES
from ..hlo.texts.listed import listed

if TYPE_CHECKING:
    from ..api.capture import Capture

_LEFT_OUT = frozenset([
    "metadata", "backend_config", "frontend_attributes", "sharding", "control-predecessors",
    "origin", "statistics", "kind", "output_to_operand_aliasing", "async_execution_thread",
])  # fmt: skip
_ELEMENTS = frozenset(["pred", "s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64", "bf16",
                       "f16", "f32", "f64", "c64", "c128"])  # fmt: skip
_START, _DONE = "copy-start", "copy-done"
_DEPTH = 8  # instructions in a row that are followed to a constant


def to_reproducer(capture: Capture, path: str | Path, what: Sequence[Instruction | str]) -> Path:
    """Writes the file; see ``Capture.to_reproducer``."""
    chosen = _chosen(capture, what)
    text, inputs = cut_out(chosen)
    named = listed([f"%{i.name}" for i in chosen])
    title = f"{named} of {capture.module.name}".replace('"', "").replace("\\", "")
    return written(path, _FILE.format(title=title, hlo=text, inputs=inputs))


def _chosen(capture: Capture, what: Sequence[Instruction | str]) -> list[Instruction]:
    """The instructions, of one computation, in its order. Raises ``LookupError``."""
    found: dict[int, Instruction] = {}
    for one in what:
        some = [one] if isinstance(one, Instruction) else _named(capture, one)
        found.update((i.index, i) for i in some)
    inside = {c.name for i in found.values() for c in _called([i])}
    found = {k: i for k, i in found.items() if i.computation.name not in inside}
    own = [i for _, i in sorted(found.items()) if i.opcode != "parameter"]
    if not own:
        raise LookupError("nothing is chosen that computes something")
    places = list(dict.fromkeys(i.computation.name for i in own))
    if len(places) > 1:
        raise LookupError(f"what is chosen is in several computations: {listed(places)}")
    return own


def _named(capture: Capture, name: str) -> list[Instruction]:
    module = capture.module
    instruction = module.find(name.lstrip("%"))
    if instruction is not None:
        return [instruction]
    from ..view.context import Context

    names = Context(module, capture.target)  # called as on the page
    tree = names.groups
    rows = {
        g
        for g, labels in enumerate(zip(names.group_labels, tree.label, strict=True))
        if name in labels
    }
    for fold, label in zip(names.folds.folds, names.fold_labels, strict=True):
        if label == name:
            rows.update(fold.members)
    for g, parent in enumerate(tree.parent.tolist()):
        if parent in rows:
            rows.add(g)
    found = [i for i in module.instructions if int(tree.group[i.index]) in rows]
    if not found:
        raise LookupError(f"this module has no instruction or group {name[:200]!r}")
    return found


def _called(instructions: Iterable[Instruction]) -> list[Computation]:
    """All that they call, what is called first."""
    out: dict[str, Computation] = {}

    def add(some: Iterable[Instruction]) -> None:
        for i in some:
            for c in i.called_computations:
                if c.name not in out:
                    add(c.instructions)
                    out[c.name] = c

    add(instructions)
    return list(out.values())


def cut_out(chosen: Sequence[Instruction]) -> tuple[str, list[tuple[str, tuple[int, ...]]]]:
    """HLO text of a module of these instructions, and type and dimensions of its parameters.

    Raises ``ValueError`` where they cannot run alone.
    """
    own = _with_constants(chosen)
    called = _called(own)
    _check([*own, *(i for c in called for i in c.instructions)])
    inside = {i.index for i in own}
    outer = dict.fromkeys(o for i in own for o in i.operands if o.index not in inside)
    lines: list[str] = []
    inputs: list[tuple[str, tuple[int, ...]]] = []
    for o in outer:
        _argument(o.name, o.shape, lines, inputs)
    lines += [_line(i) for i in own if i.opcode != _START]
    asked = {i.index for i in chosen}
    results = [
        i for i in own
        if i.index in asked and i.opcode != _START and _is_read_outside(i, inside)
    ]  # fmt: skip
    if not results:
        raise ValueError("what is chosen has no result of its own: choose what reads it as well")
    names = ", ".join(f"%{i.name}" for i in results)
    shapes = ", ".join(_shape(i.shape) for i in results)
    lines.append(f"  ROOT %reproducer_result = ({shapes}) tuple({names})")
    parts = ["HloModule reproducer"]
    for c in called:
        body = [_line(i, is_result=i.is_root) for i in c.instructions if i.opcode != _START]
        parts.append("\n".join([f"%{c.name} {{", *body, "}"]))
    parts.append("\n".join(["ENTRY %reproducer {", *lines, "}"]))
    return "\n\n".join(parts) + "\n", inputs


def _with_constants(chosen: Sequence[Instruction]) -> list[Instruction]:
    """With what is made of constants alone, also in tuples: a loop's count and its bound."""
    own = {i.index: i for i in chosen}
    waiting = list(chosen)
    while waiting:
        for o in waiting.pop().operands:
            if o.index not in own and (o.opcode in ("tuple", _START) or _is_constant(o, _DEPTH)):
                own[o.index] = o
                waiting.append(o)
    return [own[k] for k in sorted(own)]


def _is_constant(i: Instruction, depth: int) -> bool:
    if i.opcode in ("constant", "iota"):
        return "..." not in i.argument_text
    if i.opcode not in opcodes.REPEATED or not depth:
        return False
    return all(_is_constant(o, depth - 1) for o in i.operands)


def _is_read_outside(i: Instruction, inside: set[int]) -> bool:
    return i.is_root or not i.users or any(u.index not in inside for u in i.users)


def _check(instructions: Iterable[Instruction]) -> None:
    for i in instructions:
        if i.opcode in OPCODES or i.opcode in ("partition-id", "replica-id"):
            raise ValueError(
                f"%{i.name} ({i.opcode}) needs several devices: choose what one device does alone"
            )
        if i.opcode in opcodes.BUNDLES and i.opcode.startswith("async"):
            raise ValueError(f"%{i.name} ({i.opcode}) runs beside others: choose what it calls")
        if i.opcode == "constant" and "..." in i.argument_text:
            raise ValueError(
                f"%{i.name} is a constant whose values are not in the text of this program"
            )


def _argument(
    name: str, shape: Shape, lines: list[str], inputs: list[tuple[str, tuple[int, ...]]]
) -> None:
    if shape.is_tuple:
        parts = [f"{name}.{k}" for k in range(len(shape.tuple_shapes))]
        for part, inner in zip(parts, shape.tuple_shapes, strict=True):
            _argument(part, inner, lines, inputs)
        operands = ", ".join(f"%{part}" for part in parts)
        lines.append(f"  %{name} = {_shape(shape)} tuple({operands})")
        return
    if shape.element_type not in _ELEMENTS:
        raise ValueError(f"%{name} is {shape}, for which there are no random inputs")
    lines.append(f"  %{name} = {_shape(shape)} parameter({len(inputs)})")
    inputs.append((shape.element_type, shape.dimensions))


def _shape(shape: Shape) -> str:
    """Without its layout."""
    if shape.is_tuple:
        return "(" + ", ".join(_shape(s) for s in shape.tuple_shapes) + ")"
    return shape.dense_text


def _line(i: Instruction, *, is_result: bool = False) -> str:
    """The instruction; ``is_result``: of the computation that is printed."""
    root = "ROOT " if is_result else ""
    if i.opcode == "bitcast":
        return _bitcast(i, root)
    if i.opcode == _DONE:  # a copy to another memory; here it is one where it ends
        (start,) = i.operands
        return f"  {root}%{i.name} = {_shape(i.shape)} copy(%{start.operands[0].name})"
    opcode, attributes = i.opcode, dict(i.attributes)
    if opcode == "fusion":
        opcode, attributes["to_apply"] = "call", attributes.pop("calls")
    kept = "".join(f", {k}={v}" if v else f", {k}" for k, v in attributes.items()
                   if k not in _LEFT_OUT)  # fmt: skip
    operands = ", ".join(f"%{o.name}" for o in i.operands) or i.argument_text
    return f"  {root}%{i.name} = {_shape(i.shape)} {opcode}({operands}){kept}"


def _bitcast(i: Instruction, root: str) -> str:
    """The same bytes read as another shape: what that means depends on both layouts."""
    (operand,) = i.operands
    was, now = operand.shape, i.shape
    if was.element_type != now.element_type:
        return f"  {root}%{i.name} = {_shape(now)} bitcast-convert(%{operand.name})"
    before, after = _major_to_minor(was), _major_to_minor(now)
    kind = now.element_type

    def sized(dimensions: Iterable[int]) -> str:
        return f"{kind}[{','.join(map(str, dimensions))}]"

    back = sorted(range(len(after)), key=lambda d: after[d])
    flat, again = f"{i.name}.in_memory", f"{i.name}.as_read"
    return "\n".join([
        f"  %{flat} = {sized(was.dimensions[d] for d in before)} transpose(%{operand.name}), "
        f"dimensions={{{','.join(map(str, before))}}}",
        f"  %{again} = {sized(now.dimensions[d] for d in after)} reshape(%{flat})",
        f"  {root}%{i.name} = {_shape(now)} transpose(%{again}), "
        f"dimensions={{{','.join(map(str, back))}}}",
    ])  # fmt: skip


def _major_to_minor(shape: Shape) -> tuple[int, ...]:
    known = shape.layout.minor_to_major if shape.layout is not None else ()
    return known[::-1] if len(known) == shape.rank else tuple(range(shape.rank))


_FILE = '''"""{title}, cut out by hloscope: HLO with random inputs, run and timed.

    python THIS_FILE          needs jax; --hlo prints what XLA makes of it here
"""

import statistics
import sys
import time

import jax
import numpy as np

HLO = r"""
{hlo}"""
INPUTS = {inputs!r}
NAMES = {{"pred": "bool", "bf16": "bfloat16", "c64": "complex64", "c128": "complex128"}}
FULL = {{"s": "int", "u": "uint", "f": "float"}}


def inputs(seed=0):
    """Numbers around 0, integers 0 or 1; one integer alone, such as a count or an offset, is 0."""
    random, made = np.random.default_rng(seed), []
    for kind, shape in INPUTS:
        name = NAMES.get(kind) or FULL[kind[0]] + kind[1:]
        whole = kind == "pred" or kind[0] in "su"
        most = 2 if shape else 1
        values = random.integers(0, most, shape) if whole else random.standard_normal(shape)
        made.append(np.asarray(values).astype(jax.numpy.dtype(name)))
    return made


def compiled():
    from jax._src.lib import xla_client

    try:
        from jaxlib import _hlo as hlo
    except ImportError:  # jaxlib before 0.10
        hlo = xla_client._xla
    module = hlo.hlo_module_from_text(HLO)
    stablehlo = xla_client._xla.mlir.hlo_to_stablehlo(module.as_serialized_hlo_module_proto())
    device = jax.devices()[0]
    devices = xla_client.DeviceList((device,))
    return device.client.compile_and_load(stablehlo, devices, xla_client.CompileOptions())


def run(values, program=None):
    """The results for these inputs."""
    program = program or compiled()
    with jax.enable_x64(True):
        found = program.execute([jax.device_put(v, jax.devices()[0]) for v in values])
    return jax.block_until_ready(found)


def main():
    program = compiled()
    if "--hlo" in sys.argv:
        print("\\n".join(m.to_string() for m in program.hlo_modules()))
    values, seconds = inputs(), []
    with jax.enable_x64(True):
        values = [jax.device_put(v, jax.devices()[0]) for v in values]
    for _ in range(21):
        began = time.perf_counter()
        found = run(values, program)
        seconds.append(time.perf_counter() - began)
    print(f"{{jax.devices()[0].device_kind}}, jax {{jax.__version__}}:",
          f"{{statistics.median(seconds[1:]) * 1e6:,.1f}} us, median of 20 runs")
    for value in found:
        print(value.dtype, value.shape, "finite" if np.isfinite(value).all() else "NOT FINITE")


if __name__ == "__main__":
    main()
'''
