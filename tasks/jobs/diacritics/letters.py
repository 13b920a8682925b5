"""Letters with and without diacritics, by language.

    ro = alphabet("ro")
    ro.bare("Fața vine mâine: 5 €, „café”")   -> "Fata vine maine: 5 €, „café”"
    ro.forms["a"], ro.forms["Ș"]               -> "aăâ", "Ș"

Only the letters in `LETTERS` change, one for one, so a text and its bare form have the same length.
Texts are in Unicode NFC, Romanian ones without cedillas (`tasks.text.normalize`).
"""

import dataclasses
import functools

from common.errors import UserError
from tasks.text.normalize import replace_letters

# The forms with diacritics of each letter. Capitals follow, unless they are listed.
LETTERS = {
    "ro": {"a": "ăâ", "i": "î", "s": "ș", "t": "ț"},
    "cs": {"a": "á", "c": "č", "d": "ď", "e": "éě", "i": "í", "n": "ň", "o": "ó", "r": "ř"}
    | {"s": "š", "t": "ť", "u": "úů", "y": "ý", "z": "ž"},
    "hu": {"a": "á", "e": "é", "i": "í", "o": "óöő", "u": "úüű"},
    "pl": {"a": "ą", "c": "ć", "e": "ę", "l": "ł", "n": "ń", "o": "ó", "s": "ś", "z": "źż"},
    "tr": {"c": "ç", "g": "ğ", "i": "ı", "I": "İ", "o": "ö", "s": "ş", "u": "ü"},
    "vi": {"a": "àáảãạăằắẳẵặâầấẩẫậ", "d": "đ", "e": "èéẻẽẹêềếểễệ", "i": "ìíỉĩị"}
    | {"o": "òóỏõọôồốổỗộơờớởỡợ", "u": "ùúủũụưừứửữự", "y": "ỳýỷỹỵ"},
}


@dataclasses.dataclass(frozen=True, eq=False)
class Alphabet:
    """The letters of a language that differ only in diacritics; `bases` are those without."""

    bases: dict[str, str]

    @functools.cached_property
    def forms(self) -> "LetterForms":
        """The possible forms of each letter: itself first, then those with diacritics."""
        forms = LetterForms()
        for letter, base in self.bases.items():
            forms[base] = forms[base] + letter
        return forms

    @functools.cached_property
    def ambiguous(self) -> frozenset[str]:
        """The bare letters that have forms with diacritics."""
        return frozenset(self.bases.values())

    def bare(self, text: str) -> str:
        """Return `text` without the language's diacritics, letter for letter."""
        return replace_letters(text, self.bases)


class LetterForms(dict):
    """Forms by letter; a letter that is not listed has only itself."""

    def __missing__(self, letter: str) -> str:
        return letter


@functools.cache
def alphabet(language: str) -> Alphabet:
    """Return the letters of a language, or raise UserError if `LETTERS` does not have it."""
    if language not in LETTERS:
        raise UserError(
            f"language is {language!r}, but letters are known for {', '.join(sorted(LETTERS))}: "
            "name one of them, or add its letters to tasks.jobs.diacritics.letters.LETTERS"
        )
    table = LETTERS[language]
    bases = {letter: base for base, letters in table.items() for letter in letters}
    for base, letters in table.items():
        if base.upper() not in table:
            bases |= {letter.upper(): base.upper() for letter in letters if letter != "ı"}
    return Alphabet(bases)
