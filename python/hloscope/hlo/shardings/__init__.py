"""Shardings, device groups, mesh axes and slices, in every spelling."""
