"""Checkpoints in T5X's layout: save, read and restore them."""
