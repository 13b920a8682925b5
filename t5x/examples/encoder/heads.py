"""The heads that label texts or tokens, with Hugging Face's parameters and numerics.

What pretraining has already learned keeps its name, so that a checkpoint restores it: BERT's pooler
is `pooler`, ModernBERT's dense layer and norm are those of `mlm_head`. RoBERTa's `pooler` and each
`classifier` are new.

Shapes: B batch, L length, D emb_dim, C labels.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

from t5x.array_types import FLOAT32
from t5x.examples.encoder import layers
from t5x.examples.encoder.network import NORMAL, EncoderConfig, ModernBertConfig, modern_inits
from t5x.examples.t5.layers import ACTIVATIONS, Dense, dropout

# Parameters that only some checkpoints have: they may start fresh, or be left unread.
OF_HEADS = r"target/(classifier|pooler|mlm_head|nsp_head)/.*"
POOLINGS = ("cls", "mean")


def mean_of_segments(x_BLD: jax.Array, segments_BL: jax.Array) -> jax.Array:
    """Return at each place the mean of its segment, [B, L, D]; 0 is a segment, too."""
    same_BLL = (segments_BL[:, :, None] == segments_BL[:, None, :]).astype(jnp.float32)
    total_BLD = jnp.einsum("BLS,BSD->BLD", same_BLL, x_BLD.astype(jnp.float32))
    return (total_BLD / same_BLL.sum(-1, keepdims=True)).astype(x_BLD.dtype)


class ModernTransform(nn.Module):
    """ModernBERT's dense layer, gelu and norm before a classifier."""

    config: ModernBertConfig

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Map [B, L, D] to [B, L, D]."""
        c, (_, outer) = self.config, modern_inits(self.config)
        x = Dense(x.shape[-1], ("embed", "joined_kv"), outer, c.dtype, name="dense")(x)
        x = ACTIVATIONS["gelu_exact"](x)
        return layers.CenteredLayerNorm(c.dtype, c.norm_epsilon, use_bias=False, name="norm")(x)


class LabelHead(nn.Module):
    """Logits of labels at each place; those of a text are at its first token.

    `pooling` "mean" is for texts of a ModernBERT, which then sees the mean of all tokens.
    """

    config: EncoderConfig
    labels: int
    of_words: bool
    pooling: str = "cls"

    @nn.compact
    def __call__(
        self, x: jax.Array, segments_BL: jax.Array, enable_dropout: bool = False
    ) -> jax.Array:
        """Map encoded rows [B, L, D] to float32 logits [B, L, C]."""
        c = self.config
        drop = dropout(c.dropout_rate, enable_dropout)
        if isinstance(c, ModernBertConfig):
            if self.pooling == "mean" and not self.of_words:
                x = mean_of_segments(x, segments_BL)
            x = ModernTransform(c, name="mlm_head")(x)
        elif not self.of_words:
            if getattr(c, "position_offset", 0):  # RoBERTa
                x = drop(x)
            axes = ("embed", "joined_kv")
            dense = Dense(c.emb_dim, axes, NORMAL, c.dtype, use_bias=True, name="pooler")
            x = jnp.tanh(dense(x))
        return Dense(
            self.labels,
            ("embed", "kv"),
            NORMAL,
            c.dtype,
            output_dtype=FLOAT32,
            use_bias=True,
            name="classifier",
        )(drop(x))
