"""Optimisation barriers, over which XLA moves no work: their result is what they are given."""

from __future__ import annotations

BARRIERS = ("opt-barrier", "optimization-barrier")  # XLA's own word, and StableHLO's
