"""What a dataset is made for is known while it is made, and only then."""

import threading

import pytest

from tasks.streaming import reading
from tasks.streaming.reading import Reading


def test_it_is_known_within_and_restored_afterwards():
    assert reading.current() == Reading("train", 1, endless=False)
    with reading.of("validation", 8, endless=True):
        assert reading.current() == Reading("validation", 8, endless=True)
        with reading.of("train", 2, endless=False):
            assert reading.current().shards == 2
        assert reading.current().shards == 8
    assert reading.current().shards == 1


def test_an_error_restores_it():
    with pytest.raises(KeyError), reading.of("a", 3, endless=True):
        raise KeyError
    assert reading.current().shards == 1


def test_another_thread_has_its_own():
    found = []
    with reading.of("a", 3, endless=True):
        thread = threading.Thread(target=lambda: found.append(reading.current().shards))
        thread.start()
        thread.join()
    assert found == [1]
