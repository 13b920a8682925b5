"""SentencePiece vocabularies: train, check, trim or extend one, alone or with a T5X checkpoint."""
