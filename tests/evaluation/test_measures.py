"""Measures are right for models whose probabilities are known."""

import dataclasses
import math

import numpy as np
import pytest

from evaluation import measures
from evaluation.guesser import PREFIX_LM, SPAN_CORRUPTION, ModelGuesser
from evaluation.minimal_pairs import Pair
from evaluation.scorer import Scorer
from evaluation.text_encoder import TextEncoder
from fakes.toy import SMALL, unigram
from t5x.examples.t5 import network

# A vocabulary of words: w5 is 5.
ENCODER = TextEncoder(
    lambda text: [int(word[1:]) for word in text.split()], tuple(range(95, 85, -1)), 2, False
)
PASSAGES = [[f"w{5 + (7 * i + j) % 60}" for j in range(40)] for i in range(30)]


def guesser(shares, objective=SPAN_CORRUPTION, encoder=ENCODER) -> ModelGuesser:
    scorer = Scorer(network.Transformer(SMALL), unigram(SMALL, shares / shares.sum()))
    return ModelGuesser(objective, encoder, scorer.score)


def bits_per_byte(guesser):
    """Return the figures of the passages."""
    return measures.bits_per_byte(*measures.passage_bits(PASSAGES, guesser), guesser)


def test_bits_of_a_uniform_model():
    uniform = np.ones(96)
    found = bits_per_byte(guesser(uniform, PREFIX_LM))["bits_per_byte"]
    size = sum(len(" ".join(words)) for words in PASSAGES)
    assert found.value == pytest.approx(30 * 40 * math.log2(96) / size, rel=1e-4)
    assert found.cases == size
    # 6 of 40 words in 2 spans, with a sentinel between them, and the next one or eos after them.
    found = bits_per_byte(guesser(uniform))["bits_per_byte"]
    bits = 30 * (6 * math.log2(96) + math.log2(96) + math.log2(96 / 2))
    assert found.value == pytest.approx(bits / found.cases, rel=1e-4)


def test_unknown_pieces_are_counted():
    unknown = TextEncoder(lambda text: [2] * len(text.split()), ENCODER.sentinels, 2, False)
    found = bits_per_byte(guesser(np.ones(96), encoder=unknown))
    assert found["unknown_pieces"][:2] == (1.0, 0.0)
    assert found["unknown_pieces"].cases == 30 * 6


def test_the_error_is_that_of_passages():
    found = measures.ratio([2.0, 4.0, 6.0], [1, 1, 1])
    assert found.value == 4
    assert found.error == pytest.approx(np.std([2, 4, 6], ddof=1) / math.sqrt(3))


def test_words_are_filled_in_by_a_model_that_knows_one_word_and_the_end():
    words = [["Aa"] * 5 + ["Bb"] * 20 + ["Cc"] * 15]
    ids = {"Aa": 7, "Bb": 8, "Cc": 9}
    encoder = TextEncoder(lambda t: [ids[w] for w in t.split()], ENCODER.sentinels, 2, False)
    never = np.where(np.arange(96) == 8, 50.0, 1.0)  # never ends
    counts = {"Bb": 2000, "Aa": 3, "Cc": 1, **{f"x{i}": 5 for i in range(150)}}
    found = measures.filled_in_words(words, counts, guesser(never, encoder=encoder))
    assert found["filled_in"][:1] == (0.0,)
    assert found["filled_in_1_100"].cases + found["filled_in_101_1000"].cases == 4
    # A model that writes the word again and again has written it first.
    starts = dataclasses.replace(encoder, word_starts=frozenset([8]))
    found = measures.filled_in_words(words, counts, guesser(never, encoder=starts))
    assert found["filled_in_1_100"].value == 1
    assert found["filled_in"].value == found["filled_in_1_100"].cases / 4
    # The same word hidden; after it the model ends, since it is the end that is most probable.
    as_end = TextEncoder(lambda t: [94 for _ in t.split()], ENCODER.sentinels, 2, False)
    always = np.where(np.arange(96) == 94, 50.0, 1.0)
    found = measures.filled_in_words(words, counts, guesser(always, encoder=as_end))
    assert found["filled_in"].value == 1


@pytest.mark.parametrize("objective", [SPAN_CORRUPTION, PREFIX_LM])
def test_the_more_probable_sentence_is_preferred(objective):
    """A model in which w9 is ten times as probable as w8, and all else alike."""
    model = guesser(np.where(np.arange(96) == 9, 10.0, 1.0), objective)
    pairs = [
        Pair("w5 w9 w6 w7", "w5 w8 w6 w7", "first half"),
        Pair("w5 w6 w7 w9", "w5 w6 w7 w8", "second half"),
        Pair("w5 w6 w8 w7", "w5 w6 w9 w7", "wrong"),
        Pair("w9", "w8", "one word"),
    ]
    found = measures.preferred_sentences(pairs, model)
    assert found["minimal_pairs"].value == 0.75
    assert found["minimal_pairs"].cases == 4
    kinds = {name: each.value for name, each in found.items() if name != "minimal_pairs"}
    assert kinds == {
        "minimal_pairs_first_half": 1,
        "minimal_pairs_second_half": 1,
        "minimal_pairs_wrong": 0,
        "minimal_pairs_one_word": 1,
    }
