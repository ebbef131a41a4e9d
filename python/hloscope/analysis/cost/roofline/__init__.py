"""Modelled seconds: compute, memory, and collectives on a torus and between slices."""
