"""BERT and ModernBERT as one writes them first, with Flax's own layers, to count beside ours.

    module = PlainEncoder(network.ModernBertConfig(**sizes))
    compile_step(request, module="benchmarks.baselines.plain_encoder")       # counted for a slice

Layers and their parameters come one after the other, each attends to all keys under a mask (local
layers as well), gradients are left to JAX, and logits are computed of every place. Parameters have
the names of `t5x.examples.encoder.network` but for their layers, `layers_0` and so on.
"""

import functools
from unittest import mock

import flax.linen as nn
import jax
import jax.numpy as jnp

from benchmarks.synthetic_encoder import answer
from preflight.aot.compiler import serve
from t5x import losses
from t5x.examples.encoder import network
from t5x.ops.rotary import angles, rotate

gelu = functools.partial(nn.gelu, approximate=False)


class PlainLayer(nn.Module):
    """Layer `index`: post-norm with biases for BERT, pre-norm, gated and rotary for ModernBERT."""

    config: network.EncoderConfig
    index: int

    @nn.compact
    def __call__(self, x_BLD, segments_BL, positions_BL):
        """Map [B, L, D] to [B, L, D]."""
        c = self.config
        modern = isinstance(c, network.ModernBertConfig)
        norm = functools.partial(
            nn.LayerNorm, epsilon=c.norm_epsilon, dtype=c.dtype, use_bias=not modern
        )
        attention = PlainAttention(c, self.index, name="attention")
        if not modern:
            x = x_BLD + attention(x_BLD, segments_BL, positions_BL)
            x = norm(name="post_attention_layer_norm")(x)
            return norm(name="post_mlp_layer_norm")(x + PlainMlp(c, name="mlp")(x))
        y = x_BLD if self.index == 0 else norm(name="pre_attention_layer_norm")(x_BLD)
        x = x_BLD + attention(y, segments_BL, positions_BL)
        return x + PlainMlp(c, name="mlp")(norm(name="pre_mlp_layer_norm")(x))


class PlainAttention(nn.Module):
    """Attention of Flax under a mask [B, 1, L, L]."""

    config: network.EncoderConfig
    index: int

    @nn.compact
    def __call__(self, x_BLD, segments_BL, positions_BL):
        """Map [B, L, D] to [B, L, D]."""
        c = self.config
        modern = isinstance(c, network.ModernBertConfig)
        dense = functools.partial(nn.Dense, c.emb_dim, use_bias=not modern, dtype=c.dtype)
        heads = lambda name: dense(name=name)(x_BLD).reshape(*x_BLD.shape[:2], c.num_heads, -1)
        q, k, v = heads("query"), heads("key"), heads("value")
        mask = nn.make_attention_mask(segments_BL, segments_BL, jnp.equal, dtype=bool)
        if modern:
            is_local = self.index % c.global_every
            turns = angles(positions_BL, c.head_dim, c.local_theta if is_local else c.global_theta)
            q, k = rotate(q, *turns), rotate(k, *turns)
            if is_local:
                places = jnp.arange(x_BLD.shape[1])
                mask &= jnp.abs(places[:, None] - places) <= c.local_window // 2
        out = nn.dot_product_attention(
            q, k, v, mask=mask, dtype=c.dtype, force_fp32_for_softmax=True, deterministic=True
        )
        return dense(name="out")(out.reshape(x_BLD.shape))


class PlainMlp(nn.Module):
    """The feed-forward layer, gated in ModernBERT."""

    config: network.EncoderConfig

    @nn.compact
    def __call__(self, x):
        """Map [B, L, D] to [B, L, D]."""
        c = self.config
        modern = isinstance(c, network.ModernBertConfig)
        dense = functools.partial(nn.Dense, use_bias=not modern, dtype=c.dtype)
        if modern:
            hidden = gelu(dense(c.mlp_dim, name="wi_0")(x)) * dense(c.mlp_dim, name="wi_1")(x)
        else:
            hidden = gelu(dense(c.mlp_dim, name="wi")(x))
        return dense(c.emb_dim, name="wo")(hidden)


class PlainLayers(nn.Module):
    """All layers, and ModernBERT's last norm."""

    config: network.EncoderConfig

    @nn.compact
    def __call__(self, x, segments_BL, positions_BL):
        """Map [B, L, D] to [B, L, D]."""
        c = self.config
        for i in range(c.num_layers):
            x = PlainLayer(c, i, name=f"layers_{i}")(x, segments_BL, positions_BL)
        if not isinstance(c, network.ModernBertConfig):
            return x
        return nn.LayerNorm(c.norm_epsilon, c.dtype, use_bias=False, name="encoder_norm")(x)


class PlainHead(nn.Module):
    """Logits of tokens by the embedding's rows, float32."""

    config: network.EncoderConfig

    @nn.compact
    def __call__(self, x, attend):
        """Map [B, L, D] to [B, L, V]; `attend` multiplies with the embedding."""
        c = self.config
        bias = not isinstance(c, network.ModernBertConfig)
        x = gelu(nn.Dense(c.emb_dim, use_bias=bias, dtype=c.dtype, name="dense")(x))
        x = nn.LayerNorm(c.norm_epsilon, c.dtype, use_bias=bias, name="norm")(x)
        start = self.param("bias", nn.initializers.zeros, (c.vocab_size,), jnp.float32)
        return attend(x).astype(jnp.float32) + start


class PlainEncoder(nn.Module):
    """A BERT or ModernBERT, by its configuration, without dropout or next sentences."""

    config: network.EncoderConfig

    def setup(self):
        """Create the parts."""
        c = self.config
        bert = not isinstance(c, network.ModernBertConfig)
        self.token_embedder = nn.Embed(c.vocab_size, c.emb_dim, dtype=c.dtype)
        if bert:
            rows = c.max_length + c.position_offset
            self.position_embedder = nn.Embed(rows, c.emb_dim, dtype=c.dtype)
            self.type_embedder = nn.Embed(c.type_vocab_size, c.emb_dim, dtype=c.dtype)
        self.embeddings_norm = nn.LayerNorm(c.norm_epsilon, c.dtype, use_bias=bert)
        self.encoder = PlainLayers(c)
        self.mlm_head = PlainHead(c)

    def encode(
        self, tokens, segment_ids=None, positions=None, type_ids=None, *, enable_dropout=False
    ):
        """See `network.Bert.encode`."""
        segments = network.segments_of(tokens, segment_ids)
        positions = network.positions_of(tokens, positions)
        x = self.token_embedder(tokens)
        if not isinstance(self.config, network.ModernBertConfig):
            types = jnp.zeros_like(tokens) if type_ids is None else type_ids
            x += self.position_embedder(positions + self.config.position_offset)
            x += self.type_embedder(types)
        return self.encoder(self.embeddings_norm(x), segments, positions)

    def predict(self, encoded):
        """See `network.Bert.predict`."""
        return self.mlm_head(encoded, self.token_embedder.attend)

    def __call__(self, tokens, *args, **how):
        """Return float32 logits [B, L, V]."""
        return self.predict(self.encode(tokens, *args, **how))


if __name__ == "__main__":
    with mock.patch.object(losses, "log_normalizer", functools.partial(jax.nn.logsumexp, axis=-1)):
        serve(functools.partial(answer, PlainEncoder))
