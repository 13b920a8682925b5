"""Checkpoints of the trainer to Hugging Face models, and back."""
