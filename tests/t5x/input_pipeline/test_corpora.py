"""What a run asks of its corpora, and which sources it refuses to ask."""

import types

import pytest
import seqio

from fakes import toy
from fakes.resumable import Corpus
from t5x.input_pipeline.corpora import Corpora, resumable_source


def task(source, name="one", splits=("train",)):
    return types.SimpleNamespace(name=name, source=source, splits=splits)


def test_a_plain_source_is_not_resumable_and_a_complete_one_is():
    corpus = Corpus()
    assert resumable_source(task(corpus)) is corpus
    assert resumable_source(task(toy.data().provider.source)) is None
    named = types.SimpleNamespace(name="a plain source may have a name")
    assert resumable_source(task(named)) is None


def test_a_partial_or_misspelt_source_is_refused_by_what_it_lacks():
    partial = types.SimpleNamespace(peek=None, listing=None, identity=None)
    with pytest.raises(ValueError, match="pin_revision, use_listing, record_counts"):
        resumable_source(task(partial))

    class Misspelt(seqio.FunctionDataSource):
        def peak(self, split, n):
            return []

    with pytest.raises(ValueError, match=r"'peak' .* 'peek'"):
        resumable_source(task(Misspelt(toy.dataset, ["train"])))


def test_the_first_record_is_read_of_each_task_that_has_the_split(monkeypatch):
    one, other = Corpus(), Corpus()
    tasks = [task(one, splits=["train", "dev"]), task(other, "other")]
    monkeypatch.setattr(seqio, "get_subtasks", lambda provider: tasks)
    Corpora(toy.data("dev")).check()
    assert (one.peeked, other.peeked) == ([("dev", 1)], [])
    assert one.listings == [["dev.txt"]]
    with pytest.raises(ValueError, match=r"'test', .* dev, train"):
        Corpora(toy.data("test")).check()
    Corpora(toy.data("test")).check(required=False)
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
    class Divided(Corpus):
        def pin_identity(self, split, saved):
            self.read.append((split, saved))

    corpus = Divided(identity={"files": 3})
    corpus.read = []
    monkeypatch.setattr(seqio, "get_subtasks", lambda provider: [task(corpus)])
    for revision in ("a" * 40, None):
        saved = {"corpora": {"one": {"revision": revision}}, "orders": {}}
        Corpora(toy.data()).pin(saved)
    assert corpus.pinned == ["a" * 40]
    assert corpus.read == [("train", {"revision": revision}) for revision in ("a" * 40, None)]
    assert Corpora(toy.data()).identities() == {"one": {"files": 3}}
