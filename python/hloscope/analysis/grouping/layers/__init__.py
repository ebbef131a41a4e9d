"""The layers of a model, found by repetition, by its weights or from exact calls."""
