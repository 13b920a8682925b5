"""Everything before the training loop: checks, the checkpoint to start from, stream and state."""
