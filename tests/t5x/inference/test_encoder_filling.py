"""Sentences with masks are encoded by any tokenizer, and an encoder fills them in."""

import jax
import numpy as np
import pytest

from fakes import tokenizer_files, toy, valid_run
from t5x.inference import mask_filling
from t5x.inference.encoder_filling import EncoderFilling, encode
from t5x.partitioning import PjitPartitioner
from t5x.train_state import state_specs
from tasks import vocabularies

VOCABULARY = vocabularies.tokenizer(vocabularies.ro_mini_wordpiece)


def test_masks_become_the_vocabularys_own(tmp_path):
    ids = encode("Copiii merg la [MASK].", VOCABULARY)
    assert (ids[0], ids[-1], ids.count(VOCABULARY.mask_id)) == (2, 3, 1)
    roberta = vocabularies.tokenizer(tokenizer_files.byte_bpe(tmp_path))
    ids = encode("Copiii merg la [MASK].", roberta)
    assert (ids[0], ids[-1], ids.count(roberta.mask_id)) == (0, 2, 1)


@pytest.mark.parametrize(
    ("sentences", "says"),
    [
        ("one [MASK] text", "INFILL_SENTENCES"),
        (["a <extra_id_0>"], r"\[MASK\]"),
        (["a [MASK]" + " b" * 20], "24 tokens"),
    ],
)
def test_bad_sentences_are_refused(sentences, says):
    with pytest.raises(ValueError, match=says):
        mask_filling.check_sentences(sentences, VOCABULARY, toy.LENGTHS)
    mask_filling.check_sentences(("a [MASK]",), VOCABULARY, toy.LENGTHS)


def test_an_encoder_fills_in_the_best_piece_of_each_mask():
    model = valid_run.encoder()["model"]
    partitioner = PjitPartitioner(devices=jax.devices()[:1])
    specs = state_specs(model, partitioner)
    params = toy.state(specs).params
    sentences = ("Copiii merg la [MASK].", "[MASK] și [MASK] au mere.")
    shapes = {"encoder_input_tokens": jax.ShapeDtypeStruct((8, 128), np.int32)}
    fill_in = mask_filling.filling_of(sentences, model, partitioner, shapes)
    assert isinstance(fill_in, EncoderFilling)
    first = fill_in(params)
    assert first == fill_in(params)
    for sentence, found in zip(sentences, first, strict=True):
        ids = np.array([encode(sentence, VOCABULARY)], np.int32)
        best = jax.jit(model.logits)(params, {"encoder_input_tokens": ids}).argmax(-1)
        wanted = sentence
        for piece in np.asarray(best)[ids == VOCABULARY.mask_id]:
            text = VOCABULARY.decode([int(piece)]).strip()
            wanted = wanted.replace("[MASK]", f"[{text}]", 1)
        assert found == wanted
