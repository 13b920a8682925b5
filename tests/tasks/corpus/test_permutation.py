"""A permutation has every number once, is uniform, and never changes."""

import numpy as np
import pytest

from tasks.corpus.permutation import permute


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 63, 64, 65, 1000, 45_000])
def test_every_number_is_found_once(n):
    found = permute(np.arange(n), n, (3, 1))
    np.testing.assert_array_equal(np.sort(found), np.arange(n))
    some = np.array([n - 1, 0, n // 2])
    np.testing.assert_array_equal(permute(some, n, (3, 1)), found[some])


def test_keys_have_their_own_permutations():
    one, again, other = (permute(np.arange(100), 100, key) for key in ((0, 1), (0, 1), (1, 0)))
    np.testing.assert_array_equal(one, again)
    assert (one != other).mean() > 0.9


def test_every_place_has_every_number_equally_often():
    n, keys = 48, 4000
    counts = np.zeros((n, n))
    for key in range(keys):
        counts[np.arange(n), permute(np.arange(n), n, (key,))] += 1
    expected, freedom = keys / n, (n - 1) ** 2
    chi_square = ((counts - expected) ** 2 / expected).sum()
    assert abs(chi_square - freedom) < 5 * np.sqrt(2 * freedom)


def test_neighbours_are_independent():
    found = permute(np.arange(45_000), 45_000, (7,)).astype(float)
    for shift in (1, 2, 8, 128):
        assert abs(np.corrcoef(found[shift:], found[:-shift])[0, 1]) < 5 / np.sqrt(len(found))
    assert abs(np.corrcoef(found, np.arange(len(found)))[0, 1]) < 5 / np.sqrt(len(found))


def test_saved_positions_depend_on_these_numbers():
    """If this changes, runs no longer resume exactly: give the order another name instead."""
    assert permute(np.arange(4), 10, (7,)).tolist() == [0, 6, 8, 9]
    assert permute(np.array([0, 44_999]), 45_000, (123456789, 5)).tolist() == [8462, 9195]
