"""What differs between two programs."""
