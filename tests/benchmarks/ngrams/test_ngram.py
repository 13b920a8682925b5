"""The n-gram model equals a plain count of tuples, and gives probabilities."""

import collections

import numpy as np
import pytest

from benchmarks.ngrams.ngram import Ngrams

TEXT = np.random.default_rng(0).choice(4, 300, p=[0.5, 0.3, 0.15, 0.05])


def plain(text, context, symbol) -> float:
    """Return interpolated Kneser-Ney with counts of tuples, of a vocabulary of four."""
    order = 3

    def counts(length):
        if length == order:
            return collections.Counter(zip(*(text[i:] for i in range(length)), strict=False))
        longer = {*zip(*(text[i:] for i in range(order)), strict=False)}
        for _ in range(length, order):
            found = collections.Counter(gram[1:] for gram in longer)
            longer = {*found}
        return found

    lower = 1 / 4
    for length in range(1, order + 1):
        found = counts(length)
        n = collections.Counter(found.values())
        discount = n[1] / (n[1] + 2 * n[2]) if n[1] else 0.5
        before = tuple(context[len(context) - length + 1 :])
        here = {gram[-1]: c for gram, c in found.items() if gram[:-1] == before}
        if here:
            total = sum(here.values())
            mass = discount * len(here) / total
            lower = max(here.get(symbol, 0) - discount, 0) / total + mass * lower
    return lower


@pytest.mark.parametrize("context", [(0, 0), (3, 1), (2, 3), (3, 3)])
def test_probabilities_are_those_of_plain_counts_and_add_up_to_1(context):
    text = np.r_[TEXT, 0, 1, 2]
    windows = np.array([[*context, symbol] for symbol in range(4)])
    found = 2 ** Ngrams(text, order=3, bits=2).log2(windows)
    assert found == pytest.approx([plain(text.tolist(), context, s) for s in range(4)])
    assert found.sum() == pytest.approx(1)


def test_a_context_that_was_never_seen_falls_back_to_a_shorter_one():
    model = Ngrams(np.array([1, 2, 1, 2, 1, 2]), order=3, bits=8)
    assert model.log2(np.array([[9, 1, 2]])) == model.log2(np.array([[1, 2]]))


def test_each_symbol_of_a_text_follows_those_before_it():
    model = Ngrams(TEXT, order=8, bits=8)
    windows = [TEXT[10 - 7 + i : 11 + i] for i in range(5)]
    assert model.log2_of_text(TEXT[:10], TEXT[10:15]) == pytest.approx(
        model.log2(np.array(windows))
    )
    assert len(model.log2_of_text([], TEXT[:5])) == 5
