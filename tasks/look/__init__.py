"""What a task makes of its corpus, shown before training: `python -m tasks.look TASK`."""
