"""Live programs → Capture. The only folder that imports jax.

=================  ==========================================================
``entry.py``       ``capture``: fn, Traced, Lowered, Compiled → Capture
``program.py``     a program and its stages, each made once
``stages.py``      jaxpr, StableHLO, HLO before and after optimisation → Module
``describe.py``    devices, mesh, arguments, XLA's own figures → Target
``placing.py``     moves arguments onto another mesh, shapes only
``topology.py``    TPU topologies without a TPU, meshes
``marks/``         exact provenance: numbers that operations carry; recorded Python calls
``dumps/``         the compiler's dumps and messages while it compiles
``watch/``         what jax compiles and recompiles, and why
``planning/``      programs that planning compiles
``cells.py``       notebook cells by their numbers
``jaxpr.py``       jaxpr → Module
``compat/``        everything that differs between jax versions
=================  ==========================================================
"""

from __future__ import annotations

try:
    import jax  # noqa: F401
except ImportError as error:
    raise ImportError('capturing needs jax: pip install "hloscope[jax]"') from error

from .compat import jax_api as _compat
from .entry import capture
from .errors import CaptureError
from .run import run
from .watch.watch import watch

_compat.leave_out_own_frames()

__all__ = ["CaptureError", "capture", "run", "watch"]
