"""A mere n-gram model, of bytes or of words: interpolated Kneser-Ney with one discount an order.

    model = Ngrams(symbols, order=8, bits=8)
    model.log2(np.array([[65, 110, 97]]))      # of each last symbol, given those before it

The model of Kneser and Ney, interpolated as by Chen and Goodman (1999, section 4.1.6). Below the
lowest order all 2 ** bits symbols are as probable, so none has probability 0. An n-gram is one
integer of 64 bits, and each order a sorted array of them.
"""

from collections.abc import Sequence

import numpy as np


class Ngrams:
    """Probabilities of the next symbol.

    Args:
      symbols: the training text, integers from 0 to 2 ** bits - 1.
      order: symbols in the longest n-gram; order * bits may be at most 64.
      bits: of a symbol.
    """

    def __init__(self, symbols: np.ndarray, order: int, bits: int):
        self.order, self.bits = order, bits
        grams, counts = np.unique(self._grams(symbols, order), return_counts=True)
        self._tables = []
        for length in range(order, 0, -1):
            self._tables.append(_Table(grams, counts, bits))
            # Kneser and Ney count in how many contexts a shorter n-gram occurs, not how often.
            shorter = grams & np.uint64((1 << bits * (length - 1)) - 1)
            grams, counts = np.unique(shorter, return_counts=True)
        self._tables.reverse()  # from 1 symbol to `order`

    def _grams(self, symbols: np.ndarray, length: int) -> np.ndarray:
        """Return the n-grams of a text in its order, uint64 [N - length + 1]."""
        size = len(symbols) - length + 1
        found = np.zeros(size, np.uint64)
        for i in range(length):
            found = (found << np.uint64(self.bits)) | symbols[i : i + size].astype(np.uint64)
        return found

    def log2(self, windows: np.ndarray) -> np.ndarray:
        """Return the binary logarithms of the probabilities of last symbols, float64 [N].

        Args:
          windows: [N, L] symbols; the last of each row follows the others. L is at most `order`.
        """
        found = np.full(len(windows), 2.0**-self.bits)
        grams = np.zeros(len(windows), np.uint64)
        for i, table in enumerate(self._tables[: windows.shape[1]], 1):
            symbol = windows[:, -i].astype(np.uint64)
            grams = grams | (symbol << np.uint64(self.bits * (i - 1)))
            found = table.interpolated(grams, found)
        return np.log2(found)

    def log2_of_text(self, before: Sequence[int], text: Sequence[int]) -> np.ndarray:
        """Return the logarithms of each symbol of a text, float64 [T], after what is before it.

        Symbols that are missing before it are 0.
        """
        context = self.order - 1
        padded = np.r_[np.zeros(context, np.int64), np.asarray(before, np.int64)][-context:]
        joined = np.r_[padded, np.asarray(text, np.int64)]
        return self.log2(np.lib.stride_tricks.sliding_window_view(joined, self.order))


class _Table:
    """The n-grams of one length with their counts, and their contexts with sums and kinds."""

    def __init__(self, grams: np.ndarray, counts: np.ndarray, bits: int):
        self._grams, self._counts = grams, counts
        once, twice = (counts == 1).sum(), (counts == 2).sum()
        self._discount = once / (once + 2 * twice) if once else 0.5
        self._shift = np.uint64(bits)
        self._contexts, first, kinds = np.unique(
            grams >> self._shift, return_index=True, return_counts=True
        )
        self._sums, self._kinds = np.add.reduceat(counts, first), kinds

    def interpolated(self, grams: np.ndarray, lower: np.ndarray) -> np.ndarray:
        """Return the probabilities of n-grams' last symbols from those of the shorter context."""
        count = _lookup(self._grams, self._counts, grams)
        contexts = grams >> self._shift
        total = _lookup(self._contexts, self._sums, contexts)
        kinds = _lookup(self._contexts, self._kinds, contexts)
        seen = np.maximum(total, 1)
        mixed = (np.maximum(count - self._discount, 0) + self._discount * kinds * lower) / seen
        return np.where(total > 0, mixed, lower)


def _lookup(keys: np.ndarray, values: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Return the values of sorted keys, 0 for those that are not there."""
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[at] == wanted, values[at], 0)
