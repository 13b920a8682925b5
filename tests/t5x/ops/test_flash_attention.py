"""The kernels compute the same as plain attention with a mask and a bias, gradients too."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.synthetic_step import SyntheticRequest
from preflight.aot.compiler import compile_step
from t5x.ops.attention import Segments
from t5x.ops.flash_attention import attend

WIDTH = 8


@pytest.mark.parametrize(
    ("queries", "keys", "biased", "causal"),
    [
        (114, 114, True, True),  # padded to one block
        (300, 130, True, False),  # several blocks of queries, fewer keys
        (114, 200, False, False),
    ],
)
def test_values_and_gradients_are_the_references(segmented, plainly, queries, keys, biased, causal):
    q, k, v, where, by_distance = segmented(queries, keys, causal, WIDTH)
    weights = jnp.sin(jnp.arange(q.size, dtype=jnp.float32)).reshape(q.shape)
    given = (q, k, v, by_distance)[: 3 + biased]

    def flashed(q, k, v, by_distance=None):
        return (attend(q, k, v, where, by_distance) * weights).sum()

    def wanted(q, k, v, by_distance=None):
        return (plainly(q, k, v, where, by_distance)[0] * weights).sum()

    argnums = tuple(range(len(given)))
    found, found_grads = jax.jit(jax.value_and_grad(flashed, argnums))(*given)
    value, grads = jax.jit(jax.value_and_grad(wanted, argnums))(*given)
    np.testing.assert_allclose(found, value, rtol=1e-4)
    for got, want in zip(found_grads, grads, strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-4)


def test_each_device_computes_its_examples_and_heads(segmented, assert_devices_agree):
    q, k, v, where, by_distance = segmented(128, 128, False, WIDTH)
    loss = lambda *xs: jnp.sin(attend(*xs[:3], where, xs[3])).sum()
    assert_devices_agree(jax.grad(loss, argnums=(0, 3)), (q, k, v, by_distance), 2)


def test_lengths_beyond_a_chips_memory_are_refused(segmented):
    q, k, v, where, by_distance = jax.eval_shape(lambda: segmented(2048, 1024, False, WIDTH))
    with pytest.raises(ValueError, match=r"2048 queries and 1024 keys .* set it to 'xla'"):
        jax.eval_shape(attend, q, k, v, where, by_distance)


@pytest.mark.slow
@pytest.mark.parametrize("tpu", ["v4-8", "v5e-8", "v5p-8", "v6e-8"])
def test_the_train_step_with_kernels_compiles_for_a_tpu(tpu):
    sizes = {"emb_dim": 128, "num_heads": 2, "head_dim": 64, "mlp_dim": 256}
    layers = {"num_encoder_layers": 1, "num_decoder_layers": 1}
    network = {"vocab_size": 512, "dtype": "bfloat16", "attention": "flash", **sizes, **layers}
    figures = compile_step(
        SyntheticRequest(tpu, network=network, batch=16, inputs=512, targets=114)
    )
    assert figures.kernels["flops"] > 0


def test_a_radius_is_refused():
    ids, x = jnp.ones((1, 8), jnp.int32), jnp.ones((1, 8, 2, WIDTH))
    with pytest.raises(ValueError, match=r"Segments.radius is 3, .* use t5x.ops.local_attention"):
        attend(x, x, x, Segments(ids, ids, radius=3))
