"""Limits of comms, with their reasons."""

from __future__ import annotations

# Positions that the search for what makes or needs a collective's array looks at: what is further
# away is no obvious reason for it.
APPARENT_POSITIONS = 40
