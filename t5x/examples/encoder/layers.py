"""The layers of encoders that T5 does not have, with Hugging Face's numerics.

Shapes: B batch, L length, D emb_dim, H heads, K head_dim, V vocab. Parameters are float32;
arithmetic runs in `dtype`; norms run in float32.
"""

from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp

from t5x.array_types import FLOAT32
from t5x.examples.t5.layers import Dense, Initializer, partitioned
from t5x.kernels import rotary, select
from t5x.partitioning import constrain, gather_parameter


class CenteredLayerNorm(nn.Module):
    """Layer norm over D with mean (Ba et al. 2016), and a bias if `use_bias`."""

    dtype: jnp.dtype = FLOAT32
    epsilon: float = 1e-12
    use_bias: bool = True

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Normalize [..., D], multiply by `scale` [D], add `bias` [D]."""
        init = partitioned(nn.initializers.ones, "embed")
        scale = self.param("scale", init, (x.shape[-1],), jnp.float32)
        bias = None
        if self.use_bias:
            init = partitioned(nn.initializers.zeros, "embed")
            bias = self.param("bias", init, (x.shape[-1],), jnp.float32)
        return select.layer_norm(x, scale, bias, self.epsilon).astype(self.dtype)


class Table(nn.Module):
    """One row for each position or token type, `embedding` [rows, D]."""

    rows: int
    emb_dim: int
    dtype: jnp.dtype
    embedding_init: Initializer

    @nn.compact
    def __call__(self, ids_BL: jax.Array) -> jax.Array:
        """Return the rows [B, L, D] of int32 ids [B, L]."""
        init = partitioned(self.embedding_init, "length", "embed")
        table = self.param("embedding", init, (self.rows, self.emb_dim), jnp.float32)
        table = gather_parameter(table.astype(self.dtype), "length", "embed")
        return select.lookup(table, ids_BL)


class SelfAttention(nn.Module):
    """Multi-head attention of a row to itself, logits divided by sqrt(K)."""

    num_heads: int
    head_dim: int
    dropout_rate: float
    dtype: jnp.dtype
    kind: str
    use_bias: bool
    inner_init: Initializer
    outer_init: Initializer

    @nn.compact
    def __call__(
        self,
        x_BLD: jax.Array,
        seen: select.Seen,
        angles: rotary.Angles | None,
        enable_dropout: bool,
    ) -> jax.Array:
        """Map [B, L, D] to [B, L, D].

        `angles`, unless they are None, turn queries and keys (`t5x.kernels.rotary`). Attention
        dropout drops a key of a head for all queries together, as in
        `t5x.examples.t5.layers.Attention`.
        """
        heads = lambda name: Dense(
            self.num_heads * self.head_dim,
            ("embed", "joined_kv"),
            self.inner_init,
            self.dtype,
            use_bias=self.use_bias,
            name=name,
        )(x_BLD).reshape(*x_BLD.shape[:2], self.num_heads, self.head_dim)
        q, k, v = heads("query"), heads("key"), heads("value")
        if angles is not None:
            q, k = rotary.rotate(q, *angles), rotary.rotate(k, *angles)
        q = q * self.head_dim**-0.5
        if enable_dropout and self.dropout_rate:
            v = nn.Dropout(self.dropout_rate, broadcast_dims=(3,), deterministic=False)(v)
        out = select.attend(self.kind, q, k, v, seen)
        out = constrain(out.reshape(*out.shape[:2], -1), "batch", "length", "joined_kv")
        return Dense(
            x_BLD.shape[-1],
            ("joined_kv", "embed"),
            self.outer_init,
            self.dtype,
            use_bias=self.use_bias,
            name="out",
        )(out)


class PredictionHead(nn.Module):
    """Logits of tokens: a dense layer, its activation, a norm, the embedding's rows, a bias."""

    vocab_size: int
    activation: Callable[[jax.Array], jax.Array]
    norm: Callable[..., nn.Module]
    dtype: jnp.dtype
    use_bias: bool
    kernel_init: Initializer

    @nn.compact
    def __call__(self, x: jax.Array, attend: Callable[[jax.Array], jax.Array]) -> jax.Array:
        """Map [B, L, D] to float32 logits [B, L, V]; `attend` multiplies with the embedding."""
        # Each output is one of all, so the kernel is split along one of its axes only.
        axes = ("embed", "joined_kv")
        dense = Dense(
            x.shape[-1], axes, self.kernel_init, self.dtype, use_bias=self.use_bias, name="dense"
        )
        x = self.norm(name="norm")(self.activation(dense(x)))
        init = partitioned(nn.initializers.zeros, "vocab")
        bias = self.param("bias", init, (self.vocab_size,), jnp.float32)
        logits = attend(x) + gather_parameter(bias, "vocab")
        return constrain(logits, "batch", "length", "vocab")
