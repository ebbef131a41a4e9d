"""What jax compiles while a part of a program runs, and why again."""
