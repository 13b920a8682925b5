"""Vocabularies and lengths that do not fit the model are refused."""

import pytest
import seqio

from fakes import toy
from t5x.input_pipeline import checks


def test_vocabularies_must_be_the_models_and_fit_its_embedding():
    checks.verify_matching_vocabs(toy.data(), toy.model())
    with pytest.raises(ValueError, match=r"259 ids but network.T5Config.vocab_size is 128.* 384"):
        checks.verify_matching_vocabs(toy.data(), toy.model(vocab_size=128))
    other = toy.model()
    other.output_vocabulary = seqio.ByteVocabulary(extra_ids=5)
    with pytest.raises(ValueError, match=r"toy_copy encodes 'targets' .*output_vocabulary"):
        checks.verify_matching_vocabs(toy.data(), other)


def test_an_unreadable_vocabulary_is_named(tmp_path):
    path = str(tmp_path / "no.model")
    with pytest.raises(ValueError, match=r"no.model cannot be read .*sentencepiece_model_file"):
        checks.vocabulary_size(seqio.SentencePieceVocabulary(path))


@pytest.mark.parametrize("lengths", [None, {"inputs": 16}, {"inputs": 16, "targets": 0}])
def test_lengths_must_be_given(lengths):
    with pytest.raises(ValueError, match=r"TASK_FEATURE_LENGTHS\['(inputs|targets)'\] is (None|0)"):
        checks.feature_shapes(toy.data(task_feature_lengths=lengths))
    found = checks.feature_shapes(toy.data(batch_size=6))
    assert found == {"encoder_input_tokens": (6, 16), "decoder_input_tokens": (6, 16)}
