"""Rows of a table and their gradient."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x.kernels.lookup import FEW, lookup


def gradient_of_sum(lookup, table, ids, weights):
    """Return the gradient [V, D] of the looked-up rows times `weights`."""
    return jax.jit(jax.grad(lambda table: (lookup(table, ids) * weights).sum()))(table)


@pytest.mark.parametrize("rows", [2, FEW, FEW + 1, 50])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_rows_and_gradient_are_those_of_take(rows, dtype):
    rng = np.random.default_rng(0)
    table = jnp.asarray(rng.normal(size=(rows, 16)), dtype)
    ids = jnp.asarray(rng.integers(0, rows, (3, 7)), jnp.int32)
    weights = jnp.asarray(rng.normal(size=(3, 7, 16)), dtype)
    np.testing.assert_array_equal(lookup(table, ids), table[ids])
    gradient = gradient_of_sum(lookup, table, ids, weights)
    assert gradient.dtype == dtype
    expected = np.zeros((rows, 16))
    np.add.at(expected, np.asarray(ids), np.asarray(weights, np.float64))
    tolerance = 1e-6 if dtype == jnp.float32 else 2**-8
    np.testing.assert_allclose(np.asarray(gradient, np.float64), expected, tolerance, 1e-6)


@pytest.mark.parametrize("rows", [2, 50])
def test_a_row_of_many_tokens_has_the_sum_of_all_their_gradients_in_bfloat16(rows):
    table, ids = jnp.zeros((rows, 4), jnp.bfloat16), jnp.ones((4, 1024), jnp.int32)
    weights = jnp.ones((4, 1024, 4), jnp.bfloat16)
    gradient = gradient_of_sum(lookup, table, ids, weights)
    np.testing.assert_array_equal(gradient[1], 4096.0)
    np.testing.assert_array_equal(gradient[0], 0.0)
    plain = gradient_of_sum(lambda table, ids: table[ids], table, ids, weights)
    assert plain[1].max() < 1024  # where this fails, JAX has learned to add up in float32


def test_an_id_beyond_the_table_shows():
    found = lookup(jnp.ones((9, 2)), jnp.array([8, 9]))
    np.testing.assert_array_equal(jnp.isnan(found), [[False, False], [True, True]])
