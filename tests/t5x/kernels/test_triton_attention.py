"""The kernels compute the same as plain attention with a mask and a bias, gradients too."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x.kernels import triton_attention
from t5x.kernels.attention import Segments, plain_attend
from t5x.kernels.triton_attention import Reach


@pytest.fixture
def case(segmented):
    return lambda queries, keys, causal=False: segmented(queries, keys, causal, 16, 0.5)


def parts(q, k, v, arrays):
    if arrays == 1:
        return [jnp.stack([q, k, v], 2)]
    return [
        q[:, :, None],
        *([jnp.stack([k, v], 2)] if arrays == 2 else [k[:, :, None], v[:, :, None]]),
    ]


@pytest.mark.parametrize(
    ("queries", "keys", "biased", "causal", "arrays"),
    [
        (114, 114, True, True, 1),  # not a multiple of a tile
        (192, 130, True, False, 3),  # fewer keys
        (50, 200, False, False, 2),
        (128, 128, True, False, 2),
        (1, 64, False, False, 2),
    ],
)
def test_values_and_gradients_are_the_references(
    case, plainly, queries, keys, biased, causal, arrays
):
    q, k, v, where, by_distance = case(queries, keys, causal)
    weights = jnp.sin(jnp.arange(q.size, dtype=jnp.float32)).reshape(q.shape)
    given = (q, k, v, by_distance)[: 3 + biased]

    def by_kernels(q, k, v, by_distance=None):
        return triton_attention.attend(parts(q, k, v, arrays), where, by_distance)

    def wanted(q, k, v, by_distance=None):
        out, some = plainly(q, k, v, where, by_distance)
        return out * some

    loss = lambda attend: jax.jit(
        jax.value_and_grad(lambda *xs: (attend(*xs) * weights).sum(), tuple(range(len(given))))
    )
    found, found_grads = loss(by_kernels)(*given)
    value, grads = loss(wanted)(*given)
    np.testing.assert_allclose(found, value, rtol=1e-4)
    for got, want in zip(found_grads, grads, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_a_query_without_keys_gets_zeros_and_gives_no_gradient(case):
    q, k, v, _, by_distance = case(64, 64)
    where = Segments(jnp.full((2, 64), 2), jnp.ones((2, 64), jnp.int32))
    attend = lambda q: triton_attention.attend(parts(q, k, v, 3), where, by_distance)
    assert not attend(q).any()
    assert not jax.grad(lambda q: jnp.cos(attend(q)).sum())(q).any()


def test_segments_may_be_in_any_order(case, plainly):
    q, k, v, _, by_distance = case(192, 192)
    ids = jnp.asarray([[1] * 64 + [2] * 64 + [1] * 64, [3, 1, 2] * 64])
    where = Segments(ids, ids)
    gradient = lambda attend: jax.grad(lambda *xs: jnp.cos(attend(*xs)).sum(), (0, 1, 2, 3))
    found = lambda q, k, v, bias: triton_attention.attend(parts(q, k, v, 3), where, bias)
    wanted = lambda q, k, v, bias: plainly(q, k, v, where, bias)[0]
    given = q, k, v, by_distance
    for got, want in zip(gradient(found)(*given), gradient(wanted)(*given), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("causal", "radius"), [(False, 20), (False, 64), (True, 70)])
def test_keys_beyond_the_radius_are_not_reached(case, plainly, causal, radius):
    q, k, v, where, _ = case(200, 200, causal)
    where = where.replace(radius=radius)
    found = lambda q, k, v: triton_attention.attend(parts(q, k, v, 3), where)

    def wanted(q, k, v):
        out, some = plainly(q, k, v, where)
        return out * some

    gradient = lambda attend: jax.grad(lambda *xs: jnp.cos(attend(*xs)).sum(), (0, 1, 2))(q, k, v)
    np.testing.assert_allclose(found(q, k, v), wanted(q, k, v), rtol=1e-4, atol=1e-5)
    for got, want in zip(gradient(found), gradient(wanted), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


ALL, IDS = [[1] * 256], [[1] * 128 + [2] * 64 + [0] * 64]
NEAR = [[0, 2], [0, 3], [1, 4], [2, 4]]


@pytest.mark.parametrize(
    ("ids", "reach", "tiles", "count"),
    [
        (IDS, Reach(), [[0, 2], [0, 2], [2, 3], [0, 0]], 5),
        (ALL, Reach(radius=1), NEAR, 10),
        (ALL, Reach(radius=64), NEAR, 10),
        (ALL, Reach(radius=65), [[0, 3], [0, 4], [0, 4], [1, 4]], 14),
        (ALL, Reach(causal=True), [[0, 1], [0, 2], [0, 3], [0, 4]], 10),
    ],
)
def test_tiles_out_of_reach_are_skipped(ids, reach, tiles, count):
    """Those without a common segment, beyond the radius, or later if causal."""
    plan = triton_attention._plan(jnp.asarray(ids), jnp.asarray(ids), reach)
    assert plan.in_row.tolist() == [tiles]
    assert plan.counts.sum() == count


def test_each_device_computes_its_examples_and_heads(case, assert_devices_agree):
    q, k, v, where, by_distance = case(64, 64)
    loss = lambda *xs: jnp.sin(triton_attention.attend(parts(*xs[:3], 1), where, xs[3])).sum()
    assert_devices_agree(jax.grad(loss, argnums=(0, 3)), (q, k, v, by_distance), 2)


def test_queries_of_an_example_without_keys_attend_to_all_of_its_padding(case):
    q, k, v, _, _ = case(50, 70)
    ids = lambda n, *rows: jnp.asarray([[row] * n for row in rows])
    where = Segments(ids(50, 1, 2), ids(70, 0, 2))
    found = triton_attention.attend(parts(q, k, v, 2), where)
    np.testing.assert_allclose(found, plain_attend(q, k, v, None, None), rtol=1e-4, atol=1e-5)


def test_nan_is_not_hidden(case):
    q, k, v, where, _ = case(64, 64)
    found = triton_attention.attend(parts(q.at[0, 3].set(jnp.nan), k, v, 3), where)
    assert jnp.isnan(found[0, 3]).all()
    assert not jnp.isnan(found[0, 4]).any()
