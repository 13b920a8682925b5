"""Sentences with holes become ids, ids become sentences, and a network fills them in."""

import jax
import numpy as np
import pytest

from fakes import toy
from t5x.inference import mask_filling
from t5x.inference.mask_filling import MaskFilling, encode, fill, fillings
from t5x.partitioning import PjitPartitioner
from t5x.train_state import state_specs

VOCABULARY = toy.VOCABULARY  # bytes, from id 3 on
FIRST = VOCABULARY.vocab_size - 1  # <extra_id_0>


def test_holes_become_the_last_ids():
    ids = encode("ab <extra_id_0> c <extra_id_1>", VOCABULARY)
    a, b, c = (ord(letter) + 3 for letter in "abc")
    assert ids == [a, b, FIRST, c, FIRST - 1, 1]


def test_the_vocabulary_of_the_mini_corpus_knows_its_sentinels():
    import seqio

    vocabulary = seqio.SentencePieceVocabulary("data/ro_mini/ro_mini.model", extra_ids=0)
    ids = encode("Copiii merg la <extra_id_0> în fiecare <extra_id_1>.", vocabulary)
    pieces = [vocabulary.tokenizer.IdToPiece(i) for i in ids]
    assert [p[-12:] for p in pieces if "extra" in p] == ["<extra_id_0>", "<extra_id_1>"]
    assert "▁" not in pieces  # the full stop follows its hole at once


def test_decoded_fillings_go_into_their_holes():
    letters = lambda text: [ord(letter) + 3 for letter in text]
    ids = [FIRST, *letters("xy"), FIRST - 1, *letters("z"), FIRST - 2, 1, *letters("late"), 0]
    found = fillings(ids, VOCABULARY)
    assert found == {0: "xy", 1: "z", 2: ""}
    assert fill("a <extra_id_0> b <extra_id_1>.", found) == "a [xy] b [z]."


def test_text_without_sentinels_fills_the_first_hole():
    found = fillings([ord("x") + 3, 0, 0], VOCABULARY)
    assert fill("a <extra_id_0> b <extra_id_1>", found) == "a [x] b []"


@pytest.mark.parametrize(
    ("sentences", "says"),
    [
        ("one <extra_id_0> text", "INFILL_SENTENCES"),
        (["none"], "none"),
        (["<extra_id_1> <extra_id_0>"], r"\[1, 0\]"),
        (["a <extra_id_0>" + "b" * 20], "23 tokens"),
    ],
)
def test_bad_sentences_are_refused(sentences, says):
    with pytest.raises(ValueError, match=says):
        mask_filling.check_sentences(sentences, VOCABULARY, toy.LENGTHS)


def test_a_network_fills_them_in_alike_each_time():
    model = toy.shared_model()
    partitioner = PjitPartitioner()
    specs = state_specs(model, partitioner)
    params = toy.state(specs).params
    sentences = ("ab <extra_id_0>", "<extra_id_0> c <extra_id_1>", "a <extra_id_0> d")
    fill_in = MaskFilling(sentences, model, partitioner, toy.LENGTHS)
    with jax.log_compiles(False):
        first, second = fill_in(params), fill_in(params)
    assert first == second
    assert len(first) == 3
    assert first[0].startswith("ab [")
    assert np.all(["[" in text and "extra_id" not in text for text in first])
