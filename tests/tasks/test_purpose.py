"""What a dataset is made for is known while it is made, and only then."""

import threading

from tasks import purpose
from tasks.purpose import Purpose


def test_it_is_known_within_and_restored_afterwards():
    assert purpose.current() == Purpose("train", 1, trained=False)
    with purpose.of(split="validation", shards=8, trained=True):
        assert purpose.current() == Purpose("validation", 8, trained=True)
        with purpose.of(split="train", shards=2, trained=False):
            assert purpose.current().shards == 2
        with purpose.of(rate=0.5):
            assert purpose.current() == Purpose("validation", 8, trained=True, rate=0.5)
        assert purpose.current().shards == 8
    assert purpose.current().shards == 1


def test_another_thread_has_its_own():
    found = []
    with purpose.of(split="a", shards=3, trained=True):
        thread = threading.Thread(target=lambda: found.append(purpose.current().shards))
        thread.start()
        thread.join()
    assert found == [1]
