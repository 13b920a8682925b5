"""Encoders that fill in masked tokens: BERT, RoBERTa and ModernBERT."""
