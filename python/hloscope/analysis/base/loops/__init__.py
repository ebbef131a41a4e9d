"""How often loop bodies and branches run."""
