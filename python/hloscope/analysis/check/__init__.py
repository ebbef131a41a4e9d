"""Budgets that a program must keep, for tests and CI."""
