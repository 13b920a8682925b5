"""Batches of a sorted corpus are mixed, and positions keep their order."""

import csv
import json
from unittest import mock

import pytest
import scipy.stats
import seqio

from fakes import toy
from fakes.arrays import assert_equal_batches
from t5x.input_pipeline.config import DatasetConfig
from t5x.input_pipeline.corpora import Corpora
from t5x.input_pipeline.stream import TrainStream
from tasks import pairs
from tasks.corpus.source import EPOCHS, PARTS, RECORDS
from tasks.rows import Rows

COUNTS = {"a": 2000, "b": 1000, "c": 1000}
LENGTHS = {"inputs": 16, "targets": 4}
COLUMNS = {"inputs": "text", "targets": "label"}


def write(path, fewer=1):
    """Write rows sorted by label, so many times fewer than `COUNTS`."""
    with open(path, "w", newline="") as file:
        rows = [[f"text {i}", name] for name, n in COUNTS.items() for i in range(n // fewer)]
        csv.writer(file).writerows([["text", "label"], *rows])
    return str(path)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write(tmp_path_factory.mktemp("sorted") / "train.csv")


@pytest.fixture(scope="module")
def short(tmp_path_factory):
    """The corpus with 1,000 rows only, so that an epoch is soon read."""
    return write(tmp_path_factory.mktemp("short") / "train.csv", fewer=4)


NAME = "sorted"


def start(corpus, shuffled=64, order=None, **settings):
    """A stream over the corpus, as a new process would make it; its shards mix `shuffled` examples.

    A task's 1,024 would be two epochs, which are read before the first batch.
    """
    seqio.TaskRegistry.remove(NAME)
    with mock.patch.object(pairs, "SHUFFLED", shuffled):
        task = pairs.add(
            NAME, Rows(files={"train": corpus}, columns=COLUMNS, held_out={}), toy.VOCABULARY
        )
    defaults = {"split": "train", "batch_size": 32, "shuffle": True, "seed": 0, "pack": False}
    cfg = DatasetConfig(task, LENGTHS, **{**defaults, **settings})
    if order:
        Corpora(cfg).pin_orders({NAME: order})
    return TrainStream(cfg, seqio.EncDecFeatureConverter, (0, cfg.batch_size), 0, shards=2)


def take(stream, n):
    return [next(stream) for _ in range(n)]


def labels(batch):
    return [toy.VOCABULARY.decode(row.tolist()) for row in batch["decoder_target_tokens"]]


def test_a_batch_of_a_sorted_corpus_has_the_shares_of_its_classes(corpus):
    found = take(start(corpus), 100)
    for name, n in COUNTS.items():
        law = scipy.stats.binom(32, n / 4000)
        risk = 1e-3 / (2 * len(COUNTS) * len(found))
        counts = [labels(batch).count(name) for batch in found]
        assert law.ppf(risk) <= min(counts) <= max(counts) <= law.isf(risk)


def test_a_position_resumes_in_the_order_of_all_records(short, tmp_path):
    first = start(short)
    take(first, 5)
    first.save(str(tmp_path))
    wanted = take(first, 40)  # into the second epoch
    again = start(short)
    assert json.loads((tmp_path / "stream.json").read_text())["orders"] == {NAME: EPOCHS}
    again.restore(str(tmp_path))
    assert_equal_batches(take(again, 40), wanted)


@pytest.mark.parametrize("order", [PARTS, RECORDS])
def test_a_position_keeps_its_order_where_a_new_run_has_another(short, tmp_path, order):
    first = start(short, batch_size=8, order=order)
    take(first, 5)
    first.save(str(tmp_path))
    wanted = take(first, 40)
    again = start(short, batch_size=8)
    again.restore(str(tmp_path))
    assert_equal_batches(take(again, 40), wanted)
    again.save(str(tmp_path))
    orders = json.loads((tmp_path / "stream.json").read_text())["orders"]
    assert orders == {NAME: order}
    kept = "keeps the order of its saved data position" in again.corpora.mixing(8)[0]
    assert kept == (order == PARTS)
