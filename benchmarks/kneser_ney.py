"""N-grams of a vocabulary's pieces with interpolated Kneser-Ney smoothing: a floor for networks.

    model = KneserNey(ids, vocabulary_size=4096, order=5)
    model.probabilities(contexts=[[5, 8, 8, 3]], ids=[7])    # [0.031]
    NgramGuesser(encoder, model).guess([hidden_text])        # [Guess(log_prob=-9.3, …)]

An n-gram of the highest order has its count c, a shorter one the number of different pieces before
it. Of each count D is taken, and what is taken goes to the shorter context (Kneser and Ney 1995,
doi:10.1109/ICASSP.1995.479394; interpolated as in Chen and Goodman 1999, section 3):

    p(w | h) = (max(c(hw) - D, 0) + D t(h) p(w | h without its first piece)) / c(h)

c(h) is the sum of c(hw), t(h) the number of different w, and D = n1 / (n1 + 2 n2), where n1 and n2
n-grams of the order have counts 1 and 2 (1/2 if n1 is 0). Below the shortest context all pieces are
as likely.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from evaluation.guesser import Guesser
from evaluation.hidden_text import HiddenText
from evaluation.scorer import Guess
from evaluation.text_encoder import TextEncoder

_KEY_BITS = 63  # of an n-gram: ids side by side
SEPARATOR = 0  # id between documents, T5's padding


class Table(NamedTuple):
    """All n-grams of one order by their sorted keys, and the contexts that they begin with."""

    keys: np.ndarray
    counts: np.ndarray
    contexts: np.ndarray
    totals: np.ndarray  # c(h)
    types: np.ndarray  # t(h)
    discount: float


class KneserNey:
    """The probabilities of a vocabulary's ids, counted in `ids` [N], documents end to end."""

    def __init__(self, ids: np.ndarray, vocabulary_size: int, order: int = 5):
        self.order, self.vocabulary_size = order, vocabulary_size
        self._bits = (vocabulary_size - 1).bit_length()
        assert order * self._bits <= _KEY_BITS, "an n-gram does not fit into a key"
        ids = np.asarray(ids, np.int64)
        length = len(ids) - order + 1
        keys = np.zeros(length, np.int64)
        for i in range(order):
            keys = keys << self._bits | ids[i : i + length]
        self._tables: list[Table] = []
        counted = np.unique(keys, return_counts=True)
        for n in range(order, 0, -1):
            self._tables.insert(0, self._table(*counted))
            shorter = counted[0] & ((1 << (n - 1) * self._bits) - 1)
            counted = np.unique(shorter, return_counts=True)

    @property
    def size(self) -> int:
        """The number of n-grams of all orders."""
        return sum(len(table.keys) for table in self._tables)

    def _table(self, keys: np.ndarray, counts: np.ndarray) -> Table:
        contexts, first = np.unique(keys >> self._bits, return_index=True)
        ones, twos = (int((counts == n).sum()) for n in (1, 2))
        return Table(
            keys,
            counts,
            contexts,
            np.add.reduceat(counts, first),
            np.diff(np.append(first, len(keys))),
            ones / (ones + 2 * twos) if ones else 0.5,
        )

    def probabilities(self, contexts: np.ndarray, ids: np.ndarray) -> np.ndarray:
        """Return the probability of each id [N] after its context [N, order - 1]."""
        contexts, ids = np.asarray(contexts, np.int64), np.asarray(ids, np.int64)
        result = np.full(len(ids), 1 / self.vocabulary_size)
        before = np.zeros(len(ids), np.int64)
        for n, table in enumerate(self._tables):
            if n:
                before |= contexts[:, -n] << (n - 1) * self._bits
            total = _values(table.contexts, table.totals, before)
            types = _values(table.contexts, table.types, before)
            count = _values(table.keys, table.counts, before << self._bits | ids)
            mixed = np.maximum(count - table.discount, 0) + table.discount * types * result
            result = np.where(total > 0, mixed / np.maximum(total, 1), result)
        return result


def _values(keys: np.ndarray, values: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Return the values of the wanted keys, 0 of those that are missing."""
    places = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[places] == wanted, values[places], 0)


class NgramGuesser(Guesser):
    """N-grams, which see only what precedes hidden text, the spans before included.

    A span ends where a piece follows that begins a word.
    """

    def __init__(self, encoder: TextEncoder, model: KneserNey):
        self._encoder, self._model = encoder, model

    def unknown(self, texts: Sequence[HiddenText]) -> tuple[int, int]:
        """Return how many hidden pieces are unknown, and how many there are."""
        pieces = [i for text in texts for ids in self._encoder.encode(text.hidden) for i in ids]
        return sum(i == self._encoder.unk_id for i in pieces), len(pieces)

    def guess(self, texts: Sequence[HiddenText]) -> list[Guess]:
        """Return a guess of each text; whether greedy decoding would write it is not computed."""
        return [Guess(self._log_prob(text), False) for text in texts]

    def _log_prob(self, text: HiddenText) -> float:
        width = self._model.order - 1
        ids, contexts, hidden, ends = [SEPARATOR] * width, [], [], []
        parts = text.parts()
        encoded = self._encoder.encode([part for part, _ in parts])
        for pieces, (_, is_hidden) in zip(encoded, parts, strict=True):
            for piece in pieces:
                if is_hidden:
                    contexts.append(ids[len(ids) - width :])
                    hidden.append(piece)
                ids.append(piece)
            if is_hidden:
                ends.append(ids[len(ids) - width :])
        starts = np.array(sorted(self._encoder.word_starts))
        asked = np.repeat(np.array(ends), len(starts), axis=0)
        of_ends = self._model.probabilities(asked, np.tile(starts, len(ends)))
        of_ends = of_ends.reshape(len(ends), len(starts)).sum(axis=1)
        of_pieces = self._model.probabilities(np.array(contexts), np.array(hidden))
        return math.fsum(np.log(of_pieces)) + math.fsum(np.log(of_ends))
