"""The only exception that this folder raises."""

from __future__ import annotations


class ReadError(ValueError):
    """A source that could not be read: what, where, and what to do, in one sentence."""
