"""Which instruction of one pass each instruction of the next comes from."""
