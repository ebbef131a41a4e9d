"""Live ranges over the schedule, the peak, donation, what loops store."""
