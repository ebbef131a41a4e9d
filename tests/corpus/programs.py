"""The corpus: importing this fills ``PROGRAMS`` (name → Program).

One module per kind of program; a new program is one decorated function in one of them.
"""

from __future__ import annotations

from . import control, ops, parallel, transformers
from .registry import PROGRAMS, Made, Program

__all__ = ["PROGRAMS", "Made", "Program", "control", "ops", "parallel", "transformers"]
