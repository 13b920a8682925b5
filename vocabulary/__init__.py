"""SentencePiece vocabularies: train, check, trim or extend one, alone or with a T5X checkpoint."""

import command_line.edit_distance  # noqa: F401  before seqio
