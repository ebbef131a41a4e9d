"""Everything that differs between jax versions, or that jax has no public API for."""
