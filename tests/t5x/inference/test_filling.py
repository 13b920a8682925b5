"""Sentences with gaps become ids, ids become sentences, and a T5 or an encoder fills them in."""

import jax
import numpy as np
import pytest
import seqio

from fakes import tokenizer_files, toy, valid_run
from fakes.refuses import refuses
from t5x.inference.filling import Filling, check_sentences, encode, fill, fillings
from t5x.partitioning import PjitPartitioner
from t5x.train_state import state_specs
from tasks import vocabularies

BYTES = toy.VOCABULARY  # from id 3 on
FIRST = BYTES.vocab_size - 1  # <extra_id_0>
WORDPIECE = vocabularies.tokenizer(vocabularies.ro_mini_wordpiece)


def letters(text):
    return [ord(letter) + 3 for letter in text]


def test_holes_become_the_last_ids():
    ids = encode("ab <extra_id_0> c <extra_id_1>", BYTES)
    assert ids == [*letters("ab"), FIRST, *letters("c"), FIRST - 1, 1]


def test_the_vocabulary_of_the_mini_corpus_knows_its_sentinels():
    vocabulary = seqio.SentencePieceVocabulary("data/ro_mini/ro_mini.model", extra_ids=0)
    ids = encode("Copiii merg la <extra_id_0> în fiecare <extra_id_1>.", vocabulary)
    pieces = [vocabulary.tokenizer.IdToPiece(i) for i in ids]
    assert [p[-12:] for p in pieces if "extra" in p] == ["<extra_id_0>", "<extra_id_1>"]
    assert "▁" not in pieces  # the full stop follows its hole at once


def test_masks_become_the_vocabularys_own(tmp_path):
    ids = encode("Copiii merg la [MASK].", WORDPIECE)
    assert (ids[0], ids[-1], ids.count(WORDPIECE.mask_id)) == (2, 3, 1)
    roberta = vocabularies.tokenizer(tokenizer_files.byte_bpe(tmp_path))
    ids = encode("Copiii merg la [MASK].", roberta)
    assert (ids[0], ids[-1], ids.count(roberta.mask_id)) == (0, 2, 1)


def test_decoded_fillings_go_into_their_holes():
    ids = [FIRST, *letters("xy"), FIRST - 1, *letters("z"), FIRST - 2, 1, *letters("late"), 0]
    found = fillings(ids, BYTES)
    assert found == {0: "xy", 1: "z", 2: ""}
    assert fill("a <extra_id_0> b <extra_id_1>.", found) == "a [xy] b [z]."
    young = fillings([*letters("x"), 0, 0], BYTES)  # it writes no sentinels
    assert fill("a <extra_id_0> b <extra_id_1>", young) == "a [x] b []"


@pytest.mark.parametrize(
    ("vocabulary", "sentences", "says"),
    [
        (BYTES, ["none"], "none"),
        (BYTES, ["<extra_id_1> <extra_id_0>"], "[1, 0]"),
        (BYTES, ["a <extra_id_0>" + "b" * 20], "23 tokens"),
        (WORDPIECE, ["a <extra_id_0>"], "masks"),
        (WORDPIECE, ["a [MASK]" + " b" * 20], "24 tokens"),
    ],
)
def test_bad_sentences_are_refused(vocabulary, sentences, says):
    with refuses("INFILL_SENTENCES") as refusal:
        check_sentences(sentences, vocabulary, toy.LENGTHS)
    assert says in refusal.value.why
    with refuses("watch.Watch.infill_sentences", sentences[0]):
        check_sentences(sentences[0], vocabulary, toy.LENGTHS)
    check_sentences(("a [MASK] <extra_id_0>",), vocabulary, toy.LENGTHS)


def filled(model, sentences, partitioner, **lengths):
    params = toy.state(state_specs(model, partitioner)).params
    batch = {name: jax.ShapeDtypeStruct((8, n), np.int32) for name, n in lengths.items()}
    fill_in = Filling(sentences, model, partitioner, batch)
    first = fill_in(params)
    assert first == fill_in(params)
    return params, first


def test_a_t5_fills_them_in():
    sentences = ("ab <extra_id_0>", "<extra_id_0> c <extra_id_1>", "a <extra_id_0> d")
    lengths = {"encoder_input_tokens": 16, "decoder_input_tokens": 16}
    _, found = filled(toy.shared_model(), sentences, PjitPartitioner(), **lengths)
    assert len(found) == 3
    assert found[0].startswith("ab [")
    assert all("[" in text and "extra_id" not in text for text in found)


def test_an_encoder_fills_in_the_best_piece_of_each_mask():
    model, partitioner = valid_run.encoder()["model"], PjitPartitioner(devices=jax.devices()[:1])
    sentences = ("Copiii merg la [MASK].", "[MASK] și [MASK] au mere.")
    params, found = filled(model, sentences, partitioner, encoder_input_tokens=128)
    for sentence, text in zip(sentences, found, strict=True):
        ids = np.array([encode(sentence, WORDPIECE)], np.int32)
        best = jax.jit(model.logits)(params, {"encoder_input_tokens": ids}).argmax(-1)
        wanted = sentence
        for piece in np.asarray(best)[ids == WORDPIECE.mask_id]:
            wanted = wanted.replace("[MASK]", f"[{WORDPIECE.decode([int(piece)]).strip()}]", 1)
        assert text == wanted
