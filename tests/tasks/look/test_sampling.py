"""A sample is spread over the corpus, and examples are those of the task itself."""

import collections
import itertools

import pytest
import seqio

from fakes import corpora as fake_corpora
from tasks.corpus import overview
from tasks.corpus.source import CorpusSource
from tasks.jobs import summarization  # noqa: F401  registers cnn_dailymail
from tasks.look import sampling
from tasks.romanian import RO_MINI

TASK = seqio.TaskRegistry.get("ro_mini_span_corruption")


def source_of(folder, rows):
    for i in range(18):
        fake_corpora.write(folder, "parquet", [f"{i} {n}" for n in range(rows)], f"train-{i:02}")
    return CorpusSource(str(folder), splits=("train",))


@pytest.fixture
def source(tmp_path):
    return source_of(tmp_path, 300)


def take(source, n, **settings):
    found = sampling.documents(source, "train", **settings)
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
    with pytest.raises(ValueError, match=r"the corpus cannot be read: .*train-07.*is damaged"):
        take(source, None)


def test_features_that_are_no_text_are_left_out():
    import tensorflow as tf

    make = lambda split, shuffle_files, seed=None: tf.data.Dataset.from_tensors(
        {"inputs": "a", "n": 3}
    )
    function = seqio.FunctionDataSource(make, ["train"])
    assert list(sampling.documents(function, "train")) == [{"inputs": "a"}]


def test_examples_have_the_lengths_and_invert_to_the_text():
    rows = list(itertools.islice(sampling.documents(RO_MINI, "train"), 20))
    lengths = sampling.default_lengths(TASK)
    assert lengths == {"inputs": 512, "targets": 114}
    first = sampling.examples(TASK, rows, "train", lengths)[0]
    assert {name: len(row) for name, row in first.items()} == lengths
    vocabulary = TASK.output_features["targets"].vocabulary
    marks = [text for is_mark, text in sampling.spans(vocabulary, first["inputs"], {}) if is_mark]
    assert marks == [f"<{n}>" for n in range(28)]
    assert sampling.spans(vocabulary, first["targets"], {})[0] == (True, "<0>")


def test_normalization_is_that_of_the_task():
    assert sampling.normalized(TASK, "ş  a") == "ș a"
    no_spaces = seqio.TaskRegistry.get("ro_mini_no_spaces_span_corruption")
    assert sampling.normalized(no_spaces, "ş  a") == "șa"
    assert sampling.normalized(seqio.TaskRegistry.get("cnn_dailymail"), "ş  a") == "ş a"
