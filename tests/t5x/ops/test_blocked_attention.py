"""Attention by blocks is attention at once, for blocks of any size and in any sharding."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x.ops import blocked_attention
from t5x.ops.attention import attend, plain_attend
from t5x.partitioning import PjitPartitioner

ONE_HEAD = 4 * 6 * 5  # bytes of the weights of one head of one sequence


def gradients(attention, arrays, mask, weights):
    loss = lambda q, k, v, bias=None: (attention(q, k, v, mask, bias) * weights).sum()
    return jax.jit(jax.value_and_grad(loss, argnums=range(len(arrays))))(*arrays)


# One head at a time, two, all of a sequence, two sequences, all.
@pytest.mark.parametrize(
    ("heads", "partitions", "biased", "mask_shape"),
    [
        (0, 1, True, (8, 1, 6, 5)),
        (0, 2, True, (8, 1, 6, 5)),
        (2, 1, False, None),
        (2, 2, True, (1, 1, 6, 5)),
        (4, 2, True, (8, 1, 1, 5)),
        (8, 1, True, (8, 1, 6, 5)),
        (8, 2, False, (1, 1, 6, 5)),
        (1000, 2, True, None),
    ],
)
def test_blocks_of_any_size_give_the_same(monkeypatch, heads, partitions, biased, mask_shape):
    monkeypatch.setattr(blocked_attention.os, "cpu_count", lambda: 1)
    monkeypatch.setattr(blocked_attention, "CACHE_BYTES", heads * ONE_HEAD)
    rng = np.random.default_rng(0)
    normal = lambda *shape: jnp.asarray(rng.normal(size=shape), jnp.float32)
    weights, bias = normal(8, 6, 4, 2), normal(1, 4, 6, 5)
    arrays = [normal(8, 6, 4, 2), normal(8, 5, 4, 2), normal(8, 5, 4, 2), *[bias] * biased]
    mask = mask_shape and jnp.asarray(rng.random(mask_shape) < 0.7).at[..., 0].set(True)
    with PjitPartitioner(num_partitions=partitions, devices=jax.devices()[:4]).activations():
        found = gradients(attend, arrays, mask, weights)
    wanted = gradients(plain_attend, arrays, mask, weights)
    jax.tree.map(
        lambda got, want: np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5), found, wanted
    )


def test_the_weights_of_all_rows_are_never_held_at_once():
    shape = jax.ShapeDtypeStruct((64, 128, 4, 32), jnp.float32)
    bias = jax.ShapeDtypeStruct((1, 4, 128, 128), jnp.float32)
    loss = lambda q, k, v, bias: attend(q, k, v, None, bias).sum()
    program = jax.jit(jax.grad(loss, argnums=(0, 1, 2, 3))).lower(shape, shape, shape, bias)
    weight_bytes = 4 * 64 * 4 * 128 * 128
    # Beside some arrays as large as the queries, 4 MiB.
    assert program.compile().memory_analysis().temp_size_in_bytes < weight_bytes
