"""Rotary positions turn pairs of dimensions, so that products depend on distances."""

import jax
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


def test_a_pair_turns_by_its_own_angle():
    """Dimensions i and i + K/2 turn by theta^(-2i/K) a position."""
    x = jnp.zeros((1, 1, 1, 4)).at[..., :2].set(1.0)
    found = rotary.rotate(x, *rotary.angles(jnp.array([[5]]), 4, 100.0))[0, 0, 0]
    turns = np.array([5.0, 0.5])
    np.testing.assert_allclose(found, [*np.cos(turns), *np.sin(turns)], rtol=1e-6)


def test_the_gradient_turns_back():
    x, weights = normal(0, 1, 3, 2, 8), normal(1, 1, 3, 2, 8)
    turns = rotary.angles(jnp.arange(3)[None], 8, 10.0)

    def plainly(x, cosines, sines):
        first, second = jnp.split(x, 2, -1)
        return x * cosines + jnp.concatenate([-second, first], -1) * sines

    found, wanted = (
        jax.value_and_grad(lambda x, f=f: (f(x, *turns) * weights).sum())(x)
        for f in (rotary.rotate, plainly)
    )
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-5)
    np.testing.assert_allclose(found[1], wanted[1], rtol=1e-5, atol=1e-6)
