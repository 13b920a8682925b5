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
from t5x.kernels import attention
from t5x.kernels.feed_forward import feed_forward, gelu
from t5x.kernels.lookup import lookup
from t5x.kernels.product import contract, product, scaled
from t5x.partitioning import constrain, gather_parameter

Initializer = Callable[..., jax.Array]
Distribution = Literal["truncated_normal", "normal", "uniform"]


ATTENTIONS: dict[str, Callable[..., jax.Array]] = {
    "xla": attention.attend,
    "cudnn": attention.attend_by_cudnn,
    "plain": attention.plain_attend,
}
# T5's gelu is the approximation by tanh; the encoders' is exact, by the error function.
ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "linear": lambda x: x,
    "gelu": nn.gelu,
    "gelu_exact": gelu,
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
        made = self.output_dtype or self.dtype
        kernel, bias = kernel_and_bias(self, x.shape[-1], self.dtype, made)
        out = product(x.astype(self.dtype), kernel, made)
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
    """Root-mean-square norm over D, no mean and no bias; statistics in float32."""

    dtype: jnp.dtype = FLOAT32
    epsilon: float = 1e-6

    @nn.compact
    def of_sum(self, x: jax.Array, y: jax.Array | None) -> tuple[jax.Array, jax.Array]:
        """Return `x` [B, I, D] plus `y` if there is one, and its norm times `scale` [D]."""
        init = partitioned(nn.initializers.ones, "embed")
        scale = self.param("scale", init, (x.shape[-1],), jnp.float32).astype(self.dtype)
        if attention.prefers_gpu_kernels():
            from t5x.kernels import triton_norm

            return triton_norm.of_sum(x, y, scale, self.epsilon)
        if y is not None:
            x = constrain(x + y, "batch", "length", "embed")
        wide = x.astype(jnp.float32)
        variance = jnp.mean(jax.lax.square(wide), axis=-1, keepdims=True)
        normed = (wide * jax.lax.rsqrt(variance + self.epsilon)).astype(self.dtype)
        return x, scaled(normed, scale)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Normalize [B, I, D] and multiply by `scale` [D]."""
        return self.of_sum(x, None)[1]


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
        return lookup(self.table(), tokens_BI)

    def attend(self, x_BTD: jax.Array) -> jax.Array:
        """Return float32 logits [B, T, V], a product with each row of the table."""
        return product(x_BTD, self.table().T, jnp.float32)

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
        features, one = x.shape[-1], len(self.activations) == 1
        names = ["wi"] if one else [f"wi_{i}" for i in range(len(self.activations))]
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
        out = feed_forward(
            activations, x.astype(self.dtype), keep, wi, wo, biases if bias else None
        )
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

    def projected(self, x_BLD: jax.Array, *projections: Kernel) -> jax.Array:
        """Return the products [B, L, P, H, K] of `x_BLD` and each of P projections, as one."""
        found = [kernel(x_BLD.shape[-1], self.dtype)[0] for kernel in projections]
        joined = jnp.stack(found, 1) if len(found) > 1 else found[0][:, None]
        out = contract("BLD,DPF->BLPF", x_BLD.astype(self.dtype), joined)
        return out.reshape(*out.shape[:3], self.num_heads, self.head_dim)

    def heads(self, x_BLD: jax.Array, projection: Kernel) -> jax.Array:
        """Return the product [B, L, H, K] of `x_BLD` and one projection."""
        kernel, _ = projection(x_BLD.shape[-1], self.dtype)
        out = product(x_BLD.astype(self.dtype), kernel)
        return out.reshape(*out.shape[:-1], self.num_heads, self.head_dim)

    def keys_values(self, x_BSD: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return keys and values [B, S, H, K] of `x_BSD`."""
        return self.heads(x_BSD, self.key), self.heads(x_BSD, self.value)

    @nn.compact
    def __call__(
        self,
        x_BQD: jax.Array,
        source: jax.Array | tuple[jax.Array, jax.Array],
        mask: jax.Array | attention.Segments | None = None,
        bias: jax.Array | None = None,
        enable_dropout: bool = False,
    ) -> jax.Array:
        """Attend from queries [B, Q, D] to `source`; return [B, Q, D].

        `source` is [B, S, D], `x_BQD` itself for attention of a row to itself, or keys and values
        [B, S, H, K]. `mask` is bool, broadcastable to [B, H, Q, S], True where a query attends; for
        kernels of a GPU its segments. `bias` is added to the logits, broadcastable to [B, H, Q, S];
        for these kernels by distance. One mask for all queries drops attention weights.
        """
        drop = None
        if enable_dropout and self.dropout_rate:
            # With one mask for all queries, dropping a weight is the same as dropping its value.
            drop = nn.Dropout(self.dropout_rate, broadcast_dims=(-1,), deterministic=False)
        if isinstance(mask, attention.Segments):
            from t5x.kernels import triton_attention

            out = triton_attention.attend(self._parts(x_BQD, source, drop), mask, bias)
        else:
            q = self.heads(x_BQD, self.query)
            k, v = source if isinstance(source, tuple) else self.keys_values(source)
            v = drop(v) if drop else v
            if self.float32_logits:
                q, k = q.astype(jnp.float32), k.astype(jnp.float32)
            out = ATTENTIONS[self.kind](q, k, v, mask, bias)
        out = out.reshape(*out.shape[:2], -1)
        out = constrain(out, "batch", "length", "joined_kv")
        init = scaled_init("normal")
        return Dense(x_BQD.shape[-1], ("joined_kv", "embed"), init, self.dtype, name="out")(out)

    def _parts(self, x_BQD, source, drop) -> list[jax.Array]:
        """Return queries, keys and values as parts of as few arrays as possible."""
        if source is x_BQD:
            arrays = [self.projected(x_BQD, self.query, self.key, self.value)]
        else:
            arrays = [self.projected(x_BQD, self.query)]
            arrays.append(self.projected(source, self.key, self.value))
        if drop:
            *others, v = [x[:, :, i : i + 1] for x in arrays for i in range(x.shape[2])]
            arrays = [*others, drop(v)]
        return arrays


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
    def __call__(
        self, query_positions: jax.Array, key_length: int, by_distance: bool = False
    ) -> jax.Array:
        """Return float32 bias [1, H, Q, S] for int32 query positions [Q] and keys 0…S-1.

        With `by_distance` it is [H, Q + S - 1], for distances key - query from 1 - Q to S - 1.
        """
        init = nn.initializers.variance_scaling(1.0, "fan_avg", "uniform")
        init = partitioned(init, "heads", "relpos_buckets")
        table_HR = self.param("rel_embedding", init, (self.num_heads, self.buckets), jnp.float32)
        if by_distance:
            relative = jnp.arange(1 - len(query_positions), key_length)
        else:
            relative = jnp.arange(key_length)[None, :] - query_positions[:, None]
        bucket = relative_position_bucket(
            relative, self.bidirectional, self.buckets, self.max_distance
        )
        # A product with one-hot rows, because its gradient is a product too and not a scatter.
        one_hot = jax.nn.one_hot(bucket, self.buckets, dtype=self.dtype)
        table = table_HR.astype(self.dtype)
        bias = jnp.einsum("HR,...R->H...", table, one_hot, preferred_element_type=jnp.float32)
        return bias if by_distance else bias[None]


def by_positions(bias_HN: jax.Array, queries: int) -> jax.Array:
    """Return a bias [1, H, Q, S] of one by distance [H, Q + S - 1], from 1 - Q to S - 1."""
    heads, distances = bias_HN.shape
    padded = jnp.pad(bias_HN, ((0, 0), (0, 1)))[:, None]
    # A product with ones, whose gradient is a product too: a CPU computes it sooner than a sum.
    repeated = (jnp.ones((heads, queries, 1), padded.dtype) @ padded).reshape(heads, -1)
    # Cut one shorter than the repeated row, each row begins one distance earlier than the last.
    rows = repeated[:, queries - 1 : -1].reshape(heads, queries, distances)
    return rows[None, :, :, : distances - queries + 1]
