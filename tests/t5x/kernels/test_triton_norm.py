"""The kernels add and normalize as the formula does, gradients too."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x.kernels import triton_norm

EPSILON = 1e-6


def arrays(shape, dtype=jnp.float32):
    rng = np.random.default_rng(0)
    normal = lambda *shape: jnp.asarray(rng.normal(size=shape), dtype)
    return normal(*shape), normal(*shape), normal(shape[-1])


def plain(x, y, scale):
    total = x if y is None else x + y
    wide = total.astype(jnp.float32)
    inverse = jax.lax.rsqrt(jnp.mean(wide**2, -1, keepdims=True) + EPSILON)
    return total, (wide * inverse).astype(scale.dtype) * scale


def kernel(x, y, scale):
    return triton_norm.of_sum(x, y, scale, EPSILON)


def loss_of(norm):
    def loss(x, y, scale):
        total, normed = norm(x, y, scale)
        return (jnp.sin(total) + jnp.cos(3 * normed)).astype(jnp.float32).sum()

    return loss


# The width is a power of 2 or not; the programs of a gradient have one row each, or many.
@pytest.mark.parametrize("shape", [(2, 5, 128), (3, 4, 96)])
@pytest.mark.parametrize("programs", [4, 4096])
@pytest.mark.parametrize("added", [True, False])
def test_values_and_gradients_are_the_formulas(monkeypatch, shape, programs, added):
    monkeypatch.setattr(triton_norm, "PROGRAMS", programs)
    x, y, scale = arrays(shape)
    given = (x, y if added else None, scale)
    argnums = (0, 1, 2) if added else (0, 2)
    for found, wanted in zip(kernel(*given), plain(*given), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    found = jax.grad(loss_of(kernel), argnums)(*given)
    for got, want in zip(found, jax.grad(loss_of(plain), argnums)(*given), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_bfloat16_is_rounded_like_the_formula():
    given = arrays((2, 3, 64), jnp.bfloat16)
    for found, wanted in zip(kernel(*given), plain(*given), strict=True):
        assert found.dtype == jnp.bfloat16
        np.testing.assert_array_equal(found, wanted)


def test_each_device_normalizes_its_examples(assert_devices_agree):
    assert_devices_agree(jax.grad(loss_of(kernel), (0, 1, 2)), arrays((4, 3, 32)))
