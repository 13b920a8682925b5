"""SentencePiece vocabularies: train, check, trim or extend one, also with a T5X checkpoint."""
