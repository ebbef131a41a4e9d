"""What an instruction is, on its own: columns, families, loops, phases; the floor of it all."""
