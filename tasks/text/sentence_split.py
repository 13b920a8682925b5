"""Long texts cut at sentence ends into pieces of a limited number of tokens.

    split("Plouă. „Vii?” Nu, mâine.")            -> ["Plouă.", "„Vii?”", "Nu, mâine."]
    split_to_fit(text, count=len_of, limit=255)  -> as many sentences together as fit

A sentence that is too long is cut between words, a word that is too long between letters, so
nothing is dropped. Blanks and line ends become single spaces.
"""

import re
from collections.abc import Callable, Iterator, Sequence

# A run is tried once, from its start and as a whole: a million "!" would otherwise take hours.
_END = re.compile(r"(?<![.!?…])[.!?…]++[\"”“»’')\]]*+(?=\s)|\n")
Count = Callable[[Sequence[str]], Sequence[int]]


def split(text: str) -> list[str]:
    """Return the sentences of a text, stripped, without empty ones."""
    begins = [0, *(match.end() for match in _END.finditer(text))]
    ends = [*begins[1:], None]
    sentences = (" ".join(text[i:j].split()) for i, j in zip(begins, ends, strict=True))
    return [sentence for sentence in sentences if sentence]


def split_to_fit(text: str, count: Count, limit: int) -> list[str]:
    """Return `text` in pieces of at most `limit` tokens.

    `count` returns the tokens of each of several texts; two texts joined by a space must have at
    most one more than both separately.
    """
    return list(_pack(split(text), count, limit, [str.split, list]))


def _pack(units: Sequence[str], count: Count, limit: int, finer: list[Callable]) -> Iterator[str]:
    """Yield as many units together as fit; cut longer ones by the first of `finer`."""
    glue = " " if finer else ""
    piece: list[str] = []
    left = limit
    for unit, size in zip(units, count(units), strict=True):
        if size > left and piece:
            yield glue.join(piece)
            piece, left = [], limit
        if size > limit and finer:
            yield from _pack(finer[0](unit), count, limit, finer[1:])
            continue
        piece.append(unit)
        left -= size + 1
    if piece:
        yield glue.join(piece)
