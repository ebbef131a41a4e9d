"""Flags with which tests compile in a third of the time, in their process and in its children.

LLVM's own passes take half of a compile and change no HLO, and cutting a program into 32 parts
for LLVM takes a quarter of what is left. XLA's emitters through MLIR take two
thirds of the rest; without them single elementwise instructions are in no fusion of their own,
which hardly any test of a small program asks. For a TPU libtpu with least effort takes a sixth: it
fuses a little less. The corpus and the goldens compile as users do, and tests that ask
(``as_users_do``); ``HLOSCOPE_TESTS=all`` compiles everything so.
"""

from __future__ import annotations

import os


def as_users_do(tpu: bool = False) -> dict[str, str]:
    """``compiler_options`` of a program that is compiled as a user compiles it."""
    if tpu:
        return {"xla_optimization_level": "EFFORT_O2"}
    return {"xla_backend_extra_options": ""}


def flags(devices: int | None = None) -> str:
    """``XLA_FLAGS``, with so many CPU devices."""
    made = ["--xla_backend_optimization_level=0", "--xla_llvm_disable_expensive_passes=true",
            "--xla_cpu_parallel_codegen_split_count=1"]  # fmt: skip
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
    if os.environ.get("HLOSCOPE_TESTS") != "all":
        os.environ.setdefault("LIBTPU_INIT_ARGS", "--xla_optimization_level=EFFORT_O0")
