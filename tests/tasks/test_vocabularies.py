"""A vocabulary is found late, loaded once, and refused if its sentinels are not where they must."""

import copy
import json
import pathlib
import pickle

import numpy as np
import pytest
import sentencepiece
import seqio
import tensorflow as tf
from sentencepiece import sentencepiece_model_pb2 as model_pb2

import gin
from tasks import vocabularies
from tasks.text import tokenize

MINI = vocabularies.resolve("data/ro_mini/validation.jsonl")
TEXTS = [json.loads(line)["text"] for line in pathlib.Path(MINI).read_text().splitlines()]


def train(folder, sentinels="<extra_id_{}>", count=100, first=False, **settings):
    """Writes a SentencePiece model of 300 pieces with sentinels behind (or before) the others."""
    prefix = str(folder / "small")
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS),
        model_prefix=prefix,
        **{"vocab_size": 300, "pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1, **settings},
        minloglevel=2,
    )
    model = model_pb2.ModelProto.FromString((folder / "small.model").read_bytes())
    user_defined = model_pb2.ModelProto.SentencePiece.USER_DEFINED
    pieces = [
        model_pb2.ModelProto.SentencePiece(piece=sentinels.format(i), type=user_defined)
        for i in reversed(range(count))
    ]
    old = list(model.pieces)
    del model.pieces[:]
    model.pieces.extend([*old[:3], *pieces, *old[3:]] if first else [*old, *pieces])
    (folder / "small.model").write_bytes(model.SerializeToString())
    return prefix + ".model"


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return train(tmp_path_factory.mktemp("vocabulary"))


@pytest.mark.parametrize("spelling", ["<extra_id_{}>", "▁<extra_id_{}>"])
def test_sentinels_descend_from_the_last_id(tmp_path, spelling):
    vocabulary = vocabularies.sentencepiece(train(tmp_path, spelling))
    assert vocabularies.sentinels(vocabulary) == tuple(range(399, 299, -1))
    assert vocabulary.vocab_size == 400


def test_byte_sentinels_lie_behind_the_bytes():
    assert vocabularies.sentinels(vocabularies.byt5()) == tuple(range(358, 258, -1))


def test_a_vocabulary_without_sentinels_is_refused(tmp_path):
    with pytest.raises(ValueError, match="has no sentinels"):
        vocabularies.sentinels(vocabularies.sentencepiece(train(tmp_path, count=0)))
    with pytest.raises(ValueError, match="has no sentinels"):
        vocabularies.sentinels(seqio.ByteVocabulary())


def test_sentinels_elsewhere_are_refused(tmp_path):
    with pytest.raises(ValueError, match="<extra_id_0> at id 102 of 400: sentinels must be its la"):
        vocabularies.sentinels(vocabularies.sentencepiece(train(tmp_path, first=True)))


def test_a_file_is_asked_for_when_first_needed_and_missed_in_one_sentence():
    asked = []

    def where():
        asked.append(1)
        return "/nowhere/ro.model"

    vocabulary = vocabularies.sentencepiece(where)
    assert not asked
    with pytest.raises(ValueError, match=r"'/nowhere/ro.model' does not exist: make .*where.path"):
        vocabulary.encode("x")


def test_gin_says_where_the_file_lies(small):
    vocabulary = vocabularies.sentencepiece(vocabularies.ro_model)
    with gin.unlock_config():
        gin.bind_parameter("tasks.vocabularies.ro_model.path", small)
    try:
        assert vocabulary.sentencepiece_model_file == small
    finally:
        gin.clear_config()
    assert vocabularies.ro_model() == str(vocabularies.ROOT / "vocabularies/ro_64000.model")


def test_it_is_equal_to_seqios_and_survives_copies(small):
    vocabulary = vocabularies.sentencepiece(small)
    assert vocabulary == seqio.SentencePieceVocabulary(small)
    assert seqio.SentencePieceVocabulary(small) == vocabulary
    for twin in (copy.deepcopy(vocabulary), pickle.loads(pickle.dumps(vocabulary))):
        assert twin == vocabulary
        assert twin.encode(TEXTS[0]) == vocabulary.encode(TEXTS[0])


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


def test_a_text_that_spells_a_sentinel_makes_none(small):
    feature = seqio.Feature(vocabularies.sentencepiece(small))
    dataset = tf.data.Dataset.from_tensors({"text": "Ana <extra_id_7> mere"})
    (example,) = tokenize.tokenize(dataset, {"targets": feature}).as_numpy_iterator()
    assert example["targets"].max() < 300
    assert 2 in example["targets"]


def test_words_begin_at_blanks():
    mini = vocabularies.sentencepiece(vocabularies.ro_mini_model)
    for vocabulary in (mini, vocabularies.byt5()):
        starts = vocabularies.word_starts(vocabulary)
        ids = vocabulary.encode("Ana are multe mere")
        begins = starts[ids] | (np.arange(len(ids)) == 0)
        words = np.split(ids, np.flatnonzero(begins)[1:])
        assert [vocabulary.decode(word.tolist()).strip() for word in words] == [
            *("Ana", "are", "multe", "mere")
        ]


def test_a_piece_is_one_id_where_the_vocabulary_has_it():
    mini = vocabularies.sentencepiece(vocabularies.ro_mini_model)
    assert vocabularies.ids_of(mini, "▁are") == (181,)
    assert vocabularies.ids_of(mini, "[R]") == tuple(mini.encode("[R]"))
    assert vocabularies.ids_of(mini, "<extra_id_0>") == (2047,)
    with pytest.raises(ValueError, match="cannot spell '漢'"):
        vocabularies.ids_of(mini, "漢")
