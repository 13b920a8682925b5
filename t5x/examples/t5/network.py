"""T5 as a Flax module: `Transformer(config=T5Config(...))`, upstream's names and parameter paths.

  transformer = Transformer(config=T5Config(vocab_size=64000))
  variables = transformer.init(rng, inputs, targets, targets, enable_dropout=False)
  logits = transformer.apply(variables, inputs, shifted_targets, targets, enable_dropout=False)

In memory the layers of a stack lie on a leading axis under `layers`
(`encoder/layers/attention/query/kernel` [L, D, H*K]) and one compiled body runs L times;
`t5x.checkpointing.layer_stacking` turns them into upstream's `layers_0 …` for the disk.

Shapes: B batch, I input length, T target length, D emb_dim, H heads, K head_dim, V vocab, L layers.
"""

from collections.abc import Sequence
from typing import Any

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp

from t5x.examples.t5 import layers
from t5x.ops.attention import KEPT
from t5x.ops.flash_attention import Segments
from t5x.partitioning import constrain, platform

REMAT_POLICIES = ("auto", "none", "minimal", "full")
ATTENTIONS = ("xla", "flash", "cudnn")


@flax.struct.dataclass
class T5Config:
    """Sizes and numerics of a T5.

    `remat_policy` says what the backward pass computes again: `none`; `minimal` (all but each
    layer's input and what attention gives: an eighth of the memory); `full` (all but each layer's
    input); `auto` is `none` on a CPU, where products cost more than memory, elsewhere `minimal`.

    With `own_relative_bias` each layer has a relative position table of its own (umT5, Chung et al.
    2023: `encoder/layers_0/relpos_bias/…`); else the layers of a stack share one, as in T5.

    `attention` is `xla`, left to the compiler; `flash`, by kernels for TPUs
    (`t5x.ops.flash_attention`); or `cudnn`, by NVIDIA's for GPUs, in bfloat16 or float16.
    """

    vocab_size: int
    dtype: Any = jnp.float32
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
    remat_policy: str = "auto"
    own_relative_bias: bool = False
    attention: str = "xla"

    def __post_init__(self):
        unknown = set(self.mlp_activations) - set(layers.ACTIVATIONS)
        if unknown:
            raise ValueError(
                f"T5Config.mlp_activations names {sorted(unknown)}; "
                f"known are {sorted(layers.ACTIVATIONS)}."
            )
        if self.remat_policy not in REMAT_POLICIES:
            raise ValueError(
                f"T5Config.remat_policy is {self.remat_policy!r}; choose one of {REMAT_POLICIES}."
            )
        if self.attention not in ATTENTIONS:
            raise ValueError(
                f"T5Config.attention is {self.attention!r}; choose one of {ATTENTIONS}."
            )
        half = jnp.dtype(self.dtype).itemsize == 2 and not self.float32_attention_logits
        if self.attention == "cudnn" and not half:
            raise ValueError(
                "T5Config.attention is 'cudnn', which works in bfloat16 or float16: set "
                f"T5Config.dtype, which is {jnp.dtype(self.dtype).name}, to one of these and "
                "float32_attention_logits to False."
            )


class Block(nn.Module):
    """What encoder and decoder layers share: norm, sublayer, dropout, residual."""

    config: T5Config

    def norm(self, name: str) -> nn.Module:
        """A norm named `name`."""
        return layers.LayerNorm(self.config.dtype, name=name)

    def attention(self, name: str) -> layers.Attention:
        """An attention named `name`."""
        c = self.config
        return layers.Attention(
            c.num_heads,
            c.head_dim,
            c.dropout_rate,
            c.dtype,
            c.float32_attention_logits,
            c.attention == "cudnn",
            name=name,
        )

    def residual(self, x: jax.Array, y: jax.Array, enable_dropout: bool) -> jax.Array:
        """`x` plus `y` after dropout, laid out over the mesh."""
        y = layers.dropout(self.config.dropout_rate, enable_dropout)(y)
        return constrain(x + y, "batch", "length", "embed")

    def feed_forward(self, x: jax.Array, enable_dropout: bool) -> jax.Array:
        """The feed-forward sublayer with its norm and residual."""
        c = self.config
        y = self.norm("pre_mlp_layer_norm")(x)
        mlp = layers.MlpBlock(c.mlp_dim, c.mlp_activations, c.dropout_rate, c.dtype, name="mlp")
        return self.residual(x, mlp(y, enable_dropout), enable_dropout)


class EncoderLayer(Block):
    """Self-attention and feed-forward."""

    @nn.compact
    def __call__(self, x, mask, bias, enable_dropout):
        """[B, I, D] to ([B, I, D], None): the second is what `nn.scan` stacks."""
        if bias is None:
            bias = relative_bias(self.config, True, x.shape[1])
        y = self.norm("pre_attention_layer_norm")(x)
        attention = self.attention("attention")
        y = attention(y, attention.keys_values(y), mask, bias, enable_dropout)
        x = self.residual(x, y, enable_dropout)
        return self.feed_forward(x, enable_dropout), None


class DecoderLayer(Block):
    """Causal self-attention, attention to the encoder, feed-forward."""

    @nn.compact
    def __call__(self, x, encoded, mask, bias, cross_mask, enable_dropout):
        """[B, T, D] to ([B, T, D], None)."""
        if bias is None:
            bias = relative_bias(self.config, False, x.shape[1])
        y = self.norm("pre_self_attention_layer_norm")(x)
        attention = self.attention("self_attention")
        y = attention(y, attention.keys_values(y), mask, bias, enable_dropout)
        x = self.residual(x, y, enable_dropout)

        y = self.norm("pre_cross_attention_layer_norm")(x)
        attention = self.attention("encoder_decoder_attention")
        y = attention(y, attention.keys_values(encoded), cross_mask, None, enable_dropout)
        x = self.residual(x, y, enable_dropout)
        return self.feed_forward(x, enable_dropout), None


def stack(layer: type[Block], config: T5Config, length: int, broadcast: int) -> nn.Module:
    """`length` layers run one after the other by one body; `broadcast` arguments are shared.

    The last one of them, a flag, is static for rematerialization.
    """
    policy = config.remat_policy
    if policy == "auto":
        policy = "none" if platform() == "cpu" else "minimal"
    if policy != "none":
        kept = jax.checkpoint_policies.save_only_these_names(KEPT) if policy == "minimal" else None
        layer = nn.remat(layer, policy=kept, prevent_cse=False, static_argnums=(broadcast + 1,))
    scanned = nn.scan(
        layer,
        variable_axes={"params": 0},
        split_rngs={"params": True, "dropout": True},
        in_axes=(nn.broadcast,) * broadcast,
        length=length,
        metadata_params={nn.PARTITION_NAME: "layers"},
    )
    return scanned(config, name="layers")


def relative_bias(c: T5Config, bidirectional: bool, length: int) -> jax.Array:
    """Bias from a table `relpos_bias` of the stack or the layer that calls this.

    [1, H, Q, S], or what flash attention wants: [H, Q + S - 1] by distance.
    """
    table = layers.RelativePositionBiases(c.num_heads, bidirectional, c.dtype, name="relpos_bias")
    return table(jnp.arange(length), length, by_distance=c.attention == "flash")


class Encoder(nn.Module):
    """Embedded inputs through all encoder layers."""

    config: T5Config

    @nn.compact
    def __call__(self, x_BID, mask, enable_dropout):
        """[B, I, D] to [B, I, D], normalized."""
        c = self.config
        bias = None
        if not c.own_relative_bias:
            bias = relative_bias(c, True, x_BID.shape[1])
        x = layers.dropout(c.dropout_rate, enable_dropout)(x_BID)
        x = constrain(x, "batch", "length", "embed")
        x, _ = stack(EncoderLayer, c, c.num_encoder_layers, 3)(x, mask, bias, enable_dropout)
        x = layers.LayerNorm(c.dtype, name="encoder_norm")(x)
        return layers.dropout(c.dropout_rate, enable_dropout)(x)


class Decoder(nn.Module):
    """Embedded targets through all decoder layers, to float32 logits unless they are tied."""

    config: T5Config

    @nn.compact
    def __call__(self, x_BTD, encoded, mask, cross_mask, enable_dropout):
        """[B, T, D] to logits [B, T, V], or to [B, T, D] when the embedding gives the logits."""
        c = self.config
        bias = None
        if not c.own_relative_bias:
            bias = relative_bias(c, False, x_BTD.shape[1])
        x = layers.dropout(c.dropout_rate, enable_dropout)(x_BTD)
        x = constrain(x, "batch", "length", "embed")
        decoder_layers = stack(DecoderLayer, c, c.num_decoder_layers, 5)
        x, _ = decoder_layers(x, encoded, mask, bias, cross_mask, enable_dropout)
        x = layers.LayerNorm(c.dtype, name="decoder_norm")(x)
        x = layers.dropout(c.dropout_rate, enable_dropout)(x)
        if c.logits_via_embedding:
            return x
        init = layers.scaled_init("truncated_normal")
        logits = layers.Dense(
            c.vocab_size, ("embed", "vocab"), init, c.dtype, jnp.float32, name="logits_dense"
        )(x)
        return constrain(logits, "batch", "length", "vocab")


class Transformer(nn.Module):
    """Encoder and decoder over one embedding table."""

    config: T5Config

    def setup(self):
        """Makes the three parts."""
        c = self.config
        self.token_embedder = layers.Embed(c.vocab_size, c.emb_dim, c.dtype)
        self.encoder = Encoder(c)
        self.decoder = Decoder(c)

    def encode(
        self, encoder_input_tokens, encoder_segment_ids=None, *, enable_dropout: bool = True
    ) -> jax.Array:
        """Encodes int32 [B, I] to [B, I, D]; id 0 is padding and is never looked at."""
        segments = segments_of(encoder_input_tokens, encoder_segment_ids)
        looks = may_look(self.config, segments, segments)
        x = self.token_embedder(encoder_input_tokens)
        return self.encoder(x, looks, enable_dropout)

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
        """Float32 logits [B, T, V] of all targets at once (teacher forcing)."""
        c = self.config
        inputs = segments_of(encoder_input_tokens, encoder_segment_ids)
        targets = segments_of(decoder_target_tokens, decoder_segment_ids)
        looks = may_look(c, targets, targets, causal=True), may_look(c, targets, inputs)
        x = self.token_embedder(decoder_input_tokens)
        return self.logits(self.decoder(x, encoded, *looks, enable_dropout))

    def logits(self, y: jax.Array) -> jax.Array:
        """Scores of the vocabulary: those of the decoder, or of the tied table over sqrt(D)."""
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
        """Float32 logits [B, T, V] from int32 ids and segment ids [B, I], [B, T].

        Positions are accepted and not needed: biases depend on distances only, and tokens of one
        segment stand side by side.
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
    """Segment ids int32 [B, L] of tokens: 0 where there is padding, all 1 if nothing is packed."""
    return jnp.where(tokens > 0, 1 if segment_ids is None else segment_ids, 0)


def may_look(
    config: T5Config, queries: jax.Array, keys: jax.Array, causal: bool = False
) -> jax.Array | Segments:
    """Which keys a query may look at: those of its segment, where `causal` none behind it.

    A query that may look at nothing looks at everything: it is padding, nobody looks at it, and no
    softmax has to be without a term.

    Args:
      config: says how attention is computed.
      queries: segments [B, Q], 0 for padding.
      keys: segments [B, S].
      causal: queries and keys are the same tokens, and none looks ahead.

    Returns:
      A mask [B, 1, Q, S], made once for all layers; or what a kernel makes masks of.
    """
    if config.attention == "flash":
        return Segments(queries, keys, causal)
    queries = queries[:, None, :, None]
    mask = (queries == keys[:, None, None, :]) & (queries > 0)
    if causal:
        mask &= jnp.tril(jnp.ones(mask.shape[-2:], bool))
    return jax.lax.optimization_barrier(mask | ~mask.any(-1, keepdims=True))
