"""Letters with and without diacritics, by language.

    ro = alphabet("ro")
    ro.bare("Fața vine mâine: 5 €, „café”")   -> "Fata vine maine: 5 €, „café”"
    ro.forms["a"]                              -> "aăâ"
    ro.transfer("Fața vina  mâine!", "Fata vine maine")   -> "Fața vine mâine"

Only the letters in `LETTERS` change, one for one, so a text and its bare form have the same length.
Texts are in Unicode NFC, Romanian ones without cedillas (`tasks.text.normalize`).
"""

import dataclasses
import difflib
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
    def forms(self) -> dict[str, str]:
        """The possible forms of each bare letter: itself first, then those with diacritics."""
        forms: dict[str, str] = {}
        for letter, base in self.bases.items():
            forms[base] = forms.get(base, base) + letter
        return forms

    def bare(self, text: str) -> str:
        """Return `text` without the language's diacritics, letter for letter."""
        return replace_letters(text, self.bases)

    def lower(self, text: str) -> str:
        """Return `text` in small letters, in Turkish ı for I and i for İ."""
        if "İ" in self.bases:
            text = text.replace("I", "ı").replace("İ", "i")
        return text.lower()

    def upper(self, text: str) -> str:
        """Return `text` in capitals, in Turkish İ for i."""
        return (text.replace("i", "İ") if "İ" in self.bases else text).upper()

    def transfer(self, decoded: str, text: str) -> str:
        """Return `text` with the diacritics that `decoded` has on the same letters.

        A model may drop, repeat or replace what it reads, so nothing else is taken from what it
        writes. Letters that have diacritics in `text` keep them. The result has the bare letters of
        `text`, one for one.
        """
        bare, other = self.bare(text), self.bare(decoded)
        blocks = [difflib.Match(0, 0, len(bare))]
        if bare != other:
            matcher = difflib.SequenceMatcher(None, bare, other, autojunk=False)
            blocks = matcher.get_matching_blocks()
        letters = list(text)
        for start, start_decoded, size in blocks:
            for i, letter in enumerate(decoded[start_decoded : start_decoded + size], start):
                if text[i] == bare[i]:
                    letters[i] = letter
        return "".join(letters)


@functools.cache
def alphabet(language: str) -> Alphabet:
    """Return the letters of a language, or raise UserError if `LETTERS` does not have it."""
    if language not in LETTERS:
        raise UserError(
            "language",
            language,
            f"but letters are known for {', '.join(sorted(LETTERS))}",
            "name one of them, or add its letters to tasks.jobs.diacritics.letters.LETTERS",
        )
    table = LETTERS[language]
    bases = {letter: base for base, letters in table.items() for letter in letters}
    for base, letters in table.items():
        if base.upper() not in table:
            bases |= {letter.upper(): base.upper() for letter in letters if letter != "ı"}
    return Alphabet(bases)
