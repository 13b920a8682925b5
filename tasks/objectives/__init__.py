"""Pretraining objectives, from token chunks to inputs and targets."""
