"""Measured time from profiler traces, joined to instructions."""
