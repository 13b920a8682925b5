"""The layers of T5, with upstream's parameter names and numbers.

Shapes: B batch, I input length, T target length (Q and S: query and key lengths), D emb_dim,
H heads, K head_dim, F mlp_dim, V vocab, R relative-position buckets.

Sources: Raffel et al. 2020 (T5), Shazeer 2020 (gated linear units), Zhang and Sennrich 2019 (RMS
norm). Parameters are float32; arithmetic runs in `dtype`; norms and sums run in float32.
"""

import math
from collections.abc import Callable, Sequence

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from t5x.ops import flash_attention
from t5x.ops.attention import attend, attend_by_cudnn
from t5x.ops.feed_forward import feed_forward
from t5x.partitioning import constrain, whole

Initializer = Callable[..., jax.Array]
ACTIVATIONS = {"linear": lambda x: x, "gelu": nn.gelu, "relu": nn.relu, "silu": nn.silu}


def scaled_init(distribution: str, divisor: float = 1.0) -> Initializer:
    """Fan-in variance scaling [D_in, D_out], divided by `divisor`."""
    init = nn.initializers.variance_scaling(1.0, "fan_in", distribution)
    return lambda *args: init(*args) / divisor


class Dense(nn.Module):
    """`x @ kernel` without bias; kernel is float32 [in, features] with logical axes `axes`."""

    features: int
    axes: tuple[str, str]
    kernel_init: Initializer
    dtype: jnp.dtype = jnp.float32
    output_dtype: jnp.dtype | None = None

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Maps [..., in] to [..., features] in `output_dtype` (default `dtype`)."""
        init = nn.with_logical_partitioning(self.kernel_init, self.axes)
        kernel = self.param("kernel", init, (x.shape[-1], self.features), jnp.float32)
        return jnp.dot(
            x.astype(self.dtype),
            whole(kernel.astype(self.dtype), *self.axes),
            preferred_element_type=self.output_dtype or self.dtype,
        )


class Kernel(nn.Module):
    """A kernel alone, float32 [in, features], for products made elsewhere."""

    features: int
    axes: tuple[str, str]
    kernel_init: Initializer

    @nn.compact
    def __call__(self, inputs: int) -> jax.Array:
        """The kernel [inputs, features]."""
        init = nn.with_logical_partitioning(self.kernel_init, self.axes)
        return self.param("kernel", init, (inputs, self.features), jnp.float32)


class LayerNorm(nn.Module):
    """Root-mean-square norm over D, no mean and no bias; statistics in float32."""

    dtype: jnp.dtype = jnp.float32
    epsilon: float = 1e-6

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Normalizes [..., D] and multiplies by `scale` [D]."""
        init = nn.with_logical_partitioning(nn.initializers.ones, ("embed",))
        scale = self.param("scale", init, (x.shape[-1],), jnp.float32)
        x = x.astype(jnp.float32)
        variance = jnp.mean(jax.lax.square(x), axis=-1, keepdims=True)
        return (x * jax.lax.rsqrt(variance + self.epsilon)).astype(self.dtype) * scale.astype(
            self.dtype
        )


class Embed(nn.Module):
    """A table [V, D] shared by encoder, decoder and, when tied, the logits."""

    vocab_size: int
    emb_dim: int
    dtype: jnp.dtype = jnp.float32

    def setup(self):
        """Makes the table, normally distributed with deviation 1."""
        init = nn.with_logical_partitioning(nn.initializers.normal(1.0), ("vocab", "embed"))
        shape = (self.vocab_size, self.emb_dim)
        self.embedding = self.param("embedding", init, shape, jnp.float32)

    def __call__(self, tokens_BI: jax.Array) -> jax.Array:
        """Looks ids int32 [B, I] up: [B, I, D]."""
        return jnp.take(self.table(), tokens_BI, axis=0)

    def attend(self, x_BTD: jax.Array) -> jax.Array:
        """Float32 logits [B, T, V] of each row of the table."""
        return jnp.einsum("BTD,VD->BTV", x_BTD, self.table(), preferred_element_type=jnp.float32)

    def table(self) -> jax.Array:
        """The table in `dtype`, for use."""
        return whole(self.embedding.astype(self.dtype), "vocab", "embed")


class MlpBlock(nn.Module):
    """Position-wise product of one projection an activation, then back: `wi…`, `wo`."""

    mlp_dim: int
    activations: Sequence[str]
    dropout_rate: float
    dtype: jnp.dtype

    @nn.compact
    def __call__(self, x: jax.Array, enable_dropout: bool) -> jax.Array:
        """Maps [B, I, D] to [B, I, D] through [B, I, F]."""
        init, features = scaled_init("truncated_normal"), x.shape[-1]
        one = len(self.activations) == 1
        wi = tuple(
            Kernel(self.mlp_dim, ("embed", "mlp"), init, name="wi" if one else f"wi_{i}")(features)
            for i in range(len(self.activations))
        )
        wo = Kernel(features, ("mlp", "embed"), init, name="wo")(self.mlp_dim)
        keep = None
        if enable_dropout and self.dropout_rate:
            ones = jnp.ones((x.shape[0], 1, self.mlp_dim), self.dtype)
            keep = nn.Dropout(self.dropout_rate, deterministic=False)(ones)
        wi = tuple(whole(kernel.astype(self.dtype), "embed", "mlp") for kernel in wi)
        wo = whole(wo.astype(self.dtype), "mlp", "embed")
        activations = tuple(ACTIVATIONS[name] for name in self.activations)
        return feed_forward(activations, x.astype(self.dtype), keep, wi, wo)


def dropout(rate: float, enabled: bool) -> nn.Dropout:
    """Dropout whose mask is shared along the length axis (T5)."""
    return nn.Dropout(rate, broadcast_dims=(-2,), deterministic=not enabled)


class Attention(nn.Module):
    """Multi-head attention without 1/sqrt(K): the factor lives in the query's initial values."""

    num_heads: int
    head_dim: int
    dropout_rate: float
    dtype: jnp.dtype
    float32_logits: bool = False
    by_cudnn: bool = False

    def setup(self):
        """Makes the four projections [D, H*K] and [H*K, D]."""
        width = self.num_heads * self.head_dim
        axes, init = ("embed", "joined_kv"), scaled_init("normal")
        query_init = scaled_init("normal", math.sqrt(self.head_dim))
        self.query = Dense(width, axes, query_init, self.dtype)
        self.key = Dense(width, axes, init, self.dtype)
        self.value = Dense(width, axes, init, self.dtype)

    def heads(self, x: jax.Array) -> jax.Array:
        """[B, S, H*K] to [B, S, H, K]."""
        return x.reshape(*x.shape[:-1], self.num_heads, self.head_dim)

    def keys_values(self, x_BSD: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Keys and values [B, S, H, K] of `x_BSD`."""
        return self.heads(self.key(x_BSD)), self.heads(self.value(x_BSD))

    @nn.compact
    def __call__(
        self,
        x_BQD: jax.Array,
        keys_values: tuple[jax.Array, jax.Array],
        mask: jax.Array | flash_attention.Segments | None = None,
        bias: jax.Array | None = None,
        enable_dropout: bool = False,
    ) -> jax.Array:
        """Attends from `x_BQD` to keys and values.

        Args:
          x_BQD: queries before projection, [B, Q, D].
          keys_values: two arrays [B, S, H, K].
          mask: bool, broadcastable to [B, H, Q, S]; True may be looked at. Or segments, for flash
            attention.
          bias: added to the logits, broadcastable to [B, H, Q, S]; with segments, by distance.
          enable_dropout: drops attention weights, one mask for all queries.

        Returns:
          [B, Q, D].
        """
        k_BSHK, v_BSHK = keys_values
        q_BQHK = self.heads(self.query(x_BQD))
        if enable_dropout and self.dropout_rate:
            # One mask for all queries, so that dropping a weight is dropping its value.
            v_BSHK = nn.Dropout(self.dropout_rate, broadcast_dims=(3,), deterministic=False)(v_BSHK)
        if self.float32_logits:
            q_BQHK, k_BSHK = q_BQHK.astype(jnp.float32), k_BSHK.astype(jnp.float32)
        by_masks = attend_by_cudnn if self.by_cudnn else attend
        give = flash_attention.attend if isinstance(mask, flash_attention.Segments) else by_masks
        out = give(q_BQHK, k_BSHK, v_BSHK, mask, bias)
        out = out.reshape(*out.shape[:2], -1)
        out = constrain(out, "batch", "length", "joined_kv")
        init = scaled_init("normal")
        return Dense(x_BQD.shape[-1], ("joined_kv", "embed"), init, self.dtype, name="out")(out)


def relative_position_bucket(
    relative_position: np.ndarray | jax.Array, bidirectional: bool, buckets: int, max_distance: int
) -> jax.Array:
    """Bucket of each relative position (key minus query), int32, same shape.

    Half of the buckets hold exact distances, the rest grow logarithmically to `max_distance`;
    bidirectional halves the buckets between the two directions (Raffel et al. 2020, 2.1).
    """
    distance = -relative_position
    offset = 0
    if bidirectional:
        buckets //= 2
        offset = jnp.where(distance < 0, buckets, 0)
        distance = jnp.abs(distance)
    else:
        distance = jnp.maximum(distance, 0)
    exact = buckets // 2
    scale = (buckets - exact) / math.log(max_distance / exact)
    epsilon = np.finfo(np.float32).eps  # keeps log off 0; those entries are not chosen
    far = exact + (jnp.log(distance / exact + epsilon) * scale).astype(jnp.int32)
    return offset + jnp.where(distance < exact, distance, jnp.minimum(far, buckets - 1))


class RelativePositionBiases(nn.Module):
    """A learned bias a head and bucket, `rel_embedding` [H, R], shared by all layers of a stack."""

    num_heads: int
    bidirectional: bool
    dtype: jnp.dtype
    buckets: int = 32
    max_distance: int = 128

    @nn.compact
    def __call__(
        self, query_positions: jax.Array, key_length: int, by_distance: bool = False
    ) -> jax.Array:
        """Float32 bias [1, H, Q, S] for int32 query positions [Q] and keys 0…S-1.

        Or, `by_distance`, [H, Q + S - 1] for distances key - query from 1 - Q to S - 1.
        """
        init = nn.initializers.variance_scaling(1.0, "fan_avg", "uniform")
        init = nn.with_logical_partitioning(init, ("heads", "relpos_buckets"))
        table_HR = self.param("rel_embedding", init, (self.num_heads, self.buckets), jnp.float32)
        if by_distance:
            relative = jnp.arange(1 - len(query_positions), key_length)
        else:
            relative = jnp.arange(key_length)[None, :] - query_positions[:, None]
        bucket = relative_position_bucket(
            relative, self.bidirectional, self.buckets, self.max_distance
        )
        # A product with one-hot rows: its gradient is a product too, not a scatter.
        one_hot = jax.nn.one_hot(bucket, self.buckets, dtype=self.dtype)
        bias = jnp.einsum(
            "HR,...R->H...",
            table_HR.astype(self.dtype),
            one_hot,
            preferred_element_type=jnp.float32,
        )
        return bias if by_distance else bias[None]
