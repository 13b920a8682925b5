"""The trainer: the T5X interface on released packages, from a batch of ids to a checkpoint."""

# Before seqio and TensorFlow.
from command_line import buckets, edit_distance, lazy_imports, no_keras, no_triton  # noqa: F401
