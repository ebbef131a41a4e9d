"""Assumed figures and limits of memory, each with its unit, reason and source."""

from __future__ import annotations

# Bytes of a pointer in the index table of a tuple result, on CPU and GPU.
POINTER_BYTES = 8
# Bytes of the table of ENTRY's tuple result on TPU: one tile.
TPU_RESULT_TABLE_BYTES = 512
# Bytes at multiples of which each place of TPU's heap in HBM starts, observed in buffer assignments
# of libtpu 0.0.51; the table of a tuple takes one place.
HEAP_PLACE_BYTES = 16_384

# The smallest temporaries that together are below this share of the bytes of all other buffers are
# not placed into outputs: they change no peak that anyone reads, and are most of the buffers.
NEGLIGIBLE_SHARE = 1 / 500
# Windows tried one by one before all are sorted: the best one nearly always fits.
WINDOW_TRIES = 8

# Recomputing a value goes back through at most so many levels of operands and so many instructions:
# what needs more is no candidate for rematerialisation.
RECOMPUTE_DEPTH = 24
RECOMPUTE_INSTRUCTIONS = 64

# Buffers visited to find whether an argument is updated: the optimiser's own work on one array is
# far less.
UPDATE_BUFFERS = 4096
