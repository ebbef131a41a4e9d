"""Module → text, and places as text."""
