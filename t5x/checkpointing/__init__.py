"""Checkpoints in the T5X layout: where they lie, how they are written, read and restored."""
