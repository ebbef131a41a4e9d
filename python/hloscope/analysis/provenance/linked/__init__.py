"""The stages of one program side by side, line by line."""
