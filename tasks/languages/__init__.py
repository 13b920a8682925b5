"""Public corpora by language: which there are, and how they are read."""
