"""All that happens before the training loop: what is checked, and the checkpoint it starts from."""
