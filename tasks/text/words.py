"""Words of any script, for figures: what blanks separate or, without blanks, characters.

    words("Ana are mere.")        # ["Ana", "are", "mere."]
    words("今天很好。 ดีมาก")       # ["今", "天", "很", "好", "。", "ดี", "ม", "า", "ก"]

Scripts without blanks between words are those whose lines Unicode breaks between any characters, or
by a dictionary (UAX 14, classes ID and SA), and Tibetan, whose dots end syllables. Marks, such as
vowel signs, belong to the character before.
"""

import re
import unicodedata
from collections.abc import Iterable

# First and last code points.
_HAN = [
    *((0x3005, 0x3007), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x323AF)),
]
_SYLLABLES = [
    *((0x3041, 0x30FF), (0x31F0, 0x31FF), (0xFF66, 0xFF9F)),  # kana
    (0xA000, 0xA4CF),  # Yi
    *((0x0E01, 0x0E7F), (0x0E81, 0x0EFF)),  # Thai, Lao
    (0x0F00, 0x0FFF),  # Tibetan
    *((0x1000, 0x109F), (0xA9E0, 0xA9FF), (0xAA60, 0xAA7F)),  # Myanmar
    (0x1780, 0x17FF),  # Khmer
    *((0x1950, 0x19DF), (0x1A20, 0x1AAF), (0xAA80, 0xAADF), (0x11700, 0x1174F)),  # Tai scripts
]


def _class(blocks: Iterable[tuple[int, int]]) -> str:
    return "".join(f"{chr(first)}-{chr(last)}" for first, last in blocks)


_MARKS = "".join(
    chr(code)
    for first, last in _SYLLABLES
    for code in range(first, last + 1)
    if unicodedata.category(chr(code)).startswith("M")
)
_UNSPACED = _class(_HAN + _SYLLABLES)
_CHARACTER = re.compile(f"[{_UNSPACED}][{_MARKS}]*")
_WORD = re.compile(rf"{_CHARACTER.pattern}|[^\s{_UNSPACED}]+")
_OF_HAN = re.compile(f"[{_class(_HAN)}]")


def words(text: str) -> list[str]:
    """Return what blanks separate, in scripts without blanks each character with its marks."""
    return _WORD.findall(text)


def unspaced_share(texts: Iterable[str]) -> tuple[float, float]:
    """Return the share of words that are characters of scripts without blanks, and Chinese ones."""
    total = characters = chinese = 0
    for text in texts:
        total += len(words(text))
        characters += len(_CHARACTER.findall(text))
        chinese += len(_OF_HAN.findall(text))
    return characters / max(total, 1), chinese / max(total, 1)


def unit(texts: Iterable[str]) -> str:
    """Return what most `words` of texts are: "word" or "character"."""
    return "character" if unspaced_share(texts)[0] > 0.5 else "word"
