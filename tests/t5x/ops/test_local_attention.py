"""Attention by blocks has the numbers of masked attention, and computes less."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x.ops import local_attention
from t5x.ops.attention import attend, plain_attend


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


# Rows are not cut up to a length of 12.
@pytest.mark.parametrize(
    ("length", "attention"), [(12, attend), (13, attend), (32, plain_attend), (64, attend)]
)
def test_values_and_gradients_are_those_of_a_mask(length, attention):
    radius = 4
    q, k, v, segments = arrays(length)
    weights = jnp.sin(jnp.arange(q.size, dtype=jnp.float32)).reshape(q.shape)
    weights = weights * (segments > 0)[..., None, None]

    def scalar(function):
        loss = lambda q, k, v: (function(q, k, v) * weights).sum()
        return jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2)))(q, k, v)

    window = local_attention.window(segments, radius)
    assert (window.blocks is None) == (length <= 12)
    found = scalar(lambda *x: local_attention.attend(attention, *x, window))
    wanted = scalar(lambda *x: masked(*x, segments, radius))
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-4)
    for got, want in zip(found[1], wanted[1], strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4)


def test_no_row_of_a_mask_is_empty():
    """Else the sum of a row would be 0, and the safe but slower computation be used."""
    for length in (8, 40):
        window = local_attention.window(arrays(length)[-1], 4)
        assert window.mask.any(-1).all()


def test_the_work_grows_with_the_length_and_not_with_its_square():
    def flops(length):
        q, k, v, segments = arrays(length)

        def forward(q, k, v, segments):
            window = local_attention.window(segments, 16)
            return local_attention.attend(plain_attend, q, k, v, window)

        return jax.jit(forward).lower(q, k, v, segments).compile().cost_analysis()["flops"]

    assert flops(1024) < 4.5 * flops(256)
