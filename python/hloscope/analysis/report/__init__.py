"""What a person asks for, put together: summary, source lines, measured time, diff, check."""
