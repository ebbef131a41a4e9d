"""Numbers and tables as text: one formatter for each unit."""
