"""What an instruction is, on its own: columns, families, loops, phases; all else builds on it."""
