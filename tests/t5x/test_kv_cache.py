"""Rows of a cache are repeated for decodes and reordered with the beams."""

import numpy as np
import pytest

from t5x.kv_cache import pick, reorder_rows, repeat_rows


def test_pick_takes_entries_within_each_row():
    x = np.arange(2 * 3 * 2).reshape(2, 3, 2)
    found = pick(x, np.array([[2, 0], [1, 1]]))
    np.testing.assert_array_equal(found, [x[0, [2, 0]], x[1, [1, 1]]])


@pytest.mark.parametrize("offset", [0, 1])
def test_copies_of_a_row_are_adjacent(offset):
    keys = np.arange(4).reshape(2, 2)
    cache = {"keys": keys, "position": np.int32(3), "cached_bias": np.zeros((2, 2))}
    found = repeat_rows(cache, 2, 3, offset)
    np.testing.assert_array_equal(found["keys"], np.repeat(keys, 3, axis=offset))
    assert found["position"] == 3
    assert found["cached_bias"].shape == (2, 2)


def test_an_index_per_row_is_repeated_only_on_request():
    cache = {"cache_index": np.array([4, 5])}
    assert repeat_rows(cache, 2, 2, 0)["cache_index"].tolist() == [4, 5]
    found = repeat_rows(cache, 2, 2, 0, per_row_index=True)
    assert found["cache_index"].tolist() == [4, 4, 5, 5]


def test_a_leaf_without_the_batch_is_named():
    with pytest.raises(ValueError, match=r"\(3, 4\)"):
        repeat_rows({"keys": np.zeros((3, 4))}, 3, 2, 1)


@pytest.mark.parametrize("offset", [0, 1])
def test_a_beam_takes_the_cache_of_its_parent(offset):
    keys = np.arange(4)  # two rows of two beams
    cache = {"keys": keys if not offset else np.stack([keys, keys + 10])}
    found = reorder_rows(cache, np.array([[1, 1], [0, 1]]), offset)["keys"]
    wanted = [1, 1, 2, 3]
    np.testing.assert_array_equal(found, wanted if not offset else [wanted, np.add(wanted, 10)])
