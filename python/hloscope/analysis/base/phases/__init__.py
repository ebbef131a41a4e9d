"""The part of a training step that each instruction belongs to."""
