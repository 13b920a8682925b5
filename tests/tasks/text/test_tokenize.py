"""Batches are tokenized as SentencePiece and seqio tokenize single texts."""

import pytest
import seqio
import tensorflow as tf

from fakes.small_vocabulary import TEXTS, train
from tasks import vocabularies
from tasks.text import tokenize

ODD = ["", "  două  blancuri ", "한국어 ☃ 𝔘", "a\nb\tc", "s\u0326i", "x" * 3000]


@pytest.mark.parametrize(
    "settings", [{}, {"byte_fallback": True, "vocab_size": 500}, {"model_type": "bpe"}], ids=str
)
def test_batches_are_encoded_as_sentencepiece_encodes(tmp_path, settings):
    vocabulary = vocabularies.sentencepiece(train(tmp_path, **settings))
    found = tokenize.batch_encoder(vocabulary)(tf.constant(TEXTS[:4] + ODD))
    assert found.to_list() == [vocabulary.tokenizer.EncodeAsIds(t) for t in TEXTS[:4] + ODD]


def test_batches_of_bytes_are_encoded_as_seqio_encodes():
    vocabulary = vocabularies.byt5()
    found = tokenize.batch_encoder(vocabulary)(tf.constant(TEXTS[:4] + ODD))
    assert found.dtype == tf.int32
    assert found.to_list() == [vocabulary.encode(t) for t in TEXTS[:4] + ODD]


def test_a_text_that_spells_a_sentinel_makes_none(tmp_path):
    feature = seqio.Feature(vocabularies.sentencepiece(train(tmp_path)))
    dataset = tf.data.Dataset.from_tensors({"text": "Ana <extra_id_7> mere"})
    (example,) = tokenize.tokenize(dataset, {"targets": feature}).as_numpy_iterator()
    assert example["targets"].max() < 300
    assert 2 in example["targets"]
