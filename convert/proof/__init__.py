"""Proof that converted weights compute what was trained: logits on a fixed batch."""
