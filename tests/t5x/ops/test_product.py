"""Products of tokens and kernels, and the form in which XLA gets their gradient."""

import jax
import jax.numpy as jnp
import numpy as np

from t5x.ops.product import kernel_gradient, product

RNG = np.random.default_rng(0)
X, KERNEL = (jnp.asarray(RNG.normal(size=s), jnp.float32) for s in [(2, 3, 4), (4, 5)])


def test_products_and_gradients_are_the_references():
    weights = jnp.asarray(RNG.normal(size=(2, 3, 5)), jnp.float32)
    both = lambda f: jax.value_and_grad(lambda *xs: (f(*xs) * weights).sum(), (0, 1))(X, KERNEL)
    found, wanted = both(product), both(jnp.dot)
    jax.tree.map(lambda got, want: np.testing.assert_allclose(got, want, rtol=1e-5), found, wanted)
    np.testing.assert_allclose(kernel_gradient(X, weights), wanted[1][1], rtol=1e-5)


def test_the_result_has_the_dtype_asked_for():
    half = X.astype(jnp.bfloat16)
    assert product(half, KERNEL.astype(jnp.bfloat16)).dtype == jnp.bfloat16
    assert product(half, KERNEL.astype(jnp.bfloat16), jnp.float32).dtype == jnp.float32
    assert kernel_gradient(half, half, jnp.float32).dtype == jnp.float32


def test_no_activation_is_transposed_for_a_kernels_gradient():
    x, d_out = (jax.ShapeDtypeStruct((8, 16, n), jnp.float32) for n in (32, 64))
    kernel = jax.ShapeDtypeStruct((32, 64), jnp.float32)
    gradient = lambda x, kernel, d: jax.vjp(product, x, kernel)[1](2 * d)[1]
    program = jax.jit(gradient).lower(x, kernel, d_out).compile().as_text()
    assert "copy(" not in program
    assert "lhs_contracting_dims={0}, rhs_contracting_dims={0}" in program
