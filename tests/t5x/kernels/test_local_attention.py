"""Attention to near keys computes less; its numbers are held in `test_kernels`."""

import jax
import jax.numpy as jnp

from t5x.kernels import local_attention, reference


def shapes(length, radius):
    segments = jnp.ones((1, length), jnp.int32)
    return [mask.shape for mask in local_attention.window(segments, radius).masks]


def test_a_span_reads_its_own_keys_and_a_radius_on_each_side():
    assert shapes(1024, 64) == [(1, 1, 256, keys) for keys in (320, 384, 384, 320)]
    assert shapes(8192, 64) == [(4, 1, 256, 384)] * 8


def test_no_row_of_a_mask_is_empty():
    """Else the sum of a row would be 0, and the safe but slower computation be used."""
    for length in (8, 40, 140):
        segments = jnp.asarray([[1] * (length // 3) + [0] * (length - length // 3)])
        assert all(mask.any(-1).all() for mask in local_attention.window(segments, 4).masks)


def test_the_work_grows_with_the_length_and_not_with_its_square():
    def flops(length):
        def forward(x_BLHK, segments):
            window = local_attention.window(segments, 16)
            return local_attention.attend(reference.attend, x_BLHK, x_BLHK, x_BLHK, window)

        given = jnp.ones((2, length, 2, 8)), jnp.ones((2, length), jnp.int32)
        return jax.jit(forward).lower(*given).compile().cost_analysis()["flops"]

    assert flops(1024) < 4.5 * flops(256)
