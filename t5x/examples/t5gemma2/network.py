"""T5Gemma 2 as a Flax module of text: an encoder-decoder that transformers (from 5) serves.

    network.T5Gemma2(config=network.T5Gemma2Config(vocab_size=64_000))

It differs from T5 in four things: rotary positions in place of a bias by distance; norms before and
after each sublayer, and of queries and keys; one table for inputs, outputs and logits; and one
attention of the decoder, to the encoder's output and to earlier outputs together. The encoder's
keys come first in it, without positions. So one causal mask, aligned at the last query and the last
key, hides later outputs only, and the kernels of T5 compute it.

All layers attend to all tokens, and there are no images. Numbers equal
`T5Gemma2ForConditionalGeneration` (Zhang et al. 2025, arXiv 2512.14856). Its norms multiply by
1 + weight; ours multiply by `scale`, which starts at 1 as in T5, because an optimizer that scales
updates by a parameter's size hardly moves one that starts at 0.

Shapes: B batch, I input length, T target length, L either, Q queries, S keys, D emb_dim, H heads,
G heads of keys and values, K head_dim, V vocab; M decodes, N of each row.
"""

from typing import Any

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp

from common.errors import UserError
from t5x.array_types import FLOAT32, KeysValues, Params
from t5x.examples.t5 import layers, network
from t5x.kernels import reference, rotary, select
from t5x.kernels.attention_mask import Segments
from t5x.partitioning import constrain

INIT = layers.scaled_init("truncated_normal")
GATED_GELU = ("gelu", "linear")


@flax.struct.dataclass
class T5Gemma2Config:
    """Sizes and numerics; see `t5x.examples.t5.network.T5Config` for the numerics.

    `num_heads` heads of queries share `num_kv_heads` heads of keys and values (Ainslie et al. 2023,
    arXiv 2305.13245). `rope_theta` is the base of rotary positions.
    """

    vocab_size: int
    dtype: jnp.dtype = FLOAT32
    emb_dim: int = 512
    num_heads: int = 4
    num_kv_heads: int = 4
    num_encoder_layers: int = 8
    num_decoder_layers: int = 4
    head_dim: int = 128
    mlp_dim: int = 1024
    dropout_rate: float = 0.0
    rope_theta: float = 10_000.0
    remat_policy: select.RematPolicy = "auto"
    attention: select.Attention = "auto"

    def __post_init__(self):
        if self.num_heads % self.num_kv_heads:
            raise UserError(
                "T5Gemma2Config.num_kv_heads",
                self.num_kv_heads,
                f"which {self.num_heads} heads cannot share",
                "set it to a divisor of num_heads",
            )
        if self.head_dim % 2:
            raise UserError(
                "T5Gemma2Config.head_dim",
                self.head_dim,
                "whose halves rotary positions turn",
                "set it to an even number",
            )
        select.check(self)


class Attention(nn.Module):
    """Attention with normalized, turned queries and keys, logits divided by sqrt(K)."""

    config: T5Gemma2Config

    def setup(self):
        """Create the projections and the norms of queries and keys."""
        c = self.config
        kernel = lambda heads: layers.Kernel(heads * c.head_dim, ("embed", "joined_kv"), INIT)
        self.query, self.key, self.value = kernel(c.num_heads), *map(kernel, [c.num_kv_heads] * 2)
        self.query_norm = layers.LayerNorm(c.dtype, axis="kv")
        self.key_norm = layers.LayerNorm(c.dtype, axis="kv")
        self.dropout = nn.Dropout(c.dropout_rate, broadcast_dims=(-1,))
        self.out = layers.Dense(c.emb_dim, ("joined_kv", "embed"), INIT, c.dtype)

    def heads(self, x_BLD: jax.Array, projection: layers.Kernel) -> jax.Array:
        """Return the product [B, L, H or G, K] of `x_BLD` and a projection."""
        kernel, _ = projection(x_BLD.shape[-1], self.config.dtype)
        out = select.dense(x_BLD.astype(self.config.dtype), kernel)
        return out.reshape(*out.shape[:2], -1, self.config.head_dim)

    def keys_values(self, x_BLD: jax.Array, angles: rotary.Angles | None = None) -> KeysValues:
        """Return keys, turned by any angles, and values [B, L, G, K] of `x_BLD`."""
        k = self.key_norm(self.heads(x_BLD, self.key))
        k = k if angles is None else rotary.rotate(k, *angles)
        return k, self.heads(x_BLD, self.value)

    def queries(self, x_BLD: jax.Array, angles: rotary.Angles) -> jax.Array:
        """Return queries [B, L, H, K] of `x_BLD`, turned and divided by sqrt(K)."""
        q = rotary.rotate(self.query_norm(self.heads(x_BLD, self.query)), *angles)
        return q * self.config.head_dim**-0.5

    def __call__(
        self,
        x_BQD: jax.Array,
        angles: rotary.Angles,
        seen: select.Seen,
        encoded_BID: jax.Array | None,
        enable_dropout: bool,
    ) -> jax.Array:
        """Attend from [B, Q, D] to the encoder's output, if there is one, and to all of itself.

        Dropout drops a key of a head for all queries together, as in `layers.Attention` of T5.
        """
        c = self.config
        k, v = self.keys_values(x_BQD, angles)
        if encoded_BID is not None:
            pairs = zip(self.keys_values(encoded_BID), (k, v), strict=True)
            k, v = (jnp.concatenate(pair, axis=1) for pair in pairs)
        k, v = (shared(x, c.num_heads) for x in (k, v))
        v = self.dropout(v, deterministic=not enable_dropout)
        y = select.attend(select.attention(c), self.queries(x_BQD, angles), k, v, seen)
        return self.joined(y)

    def step(
        self,
        x_M1D: jax.Array,
        angles: rotary.Angles,
        mask: jax.Array,
        cross: KeysValues,
        cross_mask: jax.Array,
        cache: KeysValues,
        position: jax.Array,
    ) -> tuple[jax.Array, KeysValues]:
        """Attend from one position; return [M, 1, D] and the cache with that position.

        `cross` are keys and values [B, G, I, K] of the encoder's output, which the N decodes of a
        row share, and `cache` those of earlier positions [M, G, T, K]. The masks are bool
        [1, 1, 1, T] and [B, 1, 1, I], True where a decode attends.
        """
        q_M1HK = self.queries(x_M1D, angles)
        keys_values = self.keys_values(x_M1D, angles)
        k_MGTK, v_MGTK = map(network.written, cache, keys_values, (position, position))
        (cross_k, cross_v), (k, v) = (
            [shared(x.swapaxes(1, 2), q_M1HK.shape[2]) for x in pair]
            for pair in (cross, (k_MGTK, v_MGTK))
        )
        # The N decodes of a row are N queries of its inputs.
        q_BNHK = q_M1HK.reshape(len(cross_k), -1, *q_M1HK.shape[2:])
        cross_BHNI = reference.logits(q_BNHK, cross_k, cross_mask, None)
        own_MH1T = reference.logits(q_M1HK, k, mask, None)
        cross_MH1I = cross_BHNI.swapaxes(1, 2).reshape(*own_MH1T.shape[:3], -1)
        weights = jax.nn.softmax(jnp.concatenate([cross_MH1I, own_MH1T], -1)).astype(v.dtype)
        cross_MH1I, own_MH1T = jnp.split(weights, [cross_k.shape[1]], axis=-1)
        cross_BNHI = cross_MH1I.reshape(*q_BNHK.shape[:3], -1)
        y = jnp.einsum("BNHI,BIHK->BNHK", cross_BNHI, cross_v).reshape(q_M1HK.shape)
        return self.joined(y + jnp.einsum("MHQT,MTHK->MQHK", own_MH1T, v)), (k_MGTK, v_MGTK)

    def joined(self, y_BQHK: jax.Array) -> jax.Array:
        """Return the product [B, Q, D] of all heads and the output's projection."""
        y = y_BQHK.reshape(*y_BQHK.shape[:2], -1)
        return self.out(constrain(y, "batch", "length", "joined_kv"))


def shared(x_BLGK: jax.Array, heads: int) -> jax.Array:
    """Return keys or values [B, L, H, K] for all `heads` of queries."""
    repeats = heads // x_BLGK.shape[2]
    return x_BLGK if repeats == 1 else jnp.repeat(x_BLGK, repeats, axis=2)


class Layer(nn.Module):
    """Attention and feed-forward, each between two norms and added to its input."""

    config: T5Gemma2Config

    @nn.compact
    def __call__(
        self,
        x,
        angles,
        seen,
        encoded,
        enable_dropout,
        cross_mask=None,
        cache=None,
        position=None,
    ):
        """Map [B, L, D] to ([B, L, D], None); `nn.scan` wants the second.

        `encoded` is None in an encoder. With a `cache`, map one `position` [M, 1, D] to ([M, 1, D],
        updated cache); see `Attention.step`.
        """
        c = self.config
        norm = lambda name: layers.LayerNorm(c.dtype, name=name)
        dropped = layers.dropout(c.dropout_rate, enable_dropout)
        y = norm("pre_attention_layer_norm")(x)
        attention = Attention(c, name="attention")
        if cache is None:
            y = attention(y, angles, seen, encoded, enable_dropout)
        else:
            y, cache = attention.step(y, angles, seen, encoded, cross_mask, cache, position)
        y = dropped(norm("post_attention_layer_norm")(y))
        x, y = norm("pre_mlp_layer_norm").add_and_normalize(x, y)
        mlp = layers.MlpBlock(c.mlp_dim, GATED_GELU, c.dropout_rate, c.dtype, name="mlp")
        y = mlp(y, enable_dropout)
        y = dropped(norm("post_mlp_layer_norm")(y))
        return constrain(x + y, "batch", "length", "embed"), cache


class Encoder(nn.Module):
    """Embedded inputs through all encoder layers."""

    config: T5Gemma2Config

    @nn.compact
    def __call__(self, x_BID, seen, enable_dropout):
        """Map [B, I, D] to [B, I, D], normalized."""
        c = self.config
        angles = rotary.angles(jnp.arange(x_BID.shape[1])[None], c.head_dim, c.rope_theta)
        x = layers.dropout(c.dropout_rate, enable_dropout)(x_BID)
        x = constrain(x, "batch", "length", "embed")
        encoder_layers = network.stack(self, Layer, c.num_encoder_layers, 4)
        x, _ = encoder_layers(x, angles, seen, None, enable_dropout)
        x = layers.LayerNorm(c.dtype, name="encoder_norm")(x)
        return layers.dropout(c.dropout_rate, enable_dropout)(x)


class Decoder(nn.Module):
    """Embedded targets through all decoder layers."""

    config: T5Gemma2Config

    @nn.compact
    def __call__(
        self, x_BTD, encoded, seen, cross_mask, enable_dropout, caches=None, positions=None
    ):
        """Map [B, T, D] to ([B, T, D], None), normalized.

        `positions` are int32 [B or 1, T]. With `caches`, these, `encoded` and the second result
        have an entry per layer, and there is one position, a scalar.
        """
        c = self.config
        angles = rotary.angles(jnp.atleast_2d(positions), c.head_dim, c.rope_theta)
        x = layers.dropout(c.dropout_rate, enable_dropout)(x_BTD)
        x = constrain(x, "batch", "length", "embed")
        if caches is None:
            decoder_layers = network.stack(self, Layer, c.num_decoder_layers, 4)
            x, _ = decoder_layers(x, angles, seen, encoded, enable_dropout)
        else:  # not scanned, for the reason of T5's decoder
            caches = list(caches)
            for i, cache in enumerate(caches):
                layer = Layer(c, name=f"layers_{i}")
                x, caches[i] = layer(
                    x, angles, seen, encoded[i], False, cross_mask, cache, positions
                )
        x = layers.LayerNorm(c.dtype, name="decoder_norm")(x)
        return layers.dropout(c.dropout_rate, enable_dropout)(x), caches


class ScaledEmbed(layers.Embed):
    """A table whose rows are multiplied by sqrt(D) as inputs, and not for logits."""

    def __call__(self, tokens_BL: jax.Array) -> jax.Array:
        """Return the rows [B, L, D] of ids int32 [B, L], times sqrt(D)."""
        return super().__call__(tokens_BL) * jnp.asarray(self.emb_dim**0.5, self.dtype)


class T5Gemma2(network.Transformer):
    """Encoder and decoder over one table; called as T5's network is."""

    config: Any  # a T5Gemma2Config

    def setup(self):
        """Create the three parts."""
        c = self.config
        init = nn.initializers.normal(c.emb_dim**-0.5)
        self.token_embedder = ScaledEmbed(c.vocab_size, c.emb_dim, c.dtype, init)
        self.encoder = Encoder(c)
        self.decoder = Decoder(c)

    def decode(
        self,
        encoded,
        encoder_input_tokens,
        decoder_input_tokens,
        decoder_target_tokens,
        encoder_segment_ids=None,
        decoder_segment_ids=None,
        *,
        enable_dropout: bool = True,
    ) -> jax.Array:
        """Return float32 logits [B, T, V] of all targets at once (teacher forcing)."""
        inputs = network.segments_of(encoder_input_tokens, encoder_segment_ids)
        targets = network.segments_of(decoder_target_tokens, decoder_segment_ids)
        keys = jnp.concatenate([inputs, targets], axis=1)
        seen = select.seen(select.attention(self.config), Segments(targets, keys, causal=True))
        x = self.token_embedder(decoder_input_tokens)
        positions = positions_of(decoder_target_tokens, decoder_segment_ids)
        y, _ = self.decoder(x, encoded, seen, None, enable_dropout, None, positions)
        return self.logits(y)

    @nn.nowrap  # called of a network without variables
    def keys_values_of(self, layer: Params, encoded_BID: jax.Array) -> Any:
        """Return keys and values [B, I, G, K] of the encoder's output in a layer of the decoder."""
        params = {"params": layer["attention"]}
        return Attention(self.config).apply(params, encoded_BID, method="keys_values")

    def logits(self, y_BTD: jax.Array) -> jax.Array:
        """Return float32 logits [B, T, V], products with the table's rows."""
        return constrain(self.token_embedder.attend(y_BTD), "batch", "length", "vocab")


def positions_of(tokens_BL: jax.Array, segment_ids_BL: jax.Array | None) -> jax.Array:
    """Return each token's place in its segment, int32 [B, L], or [1, L] if nothing is packed.

    A decoder's queries turn by it against the encoder's keys, which do not turn. Between an
    encoder's tokens only the distance counts, so places in the row do as well there.
    """
    places_L = jnp.arange(tokens_BL.shape[1])
    if segment_ids_BL is None:
        return places_L[None]
    begins = jnp.diff(segment_ids_BL, axis=1, prepend=-1) != 0
    return places_L - jax.lax.cummax(jnp.where(begins, places_L, 0), axis=1)
