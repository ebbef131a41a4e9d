"""What became of every operation of the StableHLO program."""
