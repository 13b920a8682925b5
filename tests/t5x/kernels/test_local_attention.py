"""Attention by blocks has the numbers of masked attention, and computes less."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x.kernels import local_attention
from t5x.kernels.attention import attend, plain_attend


def arrays(length, rows=2):
    rng = np.random.default_rng(0)
    normal = lambda: jnp.asarray(rng.normal(size=(rows, length, 2, 8)), jnp.float32)
    # Two segments and padding in the first row, one that fills the second.
    segments = np.ones((rows, length), np.int32)
    segments[0, length // 3 :] = 2
    segments[0, -length // 4 :] = 0
    return normal(), normal(), normal(), jnp.asarray(segments)


def masked(q, k, v, segments, radius):
    places = jnp.arange(q.shape[1])
    near = jnp.abs(places[:, None] - places[None]) <= radius
    same = (segments[:, :, None] == segments[:, None]) & (segments > 0)[:, None]
    return plain_attend(q, k, v, (same & near)[:, None], None)


# One span; two, one of them short; eight; and two pieces of eight, the second one filled up.
@pytest.mark.parametrize(
    ("length", "attention", "spans"),
    [
        (8, attend, 1),
        (13, attend, 2),
        (64, plain_attend, 8),
        pytest.param(70, attend, 8, marks=pytest.mark.slow),
        (140, attend, 8),
    ],
)
def test_values_and_gradients_are_those_of_a_mask(length, attention, spans):
    radius = 2
    q, k, v, segments = arrays(length)
    weights = jnp.sin(jnp.arange(q.size, dtype=jnp.float32)).reshape(q.shape)
    weights = weights * (segments > 0)[..., None, None]

    def scalar(function):
        loss = lambda q, k, v: (function(q, k, v) * weights).sum()
        return jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2)))(q, k, v)

    window = local_attention.window(segments, radius)
    assert len(window.masks) == spans
    found = scalar(lambda *x: local_attention.attend(attention, *x, window))
    wanted = scalar(lambda *x: masked(*x, segments, radius))
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-4)
    for got, want in zip(found[1], wanted[1], strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4)


def test_no_row_of_a_mask_is_empty():
    """Else the sum of a row would be 0, and the safe but slower computation be used."""
    for length in (8, 40, 140):
        window = local_attention.window(arrays(length)[-1], 4)
        assert all(mask.any(-1).all() for mask in window.masks)


def test_the_work_grows_with_the_length_and_not_with_its_square():
    def flops(length):
        q, k, v, segments = arrays(length)

        def forward(q, k, v, segments):
            window = local_attention.window(segments, 16)
            return local_attention.attend(plain_attend, q, k, v, window)

        return jax.jit(forward).lower(q, k, v, segments).compile().cost_analysis()["flops"]

    assert flops(1024) < 4.5 * flops(256)


def test_a_span_reads_its_own_keys_and_a_radius_on_each_side():
    shapes = [m.shape for m in local_attention.window(jnp.ones((1, 1024), jnp.int32), 64).masks]
    assert shapes == [(1, 1, 256, keys) for keys in (320, 384, 384, 320)]
    pieces = local_attention.window(jnp.ones((1, 8192), jnp.int32), 64).masks
    assert [m.shape for m in pieces] == [(4, 1, 256, 384)] * 8
