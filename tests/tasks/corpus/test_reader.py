"""Shards have their own files, or parts, or records, in a new order each epoch, resumed exactly."""

import pytest
import seqio
import tensorflow as tf

from fakes.corpora import LINES, write
from tasks.corpus.reader import assign
from tasks.corpus.records import formats
from tasks.corpus.source import PARTS, RECORDS, CorpusSource


@pytest.fixture
def source(tmp_path):
    """One CSV file per split, which cannot be cut."""
    for split in ("train", "test"):
        (tmp_path / f"{split}.csv").write_text("text\n" + "a line\n" * 9)
    return CorpusSource(
        files={split: str(tmp_path / f"{split}.csv") for split in ("train", "test")}
    )


def test_a_file_that_cannot_be_cut_is_reported_once_a_split(source, caplog):
    for split in ("train", "test", "train"):
        assert all(assign(source.corpus_split(split), i, 8).by_records for i in range(8))
    assert not assign(source.corpus_split("train"), 0, 1).by_records
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2
    assert "has 1 file in split 'train', which cannot be cut into 8 shards" in said[0]


def test_shards_share_files_or_else_parts_each_once(tmp_path):
    (tmp_path / "train.jsonl").write_text('{"text": "a line of text"}\n' * 4000)
    split = CorpusSource(files={"train": str(tmp_path / "train.jsonl")}).corpus_split("train")
    parts = [assign(split, i, 8).parts(0) for i in range(8)]
    assert all(len(own) > 1 for own in parts)
    assert sorted(part for own in parts for part in own) == list(range(sum(map(len, parts))))
    for i in range(5):
        (tmp_path / f"few-{i}.txt").write_text("a line\n")
    split = CorpusSource(str(tmp_path), splits={"train": "few"}).corpus_split("train")
    assert [assign(split, i, 2).files for i in range(2)] == [(0, 2, 4), (1, 3)]


def test_each_epoch_has_its_own_order_and_every_document_once(tmp_path, monkeypatch):
    monkeypatch.setattr(formats, "LOCAL_PART_BYTES", 4096)
    source = CorpusSource(str(write(tmp_path, "jsonl", LINES)), held_out={})

    def three_epochs(seed):
        dataset = source.get_dataset("train", seed=seed, order=PARTS).repeat(3)
        texts = [x["text"].decode() for x in dataset.as_numpy_iterator()]
        return [texts[i * len(LINES) : (i + 1) * len(LINES)] for i in range(3)]

    epochs = three_epochs(0)
    assert all(sorted(epoch) == sorted(LINES) for epoch in epochs)
    assert len({tuple(epoch) for epoch in [LINES, *epochs]}) == 4
    assert three_epochs(0) == epochs
    assert three_epochs(1) != epochs
    assert source.counter.counts()["epochs"] == 3


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "jsonl.gz"])
def test_a_run_killed_twice_reads_what_an_undisturbed_one_reads(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(formats, "LOCAL_PART_BYTES", 4096)
    for i in range(3):
        write(tmp_path, kind, LINES[i * 200 : (i + 1) * 200], f"train-{i}")

    def start():
        source = CorpusSource(str(tmp_path))  # as a new process would
        info = seqio.ShardInfo(0, 2)
        dataset = source.get_dataset("train", seed=5, shard_info=info, order=PARTS).repeat()
        dataset = dataset.map(lambda x: x["text"]).shuffle(20, seed=1).batch(7).prefetch(2)
        options = tf.data.Options()
        options.experimental_external_state_policy = tf.data.experimental.ExternalStatePolicy.IGNORE
        return iter(dataset.with_options(options))

    def take(iterator, n):
        return [next(iterator).numpy().tolist() for _ in range(n)]

    undisturbed = take(start(), 200)  # more than three epochs
    iterator, done = start(), 0
    for kill_at in (31, 120):
        assert take(iterator, kill_at - done) == undisturbed[done:kill_at]
        saved = tf.train.Checkpoint(it=iterator).write(str(tmp_path / f"ckpt{kill_at}"))
        iterator, done = start(), kill_at
        tf.train.Checkpoint(it=iterator).read(saved).assert_consumed()
    assert take(iterator, 80) == undisturbed[120:]


def test_a_restore_reads_no_file_that_was_finished(tmp_path):
    for i in range(4):
        write(tmp_path, "jsonl", LINES[i * 100 : (i + 1) * 100], f"train-{i}")
    iterator = iter(CorpusSource(str(tmp_path), held_out={}).get_dataset("train", shuffle=False))
    for _ in range(350):
        next(iterator)
    saved = tf.train.Checkpoint(it=iterator).write(str(tmp_path / "ckpt"))
    source = CorpusSource(str(tmp_path), held_out={})
    iterator = iter(source.get_dataset("train", shuffle=False))
    tf.train.Checkpoint(it=iterator).read(saved)
    assert next(iterator)["text"].numpy().decode() == LINES[350]
    # At most the file it stood in; nothing, if the counting of that one is still to come.
    assert source.counter.counts()["read"] <= 100


@pytest.mark.parametrize("order", [RECORDS, PARTS])
def test_an_epoch_has_ended_when_all_shards_have(tmp_path, order):
    source = CorpusSource(str(write(tmp_path, "jsonl", LINES)))
    infos = [seqio.ShardInfo(i, 3) for i in range(3)]
    datasets = [source.get_dataset("train", shard_info=info, order=order) for info in infos]
    epochs = []
    for dataset in datasets:
        list(dataset.as_numpy_iterator())
        epochs.append(source.counter.counts()["epochs"])
    assert epochs == [0, 0, 1]
    assert source.counter.counts()["read"] == len(LINES)
