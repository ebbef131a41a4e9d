"""HLO text of every dialect."""
