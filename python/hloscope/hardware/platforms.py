"""Whether jax would look for a TPU that is not there, found out without importing jax.

With libtpu installed, ``JAX_PLATFORMS`` unset and no TPU, jax asks a metadata server for
minutes when it starts its backends. ``hloscope[tpu]`` installs libtpu to compile for pods
from a laptop, so hloscope must not let that happen.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path


def tpu_start_up_would_hang() -> bool:
    """libtpu is installed, no platform is chosen, and no accelerator is attached."""
    if os.environ.get("JAX_PLATFORMS") or importlib.util.find_spec("libtpu") is None:
        return False
    return not _accelerator_attached()


def choose_cpu_before_jax() -> bool:
    """Sets ``JAX_PLATFORMS=cpu`` if jax would hang and is not imported yet; whether it did."""
    if "jax" in sys.modules or not tpu_start_up_would_hang():
        return False
    os.environ["JAX_PLATFORMS"] = "cpu"
    return True


def _accelerator_attached() -> bool:
    if any(k in os.environ for k in ("TPU_NAME", "COLAB_TPU_ADDR", "TPU_ACCELERATOR_TYPE")):
        return True
    dev = Path("/dev")
    vfio = any(p.name != "vfio" for p in dev.glob("vfio/*"))
    return vfio or any(next(dev.glob(p), None) for p in ("accel*", "nvidia[0-9]*", "kfd"))
