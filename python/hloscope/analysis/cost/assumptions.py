"""Assumed figures and thresholds of cost, each with its unit, reason and source."""

from __future__ import annotations

# FLOPs that a byte accessed counts as when the branches of a conditional are compared and no chip
# is known: so little that bytes decide only between branches of about equal FLOPs.
FLOPS_PER_BYTE_OF_BRANCH = 1e-3

# Elements of a constant in a fusion up to which it is an immediate of the kernel, not a read.
IMMEDIATE_ELEMENTS = 8

# Near links reach blocks of 2**k consecutive devices, for k in range(BLOCK_SIZES): up to 65,536
# devices, more than any slice or NVLink domain has.
BLOCK_SIZES = 16

# A TPU slice has wraparound links along an axis of 16 devices, and where all three axes of a 3D
# slice are multiples of 4 (optical links join cubes of 4×4×4).
# Google Cloud documentation, TPU v4 and v5e; "How to Scale Your Model", "How to Think About TPUs".
WRAPPING_AXIS = 16
CUBE_SIDE = 4

# Dimensions of the torus that is assumed for a slice of an unknown chip.
ASSUMED_DIMENSIONS = 2

# Share of a figure below which another one beside it is rounding, and no sentence mentions it.
NEGLIGIBLE_SHARE = 1e-6
# The same for two sums of the same terms in different order.
ROUNDING_SHARE = 1e-12

# XLA:TPU's estimate of cycles from which on it means that there is none: it writes 2⁶³ − 1.
UNKNOWN_CYCLES = 2**62
