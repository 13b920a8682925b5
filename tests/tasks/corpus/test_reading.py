"""What a dataset is made for is known while it is made, and only then."""

import threading

from tasks.corpus import reading
from tasks.corpus.reading import Reading


def test_it_is_known_within_and_restored_afterwards():
    assert reading.current() == Reading("train", 1, trained=False)
    with reading.of(split="validation", shards=8, trained=True):
        assert reading.current() == Reading("validation", 8, trained=True)
        with reading.of(split="train", shards=2, trained=False):
            assert reading.current().shards == 2
        with reading.of(rate=0.5):
            assert reading.current() == Reading("validation", 8, trained=True, rate=0.5)
        assert reading.current().shards == 8
    assert reading.current().shards == 1


def test_another_thread_has_its_own():
    found = []
    with reading.of(split="a", shards=3, trained=True):
        thread = threading.Thread(target=lambda: found.append(reading.current().shards))
        thread.start()
        thread.join()
    assert found == [1]
