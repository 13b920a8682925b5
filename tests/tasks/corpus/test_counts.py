"""Records are counted by split and reason, on request each one once; epochs by shard."""

import numpy as np

from tasks.corpus.counts import RecordCounter, code


def test_a_batch_that_is_read_twice_is_distinct_once_in_any_order():
    counter = RecordCounter("corpus")
    codes = np.array([0] * 7 + [code("skipped_empty")])
    for place in [(0, 2), (0, 3), (0, 0), (1, 2), (0, 2), (1, 2)]:  # (part, step)
        counter.add_batch("train", (0, 2), place, codes)
    counter.add_batch("train", (1, 2), (0, 2), codes[:4])
    assert counter.counts("train")["read"] == 6 * 8 + 4
    found = counter.counts("train", distinct=True)
    assert (found["read"], found["skipped_empty"]) == (4 * 8 + 4, 4)


def test_records_known_by_number_are_distinct_once_and_may_have_several_names():
    counter = RecordCounter("corpus")
    both = code("kept_with_numbers") | code("kept_with_replaced_characters")
    codes = np.array([0, both, code("skipped_empty"), 0])
    for numbers in ([0, 1, 2, 3], [3, 1, 2, 9]):
        counter.add_numbers("train", np.array(numbers), 10, codes)
    counts = counter.counts("train")
    assert (counts["read"], counts["skipped_empty"], counts["kept_with_numbers"]) == (8, 2, 2)
    once = counter.counts("train", distinct=True)
    assert (once["read"], once["skipped_empty"]) == (5, 1)
    assert once["kept_with_replaced_characters"] == 1


def test_splits_are_counted_apart_and_together():
    counter = RecordCounter("corpus")
    assert "0 records read, skipped none" in counter.sentence()
    counter.add({"read": 9, "skipped_too_long": 2, "skipped_null": 1}, "train")
    counter.add({"read": 2, "cut_inputs": 1}, "validation")
    assert counter.counts("validation")["read"] == 2
    assert counter.counts()["read"] == 11
    assert counter.splits() == ["train", "validation"]
    assert "split train: 9 records read, skipped 1 null, 2 too long" in counter.sentence("train")


def test_an_epoch_is_complete_when_every_shard_of_the_stream_is():
    counter = RecordCounter("corpus")
    counter.start_shard("train", (0, 16))  # before the saved number of shards is known
    for index, complete in ((0, 0), (1, 3)):
        for each in range(2):
            counter.start_shard("train", (each, 2))
        counter.end_epoch("train", (index, 2), 3)
        assert counter.counts("train")["epochs"] == complete
    assert counter.sentence().endswith(" 3 epochs completed")
