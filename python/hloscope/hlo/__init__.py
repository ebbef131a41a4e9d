"""The model of an HLO module: standard library and numpy only, immutable once built.

==================  ==========================================================
``module.py``       Module, Computation, Instruction
``opcodes.py``      what every opcode does to a value, and the classes that follow
``walk.py``         follow a value back or forth through classes of opcodes
``parts.py``        ReadWarning, FrameTable, Metadata, Alias; attribute text → pairs
``columns.py``      operands, calls, op_names, frames of all instructions at once
``buffers.py``      BufferAssignment, where a dump holds one
``shape.py``        Shape and Layout, with XLA's own text form and byte sizes
``shardings/``      shardings, replica groups, mesh axes and slices in every spelling
``origins/``        the operations and Python calls that instructions come from
``texts/``          Module → HLO text (the text reader's inverse); files and lines as text
``snapshots.py``    a module as it was after one pass
``compare.py``      what differs between two Modules
``mesh.py``         Mesh: named axes over devices
``target.py``       Target: devices, mesh, arguments, XLA's own figures
==================  ==========================================================
"""

from .buffers import BufferAssignment
from .mesh import Mesh
from .module import Computation, Instruction, Module
from .origins.operations import Frame, Operation, Origin
from .origins.origins import Origins
from .origins.python_calls import PythonCall, PythonCalls
from .parts import Alias, FrameTable, Metadata, ReadWarning, StackFrame
from .shape import Layout, Shape, parse_shape
from .target import Argument, Device, SlowToCompile, Target, UnmetName
from .texts import printer as printer  # lets ``Module.text`` print

__all__ = [
    "Alias",
    "Argument",
    "BufferAssignment",
    "Computation",
    "Device",
    "Frame",
    "FrameTable",
    "Instruction",
    "Layout",
    "Mesh",
    "Metadata",
    "Module",
    "Operation",
    "Origin",
    "Origins",
    "PythonCall",
    "PythonCalls",
    "ReadWarning",
    "Shape",
    "SlowToCompile",
    "StackFrame",
    "Target",
    "UnmetName",
    "parse_shape",
]
