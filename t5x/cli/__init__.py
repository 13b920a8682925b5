"""Command-line entry points: flags, gin files, log capture."""
