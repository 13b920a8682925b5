"""The layers of T5, with upstream's parameter names and numerics.

Shapes: B batch, I input length, T target length (Q and S: query and key lengths), D emb_dim,
H heads, K head_dim, F mlp_dim, V vocab, R relative-position buckets.

Sources: Raffel et al. 2020 (T5), Shazeer 2020 (gated linear units), Zhang and Sennrich 2019 (RMS
norm). Parameters are float32; arithmetic runs in `dtype`; norms and sums run in float32.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from t5x.array_types import FLOAT32
from t5x.kernels import select
from t5x.partitioning import constrain, gather_parameter

Initializer = Callable[..., jax.Array]
Distribution = Literal["truncated_normal", "normal", "uniform"]

# T5's gelu is the approximation by tanh; the encoders' is exact, by the error function.
ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "linear": lambda x: x,
    "gelu": nn.gelu,
    "gelu_exact": select.gelu,
    "relu": nn.relu,
    "silu": nn.silu,
}


def scaled_init(distribution: Distribution, divisor: float = 1.0) -> Initializer:
    """Return fan-in variance scaling [D_in, D_out], divided by `divisor`."""
    init = nn.initializers.variance_scaling(1.0, "fan_in", distribution)
    return lambda *args: init(*args) / divisor


def partitioned(init: Initializer, *axes: str) -> Any:
    """Return `init` for a parameter with these logical axes."""
    return nn.with_logical_partitioning(init, axes)


class Dense(nn.Module):
    """`x @ kernel`, plus `bias` if `use_bias`.

    The kernel is float32 [in, features] with logical axes `axes`, the bias [features] starts at 0.
    """

    features: int
    axes: tuple[str, str]
    kernel_init: Initializer
    dtype: jnp.dtype = FLOAT32
    output_dtype: jnp.dtype | None = None
    use_bias: bool = False

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Map [..., in] to [..., features] in `output_dtype` (default `dtype`)."""
        output_dtype = self.output_dtype or self.dtype
        kernel, bias = kernel_and_bias(self, x.shape[-1], self.dtype, output_dtype)
        out = select.dense(x.astype(self.dtype), kernel, output_dtype)
        return out if bias is None else out + bias


class Kernel(nn.Module):
    """A kernel, float32 [in, features], and perhaps a bias, for products computed elsewhere."""

    features: int
    axes: tuple[str, str]
    kernel_init: Initializer
    use_bias: bool = False

    @nn.compact
    def __call__(self, inputs: int, dtype: jnp.dtype) -> tuple[jax.Array, jax.Array | None]:
        """Return the kernel [inputs, features] and the bias [features] or None, in `dtype`."""
        return kernel_and_bias(self, inputs, dtype, dtype)


def kernel_and_bias(
    layer: Dense | Kernel, inputs: int, dtype: jnp.dtype, bias_dtype: jnp.dtype
) -> tuple[jax.Array, jax.Array | None]:
    """Return a layer's parameters for `inputs` features, gathered for their use."""
    init = partitioned(layer.kernel_init, *layer.axes)
    kernel = layer.param("kernel", init, (inputs, layer.features), jnp.float32)
    kernel = gather_parameter(kernel.astype(dtype), *layer.axes)
    if not layer.use_bias:
        return kernel, None
    init = partitioned(nn.initializers.zeros, layer.axes[1])
    bias = layer.param("bias", init, (layer.features,), jnp.float32)
    return kernel, gather_parameter(bias.astype(bias_dtype), layer.axes[1])


class LayerNorm(nn.Module):
    """Root-mean-square norm over D, no mean and no bias; statistics in float32.

    `axis` is the logical axis of D.
    """

    dtype: jnp.dtype = FLOAT32
    epsilon: float = 1e-6
    axis: str = "embed"

    @nn.compact
    def add_and_normalize(self, x: jax.Array, y: jax.Array | None) -> tuple[jax.Array, jax.Array]:
        """Return `x` [B, I, D] plus `y` if there is one, and its norm times `scale` [D]."""
        init = partitioned(nn.initializers.ones, self.axis)
        scale = self.param("scale", init, (x.shape[-1],), jnp.float32).astype(self.dtype)
        return select.rms_norm(x, y, scale, self.epsilon)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Normalize [B, I, D] and multiply by `scale` [D]."""
        return self.add_and_normalize(x, None)[1]


class Embed(nn.Module):
    """A table [V, D] shared by encoder, decoder and, when tied, the logits."""

    vocab_size: int
    emb_dim: int
    dtype: jnp.dtype = FLOAT32
    embedding_init: Initializer = nn.initializers.normal(1.0)

    def setup(self):
        """Create the table, by default normally distributed with standard deviation 1."""
        init = partitioned(self.embedding_init, "vocab", "embed")
        shape = (self.vocab_size, self.emb_dim)
        self.embedding = self.param("embedding", init, shape, jnp.float32)

    def __call__(self, tokens_BI: jax.Array) -> jax.Array:
        """Return the rows [B, I, D] of ids int32 [B, I]."""
        return select.lookup(self.table(), tokens_BI)

    def attend(self, x_BTD: jax.Array) -> jax.Array:
        """Return float32 logits [B, T, V], a product with each row of the table."""
        return select.dense(x_BTD, self.table().T, jnp.float32)

    def table(self) -> jax.Array:
        """Return the table in `dtype`."""
        return gather_parameter(self.embedding.astype(self.dtype), "vocab", "embed")


class MlpBlock(nn.Module):
    """Product of one projection `wi…` per activation, then the projection `wo`."""

    mlp_dim: int
    activations: Sequence[str]
    dropout_rate: float
    dtype: jnp.dtype
    use_bias: bool = False
    inner_init: Initializer = scaled_init("truncated_normal")
    outer_init: Initializer = scaled_init("truncated_normal")

    @nn.compact
    def __call__(self, x: jax.Array, enable_dropout: bool) -> jax.Array:
        """Map [B, I, D] to [B, I, D] through [B, I, F]."""
        features, is_single = x.shape[-1], len(self.activations) == 1
        names = ["wi"] if is_single else [f"wi_{i}" for i in range(len(self.activations))]
        axes, bias = ("embed", "mlp"), self.use_bias
        inner = [Kernel(self.mlp_dim, axes, self.inner_init, bias, name=name) for name in names]
        outer = Kernel(features, ("mlp", "embed"), self.outer_init, bias, name="wo")
        wi, biases = zip(*(kernel(features, self.dtype) for kernel in inner), strict=True)
        wo, outer_bias = outer(self.mlp_dim, self.dtype)
        keep = None
        if enable_dropout and self.dropout_rate:
            ones = jnp.ones((x.shape[0], 1, self.mlp_dim), self.dtype)
            keep = nn.Dropout(self.dropout_rate, deterministic=False)(ones)
        activations = tuple(ACTIVATIONS[name] for name in self.activations)
        inner_bias = biases if bias else None
        out = select.feed_forward(activations, x.astype(self.dtype), keep, wi, wo, inner_bias)
        return out if outer_bias is None else out + outer_bias


def dropout(rate: float, enabled: bool) -> nn.Dropout:
    """Return dropout whose mask is shared along the length axis, as in T5."""
    return nn.Dropout(rate, broadcast_dims=(-2,), deterministic=not enabled)


class Attention(nn.Module):
    """Multi-head attention without 1/sqrt(K): the initial query kernels contain that factor."""

    num_heads: int
    head_dim: int
    dropout_rate: float
    dtype: jnp.dtype
    float32_logits: bool = False
    kind: str = "xla"

    def setup(self):
        """Create the projections [D, H*K] of queries, keys and values."""
        width = self.num_heads * self.head_dim
        axes, init = ("embed", "joined_kv"), scaled_init("normal")
        self.query = Kernel(width, axes, scaled_init("normal", math.sqrt(self.head_dim)))
        self.key = Kernel(width, axes, init)
        self.value = Kernel(width, axes, init)

    def heads(self, x_BLD: jax.Array, projection: Kernel) -> jax.Array:
        """Return the product [B, L, H, K] of `x_BLD` and one projection."""
        kernel, _ = projection(x_BLD.shape[-1], self.dtype)
        out = select.dense(x_BLD.astype(self.dtype), kernel)
        return out.reshape(*out.shape[:-1], self.num_heads, self.head_dim)

    def keys_values(self, x_BSD: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return keys and values [B, S, H, K] of `x_BSD`."""
        return self.heads(x_BSD, self.key), self.heads(x_BSD, self.value)

    @nn.compact
    def __call__(
        self,
        x_BQD: jax.Array,
        source: jax.Array | tuple[jax.Array, jax.Array],
        seen: select.Seen | None = None,
        bias: jax.Array | None = None,
        enable_dropout: bool = False,
    ) -> jax.Array:
        """Attend from queries [B, Q, D] to `source`; return [B, Q, D].

        `source` is [B, S, D], `x_BQD` itself for attention of a row to itself, or keys and values
        [B, S, H, K]. `seen` and `bias` come from `select.seen` and `select.bias`. Attention dropout
        drops a key of a head for all queries together.
        """
        q = self.heads(x_BQD, self.query)
        k, v = source if isinstance(source, tuple) else self.keys_values(source)
        if enable_dropout and self.dropout_rate:
            # With one mask for all queries, dropping a weight is the same as dropping its value.
            v = nn.Dropout(self.dropout_rate, broadcast_dims=(-1,), deterministic=False)(v)
        if self.float32_logits:
            q, k = q.astype(jnp.float32), k.astype(jnp.float32)
        out = select.attend(self.kind, q, k, v, seen, bias)
        out = constrain(out.reshape(*out.shape[:2], -1), "batch", "length", "joined_kv")
        init = scaled_init("normal")
        return Dense(x_BQD.shape[-1], ("joined_kv", "embed"), init, self.dtype, name="out")(out)


def relative_position_bucket(
    relative_position: np.ndarray | jax.Array, bidirectional: bool, buckets: int, max_distance: int
) -> jax.Array:
    """Return the bucket of each relative position (key minus query), int32, same shape.

    Half of the buckets are exact distances, the others grow logarithmically to `max_distance`.
    `bidirectional` divides the buckets between the directions (Raffel et al. 2020, 2.1).
    """
    distance = -relative_position
    offset: int | jax.Array = 0
    if bidirectional:
        buckets //= 2
        offset = jnp.where(distance < 0, buckets, 0)
        distance = jnp.abs(distance)
    else:
        distance = jnp.maximum(distance, 0)
    exact = buckets // 2
    scale = (buckets - exact) / math.log(max_distance / exact)
    epsilon = np.finfo(np.float32).eps  # avoids log(0); those entries are not chosen
    far = exact + (jnp.log(distance / exact + epsilon) * scale).astype(jnp.int32)
    return offset + jnp.where(distance < exact, distance, jnp.minimum(far, buckets - 1))


class RelativePositionBiases(nn.Module):
    """A learned bias per head and bucket, `rel_embedding` [H, R]."""

    num_heads: int
    bidirectional: bool
    dtype: jnp.dtype
    buckets: int = 32
    max_distance: int = 128

    @nn.compact
    def __call__(self, distance_N: jax.Array) -> jax.Array:
        """Return the float32 bias [H, N] of int32 distances, key minus query."""
        init = nn.initializers.variance_scaling(1.0, "fan_avg", "uniform")
        init = partitioned(init, "heads", "relpos_buckets")
        table_HR = self.param("rel_embedding", init, (self.num_heads, self.buckets), jnp.float32)
        bucket_N = relative_position_bucket(
            distance_N, self.bidirectional, self.buckets, self.max_distance
        )
        # A product with one-hot rows, because its gradient is a product too and not a scatter.
        one_hot_NR = jax.nn.one_hot(bucket_N, self.buckets, dtype=self.dtype)
        table = table_HR.astype(self.dtype)
        return jnp.einsum("HR,NR->HN", table, one_hot_NR, preferred_element_type=jnp.float32)
