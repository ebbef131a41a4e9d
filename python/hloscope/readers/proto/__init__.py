"""HLO protos."""
