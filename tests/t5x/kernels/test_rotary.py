"""Rotary positions turn pairs of dimensions, so that products depend on distances."""

import jax.numpy as jnp
import numpy as np

from t5x.kernels import rotary


def normal(seed, *shape):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def test_products_depend_on_distances_only():
    q, k = normal(0, 1, 1, 2, 8), normal(1, 1, 1, 2, 8)

    def product(query_position, key_position):
        turned = (
            rotary.rotate(x, *rotary.angles(jnp.array([[place]]), 8, 100.0))
            for x, place in ((q, query_position), (k, key_position))
        )
        return jnp.einsum("BQHK,BSHK->BHQS", *turned)

    np.testing.assert_allclose(product(3, 7), product(103, 107), rtol=1e-4)
    assert np.abs(product(3, 7) - product(3, 8)).max() > 0.1
