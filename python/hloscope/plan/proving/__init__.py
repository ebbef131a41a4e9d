"""Advice carried out and compiled."""
