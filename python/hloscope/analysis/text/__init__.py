"""Numbers and tables as text: one formatter for every unit."""
