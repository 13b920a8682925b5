"""Records are counted by split and reason, on request each one once; epochs by shard."""

import numpy as np

from tasks.corpus.counts import RecordCounter, code


def test_a_batch_that_is_read_twice_is_distinct_once():
    counter = RecordCounter("corpus")
    for _ in range(2):
        counter.add({"read": 8, "skipped_empty": 1}, split="train", shard=(0, 2), batch=(0, 7))
    counter.add({"read": 4}, split="train", shard=(1, 2), batch=(0, 7))
    assert counter.counts("train")["read"] == 20
    found = counter.counts("train", distinct=True)
    assert (found["read"], found["skipped_empty"]) == (12, 1)


def test_batches_are_known_in_any_order():
    counter = RecordCounter("corpus")
    for batch in [(0, 2), (0, 3), (0, 0), (1, 2), (0, 1), (0, 2), (1, 2)]:  # (part, step)
        counter.add({"read": 1}, split="train", shard=(0, 1), batch=batch)
    assert counter.counts("train", distinct=True)["read"] == 5


def test_splits_are_counted_apart_and_together():
    counter = RecordCounter("corpus")
    counter.add({"read": 3}, split="train")
    counter.add({"read": 2, "cut_inputs": 1}, split="validation")
    assert counter.counts("validation")["read"] == 2
    assert counter.counts()["read"] == 5
    assert counter.splits() == ["train", "validation"]


def test_an_epoch_is_complete_when_every_shard_is():
    counter = RecordCounter("corpus")
    for index in range(2):
        counter.start_shard("train", (index, 2))
    assert not counter.end_epoch("train", (0, 2), 1)
    assert counter.counts("train")["epochs"] == 0
    assert counter.end_epoch("train", (1, 2), 1)
    assert counter.counts("train")["epochs"] == 1
    assert counter.sentence().endswith(" 1 epoch completed")


def test_epochs_are_of_the_shards_that_a_resumed_stream_has():
    counter = RecordCounter("corpus")
    counter.start_shard("train", (0, 16))  # before the saved number of shards is known
    for index in range(2):
        counter.start_shard("train", (index, 8))
        counter.end_epoch("train", (index, 8), 3)
    assert counter.counts("train")["epochs"] == 3


def test_the_sentence_names_the_reasons_of_skips():
    counter = RecordCounter("corpus")
    assert "0 records read, skipped none" in counter.sentence()
    counter.add({"read": 9, "skipped_too_long": 2, "skipped_null": 1}, split="train")
    assert "split train: 9 records read, skipped 1 null, 2 too long" in counter.sentence("train")


def test_records_known_by_number_are_distinct_once_and_may_have_several_names():
    counter = RecordCounter("corpus")
    both = code(["kept_with_numbers", "kept_with_replaced_characters"])
    codes = np.array([0, both, code(["skipped_empty"]), 0])
    for numbers in ([0, 1, 2, 3], [3, 1, 2, 9]):
        counter.add_records("train", codes, np.array(numbers), 10, ["a"])
    counts = counter.counts("train")
    assert (counts["read"], counts["skipped_empty"], counts["kept_with_numbers"]) == (8, 2, 2)
    once = counter.counts("train", distinct=True)
    assert (once["read"], once["skipped_empty"]) == (5, 1)
    assert once["kept_with_replaced_characters"] == 1
    assert counter.labels == ["a"]
