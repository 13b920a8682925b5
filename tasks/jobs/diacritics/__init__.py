"""Diacritics restoration: tasks, metrics, and the letters of the input kept."""

from tasks.jobs.diacritics.task import add, lines

__all__ = ["add", "lines"]
