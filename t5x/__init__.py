"""The trainer: the T5X interface on released packages, from a batch of ids to a checkpoint."""
