"""Hand-written attention and its gradient are those of the plain reference."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x.kernels import attention
from t5x.kernels.attention import attend, attend_by_cudnn, plain_attend
from t5x.partitioning import PjitPartitioner


def arrays(scale=1.0):
    rng = np.random.default_rng(0)
    normal = lambda *shape: jnp.asarray(rng.normal(size=shape), jnp.float32)
    q, k, v = normal(4, 6, 2, 8) * scale, normal(4, 5, 2, 8), normal(4, 5, 2, 8)
    mask = jnp.asarray(rng.random((4, 1, 6, 5)) < 0.7).at[1, :, 2].set(False)
    return q, k, v, mask, normal(1, 2, 6, 5)


# A scale of 100 gives logits beyond what float32's exp can hold. With a fully masked row, or
# without.
@pytest.mark.parametrize(("scale", "filled"), [(1.0, True), (1.0, False), (100.0, False)])
@pytest.mark.parametrize("parts", [(True, True), (True, False), (False, True), (False, False)])
@pytest.mark.parametrize("platform", ["gpu", "cpu"])  # heads in turn, as on a TPU: below
def test_values_and_gradients_are_the_references(monkeypatch, scale, parts, filled, platform):
    monkeypatch.setattr(attention, "platform", lambda: platform)
    q, k, v, mask, bias = arrays(scale)
    mask = mask | ~mask.any(-1, keepdims=True) if filled else mask
    mask, bias = mask if parts[0] else None, bias if parts[1] else None
    weights = jnp.sin(jnp.arange(q.size, dtype=jnp.float32)).reshape(q.shape)
    weights = weights.at[1, 2].set(0)  # fully masked: no loss depends on such a row

    def scalar(attention):
        chosen = (0, 1, 2, 4) if parts[1] else (0, 1, 2)
        loss = lambda *xs: (attention(*xs) * weights).sum()
        return jax.value_and_grad(loss, argnums=chosen)(q, k, v, mask, bias)

    (found, found_grads), (wanted, wanted_grads) = scalar(attend), scalar(plain_attend)
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    for got, want in zip(found_grads, wanted_grads, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4 * scale)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_low_logits_lose_nothing_in_two_bytes(monkeypatch, dtype):
    monkeypatch.setattr(attention, "platform", lambda: "gpu")
    q, k, v, _, bias = arrays(0.3)
    low = bias - 16.5  # whose exponentials are nearly nothing in float16
    wanted = plain_attend(q, k, v, None, low)
    found = attend(*(x.astype(dtype) for x in (q, k, v)), None, low).astype(jnp.float32)
    np.testing.assert_allclose(found, wanted, atol=0.02)


@pytest.mark.parametrize("platform", ["tpu", "cpu"])
def test_a_fully_masked_row_attends_evenly(monkeypatch, platform):
    monkeypatch.setattr(attention, "platform", lambda: platform)
    q, k, v, mask, bias = arrays()
    even = attend(q, k, v, mask, bias)[1, 2]
    np.testing.assert_allclose(even, v[1].mean(0), rtol=1e-5)
    grads = jax.grad(lambda *xs: attend(*xs)[1, 2].sum(), argnums=(0, 1, 2, 4))(q, k, v, mask, bias)
    jax.tree.map(lambda grad: np.testing.assert_array_equal(grad, 0), grads)


@pytest.mark.parametrize("near", [0, 4 * 2 * 16 * 16 * 2, 1e9])  # one head at a time, two, all
@pytest.mark.parametrize("partitions", [1, 2])
def test_heads_may_take_turns_in_the_gradient(monkeypatch, near, partitions):
    rng = np.random.default_rng(1)
    q, k, v, weights = (jnp.asarray(rng.normal(size=(8, 16, 4, 8)), jnp.float32) for _ in range(4))
    bias = jnp.asarray(rng.normal(size=(1, 4, 16, 16)), jnp.float32)
    mask = jnp.asarray(rng.random((8, 1, 16, 16)) < 0.7).at[..., 0].set(True)
    gradients = lambda f: jax.grad(
        lambda q, k, v, bias: (f(q, k, v, mask, bias) * weights).sum(), argnums=(0, 1, 2, 3)
    )
    monkeypatch.setattr(attention, "platform", lambda: "tpu")
    monkeypatch.setattr(attention, "CMEM_BYTES", near)
    with PjitPartitioner(num_partitions=partitions, devices=jax.devices()[:8]).activations():
        found = jax.jit(gradients(attend))(q, k, v, bias)
    for got, want in zip(found, gradients(plain_attend)(q, k, v, bias), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("biased", [True, False])
def test_cudnn_computes_the_same_attention(monkeypatch, biased):
    q, k, v, mask, bias = arrays()
    k, v, mask, bias = k[:, :4], v[:, :4], mask[..., :4].at[..., 0].set(True), bias[..., :4]
    given, asked = (q, k, v, bias) if biased else (q, k, v), []

    def by_xla(*args, implementation, **settings):
        asked.append(implementation)
        return by_jax(*args, implementation="xla", **settings)

    by_jax = jax.nn.dot_product_attention
    monkeypatch.setattr(jax.nn, "dot_product_attention", by_xla)
    monkeypatch.setattr(attention, "platform", lambda: "gpu")

    def both(attend):
        loss = lambda q, k, v, bias=None: jnp.sin(attend(q, k, v, mask, bias)).sum()
        return jax.value_and_grad(loss, argnums=range(len(given)))(*given)

    (found, found_grads), (wanted, wanted_grads) = both(attend_by_cudnn), both(plain_attend)
    assert asked == ["cudnn"]
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    for got, want in zip(found_grads, wanted_grads, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("capability", "devices", "exist", "preferred"),
    [
        ("9.0", 1, True, True),
        ("8.0", 8, True, False),
        ("7.5", 1, False, False),
        ("gfx90a", 1, False, False),
        (None, 1, False, False),
    ],
)
def test_kernels_are_for_one_gpu_of_ampere_or_newer(
    monkeypatch, capability, devices, exist, preferred
):
    device = types.SimpleNamespace(compute_capability=capability)
    monkeypatch.setattr(attention, "devices", lambda: [device] * devices)
    monkeypatch.setattr(attention, "platform", lambda: "gpu" if capability else "cpu")
    assert attention.has_gpu_kernels() == exist
    assert attention.prefers_gpu_kernels() == preferred


def test_one_query_is_not_asked_of_cudnn(monkeypatch):
    q, k, v, mask, bias = arrays()
    one = q[:, :1], k, v, mask[..., :1, :], bias[..., :1, :]
    monkeypatch.setattr(attention, "platform", lambda: "gpu")
    np.testing.assert_allclose(attend_by_cudnn(*one), plain_attend(*one), rtol=1e-5, atol=1e-6)


def test_cudnn_is_refused_where_it_cannot_work(monkeypatch):
    q, k, v, mask, bias = arrays()
    with pytest.raises(ValueError, match="'cudnn'"):
        attend_by_cudnn(q, k, v, mask, bias)
    monkeypatch.setattr(attention, "platform", lambda: "gpu")
    with pytest.raises(ValueError, match="TASK_FEATURE_LENGTHS"):
        attend_by_cudnn(q, k, v, mask, bias)
