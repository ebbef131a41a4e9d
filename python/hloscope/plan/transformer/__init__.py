"""``hs.transformer``: an analytic model of a transformer's training step."""
