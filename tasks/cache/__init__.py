"""Caches of tokens or of finished examples: `python -m tasks.cache`."""
