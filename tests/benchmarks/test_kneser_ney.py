"""N-grams with Kneser-Ney smoothing: by hand, as probabilities, and as bits a byte."""

import math

import numpy as np
import pytest

from benchmarks.kneser_ney import SEPARATOR, KneserNey, NgramGuesser
from evaluation import measures
from evaluation.hidden_text import HiddenText
from evaluation.text_encoder import TextEncoder

A, B, C = 1, 2, 3


def test_bigrams_are_those_computed_by_hand():
    # Of "a b a b a c a": ab 2, ba 2, ac 1, ca 1, so D = 2 / (2 + 2 * 2) = 1/3 of bigrams. Before a
    # are 2 different ids, before b and c one each, so D = 2 / (2 + 2 * 1) = 1/2 of single ones.
    model = KneserNey(np.array([A, B, A, B, A, C, A]), vocabulary_size=4, order=2)
    single = lambda count: (max(count - 1 / 2, 0) + 1 / 2 * 3 * 1 / 4) / 4
    after_a = lambda count, types: (max(count - 1 / 3, 0) + 1 / 3 * 2 * single(types)) / 3
    expected = [after_a(0, 2), after_a(2, 1), after_a(1, 1), after_a(0, 0)]
    contexts = np.full((4, 1), A)
    assert model.probabilities(contexts, np.array([A, B, C, 0])) == pytest.approx(expected)
    after_unseen = model.probabilities(np.full((4, 1), 0), np.array([A, B, C, 0]))
    assert after_unseen == pytest.approx([single(2), single(1), single(1), single(0)])


@pytest.mark.parametrize("order", [1, 3, 5])
def test_the_probabilities_of_what_may_follow_add_up_to_one(order):
    rng, size = np.random.default_rng(0), 11
    ids = rng.integers(0, size - 1, 400) ** 2 // size  # some follow others often; the last never
    model = KneserNey(ids, size, order)
    seen = np.lib.stride_tricks.sliding_window_view(ids, max(order - 1, 1))[:50, : order - 1]
    for context in (*seen, np.full(order - 1, size - 1)):
        sums = model.probabilities(np.tile(context, (size, 1)), np.arange(size))
        assert sums.min() > 0
        assert sums.sum() == pytest.approx(1)


def test_the_bits_a_byte_of_a_text_are_those_computed_by_hand():
    pieces = {"mere": [A], "are": [B], "pe": [C], "pere": [C, 4]}
    encoder = TextEncoder(
        lambda text: [i for word in text.split() for i in pieces[word]], (), None, False,
        frozenset({A, B, C}),
    )  # fmt: skip
    model = KneserNey(np.array([SEPARATOR, A, B, C, 4, A, B, A, C, SEPARATOR]), 5, order=3)
    text = HiddenText(("mere", "are", "pere", "are"), ((2, 3),))
    of = lambda context, ids: model.probabilities(np.tile(context, (len(ids), 1)), np.array(ids))
    expected = of([A, B], [C])[0] * of([B, C], [4])[0] * of([C, 4], [A, B, C]).sum()
    (guess,) = NgramGuesser(encoder, model).guess([text])
    assert math.exp(guess.log_prob) == pytest.approx(expected)
    bits = measures.ratio([-guess.log_prob / math.log(2)], [text.num_bytes])
    assert bits.value == pytest.approx(-math.log2(expected) / len("pere"))


def test_what_is_hidden_earlier_is_read_and_what_follows_is_not():
    encoder = TextEncoder(
        lambda text: [int(word) for word in text.split()], (), None, False, frozenset({A, B, C})
    )
    model = KneserNey(np.array([A, B, C, A, B, C, A, C, B, A]), 4, order=3)
    log_prob = lambda words, *spans: (
        NgramGuesser(encoder, model).guess([HiddenText(tuple(words.split()), spans)])[0].log_prob
    )
    apart = log_prob("1 2 3 1", (1, 2)) + log_prob("1 2 3 1", (2, 3))
    assert log_prob("1 2 3 1", (1, 2), (2, 3)) == pytest.approx(apart)
    assert log_prob("1 2 3", (1, 2)) == log_prob("1 2 1", (1, 2))
