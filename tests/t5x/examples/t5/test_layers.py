"""Single layers against their formulas."""

import jax
import jax.numpy as jnp
import numpy as np

from t5x.examples.t5 import layers


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def apply(module, params, *args, **kwargs):
    return module.apply({"params": params}, *args, **kwargs)


def test_the_norm_divides_by_the_root_mean_square():
    x, scale = normal(2, 3, 8) * 50, normal(8, seed=1)
    found = apply(layers.LayerNorm(), {"scale": scale}, x)
    wanted = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * scale
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    half = apply(layers.LayerNorm(jnp.bfloat16), {"scale": scale}, x)
    assert half.dtype == jnp.bfloat16


def test_dense_multiplies_in_its_dtype_and_returns_its_output_dtype():
    x, kernel = normal(2, 4), normal(4, 6, seed=1)
    dense = layers.Dense(6, ("embed", "mlp"), layers.scaled_init("normal"))
    np.testing.assert_allclose(apply(dense, {"kernel": kernel}, x), x @ kernel, rtol=1e-5)
    half = dense.clone(dtype=jnp.bfloat16)
    assert apply(half, {"kernel": kernel}, x).dtype == jnp.bfloat16
    wide = half.clone(output_dtype=jnp.float32)
    assert apply(wide, {"kernel": kernel}, x).dtype == jnp.float32


def test_dropout_is_shared_along_the_length():
    x = jnp.ones((2, 6, 50))
    drop = layers.dropout(0.5, True)
    found = drop.apply({}, x, rngs={"dropout": jax.random.key(0)})
    np.testing.assert_array_equal(found, np.broadcast_to(found[:, :1], found.shape))
    assert set(np.unique(found)) == {0.0, 2.0}
    np.testing.assert_array_equal(layers.dropout(0.5, False).apply({}, x), x)


def test_a_bias_is_that_of_its_distances_bucket():
    biases, table = layers.RelativePositionBiases(2, True, jnp.float32), normal(2, 32)
    found = apply(biases, {"rel_embedding": table}, jnp.array([0, -1, 1, 1000]))
    np.testing.assert_allclose(found, table[:, [0, 1, 17, 31]], rtol=1e-6)
