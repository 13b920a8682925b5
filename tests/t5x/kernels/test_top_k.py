"""`top_k` by blocks is `lax.top_k`, the lowest of equal ids first."""

import jax
import numpy as np
import pytest

from t5x.kernels.top_k import argmax, top_k


@pytest.mark.parametrize("size", [100, 2048, 2049, 5000, 6400])
@pytest.mark.parametrize("k", [1, 2])
def test_the_best_of_blocks_are_the_best_of_all(size, k):
    rng = np.random.default_rng(size)
    numbers = rng.normal(size=(2, 3, size)).astype(np.float32)
    tied = np.round(numbers)
    hidden = np.where(np.arange(size) < size - 1, -np.inf, numbers)
    for x in (numbers, tied, hidden):
        found, expected = top_k(x, k), jax.lax.top_k(x, k)
        np.testing.assert_array_equal(found[0], expected[0])
        np.testing.assert_array_equal(found[1], expected[1])
        np.testing.assert_array_equal(argmax(x), np.argmax(x, -1))
