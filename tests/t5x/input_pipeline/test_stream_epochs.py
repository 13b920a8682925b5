"""A small corpus begins again when each of its documents was read once, whatever is around it."""

import collections
import json

import pytest
import seqio

from fakes import toy
from fakes.arrays import assert_equal_batches
from t5x.input_pipeline.config import DatasetConfig
from t5x.input_pipeline.encoder_rows import EncoderFeatureConverter
from t5x.input_pipeline.stream import TrainStream
from tasks import mixtures, pairs, romanian  # noqa: F401  registers ro_mini
from tasks.rows import Rows

LENGTHS = {"inputs": 24, "targets": 8}
SHARDS = 4
SIZES = {"few": 37, "one": 1, "many": 100}
MIXED = {"mixed": {"few": 1, "many": 1}, "rare": {"few": 0.001, "many": 1}}


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """Tasks of 37 documents, of one and of 100, and mixtures of them; the prefix of their names."""
    folder = tmp_path_factory.mktemp("small")
    for name, n in SIZES.items():
        rows = [json.dumps({"inputs": f"{name} {i}", "targets": f"{i}"}) for i in range(n)]
        (folder / f"{name}.jsonl").write_text("\n".join(rows))
        columns = {"inputs": "inputs", "targets": "targets"}
        source = Rows(files={"train": f"{folder}/{name}.jsonl"}, columns=columns, held_out={})
        pairs.add(f"small_{name}", source, toy.VOCABULARY)
    for name, rates in MIXED.items():
        mixtures.add(f"small_{name}", {f"small_{task}": rate for task, rate in rates.items()})
    yield "small_"
    for name in SIZES:
        seqio.TaskRegistry.remove(f"small_{name}")
    for name in MIXED:
        seqio.MixtureRegistry.remove(f"small_{name}")


def start(task, pack=False, rows=(0, 16)):
    data = {"mixture_or_task_name": task, "batch_size": 16, "pack": pack}
    cfg = toy.data(**data, task_feature_lengths=LENGTHS)
    return TrainStream(cfg, seqio.EncDecFeatureConverter, rows, 0, shards=SHARDS)


def documents(batch):
    """Return the documents of a batch in the order of their places, those of packed rows in any."""
    found = []
    for i in range(16):
        row = i % SHARDS * (16 // SHARDS) + i // SHARDS
        tokens = batch["encoder_input_tokens"][row]
        segments = batch.get("encoder_segment_ids", [tokens > 0] * 16)[row].astype(int)
        for number in range(1, segments.max() + 1):
            found.append(toy.VOCABULARY.decode(tokens[segments == number].tolist()))
    return found


def spread(found, name):
    """Return the least and the most often that a document of a task was read."""
    counts = collections.Counter(found)
    each = [counts[f"{name} {i}"] for i in range(SIZES[name])]
    return min(each), max(each)


def test_every_epoch_has_each_document_once_in_another_order(small):
    stream, found = start(f"{small}few"), []
    for _ in range(10):
        found += documents(next(stream))
        low, high = spread(found, "few")
        assert high - low <= 1  # at every batch
    epochs = [tuple(found[i : i + 37]) for i in range(0, 37 * 4, 37)]
    assert {frozenset(epoch) for epoch in epochs} == {frozenset(f"few {i}" for i in range(37))}
    assert len(set(epochs)) == 4


@pytest.mark.parametrize(
    ("name", "pack", "workers", "batches", "most"),
    [
        ("few", True, 1, 10, {"few": 2}),  # shards pack unequally many
        ("few", True, 4, 10, {"few": 2}),
        ("mixed", False, 4, 20, {"few": 2, "many": 2}),  # and draw unequally many
        ("rare", False, 1, 12, {"many": 1}),
        ("one", False, 1, 2, {"one": 0}),
    ],
)
def test_documents_are_read_equally_often_and_the_same_after_a_kill(
    small, tmp_path, name, pack, workers, batches, most
):
    first, found = start(small + name, pack), []
    half = [next(first) for _ in range(batches // 2)]
    first.save(str(tmp_path))  # in the middle of an epoch
    rest = [next(first) for _ in range(batches - len(half))]
    for batch in half + rest:
        found += documents(batch)
    for task, difference in most.items():
        low, high = spread(found, task)
        assert low > 0
        assert high - low <= difference
    size = 16 // workers
    for worker in {0, workers - 1}:
        rows = (worker * size, (worker + 1) * size)
        again = start(small + name, pack, rows)
        again.restore(str(tmp_path))
        wanted = [{k: v[slice(*rows)] for k, v in batch.items()} for batch in rest]
        assert_equal_batches([next(again) for _ in rest], wanted)


class Counted:
    """A corpus of 1,000 bytes, whose tokens have a byte each."""

    def record_counts(self, split):
        return {"pieces": 100, "text_bytes": 100}

    def text_bytes(self, split):
        return 1000


def test_the_epochs_of_a_start_are_those_of_its_own_phases(small, tmp_path):
    """A run that resumes counts from 0, and reads no more of what it has read before."""
    name = f"{small}phased"
    few, many = f"{small}few", f"{small}many"
    mixtures.add(name, {few: [(0, 1), (4, 0)], many: [(0, 0), (4, 1)]})
    try:
        first, again = start(name), start(name)
        for _ in range(4):
            next(first)
        first.save(str(tmp_path))
        again.restore(str(tmp_path))
        sums = {"non_padding/encoder": 500.0}
        for stream, read in ((first, few), (again, many)):
            for _ in range(4 if stream is again else 0):
                next(stream)
            stream.corpora.sources = dict.fromkeys((few, many), Counted())
            epochs = stream.epochs(sums)
            assert epochs[read] > 0
            assert sum(epochs.values()) == epochs[read]
            stream.close()
    finally:
        seqio.MixtureRegistry.remove(name)


def test_the_epochs_of_a_run_are_no_more_than_their_limit(small):
    name, few, many = f"{small}limited", f"{small}few_2_epochs", f"{small}many"
    mixtures.add(name, {f"{small}few": 1, many: 1}, epochs={f"{small}few": 2})
    try:
        stream = start(name)
        stream.corpora.sources = dict.fromkeys((few, many), Counted())
        epochs = [stream.epochs({"non_padding/encoder": n}) for n in (1000.0, 100_000.0)]
        stream.close()
        assert epochs[0] == {few: 0.5, many: 0.5}
        assert epochs[1][few] == 2
        assert epochs[1][many] == 50
    finally:
        seqio.MixtureRegistry.remove(name)
        seqio.TaskRegistry.remove(few)


@pytest.mark.parametrize("task", ["ro_mini_span_corruption", "ro_mini_bert"])
def test_the_epochs_of_a_run_are_those_it_was_trained_for(task):
    """The pipelines of eight shards read a small corpus several times before the first step."""
    is_bert = task == "ro_mini_bert"
    lengths = {"inputs": 64, "targets": 64 if is_bert else 17}
    cfg = DatasetConfig(task, lengths, "train", 8, shuffle=True, seed=0, pack=is_bert)
    converter = EncoderFeatureConverter if is_bert else seqio.EncDecFeatureConverter
    stream = TrainStream(cfg, converter, (0, 8), seed=0)
    tokens = examples = 0
    for _ in range(10):
        batch = next(stream)
        name = "encoder_segment_ids" if is_bert else "encoder_input_tokens"
        tokens += int((batch[name] != 0).sum())
        examples += int(batch[name].max(1).sum()) if is_bert else 8
    sums = {"sequences": 80.0, "non_padding/encoder": tokens, "examples/encoder": examples}
    epochs = stream.epochs(sums)[task]
    counts = stream.counts()[task]
    stream.close()
    size = stream.corpora.sources[task].text_bytes("train")
    in_corpus = counts["pieces"] / counts["text_bytes"] * size
    wanted = (tokens if is_bert else 80 * 71) / in_corpus
    assert epochs == pytest.approx(wanted, rel=0.1)
    assert epochs < 0.5 < counts["epochs"]
    assert "about 0." in stream.data_summary(sums)[0]
