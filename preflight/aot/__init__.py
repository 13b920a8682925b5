"""Ahead-of-time compilation of the train step for TPU slices, and its cost."""
