"""Small sharded programs in which sources of shardings and operations have switches."""
