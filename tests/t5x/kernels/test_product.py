"""Products of tokens and kernels, and the form in which XLA gets them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from t5x.kernels import product as module
from t5x.kernels.product import contract, kernel_gradient, product, scaled
from t5x.partitioning import PjitPartitioner

RNG = np.random.default_rng(0)
X, KERNEL = (jnp.asarray(RNG.normal(size=s), jnp.float32) for s in [(2, 3, 4), (4, 5)])
WEIGHTS = jnp.asarray(RNG.normal(size=(2, 3, 5)), jnp.float32)


def values_and_gradients(f, *arrays):
    return jax.value_and_grad(lambda *xs: (f(*xs) * WEIGHTS).sum(), (0, 1))(*arrays)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_products_and_gradients_are_the_references(dtype):
    arrays = X.astype(dtype), KERNEL.astype(dtype)
    found = values_and_gradients(lambda *xs: product(*xs, jnp.float32), *arrays)
    wanted = values_and_gradients(jnp.dot, *(x.astype(jnp.float32) for x in arrays))
    near = {"rtol": 1e-5} if dtype == jnp.float32 else {"rtol": 0.02, "atol": 0.02}
    close = lambda got, want: np.testing.assert_allclose(np.asarray(got, np.float32), want, **near)
    jax.tree.map(close, found, wanted)
    assert [x.dtype for x in found[1]] == [dtype, dtype]
    close(kernel_gradient(arrays[0], WEIGHTS.astype(dtype)), wanted[1][1])


def test_the_result_has_the_dtype_asked_for():
    half = X.astype(jnp.bfloat16)
    assert product(half, KERNEL.astype(jnp.bfloat16)).dtype == jnp.bfloat16
    assert product(half, KERNEL.astype(jnp.bfloat16), jnp.float32).dtype == jnp.float32
    assert contract("BID,BIE->DE", half, half).dtype == jnp.bfloat16
    assert kernel_gradient(half, half, jnp.float32).dtype == jnp.float32


def compiled(f, dtype, *shapes) -> str:
    specs = (jax.ShapeDtypeStruct(shape, dtype) for shape in shapes)
    return jax.jit(f).lower(*specs).compile().as_text()


def test_bfloat16_is_multiplied_as_such_on_a_cpu():
    program = compiled(product, jnp.bfloat16, (8, 16, 32), (32, 64))
    for shape in ("8,16,32", "128,32", "32,64"):
        assert f"= f32[{shape}]" not in program


def test_a_kernels_gradient_is_a_product_with_transposed_tokens():
    gradient = lambda x, kernel, d: jax.vjp(product, x, kernel)[1](2 * d)[1]
    program = compiled(gradient, jnp.float32, (8, 16, 32), (32, 64), (8, 16, 64))
    assert "lhs_contracting_dims={1}, rhs_contracting_dims={0}" in program
    assert "lhs_contracting_dims={0}" not in program


def test_a_gpu_multiplies_gradients_of_float32_results_in_bfloat16(monkeypatch):
    monkeypatch.setattr(module, "platform", lambda: "gpu")
    gradients = jax.grad(lambda x, k: jnp.sin(product(x, k, jnp.float32)).sum(), (0, 1))
    arrays = X.astype(jnp.bfloat16), KERNEL.astype(jnp.bfloat16)
    lines = jax.jit(gradients).lower(*arrays).as_text().splitlines()
    factors = [line.rsplit(" : ", 1)[1].split("->")[0] for line in lines if "dot_general" in line]
    assert len(factors) == 3
    assert all(pair.count("xbf16>") == 2 for pair in factors), factors
    wanted = jax.grad(lambda x, k: jnp.sin(x @ k).sum(), (0, 1))(X, KERNEL)
    for got, want in zip(gradients(*arrays), wanted, strict=True):
        np.testing.assert_allclose(np.asarray(got, np.float32), want, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_a_scale_has_the_gradient_of_a_product(dtype):
    x, scale = X.astype(dtype), jnp.asarray([0.5, 1.0, 2.0, 3.0], dtype)
    weights = WEIGHTS[..., :4]
    gradients = lambda f: jax.grad(lambda *xs: (f(*xs) * weights).sum(), (0, 1))(x, scale)
    near = {"rtol": 1e-5} if dtype == jnp.float32 else {"rtol": 0.02, "atol": 0.02}
    for got, want in zip(gradients(scaled), gradients(jnp.multiply), strict=True):
        assert got.dtype == dtype
        np.testing.assert_allclose(*(np.asarray(g, np.float32) for g in (got, want)), **near)


def test_a_scales_gradient_is_not_added_up_in_bfloat16():
    x, scale = jnp.asarray(RNG.uniform(size=(5000, 64)), jnp.bfloat16), jnp.ones(64, jnp.bfloat16)
    d_scale = jax.grad(lambda scale: scaled(x, scale).astype(jnp.float32).sum())(scale)
    wanted = np.asarray(x, np.float64).sum(0)
    np.testing.assert_allclose(np.asarray(d_scale, np.float64), wanted, rtol=2**-8)


def test_tokens_of_several_devices_are_not_moved_between_them():
    partitioner = PjitPartitioner(1, devices=jax.devices()[:4])
    by_rows = NamedSharding(partitioner.mesh, PartitionSpec("data"))
    arrays = (jax.ShapeDtypeStruct((8, 16, n), jnp.float32, sharding=by_rows) for n in (32, 64))
    with partitioner.activations():
        program = jax.jit(kernel_gradient).lower(*arrays).compile().as_text()
    assert "all-reduce" in program
    assert "all-gather" not in program
    assert "all-to-all" not in program
