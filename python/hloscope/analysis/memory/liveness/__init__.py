"""Live bytes over the schedule, simulated from scheduled HLO alone."""
