"""Long texts in pieces that fit a number of tokens, cut at sentence ends where that is possible.

    split("Plouă. „Vii?” Nu, mâine.")      -> ["Plouă.", "„Vii?”", "Nu, mâine."]
    pieces(text, count=len_of, limit=255)  -> as many sentences together as fit

A sentence that does not fit alone is cut between words, a word that does not between letters; so
nothing is left out. Blanks and line ends become single spaces.
"""

import re
from collections.abc import Callable, Iterator, Sequence

_END = re.compile(r"[.!?…]+[\"”“»’')\]]*(?=\s)|\n")
Count = Callable[[Sequence[str]], Sequence[int]]


def split(text: str) -> list[str]:
    """Returns the sentences of a text, blanks at their ends taken off, none empty."""
    begins = [0, *(found.end() for found in _END.finditer(text))]
    ends = [*begins[1:], len(text)]
    sentences = (" ".join(text[a:b].split()) for a, b in zip(begins, ends, strict=True))
    return [sentence for sentence in sentences if sentence]


def pieces(text: str, count: Count, limit: int) -> list[str]:
    """Returns `text` in pieces of at most `limit` tokens.

    Args:
      text: any.
      count: tokens of each of several texts; of two texts joined by a space it must be at most
        one more than of both alone.
      limit: tokens, at least 1.
    """
    return list(_packed(split(text), count, limit, [str.split, list]))


def _packed(units: Sequence[str], count: Count, limit: int, finer: list[Callable]) -> Iterator[str]:
    glue = " " if finer else ""
    held, room = [], limit
    for unit, size in zip(units, count(units), strict=True):
        if size > room and held:
            yield glue.join(held)
            held, room = [], limit
        if size > limit and finer:
            yield from _packed(finer[0](unit), count, limit, finer[1:])
            continue
        held.append(unit)
        room -= size + 1
    if held:
        yield glue.join(held)
