"""Answers for users, from the other analyses: summary, source lines, measured time, diff, check."""
