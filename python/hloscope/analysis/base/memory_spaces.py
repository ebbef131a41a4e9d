"""Which memory a layout's ``S(n)`` means, by platform.

           TPU           GPU             CPU, unknown
    S(0)   HBM           device memory   device memory
    S(1)   VMEM          device memory   -
    S(2)   sync flags    device memory   -
    S(5)   host          host            host
    S(6)   SMEM          -               -

All others are shown by number: "memory space 4".

0, 1 and 5 are XLA's own (``kDefaultMemorySpace``, ``kGenericFastMemorySpace`` and
``kHostMemorySpace`` of ``xla/layout.h``). On GPU 1 and 2 colour buffers for collectives and
temporaries (``gpu_memory_space_assignment.h``), which are in the same memory as all others. On
TPU 2 holds the semaphores of copies and 6 scalars.
"""

from __future__ import annotations

from ...hlo import Module, Shape, Target
from .table import per_module, table

MAIN = 0
VMEM = 1
HOST = 5
_TPU = {MAIN: "HBM", VMEM: "VMEM", 2: "sync flags", HOST: "host", 6: "SMEM"}
_OTHER = {MAIN: "device memory", HOST: "host"}
_ON_GPU = (MAIN, 1, 2)
_GPU_CALLS = ("__cu", "__triton", "__gpu", "__hipblas", "__rocm", "triton_kernel_call")


def memory_space(shape: Shape) -> int:
    """The layout's ``S(n)``, 0 if it names none and for tuples."""
    return shape.layout.memory_space if shape.layout is not None else MAIN


def platform(module: Module, target: Target) -> str:
    """ "tpu", "gpu", "cpu", or "" if neither the capture nor the module itself shows it."""
    return target.platform or _form(module)


@per_module
def _form(module: Module) -> str:
    leaves = {leaf for shape in table(module).shapes for leaf in shape.leaves()}
    if any(x.layout is not None and x.layout.tiles for x in leaves):
        return "tpu"  # only its layouts have tiles
    for i in module.instructions:
        if i.opcode == "custom-call" and (i.custom_call_target or "").startswith(_GPU_CALLS):
            return "gpu"
        if i.opcode == "fusion" and '"fusion_backend_config"' in i.attribute_text:
            return "gpu"
    return ""


def main_spaces(on: str) -> tuple[int, ...]:
    """The ``S(n)`` that are in the device's main memory."""
    return _ON_GPU if on == "gpu" else (MAIN,)


def space_name(space: int, on: str) -> str:
    """ "HBM", "VMEM", "host", …; "memory space 3" for one without a name."""
    if space in main_spaces(on):
        space = MAIN
    return (_TPU if on == "tpu" else _OTHER).get(space, f"memory space {space}")


def space_names(on: str) -> tuple[str, ...]:
    """The names of memory spaces on a platform, main memory first."""
    return tuple((_TPU if on == "tpu" else _OTHER).values())
