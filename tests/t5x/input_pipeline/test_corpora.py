"""What a run asks of its corpora."""

import types

import pytest
import seqio

from common.source import source_of
from fakes import toy
from fakes.refuses import refuses
from fakes.resumable import Corpus
from t5x.input_pipeline.corpora import Corpora


def task(source, name="one"):
    return types.SimpleNamespace(name=name, source=source, splits=source.splits)


def test_a_plain_source_is_asked_like_one_that_knows_more():
    plain = seqio.FunctionDataSource(toy.dataset, list(toy.SPLITS))
    source = source_of(task(plain))
    assert set(source.peek("validation", 2)) == set(toy.texts("validation")[:2])
    assert (source.identity("train"), source.order("train")) == ({}, None)
    assert source.record_counts() == {}
    corpus = Corpus()
    assert source_of(task(corpus)) is corpus


def test_the_first_record_is_read_of_each_task_that_has_the_split(monkeypatch):
    one, other = Corpus(splits=["train", "dev"]), Corpus()
    tasks = [task(one), task(other, "other")]
    monkeypatch.setattr(seqio, "get_subtasks", lambda provider: tasks)
    Corpora(toy.data("dev")).check()
    assert (one.peeked, other.peeked) == ([("dev", 1)], [])
    assert one.listings == [["dev.txt"]]
    with refuses("DatasetConfig.split", "test"):
        Corpora(toy.data("test")).check()
    assert Corpora(toy.data(use_cached=True)).sources == {}


def test_a_corpus_that_counts_its_texts_is_asked_whether_they_suffice(monkeypatch, caplog):
    class Counted(Corpus):
        def check_shards(self, split, num_shards):
            raise ValueError(f"{split} has fewer texts than {num_shards} shards")

        def text_bytes(self, split):
            return 1000

    tasks = [task(Corpus()), task(Counted(), "other")]
    monkeypatch.setattr(seqio, "get_subtasks", lambda provider: tasks)
    with pytest.raises(ValueError, match="train has fewer texts than 8 shards"):
        Corpora(toy.data()).check_shards(8)
    monkeypatch.setattr(seqio, "get_subtasks", lambda provider: [task(Counted())])
    Corpora(toy.data(batch_size=8, pack=True)).check()
    assert not caplog.messages
    Corpora(toy.data(batch_size=1000, pack=True)).check()
    assert "BATCH_SIZE to 62" in caplog.messages[0]


def test_a_corpus_is_read_at_the_revision_of_its_saved_position(monkeypatch):
    corpus = Corpus(identity={"files": 3})
    monkeypatch.setattr(seqio, "get_subtasks", lambda provider: [task(corpus)])
    for revision in ("a" * 40, None):
        saved = {"corpora": {"one": {"revision": revision}}, "orders": {}}
        Corpora(toy.data()).pin(saved)
    assert corpus.pinned == ["a" * 40]
    assert corpus.checked == [("train", {"revision": revision}) for revision in ("a" * 40, None)]
    assert Corpora(toy.data()).identities() == {"one": {"files": 3}}
