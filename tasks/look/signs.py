"""What looks wrong in the texts of a sample, seen from the texts alone.

    odd_characters(texts)      # NUL, U+FFFD, control characters, UTF-8 that was read as Latin-1
    repetition(texts)          # duplicates, one beginning for all, lines of one length
    scripts(texts)             # {"Latin": 0.998, "Cyrillic": 0.002}, shares of the letters

The first two are lines of the table of `tasks.look.lines`, each with an example of what is wrong.
"""

import collections
import functools
import itertools
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from common.tables import CheckResult, first_names, ok, warning

MOST_ODD = 0.01  # share of the documents
MOST_DUPLICATES, MOST_ALIKE, MOST_EVEN = 0.1, 0.2, 0.5  # share of the documents
_BEGINNING = 24  # characters
_FEW = 20  # documents are too few for a judgement
_SHORTEST_LINE = 40  # characters of a line that a program has wrapped or cut
_A_WORD = 15  # characters by which the lengths of wrapped lines differ
_JUDGED = 2_000  # characters of a text that show its encoding
_AROUND = 20  # characters of an example on each side
_SHOWN = 10  # characters

REPLACED = "\ufffd"
_CONTROLS = re.compile("[\x01-\x08\x0e-\x1f\x7f-\x9f]")
# Code pages that UTF-8 is read as by mistake, and the sequences that its letters then become.
_CODE_PAGES = ("cp1252", "cp1250", "cp1251", "latin-1")
_UTF8 = re.compile(rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}")


def odd_characters(texts: Sequence[str]) -> CheckResult:
    """Return whether texts hold characters that no author wrote, with an example of each kind."""
    odd = (
        ("NUL", lambda text: text.find("\0"), 0.0),
        ("U+FFFD", lambda text: text.find(REPLACED), MOST_ODD),
        ("control characters", _first(_CONTROLS), MOST_ODD),
        ("UTF-8 read as another encoding", mojibake, MOST_ODD),
    )
    signs, is_wrong = [], False
    for name, find, most in odd:
        places = [(text, at) for text in texts if (at := find(text)) >= 0]
        if places:
            signs.append(f"{name} in {_share(len(places), texts)}: {_around(*places[0])}")
            is_wrong |= len(places) > most * len(texts)
    figure = "; ".join(signs) or "no NUL, U+FFFD, control characters or mojibake"
    if is_wrong:
        return warning(figure, "write the files again in UTF-8, from where they are right")
    return ok(figure)


def repetition(texts: Sequence[str]) -> CheckResult:
    """Return whether texts repeat each other: entirely, in their beginning, or in their length."""
    signs, to_set = [], []
    distinct = [*dict.fromkeys(texts)]
    duplicates = len(texts) - len(distinct)
    if duplicates:
        signs.append(f"duplicates: {_share(duplicates, texts)}")
    if duplicates > MOST_DUPLICATES * len(texts):
        most = collections.Counter(texts).most_common(1)[0][0]
        signs[-1] += f", such as {_around(most, 0)}"
        to_set.append("take a corpus without duplicates")
    begins = collections.Counter(t[:_BEGINNING] for t in distinct if len(t) > 2 * _BEGINNING)
    beginning, n = begins.most_common(1)[0] if begins else ("", 0)
    if len(distinct) >= _FEW and n > MOST_ALIKE * len(distinct):
        signs.append(f"{_share(n, distinct)} begin alike: “{_visible(beginning)}…”")
        to_set.append("take a corpus without that beginning")
    if (limit := _limit(distinct)) is not None:
        signs.append(f"most are as long as a line of {limit} characters: {_around(distinct[0], 0)}")
        to_set.append(
            "set documents = 'paragraphs' where lines were wrapped, or take complete texts"
        )
    figure = "; ".join(signs) or "no duplicates, beginnings or lengths in common"
    return warning(figure, "; ".join(to_set)) if to_set else ok(figure)


def _first(pattern: re.Pattern) -> Callable[[str], int]:
    return lambda text: match.start() if (match := pattern.search(text)) else -1


def mojibake(text: str) -> int:
    """Return where UTF-8 begins that was read as a code page, -1 if the text has none.

    A text counts if more than half of its characters beyond ASCII make up letters of UTF-8, as in
    "Ã©tÃ©". In correct text only a few do, such as "É”" in "CAFÉ”".
    """
    text = text[:_JUDGED]
    beyond = len(text) - len(text.encode("ascii", "ignore"))
    for page in _CODE_PAGES if beyond else ():
        matches = [*_UTF8.finditer(_in_bytes(text, page))]
        # Short Cyrillic texts, such as "ДНІ", hold some by chance.
        least = 4 if page == "cp1251" else 1
        length = sum(m.end() - m.start() for m in matches)
        if len(matches) >= least and 2 * length > beyond:
            return matches[0].start()
    return -1


def _in_bytes(text: str, page: str) -> bytes:
    """Return a byte for each character: the code page's, else Latin-1's, else a question mark."""
    return text.translate(_bytes_of_page(page)).encode("latin-1", "replace")


@functools.cache
def _bytes_of_page(page: str) -> dict[int, int]:
    decoded = {byte: bytes([byte]).decode(page, "ignore") for byte in range(0x80, 0x100)}
    table = {ord(c): byte for byte, c in decoded.items() if c}
    # A letter of Latin-1 that has another place in the code page stands for no byte of it.
    others = set(range(0xA0, 0x100)) - table.keys() if page != "latin-1" else set()
    return table | dict.fromkeys(others, ord("?"))


def _limit(texts: Sequence[str]) -> int | None:
    """Return how long lines are if most are at most a word or two shorter, None if they are not."""
    if len(texts) < _FEW:
        return None
    lengths = np.array([*map(len, texts)])
    limit = int(np.percentile(lengths, 98))
    even = np.mean((lengths > limit - min(0.15 * limit, _A_WORD)) & (lengths <= limit))
    return limit if limit >= _SHORTEST_LINE and even > MOST_EVEN else None


def scripts(texts: Iterable[str]) -> dict[str, float]:
    """Return the share of each script among the letters, the largest first."""
    characters = collections.Counter(itertools.chain.from_iterable(texts))
    counts: collections.Counter[str] = collections.Counter()
    for character, n in characters.items():
        if name := script(character):
            counts[name] += n
    return {name: n / counts.total() for name, n in counts.most_common()}


@functools.lru_cache(maxsize=1 << 16)
def script(character: str) -> str:
    """Return the script of a letter, by its name in Unicode, such as "Latin"; "" of others."""
    plain = unicodedata.normalize("NFKC", character)[:1]
    if not plain.isalpha() or unicodedata.category(plain) == "Lm":
        return ""
    name = unicodedata.name(plain, "unnamed").split()[0].capitalize()
    return {"Cjk": "Han", "Hiragana": "Kana", "Katakana": "Kana"}.get(name, name)


def named(characters: Sequence[str], counts: Mapping[str, int], most: int = _SHOWN) -> str:
    """Return characters with their code points and counts, "ş U+015F × 12 and 3 more"."""
    names = [f"{_printable(c)} U+{ord(c):04X} × {counts[c]:,}".strip() for c in characters]
    return first_names(names, most)


def _printable(character: str) -> str:
    """Return a character, "" if it is not visible by itself."""
    is_shown = character.isprintable() and not unicodedata.combining(character)
    return character if is_shown else ""


def _share(n: int, texts: Sequence[str]) -> str:
    return f"{n:,} of {len(texts):,} documents"


def _around(text: str, at: int) -> str:
    """Return a text around a place, as an example."""
    begin, end = max(at - _AROUND, 0), at + 2 * _AROUND
    before, after = "…" if begin else "", "…" if end < len(text) else ""
    return f"“{before}{_visible(text[begin:end])}{after}”"


def around(text: str, characters: Iterable[str]) -> str:
    """Return a text around the first of some characters, as an example."""
    return _around(text, min((at for c in characters if (at := text.find(c)) >= 0), default=0))


def _visible(text: str) -> str:
    return "".join(_escaped(text))


def _escaped(text: str) -> Iterator[str]:
    for c in text:
        if c.isspace():
            yield " "
        elif c.isprintable():
            yield c
        else:
            yield c.encode("unicode_escape").decode()
