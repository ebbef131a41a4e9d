"""Where instructions come from, and what became of each operation and source line."""
