"""N-gram models answer from what they have read."""

import itertools
import math

import numpy as np
import pytest

from benchmarks.ngrams.guesser import ByteGuesser, WordGuesser, restore
from evaluation import measures
from evaluation.hidden_text import HiddenText
from evaluation.minimal_pairs import Pair
from tasks.diacritics.letters import alphabet

TEXTS = ["Fata vine mâine acasă .", "Fata vine azi acasă .", "Fata nu vine mâine la școală ."] * 9
WORDS = ("Fata", "vine", "mâine", "acasă", ".")


@pytest.fixture(scope="module")
def by_bytes():
    return ByteGuesser(TEXTS)


def test_a_span_costs_its_bytes_and_a_blank_after_the_text_before(by_bytes):
    (guess,) = by_bytes.guess([HiddenText(WORDS, ((1, 2), (3, 4)))])
    cost = lambda before, text: by_bytes.model.log2_of_text([*before.encode()], [*text.encode()])
    bits = [*cost("\nFata ", "vine "), *cost("\nFata vine mâine ", "acasă ")]
    assert guess.log_prob == pytest.approx(sum(bits) * math.log(2))


def test_what_was_read_is_preferred(by_bytes):
    pairs = [
        Pair("Fata vine mâine la școală .", "Fata mâine vine la școală .", ""),
        Pair("Fata nu vine acasă .", "Fata nu vine acasa .", ""),
    ]
    assert measures.preferred_sentences(pairs, by_bytes)["minimal_pairs"].value == 1
    bits = measures.bits_per_byte([WORDS * 5], by_bytes)
    assert bits["bits_per_byte"].value < 3
    assert bits["unknown_pieces"].value == 0


def test_a_word_is_filled_in_by_both_sides():
    by_words = WordGuesser(TEXTS)
    asked = [
        (("Fata", "vine", "mâine", "acasă"), 2),
        (("Fata", "vine", "azi", "acasă"), 2),  # the other one is more frequent before "acasă"
        (("nu", "vine", "mâine", "la", "școală"), 2),
        (("Fata", "nu", "vine"), 1),
        (("Fata", "vine", "azi"), 0),
    ]
    texts = [HiddenText(words, ((i, i + 1),)) for words, i in asked]
    written = [guess.is_written for guess in by_words.guess(texts)]
    assert written[2:] == [True, True, True]
    assert sum(written[:2]) == 1


def test_the_most_probable_of_all_spellings_is_restored(by_bytes):
    text = "Fata la scoala"
    forms = alphabet("ro").forms
    spellings = ["".join(each) for each in itertools.product(*(forms[letter] for letter in text))]
    cost = lambda each: by_bytes.model.log2_of_text(
        *(np.frombuffer(t.encode(), np.uint8) for t in ("\n", each))
    ).sum()
    assert restore(text, by_bytes.model, "ro") == max(spellings, key=cost) == "Fata la școală"


def test_a_unigram_writes_the_most_frequent_word_of_as_many_pieces():
    def written(model):
        texts = [HiddenText((word, "vine"), ((0, 1),)) for word in ("Fata", "azi", ".")]
        return [guess.is_written for guess in model.guess(texts)]

    assert written(WordGuesser(TEXTS, order=1)) == [True, False, False]
    assert written(WordGuesser(TEXTS, order=1, pieces=len)) == [True, True, True]


def test_a_trigram_may_read_only_what_is_before():
    ahead = WordGuesser(TEXTS, behind=False)
    texts = [HiddenText(("Fata", "nu", "vine", x), ((1, 2),)) for x in ("mâine", "Fata")]
    assert len({guess.is_written for guess in ahead.guess(texts)}) == 1
