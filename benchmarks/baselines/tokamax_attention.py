"""Attention by tokamax (github.com/openxla/tokamax), to which JAX refers users of Triton.

  with by_tokamax():
      compiled = trainer.lower(shapes).compile()        # of a network with attention = 'cudnn'
  python -m benchmarks.baselines.tokamax_attention      # how far it is from ours, on this device

Its kernels for Hopper and Blackwell are Mosaic's. They read bias and mask as cuDNN's do; in its
public interface the keys that a query attends to are a mask. It is not in pyproject.toml:
`pip install tokamax`.

Shapes: B batch, Q queries, S keys, H heads, K head_dim.
"""

import contextlib
from collections.abc import Iterator
from unittest import mock

import jax
import jax.numpy as jnp

from t5x.kernels import attention_mask, cudnn, reference
from t5x.kernels.attention_mask import Segments


def attend(
    q_BQHK: jax.Array,
    k_BSHK: jax.Array,
    v_BSHK: jax.Array,
    mask: jax.Array | None,
    bias: jax.Array | None,
) -> jax.Array:
    """See `cudnn.attend`; on a GPU refuse other kernels than Mosaic's, which may be slower."""
    import tokamax

    kernels = "mosaic" if jax.default_backend() == "gpu" else "xla"
    bias = None if bias is None else bias.astype(q_BQHK.dtype)
    return tokamax.dot_product_attention(
        q_BQHK, k_BSHK, v_BSHK, bias, mask, scale=1.0, implementation=kernels
    )


@contextlib.contextmanager
def by_tokamax() -> Iterator[None]:
    """Put tokamax in the place of cuDNN."""
    with mock.patch.object(cudnn, "attend", attend):
        yield


def differences(dtype: jnp.dtype, queries: int = 128, keys: int = 128) -> dict[str, float]:
    """Return the greatest difference from `reference.attend`, of the output and each gradient.

    Rows are packed and causal, and there is a bias; each is relative to the greatest number.
    """
    keyed = jax.random.split(jax.random.key(0), 5)
    shape = lambda length: (2, length, 4, 64)
    q, k, v, weights = (
        jax.random.normal(key, shape(length), dtype)
        for key, length in zip(keyed, (queries, keys, keys, queries), strict=False)
    )
    bias = jax.random.normal(keyed[4], (1, 4, queries, keys), jnp.float32)
    segments = jnp.tile(1 + jnp.arange(queries) // 50, (2, 1))
    mask = attention_mask.mask(Segments(segments, segments, causal=True))

    def outputs(attend, dtype):
        arrays = [x.astype(dtype) for x in (q / 8, k, v)]
        loss = lambda q, k, v, bias: (attend(q, k, v, mask, bias) * weights).sum()
        gradients = jax.jit(jax.grad(loss, (0, 1, 2, 3)))(*arrays, bias)
        return jax.jit(attend)(*arrays, mask, bias), *gradients

    pairs = zip(outputs(attend, dtype), outputs(reference.attend, jnp.float32), strict=True)
    distance = lambda x, y: float(jnp.abs(x.astype(jnp.float32) - y).max() / jnp.abs(y).max())
    names = ("output", "queries", "keys", "values", "bias")
    return {name: distance(*pair) for name, pair in zip(names, pairs, strict=True)}


if __name__ == "__main__":
    for dtype in (jnp.float32, jnp.bfloat16):
        for name, distance in differences(dtype).items():
            print(f"{jnp.dtype(dtype).name:9} {name:8} {distance:.1e}")
