"""All records of a finite split are mixed, in every format, and resumed exactly."""

import collections
import pathlib

import pytest
import scipy.stats
import seqio
import tensorflow as tf

from fakes.sorted_corpora import COUNTS, KINDS, in_batches, sorted_source, texts_of
from tasks.corpus.source import PARTS, RECORDS

BATCH = 64
HALF = {name: n // 2 for name, n in COUNTS.items()}


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


# That any format resumes in this order is tested below.
@pytest.mark.parametrize(
    "kind",
    [k if k in ("jsonl", "parquet") else pytest.param(k, marks=pytest.mark.slow) for k in KINDS],
)
def test_every_batch_of_a_sorted_corpus_has_the_shares_of_its_classes(tmp_path, kind):
    source = sorted_source(tmp_path, kind, HALF)
    assert source.order("train") == RECORDS
    batches = in_batches(source, BATCH, epochs=2)
    assert len(batches) == 2 * sum(HALF.values()) // BATCH
    assert not beyond_bounds(batches)


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_the_order_by_parts_would_fail_that_test(tmp_path, kind):
    source = sorted_source(tmp_path, kind)
    assert beyond_bounds(in_batches(source, BATCH, order=PARTS))


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
    assert source.record_counts("train", distinct=True)["read"] == 700


def test_an_endless_shard_without_text_is_named(tmp_path):
    source = sorted_source(tmp_path, "csv", {"a": 3})
    with source.repeated(None):
        endless = lambda i: source.get_dataset("train", seed=0, shard_info=seqio.ShardInfo(i, 8))
        few = endless(0).take(20)
        none = endless(5)
    assert len(list(few)) == 20
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"shard 5 of 8 .* has no text: the c"):
        next(iter(none))
    assert read(source, 5, 8, epochs=2) == []


@pytest.mark.parametrize("kind", KINDS)
def test_the_order_is_exact_after_a_kill_and_the_position_small(tmp_path, kind):
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    wrote = sorted_source(corpus, kind)

    def start():
        source = wrote if kind == "parallel" else type(wrote)(str(corpus), splits=["train"])
        if kind == "parallel":
            source._stores.clear()  # as in a new process
        info = seqio.ShardInfo(1, 2)
        dataset = source.get_dataset("train", seed=5, shard_info=info).repeat()
        options = tf.data.Options()
        options.experimental_external_state_policy = tf.data.experimental.ExternalStatePolicy.IGNORE
        options.experimental_optimization.inject_prefetch = False  # its buffer would be saved
        return iter(dataset.batch(100).with_options(options))

    def take(iterator, n):
        key = "inputs" if kind == "parallel" else "text"
        return [next(iterator)[key].numpy().tolist() for _ in range(n)]

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
