"""Hides spans and words of passages, which a model must guess from the rest.

    passages = list(cut_passages(documents, count=400))
    text = hide_spans(passages[0], np.random.default_rng(0))

The spans and words are chosen in the text, not in a vocabulary's pieces, so that models of any
vocabulary are asked for the same bytes.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from tasks.text.normalize import is_letter
from tasks.text.words import words as words_of

DENSITY, MEAN_SPAN = 0.15, 3  # share of a passage's words; words
_FEWEST_WORDS = 20


@dataclasses.dataclass(frozen=True)
class HiddenText:
    """Words of a passage, and the spans (first word, word after the last) that are hidden."""

    words: tuple[str, ...]
    spans: tuple[tuple[int, int], ...]

    @property
    def hidden(self) -> list[str]:
        """The hidden texts, without the spaces around them."""
        return [" ".join(self.words[start:end]) for start, end in self.spans]

    @property
    def num_bytes(self) -> int:
        """Bytes of UTF-8 that are hidden."""
        return sum(len(text.encode()) for text in self.hidden)

    def parts(self) -> list[tuple[str, bool]]:
        """Return the text in parts, each with whether it is hidden; spaces are between them."""
        pieces, at = [], 0
        for start, end in self.spans:
            pieces += [(self.words[at:start], False), (self.words[start:end], True)]
            at = end
        pieces.append((self.words[at:], False))
        return [(" ".join(words), hidden) for words, hidden in pieces if words]


def cut_passages(
    documents: Iterable[str], count: int, max_chars: int = 1000, per_document: int = 4
) -> Iterator[tuple[str, ...]]:
    """Yield the words of up to `count` passages, at most `per_document` of each document.

    A passage has at most `max_chars` characters and at least 20 words.
    """
    total = 0
    for document in documents:
        of_document = 0
        for passage in _passages(document.split(), max_chars):
            if of_document == per_document:
                break
            if total == count:
                return
            if len(passage) >= _FEWEST_WORDS:
                yield passage
                total, of_document = total + 1, of_document + 1


def _passages(words: Sequence[str], max_chars: int) -> Iterator[tuple[str, ...]]:
    passage: list[str] = []
    size = 0
    for word in words:
        if passage and size + len(word) + 1 > max_chars:
            yield tuple(passage)
            passage, size = [], 0
        passage.append(word)
        size += len(word) + 1
    if passage and size <= max_chars:
        yield tuple(passage)


def hide_spans(words: Sequence[str], rng: np.random.Generator) -> HiddenText:
    """Hide 15 % of the words in spans of 3 on average, with words around each span."""
    num_hidden = max(1, round(DENSITY * len(words)))
    num_spans = max(1, round(num_hidden / MEAN_SPAN))
    hidden = _random_parts(num_hidden, num_spans, rng)
    visible = _random_parts(len(words) - num_hidden, num_spans + 1, rng)[:-1]
    ends = np.cumsum(np.stack([visible, hidden], axis=1).ravel()).reshape(-1, 2).tolist()
    return HiddenText(tuple(words), tuple((start, end) for start, end in ends))


def _random_parts(total: int, count: int, rng: np.random.Generator) -> np.ndarray:
    """Return `count` positive integers that add up to `total`, each choice as likely."""
    cuts = np.sort(rng.choice(total - 1, count - 1, replace=False)) + 1
    return np.diff([0, *cuts, total])


def hide_words(
    words: Sequence[str], rng: np.random.Generator, count: int = 4
) -> Iterator[HiddenText]:
    """Yield up to `count` times the passage with another word of letters hidden.

    In scripts without blanks between words, what blanks separate is no word, and none is hidden.
    """
    is_word = lambda text: all(map(is_letter, text)) and len(words_of(text)) == 1
    candidates = [i for i, word in enumerate(words) if is_word(word)]
    for i in rng.permutation(candidates)[:count].tolist():
        yield HiddenText(tuple(words), ((i, i + 1),))
