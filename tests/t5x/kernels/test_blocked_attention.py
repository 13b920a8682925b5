"""Attention by blocks is attention at once, for blocks of any size and in any sharding."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from t5x.kernels import blocked_attention
from t5x.kernels.attention import attend, plain_attend
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


def test_the_weights_of_all_rows_are_never_held_at_once(monkeypatch):
    monkeypatch.setattr(blocked_attention.os, "cpu_count", lambda: 2)  # blocks grow with cores
    shape = jax.ShapeDtypeStruct((64, 256, 4, 16), jnp.float32)
    bias = jax.ShapeDtypeStruct((1, 4, 256, 256), jnp.float32)
    loss = lambda q, k, v, bias: attend(q, k, v, None, bias).sum()
    program = jax.jit(jax.grad(loss, argnums=(0, 1, 2, 3))).lower(shape, shape, shape, bias)
    weight_bytes = 4 * 64 * 4 * 256 * 256
    # Beside some arrays as large as the queries, 4 MiB.
    assert program.compile().memory_analysis().temp_size_in_bytes < weight_bytes


@pytest.mark.parametrize("rows", [4, 18])
def test_bfloat16_is_near_float32(rows):
    rng = np.random.default_rng(0)
    normal = lambda *shape: jnp.asarray(rng.normal(size=shape), jnp.bfloat16)
    weights, mask = normal(rows, 6, 4, 2), jnp.asarray(rng.random((rows, 1, 6, 5)) < 0.8)
    arrays = [normal(rows, 6, 4, 2), normal(rows, 5, 4, 2), normal(rows, 5, 4, 2)]
    arrays.append(normal(1, 4, 6, 5))
    mask = mask.at[..., 0].set(True)
    found = gradients(attend, arrays, mask, weights)
    wide = [x.astype(jnp.float32) for x in arrays]
    wanted = gradients(plain_attend, wide, mask, weights.astype(jnp.float32))
    assert [x.dtype for x in found[1]] == [jnp.bfloat16] * 4
    for got, want in zip(found[1], wanted[1], strict=True):
        error = np.abs(np.asarray(got, np.float32) - want).max()
        assert error < 0.02 * np.abs(want).max()


def test_heads_of_several_devices_are_not_moved_between_them():
    partitioner = PjitPartitioner(2, devices=jax.devices()[:4])
    by_rows_and_heads = NamedSharding(partitioner.mesh, PartitionSpec("data", None, "model"))
    by_heads = NamedSharding(partitioner.mesh, PartitionSpec(None, "model"))
    heads = jax.ShapeDtypeStruct((8, 64, 4, 16), jnp.float32, sharding=by_rows_and_heads)
    bias = jax.ShapeDtypeStruct((1, 4, 64, 64), jnp.float32, sharding=by_heads)
    loss = lambda q, k, v, bias: attend(q, k, v, None, bias).sum()
    gradients = jax.jit(jax.grad(loss, argnums=(0, 1, 2, 3)))
    with partitioner.activations():
        program = gradients.lower(heads, heads, heads, bias).compile().as_text()
    assert "all-reduce" in program
    for moving in ("all-gather", "all-to-all", "collective-permute"):
        assert moving not in program
    bodies = re.findall(r"body=%?([\w.\-]+)", program)
    assert bodies
    for body in bodies:  # processes would not agree on the order of collectives in loops
        found = re.search(rf"^%?{re.escape(body)} \(.*?^}}", program, re.MULTILINE | re.DOTALL)
        assert found is not None
        assert "all-reduce" not in found[0]


def test_bfloat16_is_multiplied_as_such():
    heads = jax.ShapeDtypeStruct((4, 64, 2, 16), jnp.bfloat16)
    bias = jax.ShapeDtypeStruct((1, 2, 64, 64), jnp.float32)
    loss = lambda q, k, v, bias: attend(q, k, v, None, bias).astype(jnp.float32).sum()
    lowered = jax.jit(jax.grad(loss, argnums=(0, 1, 2, 3))).lower(heads, heads, heads, bias)
    factors = []
    for computation in lowered.compile().as_text().split("\n\n"):
        dtypes = dict(re.findall(r"%([\w.\-]+) = (\w+)\[", computation))
        for pair in re.findall(r" dot\(%([\w.\-]+), %([\w.\-]+)\)", computation):
            factors.append([dtypes[name] for name in pair])
    assert len(factors) == 7  # two of the output, five of its gradients
    assert all(pair == ["bf16", "bf16"] for pair in factors), factors


def test_weights_are_rounded_as_xla_rounds_them():
    numbers = np.random.default_rng(0).exponential(size=100_000).astype(np.float32)
    ties = (np.arange(1000, dtype=np.uint32) << 16 | 0x3F808000).view(np.float32)
    extremes = np.float32([0, 1, 1e-38, 3.39e38, np.inf])
    numbers = jnp.asarray(np.concatenate([numbers, ties, extremes]))
    rounded = blocked_attention.rounded(numbers, jnp.bfloat16)
    np.testing.assert_array_equal(rounded, numbers.astype(jnp.bfloat16))
