"""Sums of any form are those of numpy, in float32."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x.kernels.sums import WIDE, column_sums, mean, sum_rows
from t5x.partitioning import PjitPartitioner

RNG = np.random.default_rng(0)


# 8 rows are sharded over 4 devices, 6 are not; 520 are more than are added one by one.
@pytest.mark.parametrize("shape", [(8, 3), (6, 2), (520, 2)])
def test_rows_are_summed_in_any_sharding(shape):
    x = jnp.arange(np.prod(shape), dtype=jnp.bfloat16).reshape(shape)
    partitioner = PjitPartitioner(devices=jax.devices()[:4])
    with partitioner.activations():
        found = jax.jit(sum_rows)(x)
    assert found.shape[0] == (4 if shape[0] % 4 == 0 else 1)
    np.testing.assert_array_equal(found.sum(0), np.asarray(x, np.float32).sum(0))
    assert found.dtype == jnp.float32


@pytest.mark.parametrize("columns", [5, WIDE + 3])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_columns_are_summed_in_float32(columns, dtype):
    x = jnp.asarray(RNG.normal(size=(2, 300, columns)), dtype)
    wanted = np.asarray(x, np.float64).sum(1)
    found = jax.jit(column_sums)(x)
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def test_wide_columns_are_summed_by_a_product():
    for columns, by_product in ((WIDE + 1, True), (WIDE, False)):
        x = jax.ShapeDtypeStruct((8, columns), jnp.float32)
        program = jax.jit(column_sums).lower(x).compile().as_text()
        assert (" dot(" in program) == by_product


@pytest.mark.parametrize("axes", [(0,), (1,), (2,), (0, 1), (1, 2)])
def test_means_are_those_of_numpy(axes):
    x = RNG.normal(size=(3, 4, WIDE + 1)).astype(np.float32)
    np.testing.assert_allclose(mean(jnp.asarray(x), axes), x.mean(axes), rtol=1e-4, atol=1e-5)
