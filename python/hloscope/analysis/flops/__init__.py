"""FLOPs of every instruction, by opcode."""
