"""Live ranges over the schedule, peak memory, donation, what loops store."""
