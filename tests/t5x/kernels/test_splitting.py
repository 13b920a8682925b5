"""An axis that is split is joined again, and its turns are as large as asked for."""

import jax.numpy as jnp
import numpy as np
import pytest

from t5x.kernels.splitting import divisor, join, split


@pytest.mark.parametrize(("axis", "parts", "size"), [(0, 1, 2), (0, 2, 4), (1, 3, 1), (2, 1, 5)])
def test_what_is_split_is_joined_again(axis, parts, size):
    x = jnp.arange(8 * 6 * 5).reshape(8, 6, 5)
    turns = split(x, axis, parts, size)
    assert turns.shape[0] == x.shape[axis] // (parts * size)
    assert turns.shape[1 + axis] == parts * size
    np.testing.assert_array_equal(join(turns, axis, parts), x)


def test_each_turn_has_its_share_of_each_part():
    turns = split(jnp.arange(8), axis=0, parts=2, size=2)
    np.testing.assert_array_equal(turns, [[0, 1, 4, 5], [2, 3, 6, 7]])
    assert split(None, axis=0, parts=2, size=2) is None


@pytest.mark.parametrize(
    ("number", "most", "found"), [(12, 5, 4), (12, 12, 12), (7, 6, 1), (4, 9, 4)]
)
def test_a_divisor_is_the_largest_that_is_allowed(number, most, found):
    assert divisor(number, most) == found
