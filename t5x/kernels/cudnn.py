"""Attention for NVIDIA GPUs by cuDNN's kernels (docs.nvidia.com/deeplearning/cudnn).

They read bias and mask as one array [B, H, Q, S] in every layer, and take even lengths only.

Shapes: B batch, Q queries, S keys, H heads, K head_dim.
"""

from typing import Any

import jax


def attend(
    q_BQHK: jax.Array,
    k_BSHK: jax.Array,
    v_BSHK: jax.Array,
    mask: jax.Array | None,
    bias: jax.Array | None,
    implementation: Any = "cudnn",
) -> jax.Array:
    """Compute `reference.attend` of bfloat16 or float16 arrays with even lengths Q and S.

    `implementation` is for tests, which have no GPU.
    """
    bias = None if bias is None else bias.astype(q_BQHK.dtype)
    return jax.nn.dot_product_attention(
        q_BQHK, k_BSHK, v_BSHK, bias, mask, scale=1.0, implementation=implementation
    )
