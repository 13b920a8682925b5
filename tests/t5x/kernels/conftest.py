"""What the tests of attention and norms share."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x.kernels.attention import Segments, plain_attend
from t5x.partitioning import PjitPartitioner

BATCH, HEADS = 2, 2


@pytest.fixture
def segmented():
    """A function to arrays, segments with padding, and a bias by distance."""

    def case(queries, keys, causal, width, scale=1.0):
        rng = np.random.default_rng(0)
        normal = lambda *shape: jnp.asarray(rng.normal(size=shape) * scale, jnp.float32)
        q, k, v = (normal(BATCH, n, HEADS, width) for n in (queries, keys, keys))
        ids = lambda n: np.repeat([[1, 2, 3, 0], [1, 1, 4, 4]], -(-n // 4), 1)[:, :n]
        where = Segments(jnp.asarray(ids(queries)), jnp.asarray(ids(keys)), causal)
        return q, k, v, where, normal(HEADS, queries + keys - 1)

    return case


@pytest.fixture
def plainly():
    """A function to the output of plain attention, and which queries have a key [B, Q, 1, 1]."""

    def attend(q, k, v, where, by_distance=None):
        queries, keys = q.shape[1], k.shape[1]
        mask = where.queries[:, None, :, None] == where.keys[:, None, None]
        mask &= (where.queries > 0)[:, None, :, None]
        if where.causal:
            mask &= np.tril(np.ones((queries, keys), bool))
        distance = np.arange(keys)[None] - np.arange(queries)[:, None]
        if where.radius is not None:
            mask &= abs(distance) <= where.radius
        some, bias = mask.any(-1, keepdims=True), None
        if by_distance is not None:
            bias = by_distance[:, distance + queries - 1][None]
        return plain_attend(q, k, v, mask | ~some, bias), some[:, 0, :, :, None]

    return attend


@pytest.fixture
def assert_devices_agree():
    """A function that checks a gradient, of one device and of four."""

    def check(gradient, given, num_partitions=1):
        alone = jax.jit(gradient)(*given)
        with PjitPartitioner(num_partitions, devices=jax.devices()[:4]).activations():
            together = jax.jit(gradient)(*given)
        for got, want in zip(together, alone, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)

    return check
