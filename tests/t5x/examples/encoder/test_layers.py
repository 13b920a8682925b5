"""Single layers of encoders against their formulas."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x.examples.encoder import layers


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("use_bias", [False, True])
def test_the_norm_subtracts_the_mean(use_bias):
    x, scale, bias = normal(2, 3, 8) * 5 + 3, normal(8, seed=1), normal(8, seed=2)
    norm = layers.CenteredLayerNorm(epsilon=1e-5, use_bias=use_bias)
    params = {"scale": scale} | ({"bias": bias} if use_bias else {})
    found = norm.apply({"params": params}, x)
    wanted = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * scale
    np.testing.assert_allclose(found, wanted + (bias if use_bias else 0), rtol=1e-4, atol=1e-5)
    half = norm.clone(dtype=jnp.bfloat16).apply({"params": params}, x)
    assert half.dtype == jnp.bfloat16


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
