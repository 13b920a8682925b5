"""Diacritics restoration: tasks, metrics, constrained decoding.

diacritics.add("cs_diacritics", CorpusSource("user/name"), "cs.model", language="cs")
"""

from tasks.diacritics.task import add, lines, only_diacritics

__all__ = ["add", "lines", "only_diacritics"]
