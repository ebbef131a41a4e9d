"""XLA flags with which tests compile in a third of the time, in their process and in its children.

LLVM's own passes take half of a compile and change no HLO. XLA's emitters through MLIR take two
thirds of the rest; without them single elementwise instructions are in no fusion of their own,
which hardly any test of a small program asks. The corpus and the goldens compile with them, as
users do, and those that ask (``AS_USERS_DO``); ``HLOSCOPE_TESTS=all`` compiles everything so.
"""

from __future__ import annotations

import os

# As ``compiler_options``: a program compiled as a user compiles it.
AS_USERS_DO = {"xla_backend_extra_options": ""}


def flags(devices: int | None = None) -> str:
    """``XLA_FLAGS``, with so many CPU devices."""
    made = ["--xla_backend_optimization_level=0"]
    if os.environ.get("HLOSCOPE_TESTS") != "all":
        made.append("--xla_backend_extra_options=xla_cpu_disable_new_fusion_emitters")
    if devices is not None:
        made.append(f"--xla_force_host_platform_device_count={devices}")
    return " ".join(made)


def set_flags(devices: int | None = None) -> None:
    """Set them for this process and its children, but for those that are set already."""
    there = os.environ.get("XLA_FLAGS", "")
    new = [f for f in flags(devices).split() if f.partition("=")[0] not in there]
    os.environ["XLA_FLAGS"] = " ".join(filter(None, [there, *new]))
