"""The source line, Python stack and op name of each instruction, its own or inferred."""
