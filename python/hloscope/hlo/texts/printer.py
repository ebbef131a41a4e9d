"""Module → HLO text in XLA's layout: the text reader's inverse.

    read(to_text(m)) equals m, and printing that again gives the same text.

Operands are printed without their types, as today's XLA does, and shapes with layouts.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..module import Computation, Instruction, Module
from ..parts import FrameTable, escape
from ..shape import Shape

_LITERALS = ("parameter", "constant")
# Header attributes in XLA's order; others follow as they were read.
_HEADER_ORDER = (
    "is_scheduled",
    "input_output_alias",
    "buffer_donor",
    "entry_computation_layout",
    "allow_spmd_sharding_propagation_to_parameters",
    "allow_spmd_sharding_propagation_to_output",
    "replica_count",
    "num_partitions",
    "frontend_attributes",
)


def to_text(module: Module) -> str:
    """The module as HLO text, ending in a newline."""
    parts = [_header(module), *_tables(module.frames)]
    parts += [_computation(c) for c in module.computations]
    return "\n\n".join(parts) + "\n"


def _header(module: Module) -> str:
    given = module.attributes
    order = [k for k in _HEADER_ORDER if k in given]
    order += [k for k in given if k not in _HEADER_ORDER]
    pairs = [f"{k}={given[k]}" if given[k] else k for k in order]
    return ", ".join([f"HloModule {module.name}", *pairs])


def _tables(frames: FrameTable) -> list[str]:
    if not frames.frames and not frames.locations and not frames.files:
        return []
    locations = (
        f"{{file_name_id={f} function_name_id={n} line={line} end_line={end} "
        f"column={column} end_column={end_column}}}"
        for f, n, line, end, column, end_column in frames.locations
    )
    # XLA prints parent_frame_id one too high: 1 stands for "no parent".
    stacks = (
        f"{{file_location_id={place} parent_frame_id={parent + 1}}}"
        for place, parent in frames.frames
    )
    return [
        _table("FileNames", (f'"{escape(f)}"' for f in frames.files)),
        _table("FunctionNames", (f'"{escape(f)}"' for f in frames.functions)),
        _table("FileLocations", locations),
        _table("StackFrames", stacks) + "\n",  # XLA leaves two blank lines here
    ]


def _table(name: str, rows: Iterable[str]) -> str:
    return "\n".join([name, *(f"{k} {row}" for k, row in enumerate(rows, 1))])


def _computation(c: Computation) -> str:
    entry = "ENTRY " if c.is_entry else ""
    parameters = ", ".join(f"{p.name}: {shape_text(p.shape, layout=False)}" for p in c.parameters)
    result = shape_text(c.root.shape, layout=False) if c.root is not None else "()"
    lines = [f"{entry}%{c.name} ({parameters}) -> {result} {{"]
    lines += [_instruction(i, c) for i in c.instructions]
    lines.append("}" + (f", {c.attribute_text}" if c.attribute_text else ""))
    return "\n".join(lines)


def _instruction(i: Instruction, c: Computation) -> str:
    root = "ROOT " if i is c.root else ""
    tail = f", {i.attribute_text}" if i.attribute_text else ""
    return f"  {root}%{i.name} = {shape_text(i.shape)} {i.opcode}({_arguments(i)}){tail}"


def _arguments(i: Instruction) -> str:
    if i.opcode in _LITERALS or not i.operands:
        return i.argument_text
    return _joined(["%" + o.name for o in i.operands])


def shape_text(shape: Shape, layout: bool = True) -> str:
    """The shape with ``/*index=5*/`` before every fifth element of a tuple, as XLA prints."""
    if not shape.is_tuple:
        return shape.text if layout else shape.dense_text
    return "(" + _joined([shape_text(s, layout) for s in shape.tuple_shapes]) + ")"


def _joined(parts: list[str]) -> str:
    return ", ".join(p if not k or k % 5 else f"/*index={k}*/{p}" for k, p in enumerate(parts))


Module.printed = to_text
