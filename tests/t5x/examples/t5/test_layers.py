"""Single layers against their formulas."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

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


@pytest.mark.parametrize("activations", [("relu",), ("gelu", "linear")])
def test_the_feed_forward_is_a_product_of_its_projections(activations):
    x, wo = normal(2, 3, 4), normal(8, 4, seed=9)
    names = ["wi"] if len(activations) == 1 else ["wi_0", "wi_1"]
    kernels = {name: normal(4, 8, seed=i) for i, name in enumerate(names)}
    params = {name: {"kernel": k} for name, k in (*kernels.items(), ("wo", wo))}
    found = apply(layers.MlpBlock(8, activations, 0.5, jnp.float32), params, x, False)
    parts = [x @ kernel for kernel in kernels.values()]
    first = np.maximum(parts[0], 0) if activations == ("relu",) else jax.nn.gelu(parts[0])
    hidden = first if len(parts) == 1 else first * parts[1]
    np.testing.assert_allclose(found, hidden @ wo, rtol=1e-4, atol=1e-5)


def attention_params(seed=0):
    names = ("query", "key", "value", "out")
    return {n: {"kernel": normal(8, 8, seed=seed + i)} for i, n in enumerate(names)}


def attend(mask=None, bias=None, params=None):
    attention = layers.Attention(2, 4, 0.0, jnp.float32)
    x, y = normal(1, 3, 8, seed=7), normal(1, 5, 8, seed=8)
    params = params or attention_params()
    keys_values = apply(attention, params, y, method="keys_values")
    return apply(attention, params, x, keys_values, mask, bias), x, y, params


def test_attention_is_a_softmax_mean_of_values_without_scaling():
    bias = normal(1, 2, 3, 5, seed=5)
    mask = np.array([[[[True, True, False, True, True]]]])
    found, x, y, params = attend(mask, bias)
    heads = lambda z, name: (z @ params[name]["kernel"]).reshape(*z.shape[:2], 2, 4)
    q, k, v = heads(x, "query"), heads(y, "key"), heads(y, "value")
    logits = np.einsum("bqhk,bshk->bhqs", q, k) + bias
    weights = jax.nn.softmax(np.where(mask, logits, -np.inf), axis=-1)
    wanted = np.einsum("bhqs,bshk->bqhk", weights, v).reshape(1, 3, 8) @ params["out"]["kernel"]
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def test_a_fully_masked_row_attends_evenly():
    found, _, y, params = attend(np.zeros((1, 1, 3, 5), bool))
    wanted = (y @ params["value"]["kernel"]).mean(1) @ params["out"]["kernel"]
    np.testing.assert_allclose(found[0], np.repeat(wanted, 3, 0), rtol=1e-4, atol=1e-5)


def test_dropout_is_shared_along_the_length():
    x = jnp.ones((2, 6, 50))
    drop = layers.dropout(0.5, True)
    found = drop.apply({}, x, rngs={"dropout": jax.random.key(0)})
    np.testing.assert_array_equal(found, np.broadcast_to(found[:, :1], found.shape))
    assert set(np.unique(found)) == {0.0, 2.0}
    np.testing.assert_array_equal(layers.dropout(0.5, False).apply({}, x), x)


def test_an_embedding_looks_up_and_scores_with_one_table():
    table = normal(7, 4)
    embed = layers.Embed(7, 4)
    np.testing.assert_array_equal(
        apply(embed, {"embedding": table}, np.array([[3, 0]])), table[[[3, 0]]]
    )
    x = normal(1, 2, 4, seed=3)
    np.testing.assert_allclose(
        apply(embed, {"embedding": table}, x, method="attend"), x @ table.T, rtol=1e-5
    )


def test_biases_depend_on_the_distance_alone():
    biases = layers.RelativePositionBiases(2, True, jnp.float32)
    table = normal(2, 32)
    found = apply(biases, {"rel_embedding": table}, jnp.arange(6), 9)
    assert found.shape == (1, 2, 6, 9)
    np.testing.assert_allclose(found[:, :, 1:, 1:], found[:, :, :-1, :-1], rtol=1e-6)
    late = apply(biases, {"rel_embedding": table}, jnp.array([4]), 9)
    np.testing.assert_allclose(late[:, :, 0], found[:, :, 4], rtol=1e-6)


@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (1, 4), (5, 5), (3, 7), (6, 2)])
def test_a_bias_by_distance_is_one_by_positions(queries, keys):
    biases = layers.RelativePositionBiases(2, False, jnp.float32)
    variables = biases.init(jax.random.key(0), jnp.arange(queries), keys)
    wanted = biases.apply(variables, jnp.arange(queries), keys)
    by_distance = biases.apply(variables, jnp.arange(queries), keys, by_distance=True)
    np.testing.assert_array_equal(layers.by_positions(by_distance, queries), wanted)
