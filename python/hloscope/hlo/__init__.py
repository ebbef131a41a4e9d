"""The model of an HLO module: standard library only, immutable once built.

=================  ==========================================================
``module.py``      Module, Computation, Instruction, Metadata, StackFrame, …
``shape.py``       Shape and Layout, with XLA's own text form and byte sizes
``printer.py``     Module → HLO text (the text readers' inverse)
``target.py``      Target: devices, mesh, arguments, XLA's own figures
=================  ==========================================================
"""

from .module import (
    Alias,
    Computation,
    FrameTable,
    Instruction,
    Metadata,
    Module,
    ReadWarning,
    StackFrame,
)
from .shape import Layout, Shape, parse_shape
from .target import Argument, Device, Mesh, Target

__all__ = [
    "Argument",
    "Device",
    "Mesh",
    "Target",
    "Alias",
    "Computation",
    "FrameTable",
    "Instruction",
    "Layout",
    "Metadata",
    "Module",
    "ReadWarning",
    "Shape",
    "StackFrame",
    "parse_shape",
]
