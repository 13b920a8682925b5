"""All records of a finite split are mixed, in every format, and resumed exactly."""

import collections
import csv
import errno
import io
import json
import pathlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.stats
import seqio
import tensorflow as tf

from common.source import Reading
from fakes.corpora import LINES, write
from tasks.corpus import held_out, shuffle
from tasks.corpus.records import formats
from tasks.corpus.records.counts import code
from tasks.corpus.records.documents import Column
from tasks.corpus.shuffle import RecordStore, permute
from tasks.corpus.source import PARTS, CorpusSource
from tasks.corpus.storage.retry import RetryPolicy
from tasks.rows import Rows

KINDS = ("jsonl", "jsonl.gz", "jsonl.zst", "json", "csv", "tsv", "txt", "parquet", "parallel")
COUNTS = {"a": 1600, "b": 800, "c": 600, "d": 1000}
SHARDS = 8
BATCH = 64
HALF = {name: n // 2 for name, n in COUNTS.items()}


@pytest.mark.parametrize("n", [1, 2, 3, 5, 64, 65, 45_000])
def test_a_permutation_has_every_number_once(n):
    found = permute(np.arange(n), n, (3, 1))
    np.testing.assert_array_equal(np.sort(found), np.arange(n))
    some = np.array([n - 1, 0, n // 2])
    np.testing.assert_array_equal(permute(some, n, (3, 1)), found[some])


def test_every_place_has_every_number_equally_often_and_neighbours_are_independent():
    n, keys = 48, 4000
    counts = np.zeros((n, n))
    for key in range(keys):
        counts[np.arange(n), permute(np.arange(n), n, (key,))] += 1
    expected, freedom = keys / n, (n - 1) ** 2
    chi_square = ((counts - expected) ** 2 / expected).sum()
    assert abs(chi_square - freedom) < 5 * np.sqrt(2 * freedom)
    found = permute(np.arange(45_000), 45_000, (7,)).astype(float)
    for shift in (1, 2, 8, 128):
        assert abs(np.corrcoef(found[shift:], found[:-shift])[0, 1]) < 5 / np.sqrt(len(found))
    assert abs(np.corrcoef(found, np.arange(len(found)))[0, 1]) < 5 / np.sqrt(len(found))


def test_saved_positions_depend_on_these_numbers():
    """If this changes, runs no longer resume exactly: give the order another name instead."""
    assert permute(np.arange(4), 10, (7,)).tolist() == [0, 6, 8, 9]
    assert permute(np.array([0, 44_999]), 45_000, (123456789, 5)).tolist() == [8462, 9195]


def store_of(folder):
    source = CorpusSource(str(folder), retry_policy=RetryPolicy(20, 0.01, 0.02))
    return RecordStore(source.corpus_split("train"), source.counter)


def test_records_are_stored_by_number_also_those_that_are_skipped(tmp_path):
    lines = ['{"text": "a"}', '{"text": ""}', '{"text": "b\\ud800"}', "[1]"]
    (tmp_path / "train.jsonl").write_text("\n".join(lines))
    store = store_of(tmp_path)
    assert len(store) == 4
    (texts,), codes = store.read(np.array([2, 1, 3, 0, 2]))
    assert texts == [b"b?", b"a", b"b?"]
    names = ["kept_with_replaced_characters", "skipped_empty", "skipped_malformed"]
    assert codes.tolist() == [*map(code, names), 0, code(names[0])]
    (tmp_path / "train.jsonl").write_text("\n\n")
    assert len(store_of(tmp_path)) == 0


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_read_that_fails_half_way_leaves_nothing_behind(tmp_path, kind, monkeypatch):
    write(tmp_path, kind, LINES)
    attempts, original = [], formats.PartLayout.batches

    def failing(layout, file, part, *required):
        attempts.append(part)
        for i, batch in enumerate(original(layout, file, part, *required)):
            yield batch
            if len(attempts) in (1, 4) and i == 0:
                raise ConnectionError("reset")

    monkeypatch.setattr(formats.PartLayout, "batches", failing)
    store = store_of(tmp_path)
    assert len(store) == len(LINES)
    (texts,), _ = store.read(np.arange(len(LINES)))
    assert [text.decode().split("\n")[0] for text in texts] == LINES
    assert len(attempts) >= 2


def test_temporary_files_leave_nothing_and_a_full_folder_is_named(tmp_path, monkeypatch):
    corpus, temporary = tmp_path / "corpus", tmp_path / "temporary"
    corpus.mkdir()
    temporary.mkdir()
    monkeypatch.setattr(shuffle.tempfile, "tempdir", str(temporary))
    assert len(store_of(write(corpus, "csv", LINES))) == len(LINES)
    assert list(temporary.iterdir()) == []

    class Full(io.BytesIO):
        def write(self, data):
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shuffle.tempfile, "TemporaryFile", Full)
    with pytest.raises(ValueError, match=r"set TMPDIR .*full_shuffle.gigabytes to 0"):
        len(store_of(corpus))


def texts_of(counts=COUNTS):
    """Return texts that begin with their class, sorted by class."""
    return [f"{name} {i} " + "x" * (i % 50) for name, n in counts.items() for i in range(n)]


def sorted_source(folder, kind, counts=COUNTS):
    """Write sorted records and return their source."""
    texts = texts_of(counts)
    if kind == "parallel":
        for side in ("ro", "en"):
            (folder / f"train.{side}").write_text("".join(f"{text}\n" for text in texts))
        pair = (str(folder / "train.ro"), str(folder / "train.en"))
        return Rows(parallel={"train": pair}, held_out={})
    if kind in ("csv", "tsv"):
        with open(folder / f"train.{kind}", "w", newline="") as file:
            rows = csv.writer(file, delimiter="," if kind == "csv" else "\t")
            rows.writerows([["text"], *([text] for text in texts)])
    elif kind == "parquet":
        table = pa.table({"text": texts})
        pq.write_table(table, folder / "train.parquet", row_group_size=500)
    elif kind == "jsonl":  # a file for each class
        for name in counts:
            lines = [json.dumps({"text": text}) for text in texts if text.startswith(name)]
            (folder / f"train-{name}.jsonl").write_text("\n".join(lines))
    else:
        write(folder, kind, texts, "train")
    return CorpusSource(str(folder), splits=["train"])


def in_batches(source, epochs=1, **settings):
    """Return the classes in each batch, in which each shard fills an equal number of rows."""
    rows = BATCH // SHARDS
    shards = []
    for i in range(SHARDS):
        info = seqio.ShardInfo(i, SHARDS)
        dataset = source.get_dataset("train", seed=0, shard_info=info, **settings).repeat(epochs)
        records = dataset.as_numpy_iterator()
        shards.append([(r.get("text", r.get("inputs"))).decode() for r in records])
    steps = min(map(len, shards)) // rows
    return [
        [text[0] for shard in shards for text in shard[i * rows : (i + 1) * rows]]
        for i in range(steps)
    ]


def beyond_bounds(batches):
    """Return the batches in which a class has a share that chance does not explain.

    With all numbers of all batches together, chance exceeds a bound once in 1,000 tests.
    """
    total = sum(COUNTS.values())
    risk = 1e-3 / (2 * len(COUNTS) * len(batches))
    laws = {name: scipy.stats.binom(BATCH, n / total) for name, n in COUNTS.items()}
    bounds = {name: (law.ppf(risk), law.isf(risk)) for name, law in laws.items()}
    counts = [collections.Counter(batch) for batch in batches]
    inside = lambda c: all(low <= c[name] <= high for name, (low, high) in bounds.items())
    return [c for c in counts if not inside(c)]


# A store has read the files before the order begins, whatever their format.
@pytest.mark.parametrize(
    "kind",
    [k if k in ("jsonl", "parquet") else pytest.param(k, marks=pytest.mark.slow) for k in KINDS],
)
def test_every_batch_of_a_sorted_corpus_has_the_shares_of_its_classes(tmp_path, kind):
    source = sorted_source(tmp_path, kind, HALF)
    assert source.order("train") != PARTS
    batches = in_batches(source, epochs=2)
    assert len(batches) == 2 * sum(HALF.values()) // BATCH
    assert not beyond_bounds(batches)


def test_the_order_by_parts_would_fail_that_test(tmp_path):
    assert beyond_bounds(in_batches(sorted_source(tmp_path, "csv"), order=PARTS))


def read(source, index=0, num_shards=1, epochs=1, seed=0):
    info = seqio.ShardInfo(index, num_shards)
    dataset = source.get_dataset("train", seed=seed, shard_info=info).repeat(epochs)
    return [x["text"].decode() for x in dataset.as_numpy_iterator()]


@pytest.mark.parametrize("seed", [0, None])
def test_the_shards_of_an_epoch_have_every_record_once(tmp_path, seed):
    source = sorted_source(tmp_path, "csv", {"a": 1003})
    shards = [read(source, i, 3, seed=seed) for i in range(3)]
    assert sorted(map(len, shards)) == [334, 334, 335]
    assert sorted(text for shard in shards for text in shard) == sorted(texts_of({"a": 1003}))


def test_each_epoch_has_its_own_order_that_the_seed_decides(tmp_path):
    source = sorted_source(tmp_path, "csv", {"a": 700})
    texts = read(source, epochs=3)
    epochs = [texts[i * 700 : (i + 1) * 700] for i in range(3)]
    assert all(sorted(epoch) == sorted(epochs[0]) for epoch in epochs)
    assert len({tuple(epoch) for epoch in [texts_of({"a": 700}), *epochs]}) == 4
    assert read(source, epochs=3) == texts
    assert read(source, epochs=3, seed=1) != texts
    counts = source.record_counts("train")
    assert (counts["read"], counts["epochs"]) == (9 * 700, 3)


def test_an_endless_shard_without_text_is_named(tmp_path):
    source = sorted_source(tmp_path, "csv", {"a": 3})
    endless = lambda i: source.open("train", Reading(seed=0, shard=i, shards=8, epochs=None))
    few = endless(0).take(20)
    none = endless(5)
    assert len(list(few)) == 20
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"shard 5 of 8 .* has no text: the c"):
        next(iter(none))
    assert read(source, 5, 8, epochs=2) == []


def test_an_endless_shard_whose_texts_are_all_held_out_is_named(tmp_path):
    """Nine texts for eight shards, one of them held out: a shard may have no other."""
    share = held_out.least_share([[(line.encode(),) for line in LINES[:9]]], Column("text"))
    folder = str(write(tmp_path, "txt", LINES[:9]))
    source = CorpusSource(folder, held_out={"validation": share})
    source.check_shards("train", 8)
    info = lambda i: seqio.ShardInfo(i, 8)
    read_once = lambda i: source.get_dataset("train", seed=0, shard_info=info(i))
    empty = [i for i in range(8) if not [*read_once(i).as_numpy_iterator()]]
    for i in range(8):
        endless = source.open("train", Reading(seed=0, shard=i, shards=8, epochs=None))
        if i not in empty:
            assert len([*endless.take(5)]) == 5
            continue
        with pytest.raises(tf.errors.InvalidArgumentError, match=f"shard {i} of 8 .* held out"):
            next(iter(endless))
    validation = source.open("validation", Reading("validation", seed=0, epochs=None))
    assert len([*validation.take(3)]) == 3


@pytest.mark.parametrize(
    "kind", [k if k == "parquet" else pytest.param(k, marks=pytest.mark.slow) for k in KINDS]
)
def test_the_order_is_exact_after_a_kill_and_the_position_small(tmp_path, kind):
    def start():
        source = sorted_source(tmp_path, kind)  # as in a new process
        dataset = source.get_dataset("train", seed=5, shard_info=seqio.ShardInfo(1, 2)).repeat()
        options = tf.data.Options()
        options.experimental_external_state_policy = tf.data.experimental.ExternalStatePolicy.IGNORE
        options.experimental_optimization.inject_prefetch = False  # its buffer would be saved
        return iter(dataset.batch(100).with_options(options))

    key = "inputs" if kind == "parallel" else "text"
    take = lambda iterator, n: [next(iterator)[key].numpy().tolist() for _ in range(n)]
    undisturbed = take(start(), 50)  # two and a half epochs
    iterator, done = start(), 0
    for kill_at in (7, 33):
        assert take(iterator, kill_at - done) == undisturbed[done:kill_at]
        saved = tf.train.Checkpoint(it=iterator).write(str(tmp_path / f"position{kill_at}"))
        iterator, done = start(), kill_at
        tf.train.Checkpoint(it=iterator).read(saved).assert_consumed()
        files = pathlib.Path(tmp_path).glob(f"position{kill_at}*")
        assert sum(file.stat().st_size for file in files) < 5_000
    assert take(iterator, 17) == undisturbed[33:]


def test_a_restore_reads_no_record_of_the_past(tmp_path):
    source = sorted_source(tmp_path, "csv")
    iterator = iter(source.get_dataset("train", seed=0))
    texts = [next(iterator)["text"].numpy() for _ in range(3500)]
    saved = tf.train.Checkpoint(it=iterator).write(str(tmp_path / "position"))
    source.reset_counter()
    iterator = iter(source.get_dataset("train", seed=0))
    tf.train.Checkpoint(it=iterator).read(saved)
    rest = [x["text"].numpy() for x in iterator]
    assert sorted(text.decode() for text in texts + rest) == sorted(texts_of())
    assert source.record_counts("train")["read"] <= 500 + 512  # and the rest of its block
