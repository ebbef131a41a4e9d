"""Child processes: what surrounds them."""
