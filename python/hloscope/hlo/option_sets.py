"""Compiler options that belong together, by name: ``cap.what_if(compiler_options="fast math")``.

XLA has other options for each platform, so that a set has those of each that it is for.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from .changes import unknown_name

SETS: dict[str, dict[str, dict[str, Any]]] = {
    # collectives run while something else is computed
    "async collectives": {
        "tpu": {
            "xla_enable_async_all_gather": True,
            "xla_enable_async_collective_permute": True,
            "xla_tpu_enable_async_collective_fusion": True,
            "xla_tpu_enable_async_collective_fusion_multiple_steps": True,
            "xla_tpu_overlap_compute_collective_tc": True,
        },
        "gpu": {
            "xla_gpu_enable_latency_hiding_scheduler": True,
            "xla_gpu_enable_pipelined_all_gather": True,
            "xla_gpu_enable_pipelined_all_reduce": True,
            "xla_gpu_enable_pipelined_reduce_scatter": True,
        },
    },
    # a product of a gathered array, or one whose result is scattered, piece by piece
    "collective matmul": {
        "tpu": {"xla_jf_spmd_threshold_for_windowed_einsum_mib": 0},
        "gpu": {
            "xla_gpu_multi_streamed_windowed_einsum": True,
            "xla_gpu_threshold_for_windowed_einsum_mib": 0,
        },
    },
    # floating-point arithmetic in another order, and without care for NaN and infinity
    "fast math": {
        "cpu": {"xla_cpu_enable_fast_math": True, "xla_cpu_enable_fast_min_max": True},
    },
    # less work for the compiler
    "quick compile": {
        "cpu": {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True},
    },
}


def options_of(given: str | Mapping[str, Any], platform: str) -> dict[str, Any]:
    """The options of a set for a platform, "cpu", "gpu" or "tpu"; those that are given as they are.

    Raises ``CannotChange`` for a set that there is not, with those that there are.
    """
    if not isinstance(given, str):
        return dict(given)
    platform = {"cuda": "gpu", "rocm": "gpu"}.get(platform, platform)
    there = sorted(name for name, of in SETS.items() if platform in of)
    if given in there:
        return dict(SETS[given][platform])
    if given in SETS:
        which = f"the options {given!r} are for {' and '.join(SETS[given])}"
    else:
        near = difflib.get_close_matches(given, SETS, n=2, cutoff=0.5)
        hint = f" (did you mean {' or '.join(map(repr, near))}?)" if near else ""
        which = f"there are no options {given!r}{hint}; one option is {{name: value}}"
    raise unknown_name(f"{which}; for {platform} there are {', '.join(map(repr, there))}")
