"""The hand-written feed-forward gradient is that of the plain reference."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x.kernels.feed_forward import feed_forward, gelu, plain_feed_forward


@pytest.mark.parametrize("activations", [(jax.nn.relu,), (jax.nn.gelu, lambda x: x)])
@pytest.mark.parametrize("dropped", [False, True])
@pytest.mark.parametrize("biased", [False, True])
def test_values_and_gradients_are_the_references(activations, dropped, biased):
    rng = np.random.default_rng(0)
    normal = lambda *shape: jnp.asarray(rng.normal(size=shape), jnp.float32)
    x, wo = normal(2, 3, 4), normal(5, 4)
    wi = tuple(normal(4, 5) for _ in activations)
    keep = jnp.asarray(rng.random((2, 1, 5)) < 0.5, jnp.float32) * 2 if dropped else None
    weights = normal(2, 3, 4)
    bias = tuple(normal(5) for _ in activations) if biased else None

    def scalar(product):
        loss = lambda x, wi, wo, b: (product(activations, x, keep, wi, wo, b) * weights).sum()
        return jax.value_and_grad(loss, argnums=(0, 1, 2, 3))(x, wi, wo, bias)

    jax.tree.map(
        lambda got, want: np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4),
        scalar(feed_forward),
        scalar(plain_feed_forward),
    )


def test_the_gelu_of_bfloat16_is_exact_to_its_rounding():
    """Values and slopes beside those of float32, which is left to JAX."""
    exact = functools.partial(jax.nn.gelu, approximate=False)
    x = jnp.linspace(-12, 12, 4801).astype(jnp.bfloat16)
    wide = x.astype(jnp.float32)
    slopes = lambda f, x: jax.vmap(jax.grad(f))(x).astype(jnp.float32)
    np.testing.assert_allclose(gelu(x).astype(jnp.float32), exact(wide), rtol=6e-3, atol=1e-5)
    np.testing.assert_allclose(slopes(gelu, x), slopes(exact, wide), rtol=6e-3, atol=2e-3)
    np.testing.assert_array_equal(gelu(wide), exact(wide))
