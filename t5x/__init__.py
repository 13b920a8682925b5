"""The trainer: the T5X interface on released packages, from a batch of ids to a checkpoint."""

import command_line.edit_distance  # noqa: F401  before seqio
