"""The languages of FineWeb-2, found by code, by tag or by name.

    find("ces_Latn"), find("cs"), find("czech"), find("čeština")   # Language(code='ces_Latn', …)

`fineweb2.tsv` has a line for each of the 1,913 configurations of the data set, with the figures of
its authors (fineweb2-language-distribution.csv of github.com/huggingface/fineweb-2; Penedo et al.
2025, arXiv:2506.20920). A code is the language in ISO 639-3 and the script in ISO 15924; `tag` is
the code of two letters of the language, or of the macrolanguage that it is part of, if it has one;
`autonym` its own name, where Unicode's CLDR has another than `name`.
"""

import csv
import dataclasses
import difflib
import functools
import pathlib
from collections.abc import Mapping

from common.errors import UserError

FINEWEB2 = "HuggingFaceFW/fineweb-2"
FINEWEB2_SPLITS = {"train": "train", "validation": "test"}
# Names of English, which FineWeb-2 and so this table lack.
ENGLISH = ("english", "en", "eng", "eng_latn")
TOKENS_PER_WORD = 1.5  # rough mean, with a vocabulary of the language
_FILE = pathlib.Path(__file__).with_name("fineweb2.tsv")


@dataclasses.dataclass(frozen=True)
class Language:
    """A language in one script, and its size in FineWeb-2.

    `words`, `documents`, `text_bytes` (UTF-8) and `parquet_bytes` count the split train;
    `test_documents` counts the split test, 0 if there is none.
    """

    code: str
    name: str
    tag: str
    autonym: str
    words: int
    documents: int
    text_bytes: int
    parquet_bytes: int
    test_documents: int


@functools.cache
def languages() -> tuple[Language, ...]:
    """Return all languages, by code."""
    with open(_FILE, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    texts = ("code", "name", "tag", "autonym")
    return tuple(
        Language(**{k: v if k in texts else int(v) for k, v in row.items()})  # type: ignore[arg-type]
        for row in rows
    )


def find(text: str) -> Language:
    """Return the language with a code, a tag, an English name or a word of it, or its own name.

    If there are several, return the largest in FineWeb-2: "greek" is Modern Greek, "chinese"
    Mandarin Chinese.

    Raises:
      UserError: there is none; it names the nearest.
    """
    name = text.strip().casefold()
    codes = lambda language: (language.code, language.code.partition("_")[0], language.tag)
    matches = [
        language for language in languages() if name and name in map(str.casefold, codes(language))
    ]
    if matches:
        return max(matches, key=_size)
    if name in ENGLISH:
        raise UserError(
            "language",
            text,
            "but FineWeb-2 has every language but English, which is FineWeb",
            "read it by "
            'CorpusSource("HuggingFaceFW/fineweb", "sample-350BT", held_out={"validation": 0.01})',
        )
    if matches := languages_called(text):
        return matches[0]
    similar = ", ".join(f"{language.code} ({language.name})" for language in _nearest(name))
    raise UserError(
        "language",
        text,
        "which is unknown" + (f"; the nearest are {similar}" if similar else ""),
        "name it by a code such as ces_Latn or cs, or in English",
    )


def languages_called(text: str) -> list[Language]:
    """Return the languages with a name, else with a word of their English name, largest first."""
    name = text.strip().casefold()
    if not name:
        return []
    names = lambda language: (language.name.casefold(), language.autonym.casefold())
    matches = [language for language in languages() if name in names(language)]
    if not matches:
        words = lambda language: language.name.casefold().split()
        matches = [language for language in languages() if name in words(language)]
    return sorted(matches, key=_size, reverse=True)


def _size(language: Language) -> int:
    return language.text_bytes


def code_of(text: str, others: Mapping[str, str]) -> str:
    """Return a corpus's code for a language: its tag, else the code of three letters.

    `others` maps these to the codes of a corpus that has its own, and `text` may be one of them. A
    tag is that of the largest of several languages: Egyptian Arabic is not ar, but arz.

    Raises:
      UserError: as `find`; or both codes mean the language in another script.
    """
    if (own_code := text.strip().casefold()) in others.values():
        return own_code
    language = find(text)
    codes = (language.tag, language.code.partition("_")[0])
    code = next((code for code in codes if code and find(code) == language), None)
    if code is None:
        why = f"which this corpus has as {find(codes[1]).code}"
        raise UserError("language", text, why, "name that")
    return others.get(code, code)


def _nearest(text: str) -> list[Language]:
    """Return up to three languages with similar names or codes, largest first."""
    by_name = {
        name.casefold(): language
        for language in languages()
        for name in (language.code, language.name)
    }
    similar = [by_name[name] for name in difflib.get_close_matches(text, by_name, n=3)]
    return sorted(similar, key=_size, reverse=True)
