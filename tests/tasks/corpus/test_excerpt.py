"""An excerpt is spread over the corpus, and always the same."""

import collections
import itertools

import pytest
import seqio

from fakes import corpora as fake_corpora
from tasks.corpus import excerpt, overview
from tasks.corpus.source import CorpusSource


def source_of(folder, rows):
    for i in range(18):
        fake_corpora.write(folder, "parquet", [f"{i} {n}" for n in range(rows)], f"train-{i:02}")
    return CorpusSource(str(folder), splits=("train",))


@pytest.fixture
def source(tmp_path):
    return source_of(tmp_path, 300)


def take(source, n, **settings):
    found = excerpt.documents(source, "train", **settings)
    return [row["text"] for row in itertools.islice(found, n)]


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet", "txt"])
def test_a_sample_of_a_small_sorted_file_is_of_all_of_it(tmp_path, kind):
    fake_corpora.write(tmp_path, kind, [str(i // 1000) for i in range(5000)], "train")
    source = CorpusSource(str(tmp_path), splits=("train",))
    counts = collections.Counter(text[0] for text in take(source, 100))
    assert set(counts) == set("01234")
    assert max(counts.values()) < 50


def test_a_sample_is_spread_over_files_and_reads_little(source, monkeypatch):
    monkeypatch.setattr(overview, "COUNTED_BYTES", 0)  # as of a large corpus
    texts = take(source, 64)
    assert len({text.split()[0] for text in texts}) == 16
    assert len(set(texts)) == 64
    assert source.record_counts()["read"] <= 18 * 300 / 5
    assert take(source, 64) == texts
    assert take(source, 64, seed=1) != texts
    assert take(source, 5, shuffle=False) == [f"0 {n}" for n in range(5)]


def test_all_documents_come_once(tmp_path):
    texts = take(source_of(tmp_path, 20), None)
    assert len(set(texts)) == len(texts) == 18 * 20


def test_a_corpus_that_cannot_be_read_is_one_sentence(source, tmp_path):
    damaged = tmp_path / "train-07.parquet"
    damaged.write_bytes(damaged.read_bytes()[:-100])
    with pytest.raises(ValueError, match=r"train-07.*is damaged"):
        take(source, None)


def test_features_that_are_no_text_are_left_out():
    import tensorflow as tf

    make = lambda split, shuffle_files, seed=None: tf.data.Dataset.from_tensors(
        {"inputs": "a", "n": 3}
    )
    function = seqio.FunctionDataSource(make, ["train"])
    assert list(excerpt.documents(function, "train")) == [{"inputs": "a"}]


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet", "txt"])
@pytest.mark.parametrize("counted_bytes", [0, 16e6])  # as of a corpus of either size
def test_few_documents_are_drawn_evenly_and_always_the_same(
    tmp_path, monkeypatch, kind, counted_bytes
):
    monkeypatch.setattr(overview, "COUNTED_BYTES", counted_bytes)
    sizes = {"a": 900, "b": 90, "c": 10}
    texts = [letter for letter, n in sizes.items() for _ in range(n)]
    fake_corpora.write(tmp_path, kind, texts, "train")
    source = CorpusSource(str(tmp_path), splits=("train",))

    def draw(most, feature=None):
        return collections.Counter(
            r["text"][0] for r in excerpt.few(source, "train", most, feature)
        )

    assert draw(100, "text") == {"a": 90, "b": 9, "c": 1}
    assert draw(3, "text").total() == 3
    assert draw(2000, "text") == draw(2000) == sizes
    assert 75 <= draw(100)["a"] < 100
    assert excerpt.few(source, "train", 7) == excerpt.few(source, "train", 7)
