"""Exact provenance: numbers that operations carry through the compiler, and recorded calls."""
