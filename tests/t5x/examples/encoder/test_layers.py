"""Single layers of encoders against their formulas."""

import jax
import jax.numpy as jnp
import numpy as np

from t5x.examples.encoder import layers


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def test_attention_weights_are_dropped_and_the_rest_enlarged():
    """With equal keys and values of 1, the output is the share of kept weights, doubled."""
    zeros, one = np.zeros((4, 4), np.float32), np.ones(4, np.float32)
    params = {n: {"kernel": zeros, "bias": 0 * one} for n in ("query", "key", "value", "out")}
    params["value"]["bias"], params["out"]["kernel"] = one, np.eye(4, dtype=np.float32)
    init = jax.nn.initializers.zeros
    attention = layers.SelfAttention(2, 2, 0.5, jnp.float32, "xla", True, init, init)
    x = np.zeros((1, 400, 4), np.float32)
    mask = np.ones((1, 1, 400, 400), bool)
    apply = lambda dropout: attention.apply(
        {"params": params}, x, mask, None, dropout, rngs={"dropout": jax.random.key(0)}
    )
    np.testing.assert_allclose(apply(False), 1.0, rtol=1e-5)
    found = apply(True)
    assert 0 < np.abs(found - 1).max() < 0.3
