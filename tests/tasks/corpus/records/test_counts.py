"""Records are counted by split and reason; epochs by shard."""

from tasks.corpus.records.counts import RecordCounter


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
