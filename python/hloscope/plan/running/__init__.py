"""Candidates compiled on any executor, their figures, and a store of results."""
