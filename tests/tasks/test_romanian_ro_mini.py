"""The bundled corpus is what its page says, and its vocabulary fits it."""

import collections
import json
import unicodedata

import pytest
import sentencepiece

from fakes.paths import ROOT

FOLDER = ROOT / "data" / "ro_mini"
SHARDS = [f"train-{i:05d}-of-00004.jsonl" for i in range(4)]


def read(name):
    return [json.loads(line) for line in (FOLDER / name).read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def train():
    return [document for name in SHARDS for document in read(name)]


@pytest.fixture(scope="module")
def validation():
    return read("validation.jsonl")


def test_sizes_and_registers(train, validation):
    documents = train + validation
    assert len(documents) >= 250
    assert sum(len(d["text"].encode()) for d in documents) >= 120_000
    assert len(validation) == 24
    sizes = [len(read(name)) for name in SHARDS]
    assert max(sizes) - min(sizes) <= 1
    count = collections.Counter(d["register"] for d in train)
    assert set(count) == {d["register"] for d in validation}
    assert min(count.values()) >= 15


def test_documents_are_clean_and_each_once(train, validation):
    documents = train + validation
    for document in documents:
        text = document["text"]
        assert set(document) == {"id", "register", "text"}
        assert not set(text) & set("şţŞŢãÃ\ufffd"), document["id"]
        assert unicodedata.normalize("NFC", text) == text == text.strip(), document["id"]
        assert "  " not in text, document["id"]
    for key in ("id", "text"):
        assert len({d[key] for d in documents}) == len(documents)


def test_no_sentence_of_validation_in_train(train, validation):
    def runs(documents):
        words = [d["text"].split() for d in documents]
        return {tuple(w[i : i + 8]) for w in words for i in range(len(w) - 7)}

    assert not runs(train) & runs(validation)


def test_vocabulary_covers_the_corpus(train, validation):
    model = sentencepiece.SentencePieceProcessor(model_file=str(FOLDER / "ro_mini.model"))
    ids = [i for d in train + validation for i in model.encode(d["text"])]
    assert ids.count(model.unk_id()) <= 1  # the á of a Hungarian name
    assert max(ids) < 2048 - 100
