"""Batches are tokenized as SentencePiece and seqio tokenize single texts."""

import numpy as np
import pytest
import seqio
import tensorflow as tf

from common.source import Reading
from fakes import tokenizer_files
from fakes.paths import ROOT
from fakes.refuses import refuses
from fakes.small_vocabulary import TEXTS, train
from tasks import vocabularies
from tasks.corpus.records import counts
from tasks.text import tokenize
from tasks.tokenizer_vocabulary import TokenizerVocabulary

ODD = ["", "  două  blancuri ", "한국어 ☃ 𝔘", "a\nb\tc", "s\u0326i", "x" * 3000]


@pytest.mark.parametrize(
    "settings", [{}, {"byte_fallback": True, "vocab_size": 500}, {"model_type": "bpe"}], ids=str
)
def test_batches_are_encoded_as_sentencepiece_encodes(tmp_path, settings):
    vocabulary = vocabularies.sentencepiece(train(tmp_path, **settings))
    found = tokenize.batch_encoder(vocabulary)(tf.constant(TEXTS[:4] + ODD))
    assert found.to_list() == [vocabulary.tokenizer.EncodeAsIds(t) for t in TEXTS[:4] + ODD]


def test_a_text_that_spells_a_sentinel_makes_none(tmp_path):
    feature = seqio.Feature(vocabularies.sentencepiece(train(tmp_path)))
    dataset = tf.data.Dataset.from_tensors({"text": "Ana <extra_id_7> mere"})
    (example,) = tokenize.tokenize(dataset, {"targets": feature}).as_numpy_iterator()
    assert example["targets"].max() < 300
    assert 2 in example["targets"]


def test_sentinels_need_an_unknown_id_and_other_vocabularies_none(tmp_path):
    for tokens in (["<pad>", "<eos>"], ["<pad>", "<eos>", "<extra_id_0>"]):
        folder = tokenizer_files.blanks_bpe(tmp_path / str(len(tokens)), tokens)
        feature = seqio.Feature(TokenizerVocabulary(folder))
        dataset = tf.data.Dataset.from_tensors({"text": "Ana are mere"})
        if len(tokens) == 3:
            with refuses("the vocabulary", f"{folder}/tokenizer.json"):
                tokenize.tokenize(dataset, {"targets": feature})
            continue
        (example,) = tokenize.tokenize(dataset, {"targets": feature}).as_numpy_iterator()
        assert example["targets"].tolist() == feature.vocabulary.encode("Ana are mere")


def wordpiece(folder):
    return TokenizerVocabulary(str(ROOT / "data/ro_mini/wordpiece"))


@pytest.mark.parametrize(
    "make",
    [
        lambda folder: vocabularies.sentencepiece(train(folder)),
        lambda _: vocabularies.byt5(),
        wordpiece,
    ],
    ids=["sentencepiece", "bytes", "wordpiece"],
)
def test_examples_are_those_of_seqio(tmp_path, make):
    features = dict.fromkeys(["inputs", "targets"], seqio.Feature(make(tmp_path)))
    texts = TEXTS[:4] + ODD
    rows = {"inputs": texts, "targets": texts[::-1], "row": range(len(texts))}
    dataset = tf.data.Dataset.from_tensor_slices({k: list(v) for k, v in rows.items()})
    found = tokenize.tokenize_examples(dataset, features)
    expected = seqio.preprocessors.tokenize(dataset, features)
    assert found.element_spec == expected.element_spec
    lists = lambda examples: [
        {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in example.items()}
        for example in examples.as_numpy_iterator()
    ]
    assert lists(found) == lists(expected)


@pytest.mark.parametrize(
    ("make", "special"),
    [
        (
            lambda folder: vocabularies.sentencepiece(train(folder, control_symbols=["<c>"])),
            ["<pad>", "a</s>b", "<unk>", "<extra_id_7>", "<c>"],
        ),
        (lambda _: vocabularies.byt5(), ["<pad>", "x </s>", "<unk>", "<extra_id_99>"]),
        (wordpiece, ["[MASK]", "a[SEP]b", "[CLS]"]),
    ],
    ids=["sentencepiece", "bytes", "wordpiece"],
)
def test_texts_that_spell_a_special_token_are_counted_once(tmp_path, make, special):
    features = {"targets": seqio.Feature(make(tmp_path))}
    texts = [*special, " ".join(special), "</p> <extra_id_> [mask", "Ana are mere.", ""]
    dataset = tf.data.Dataset.from_tensor_slices({"targets": texts, "text": texts})
    for use in (tokenize.tokenize, tokenize.tokenize_examples):
        counter = counts.RecordCounter("texts")
        list(use(dataset, features, reading=Reading(counter=counter)))
        assert counter.counts()[counts.SPELLED] == len(special) + 1
        assert counter.counts()["pieces"] > 0


def test_examples_may_lack_a_feature_or_have_others_of_any_shape(tmp_path):
    feature = seqio.Feature(vocabularies.sentencepiece(train(tmp_path)))
    features = {"inputs": feature, "targets": feature}
    example = {"inputs": "Ana are mere", "names": ["a", "b"]}
    for given in (example, {"inputs": example["inputs"]}):
        dataset = tf.data.Dataset.from_tensors(given)
        (found,) = tokenize.tokenize_examples(dataset, features).as_numpy_iterator()
        assert found.keys() == given.keys() | {"inputs_pretokenized"}
        assert found["inputs"].tolist() == feature.vocabulary.encode("Ana are mere")
