"""T5 as a Flax module: `Transformer(config=T5Config(...))`, upstream's names and parameter paths.

In memory the layers of a stack have a leading axis under `layers`
(`encoder/layers/attention/query/kernel` [L, D, H*K]) and one compiled body runs L times;
`t5x.checkpointing.layer_stacking` converts them to upstream's `layers_0 …` in checkpoints.
`t5x.examples.t5.incremental_decoder` runs the same decoder one position at a time.

Shapes: B batch, I input length, T target length, D emb_dim, H heads, K head_dim, V vocab, L layers.
"""

from collections.abc import Sequence
from typing import Any

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp

from common.errors import UserError
from t5x.array_types import FLOAT32, Cache, Params
from t5x.examples.t5 import layers
from t5x.kernels import select
from t5x.kernels.attention_mask import Segments
from t5x.partitioning import constrain


@flax.struct.dataclass
class T5Config:
    """Sizes and numerics of a T5.

    `remat_policy` is what the backward pass recomputes: `none`; `products` (everything but the
    results of products with kernels and attention's output); `minimal` (everything but each layer's
    input and attention's output: an eighth of the memory); `full` (everything but each layer's
    input). `auto` is `none` on a CPU, where products cost more than memory, and with `flash`;
    `products` with cuDNN's attention; else `minimal`.

    With `own_relative_bias` each layer has its own relative position table (umT5, Chung et al.
    2023: `encoder/layers_0/relpos_bias/…`); otherwise the layers of a stack share one, as in T5.

    `attention` is `xla`, with hand-written gradients (`t5x.kernels.xla`); `flash`, our kernels for
    GPUs, in 16 bits (`t5x.kernels.gpu_attention`); `cudnn`, NVIDIA's kernels, in 16 bits; `plain`,
    the reference that the others must match; or `auto`, `flash` on one GPU where it works, else
    `xla`.
    """

    vocab_size: int
    dtype: jnp.dtype = FLOAT32
    emb_dim: int = 512
    num_heads: int = 8
    num_encoder_layers: int = 6
    num_decoder_layers: int = 6
    head_dim: int = 64
    mlp_dim: int = 2048
    mlp_activations: Sequence[str] = ("relu",)
    dropout_rate: float = 0.1
    logits_via_embedding: bool = False
    float32_attention_logits: bool = False
    remat_policy: select.RematPolicy = "auto"
    own_relative_bias: bool = False
    attention: select.Attention = "auto"

    def __post_init__(self):
        object.__setattr__(self, "mlp_activations", tuple(self.mlp_activations))  # hashable
        if not self.mlp_activations or not layers.ACTIVATIONS.keys() >= {*self.mlp_activations}:
            raise UserError(
                "T5Config.mlp_activations",
                self.mlp_activations,
                to_set=f"set it to one or several of {sorted(layers.ACTIVATIONS)}",
            )
        select.check(self)


def make_attention(c: T5Config, name: str | None = None) -> layers.Attention:
    """Return an attention of these sizes. Raise UserError if it cannot run on this device."""
    return layers.Attention(
        c.num_heads,
        c.head_dim,
        c.dropout_rate,
        c.dtype,
        c.float32_attention_logits,
        select.attention(c),
        name=name,
    )


class Block(nn.Module):
    """The common parts of encoder and decoder layers: norm, sublayers, dropout, residual."""

    config: T5Config

    def norm(self, name: str) -> nn.Module:
        """Return a norm named `name`."""
        return layers.LayerNorm(self.config.dtype, name=name)

    def dropped(self, y: jax.Array, enable_dropout: bool) -> jax.Array:
        """Return `y` after dropout."""
        return layers.dropout(self.config.dropout_rate, enable_dropout)(y)

    def feed_forward(self, x: jax.Array, y: jax.Array, enable_dropout: bool) -> jax.Array:
        """Add `y`, and to that the feed-forward sublayer with its norm."""
        c = self.config
        x, y = self.norm("pre_mlp_layer_norm").add_and_normalize(x, self.dropped(y, enable_dropout))
        mlp = layers.MlpBlock(c.mlp_dim, c.mlp_activations, c.dropout_rate, c.dtype, name="mlp")
        y = self.dropped(mlp(y, enable_dropout), enable_dropout)
        return constrain(x + y, "batch", "length", "embed")


class EncoderLayer(Block):
    """Self-attention and feed-forward."""

    @nn.compact
    def __call__(self, x, mask, bias, enable_dropout):
        """Map [B, I, D] to ([B, I, D], None); `nn.scan` wants the second."""
        if bias is None:
            bias = relative_bias(self.config, True, x)
        x, y = self.norm("pre_attention_layer_norm").add_and_normalize(x, None)
        attention = make_attention(self.config, "attention")
        y = attention(y, y, mask, bias, enable_dropout)
        return self.feed_forward(x, y, enable_dropout), None


class DecoderLayer(Block):
    """Causal self-attention, attention to the encoder, feed-forward."""

    @nn.compact
    def __call__(
        self, x, encoded, mask, bias, cross_mask, enable_dropout, cache=None, position=None
    ):
        """Map [B, T, D] to ([B, T, D], None).

        With a `cache`, keys and values [M, H, T, K] of earlier positions, map one `position`
        [M, 1, D] to ([M, 1, D], updated cache). `encoded` is then the keys and values [B, I, H, K]
        of the encoded inputs, and M/B adjacent rows of x attend to one row of them.
        """
        if bias is None:
            bias = relative_bias(self.config, False, x, cache, position)
        x, y = self.norm("pre_self_attention_layer_norm").add_and_normalize(x, None)
        attention = make_attention(self.config, "self_attention")
        source = y
        if cache is not None:
            keys_values = attention.keys_values(y)
            cache = tuple(map(written, cache, keys_values, (position, position)))
            source = tuple(x_BHTK.swapaxes(1, 2) for x_BHTK in cache)
        y = attention(y, source, mask, bias, enable_dropout)

        norm = self.norm("pre_cross_attention_layer_norm")
        x, y = norm.add_and_normalize(x, self.dropped(y, enable_dropout))
        attention = make_attention(self.config, "encoder_decoder_attention")
        if cache is not None:
            encoded = tuple(x_BHTK.swapaxes(1, 2) for x_BHTK in encoded)
            y = y.reshape(len(encoded[0]), -1, y.shape[-1])
        y = attention(y, encoded, cross_mask, None, enable_dropout)
        return self.feed_forward(x, y.reshape(x.shape), enable_dropout), cache


def written(cache_MHTK: jax.Array, new_M1HK: jax.Array, position: jax.Array) -> jax.Array:
    """Return the cache of keys or values with one more position."""
    return jax.lax.dynamic_update_slice_in_dim(
        cache_MHTK, new_M1HK.swapaxes(1, 2), position, axis=2
    )


def stack(caller: Any, layer: type[nn.Module], length: int, broadcast: int) -> nn.Module:
    """Return the submodule `layers` of the calling module, with that module's `config`.

    It runs `length` layers with stacked parameters, which share `broadcast` arguments. The last of
    these is a flag, static for rematerialization.
    """
    config = caller.config
    policy, unrolled = select.layer_loop(config, caller.is_initializing())
    if policy != "none":
        layer = nn.remat(
            layer,
            policy=select.REMAT[policy],
            prevent_cse=unrolled,  # a loop's two bodies have no common subexpressions
            static_argnums=(broadcast + 1,),
        )
    scanned = nn.scan(
        layer,
        variable_axes={"params": 0},
        split_rngs={"params": True, "dropout": True},
        in_axes=(nn.broadcast,) * broadcast,
        length=length,
        unroll=length if unrolled else 1,
        check_constancy_invariants=False,  # they would be traced for it once more
        metadata_params={nn.PARTITION_NAME: "layers"},
    )
    return scanned(config, name="layers")


def relative_bias(
    c: T5Config, bidirectional: bool, x: jax.Array, cache: Cache = None, position: Any = None
) -> jax.Array:
    """Return the bias from the table `relpos_bias` of the calling stack or layer.

    It covers all positions of x, or one `position` and the positions of a cache, in the form that
    `select.attend` reads.
    """
    table = layers.RelativePositionBiases(c.num_heads, bidirectional, c.dtype, name="relpos_bias")
    queries = x.shape[1]
    if cache is None:
        distance_N = jnp.arange(1 - queries, queries)
    else:
        distance_N = jnp.arange(cache[0].shape[2]) - position
    return select.bias(select.attention(c), table(distance_N), queries)


class Encoder(nn.Module):
    """Embedded inputs through all encoder layers."""

    config: T5Config

    @nn.compact
    def __call__(self, x_BID, mask, enable_dropout):
        """Map [B, I, D] to [B, I, D], normalized."""
        c = self.config
        bias = None
        if not c.own_relative_bias:
            bias = relative_bias(c, True, x_BID)
        x = layers.dropout(c.dropout_rate, enable_dropout)(x_BID)
        x = constrain(x, "batch", "length", "embed")
        encoder_layers = stack(self, EncoderLayer, c.num_encoder_layers, 3)
        x, _ = encoder_layers(x, mask, bias, enable_dropout)
        x = layers.LayerNorm(c.dtype, name="encoder_norm")(x)
        return layers.dropout(c.dropout_rate, enable_dropout)(x)


class Decoder(nn.Module):
    """Embedded targets through all decoder layers, to float32 logits unless they are tied."""

    config: T5Config

    @nn.compact
    def __call__(
        self, x_BTD, encoded, mask, cross_mask, enable_dropout, caches=None, position=None
    ):
        """Map [B, T, D] to (logits [B, T, V], None); tied embeddings: to ([B, T, D], None).

        With `caches`, these, `encoded` and the second result have an entry per layer.
        """
        c = self.config
        bias = None
        if not c.own_relative_bias:
            bias = relative_bias(c, False, x_BTD, caches and caches[0], position)
        x = layers.dropout(c.dropout_rate, enable_dropout)(x_BTD)
        x = constrain(x, "batch", "length", "embed")
        if caches is None:
            decoder_layers = stack(self, DecoderLayer, c.num_decoder_layers, 5)
            x, _ = decoder_layers(x, encoded, mask, bias, cross_mask, enable_dropout)
        else:
            # Not scanned: a scan would copy each layer's kernels and cache out of the stack and
            # back at every step (74 for 37 ms on a CPU).
            caches = list(caches)
            for i, layer_cache in enumerate(caches):
                layer = DecoderLayer(c, name=f"layers_{i}")
                x, caches[i] = layer(
                    x, encoded[i], mask, bias, cross_mask, False, layer_cache, position
                )
        x = layers.LayerNorm(c.dtype, name="decoder_norm")(x)
        x = layers.dropout(c.dropout_rate, enable_dropout)(x)
        if c.logits_via_embedding:
            return x, caches
        init = layers.scaled_init("truncated_normal")
        logits = layers.Dense(
            c.vocab_size, ("embed", "vocab"), init, c.dtype, FLOAT32, name="logits_dense"
        )(x)
        return constrain(logits, "batch", "length", "vocab"), caches


class Transformer(nn.Module):
    """Encoder and decoder over one embedding table."""

    config: Any  # a T5Config

    def setup(self):
        """Create the three parts."""
        c = self.config
        self.token_embedder = layers.Embed(c.vocab_size, c.emb_dim, c.dtype)
        self.encoder: nn.Module = Encoder(c)
        self.decoder: nn.Module = Decoder(c)

    def encode(
        self, encoder_input_tokens, encoder_segment_ids=None, *, enable_dropout: bool = True
    ) -> jax.Array:
        """Encode int32 [B, I] to [B, I, D]; id 0 is padding and is masked."""
        segments = segments_of(encoder_input_tokens, encoder_segment_ids)
        mask = select.seen(select.attention(self.config), Segments(segments, segments))
        x = self.token_embedder(encoder_input_tokens)
        return self.encoder(x, mask, enable_dropout)

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
        kind = select.attention(self.config)
        inputs = segments_of(encoder_input_tokens, encoder_segment_ids)
        targets = segments_of(decoder_target_tokens, decoder_segment_ids)
        mask = select.seen(kind, Segments(targets, targets, causal=True))
        cross_mask = select.seen(kind, Segments(targets, inputs))
        x = self.token_embedder(decoder_input_tokens)
        y, _ = self.decoder(x, encoded, mask, cross_mask, enable_dropout)
        return self.logits(y)

    def decode_step(
        self, ids_M: jax.Array, cross: Cache, cross_mask: jax.Array, cache: Cache
    ) -> tuple[jax.Array, Cache]:
        """Return float32 logits [M, V] after one more id per row, and the updated cache."""
        position, length = cache["position"], cache["keys_values"][0][0].shape[2]
        mask = (jnp.arange(length) <= position)[None, None, None]
        x = self.token_embedder(ids_M[:, None])
        keys_values = cache["keys_values"]
        y, keys_values = self.decoder(x, cross, mask, cross_mask, False, keys_values, position)
        return self.logits(y)[:, 0], {"position": position + 1, "keys_values": keys_values}

    @nn.nowrap  # called of a network without variables
    def keys_values_of(self, layer: Params, encoded_BID: jax.Array) -> Any:
        """Return keys and values [B, I, H, K] of the encoder's output in a layer of the decoder."""
        params = {"params": layer["encoder_decoder_attention"]}
        return make_attention(self.config).apply(params, encoded_BID, method="keys_values")

    def logits(self, y: jax.Array) -> jax.Array:
        """Return the decoder's logits; for a tied table its product over sqrt(D)."""
        if not self.config.logits_via_embedding:
            return y
        logits = self.token_embedder.attend(y) / jnp.sqrt(self.config.emb_dim)
        return constrain(logits, "batch", "length", "vocab")

    def __call__(
        self,
        encoder_input_tokens,
        decoder_input_tokens,
        decoder_target_tokens,
        encoder_segment_ids=None,
        decoder_segment_ids=None,
        encoder_positions=None,
        decoder_positions=None,
        *,
        enable_dropout: bool = True,
    ) -> jax.Array:
        """Return float32 logits [B, T, V] from int32 ids and segment ids [B, I], [B, T].

        Positions are ignored: biases depend on distances, and a segment's tokens are adjacent.
        """
        encoded = self.encode(
            encoder_input_tokens, encoder_segment_ids, enable_dropout=enable_dropout
        )
        return self.decode(
            encoded,
            encoder_input_tokens,
            decoder_input_tokens,
            decoder_target_tokens,
            encoder_segment_ids,
            decoder_segment_ids,
            enable_dropout=enable_dropout,
        )


def segments_of(tokens: jax.Array, segment_ids: jax.Array | None) -> jax.Array:
    """Return segment ids int32 [B, L] of tokens: 0 for padding, all 1 if nothing is packed."""
    return jnp.where(tokens > 0, 1 if segment_ids is None else segment_ids, 0)
