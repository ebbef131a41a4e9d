"""Live programs → Capture. The only folder that imports jax.

=================  ==========================================================
``entry.py``       ``capture``: fn, Traced, Lowered, Compiled → Capture
``program.py``     a program and its stages, each made once
``stages.py``      jaxpr, StableHLO, HLO before and after optimisation → Module
``describe.py``    devices, mesh, arguments, XLA's own figures → Target
``placing.py``     moves arguments onto another mesh, shapes only
``topology.py``    TPU topologies without a TPU, meshes
``marks.py``       exact provenance: numbers operations carry through the compiler
``marks_text.py``  takes those numbers out of names again
``every_pass.py``  the program after every pass of one compile
``provenance.py``  Shardy and pre-partitioning dumps taken while compiling
``dumping.py``     a dump folder that cannot take the process down
``messages.py``    the compiler's messages on stderr
``stderr.py``      descriptor 2, redirected once for the whole process
``cells.py``       notebook cells by their numbers
``sources.py``     the user's own source files
``jaxpr.py``       jaxpr → Module
``watch.py``       what jax compiles and recompiles, and why; ``watch_call.py`` compares two calls
``_compat.py``     everything that differs between jax versions
=================  ==========================================================
"""

from __future__ import annotations

try:
    import jax  # noqa: F401
except ImportError as error:
    raise ImportError('capturing needs jax: pip install "hloscope[jax]"') from error

from . import _compat
from .entry import capture
from .errors import CaptureError
from .watch import watch

_compat.leave_out_own_frames()

__all__ = ["CaptureError", "capture", "watch"]
