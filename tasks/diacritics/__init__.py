"""Diacritics restoration: tasks, metrics, constrained decoding."""

from tasks.diacritics.task import add, lines, only_diacritics

__all__ = ["add", "lines", "only_diacritics"]
