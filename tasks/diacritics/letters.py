"""Letters with and without diacritics, language by language, and nothing else of the text.

    ro = alphabet("ro")
    ro.bare("Fața vine mâine: 5 €, „café”")   -> "Fata vine maine: 5 €, „café”"
    ro.forms["a"], ro.forms["Ș"]               -> "aăâ", "Ș"

Only what `LETTERS` lists is changed, one letter for one, so a text and its stripped form have the
same length. Texts are in Unicode NFC, Romanian ones without cedillas (`tasks.text.normalize`).
"""

import dataclasses
import functools

# What each letter may be once its diacritics are back. Capitals follow, unless they are listed.
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


@dataclasses.dataclass(frozen=True)
class Alphabet:
    """The letters of a language that differ by diacritics alone.

    Attributes:
      language: a key of `LETTERS`.
      bases: of each letter with diacritics the one without.
    """

    language: str
    bases: dict[str, str] = dataclasses.field(hash=False, compare=False)

    @functools.cached_property
    def forms(self) -> "Forms":
        """What each letter may become: itself first, then its forms with diacritics."""
        forms = Forms()
        for letter, base in self.bases.items():
            forms[base] = forms[base] + letter
        return forms

    @functools.cached_property
    def ambiguous(self) -> frozenset[str]:
        """The bare letters that may stand for others."""
        return frozenset(self.bases.values())

    @functools.cached_property
    def _table(self) -> dict[int, str]:
        return str.maketrans(self.bases)

    def bare(self, text: str) -> str:
        """Returns `text` without the language's diacritics, letter for letter."""
        return text.translate(self._table)


class Forms(dict):
    """A letter that is not listed may only be itself."""

    def __missing__(self, letter: str) -> str:
        return letter


@functools.cache
def alphabet(language: str) -> Alphabet:
    """Returns the letters of a language.

    Raises:
      ValueError: `LETTERS` does not have it.
    """
    if language not in LETTERS:
        raise ValueError(
            f"language is {language!r}, but letters are known for {', '.join(sorted(LETTERS))}: "
            "name one of them, or add its letters to tasks.diacritics.letters.LETTERS"
        )
    table = LETTERS[language]
    bases = {letter: base for base, letters in table.items() for letter in letters}
    for base, letters in table.items():
        if base.upper() not in table:
            bases |= {letter.upper(): base.upper() for letter in letters if letter != "ı"}
    return Alphabet(language, bases)
