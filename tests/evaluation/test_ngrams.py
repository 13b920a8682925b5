"""N-grams of the other passages: probabilities, and what greedy decoding of them writes."""

import itertools
import math

import numpy as np
import pytest

from evaluation import measures
from evaluation.hidden_text import HiddenText, hide_spans
from evaluation.minimal_pairs import Pair
from evaluation.ngrams import NgramGuesser

SAME = tuple(("ana are mere " * 8).split())
PASSAGES = [(*SAME, end) for end in "abc"]


def log_prob(guesser, words):
    return guesser.guess(guesser.hide_in_turn(words))[0].log_prob


def test_the_probabilities_of_what_may_follow_add_up_to_at_most_one():
    guesser = NgramGuesser([("a", "b"), ("b", "b", "a")])
    found = [
        math.exp(log_prob(guesser, ["".join(letters)]))
        for n in (1, 2, 3)
        for letters in itertools.product("abc", repeat=n)
    ]
    assert 0.2 < sum(found) < 1


def test_what_the_other_passages_say_is_probable_and_written():
    guesser = NgramGuesser(PASSAGES)
    known, unknown = (HiddenText((*SAME[:-1], word), ((23, 24),)) for word in ("mere", "pere"))
    known, unknown = guesser.guess([known, unknown])
    assert known.is_written
    assert not unknown.is_written
    assert known.log_prob > unknown.log_prob


def test_a_passage_is_not_asked_about_what_it_says_itself():
    own = ("un", "text", "pe", "care", "altul", "nu", "il", "are")
    rng = np.random.default_rng(0)
    hidden = hide_spans(own, rng)
    with_own, without = (NgramGuesser(p).guess([hidden])[0] for p in ([*PASSAGES, own], PASSAGES))
    assert with_own.log_prob == pytest.approx(without.log_prob)
    assert not with_own.is_written


def test_all_measures_are_made_of_them():
    guesser = NgramGuesser(PASSAGES)
    bits = measures.bits_per_byte(*measures.passage_bits(PASSAGES, guesser), guesser)
    assert 0 < bits["bits_per_byte"].value < 8
    assert bits["unknown_pieces"].value == 0
    pairs = [Pair("ana are mere", "ana mere are", "")]
    assert measures.preferred_sentences(pairs, guesser)["minimal_pairs"].value == 1
    everything = NgramGuesser(PASSAGES, hides_all=True)
    assert not everything.fills_in
    assert everything.hide(SAME, np.random.default_rng(0)).hidden == [" ".join(SAME)]
