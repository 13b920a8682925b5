"""BERT, RoBERTa and ModernBERT as Flax modules that predict masked tokens.

    network.Bert(config=network.BertConfig(vocab_size=30_522))          # RoBERTa is one, too
    network.ModernBert(config=network.ModernBertConfig(vocab_size=50_368))

Sources: Devlin et al. 2019 (BERT), Liu et al. 2019 (RoBERTa), Warner et al. 2024 (ModernBERT,
arXiv 2412.13663); numbers equal Hugging Face's transformers. As in T5 (`t5x.examples.t5`)
the layers are stacked: their parameters have a leading axis under `encoder/layers`.

Shapes: B batch, L length, D emb_dim, V vocab.
"""

import functools
from typing import Any

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp

from common.errors import UserError
from t5x.array_types import FLOAT32
from t5x.examples.encoder import layers
from t5x.examples.t5.layers import ACTIVATIONS, Dense, Embed, Initializer, MlpBlock, dropout
from t5x.examples.t5.network import stack
from t5x.kernels import rotary, select
from t5x.kernels.attention_mask import Segments
from t5x.partitioning import constrain


@flax.struct.dataclass
class EncoderConfig:
    """Sizes and numerics of an encoder; see `t5x.examples.t5.network.T5Config` for the numerics.

    `max_length` is the longest example that has positions. `dropout_rate` is for embeddings and
    sublayers, `attention_dropout_rate` for attention weights.
    """

    vocab_size: int
    dtype: jnp.dtype = FLOAT32
    emb_dim: int = 768
    num_heads: int = 12
    num_layers: int = 12
    mlp_dim: int = 3072
    max_length: int = 512
    dropout_rate: float = 0.1
    attention_dropout_rate: float = 0.1
    norm_epsilon: float = 1e-12
    remat_policy: select.RematPolicy = "auto"
    attention: select.Attention = "auto"

    def __post_init__(self):
        owner = type(self).__name__
        if self.emb_dim % self.num_heads:
            raise UserError(
                f"{owner}.emb_dim",
                self.emb_dim,
                f"which {self.num_heads} heads cannot share",
                "set it to a multiple of num_heads",
            )
        select.check(self)

    @property
    def head_dim(self) -> int:
        """Width of one attention head."""
        return self.emb_dim // self.num_heads


@flax.struct.dataclass
class BertConfig(EncoderConfig):
    """A BERT or RoBERTa.

    RoBERTa's table of positions begins with `position_offset` 2 unused rows, and it has one token
    type. With `next_sentence` there are BERT's pooler and its prediction of the next sentence.
    """

    type_vocab_size: int = 2
    position_offset: int = 0
    next_sentence: bool = True


@flax.struct.dataclass
class ModernBertConfig(EncoderConfig):
    """A ModernBERT: every `global_every`-th layer attends to all keys, the first one included.

    The others attend to keys at most `local_window` / 2 away. `global_theta` and `local_theta` are
    the bases of their rotary positions.
    """

    num_layers: int = 22
    mlp_dim: int = 1152
    max_length: int = 8192
    dropout_rate: float = 0.0
    attention_dropout_rate: float = 0.0
    norm_epsilon: float = 1e-5
    global_every: int = 3
    local_window: int = 128
    global_theta: float = 160_000.0
    local_theta: float = 10_000.0

    def __post_init__(self):
        EncoderConfig.__post_init__(self)
        if (self.num_layers - 1) % self.global_every:
            above = self.num_layers + -(self.num_layers - 1) % self.global_every
            raise UserError(
                "ModernBertConfig.num_layers",
                self.num_layers,
                f"but layers after the first run in groups of global_every, {self.global_every}",
                f"set it to {above}",
            )
        if self.local_window < 2 or self.local_window % 2:
            raise UserError(
                "ModernBertConfig.local_window",
                self.local_window,
                "but as many keys are seen before a token as after it",
                "set it to an even number",
            )


def segments_of(tokens_BL: jax.Array, segment_ids_BL: jax.Array | None) -> jax.Array:
    """Return the segment ids, all 1 without them: any id can be padding, so none is masked."""
    return jnp.ones_like(tokens_BL) if segment_ids_BL is None else segment_ids_BL


def positions_of(tokens_BL: jax.Array, positions_BL: jax.Array | None) -> jax.Array:
    """Return the positions, 0 to L - 1 without them."""
    if positions_BL is not None:
        return positions_BL
    return jnp.broadcast_to(jnp.arange(tokens_BL.shape[1]), tokens_BL.shape)


def seen(c: EncoderConfig, segments_BL: jax.Array, radius: int | None = None) -> select.Seen:
    """Return the keys of the same segment, with a `radius` those at most so far away."""
    return select.seen(select.attention(c), Segments(segments_BL, segments_BL, radius=radius))


def self_attention(
    c: EncoderConfig, use_bias: bool, inner: Initializer, outer: Initializer
) -> layers.SelfAttention:
    """Return the submodule `attention` of the calling layer.

    Raise UserError if the configured one cannot run where the program runs.
    """
    return layers.SelfAttention(
        c.num_heads,
        c.head_dim,
        c.attention_dropout_rate,
        c.dtype,
        select.attention(c),
        use_bias,
        inner,
        outer,
        name="attention",
    )


NORMAL = nn.initializers.normal(0.02)


class BertLayer(nn.Module):
    """Self-attention and feed-forward, each added to its input and then normalized."""

    config: BertConfig

    @nn.compact
    def __call__(self, x: jax.Array, keys: select.Seen, enable_dropout: bool):
        """Map [B, L, D] to ([B, L, D], None); `nn.scan` wants the second."""
        c = self.config

        def added(x: jax.Array, y: jax.Array, name: str) -> jax.Array:
            x = x + dropout(c.dropout_rate, enable_dropout)(y)
            x = layers.CenteredLayerNorm(c.dtype, c.norm_epsilon, name=name)(x)
            return constrain(x, "batch", "length", "embed")

        attention = self_attention(c, True, NORMAL, NORMAL)
        x = added(x, attention(x, keys, None, enable_dropout), "post_attention_layer_norm")
        mlp = MlpBlock(c.mlp_dim, ("gelu_exact",), 0.0, c.dtype, True, NORMAL, NORMAL, name="mlp")
        return added(x, mlp(x, enable_dropout), "post_mlp_layer_norm"), None


class BertEncoder(nn.Module):
    """All layers."""

    config: BertConfig

    @nn.compact
    def __call__(self, x: jax.Array, segments_BL: jax.Array, enable_dropout: bool) -> jax.Array:
        """Map [B, L, D] to [B, L, D]."""
        c = self.config
        bert_layers = stack(self, BertLayer, c.num_layers, 2)
        x, _ = bert_layers(x, seen(c, segments_BL), enable_dropout)
        return x


class Bert(nn.Module):
    """BERT or RoBERTa with a head that predicts masked tokens, and perhaps the next sentence."""

    config: BertConfig

    def setup(self):
        """Create the submodules."""
        c = self.config
        norm = functools.partial(layers.CenteredLayerNorm, c.dtype, c.norm_epsilon)
        table = lambda rows: layers.Table(rows, c.emb_dim, c.dtype, NORMAL)
        self.token_embedder = Embed(c.vocab_size, c.emb_dim, c.dtype, NORMAL)
        self.position_embedder = table(c.max_length + c.position_offset)
        self.type_embedder = table(c.type_vocab_size)
        self.embeddings_norm = norm()
        self.embeddings_dropout = dropout(c.dropout_rate, True)
        self.encoder = BertEncoder(c)
        gelu = ACTIVATIONS["gelu_exact"]
        self.mlm_head = layers.PredictionHead(c.vocab_size, gelu, norm, c.dtype, True, NORMAL)
        if c.next_sentence:
            dense = functools.partial(Dense, kernel_init=NORMAL, dtype=c.dtype, use_bias=True)
            self.pooler = dense(c.emb_dim, ("embed", "joined_kv"))
            self.nsp_head = dense(2, ("embed", "kv"), output_dtype=FLOAT32)

    def encode(
        self, tokens, segment_ids=None, positions=None, type_ids=None, *, enable_dropout=True
    ) -> jax.Array:
        """Encode int32 [B, L] to [B, L, D]; segment 0 is padding, no segments mean no padding."""
        c = self.config
        if positions is None and tokens.shape[1] > c.max_length:  # jnp.take would return NaN
            raise UserError(
                "BertConfig.max_length",
                c.max_length,
                f"but a text has {tokens.shape[1]} tokens",
                "cut it",
            )
        positions = positions_of(tokens, positions) + c.position_offset
        types = jnp.zeros_like(tokens) if type_ids is None else type_ids
        x = self.token_embedder(tokens) + self.type_embedder(types)
        x = self.embeddings_norm(x + self.position_embedder(positions))
        if enable_dropout:
            x = self.embeddings_dropout(x)
        x = constrain(x, "batch", "length", "embed")
        return self.encoder(x, segments_of(tokens, segment_ids), enable_dropout)

    def predict(self, encoded: jax.Array) -> jax.Array:
        """Return float32 logits [B, L, V] of the tokens at encoded places [B, L, D]."""
        return self.mlm_head(encoded, self.token_embedder.attend)

    def next_sentence(self, encoded: jax.Array) -> jax.Array:
        """Return float32 logits [..., 2], of "follows" and "random", from first tokens [..., D]."""
        return self.nsp_head(jnp.tanh(self.pooler(encoded)))

    def __call__(self, tokens, segment_ids=None, positions=None, type_ids=None, **how) -> Any:
        """Return logits [B, L, V]; with `next_sentence` also its logits at each place [B, L, 2]."""
        encoded = self.encode(tokens, segment_ids, positions, type_ids, **how)
        logits = self.predict(encoded)
        return (logits, self.next_sentence(encoded)) if self.config.next_sentence else logits


def modern_inits(c: ModernBertConfig) -> tuple[Initializer, Initializer]:
    """Return the initial values of inner and of outer kernels, cut at two deviations."""
    inner = nn.initializers.truncated_normal(0.02)
    return inner, nn.initializers.truncated_normal(0.02 / (2 * c.num_layers) ** 0.5)


class ModernBertLayer(nn.Module):
    """Norm, self-attention, norm and gated feed-forward, added to the input."""

    config: ModernBertConfig
    first: bool = False  # then the norm of the embeddings is the attention's too

    @nn.compact
    def __call__(
        self, x, keys: select.Seen, angles: rotary.Angles, enable_dropout: bool
    ) -> jax.Array:
        """Map [B, L, D] to [B, L, D]."""
        c = self.config
        inner, outer = modern_inits(c)
        norm = functools.partial(layers.CenteredLayerNorm, c.dtype, c.norm_epsilon, use_bias=False)

        def added(x: jax.Array, y: jax.Array) -> jax.Array:
            x = x + dropout(c.dropout_rate, enable_dropout)(y)
            return constrain(x, "batch", "length", "embed")

        y = x if self.first else norm(name="pre_attention_layer_norm")(x)
        attention = self_attention(c, False, inner, outer)
        x = added(x, attention(y, keys, angles, enable_dropout))
        gated = ("gelu_exact", "linear")
        mlp = MlpBlock(c.mlp_dim, gated, 0.0, c.dtype, False, inner, outer, name="mlp")
        return added(x, mlp(norm(name="pre_mlp_layer_norm")(x), enable_dropout))


class ModernBertGroup(nn.Module):
    """Some layers with local attention, then one with global attention."""

    config: ModernBertConfig

    @nn.compact
    def __call__(
        self, x, window, near: rotary.Angles, all_keys, far: rotary.Angles, enable_dropout
    ):
        """Map [B, L, D] to ([B, L, D], None); `nn.scan` wants the second."""
        for i in range(self.config.global_every - 1):
            layer = ModernBertLayer(self.config, name=f"local_{i}")
            x = layer(x, window, near, enable_dropout)
        return ModernBertLayer(self.config, name="global")(x, all_keys, far, enable_dropout), None


class ModernBertEncoder(nn.Module):
    """A first layer with global attention, groups of layers, and a norm."""

    config: ModernBertConfig

    @nn.compact
    def __call__(self, x, segments_BL, positions_BL, enable_dropout: bool) -> jax.Array:
        """Map [B, L, D] to [B, L, D], normalized."""
        c = self.config
        all_keys, window = seen(c, segments_BL), seen(c, segments_BL, c.local_window // 2)
        far, near = (
            rotary.angles(positions_BL, c.head_dim, theta)
            for theta in (c.global_theta, c.local_theta)
        )
        x = ModernBertLayer(c, True, name="first_layer")(x, all_keys, far, enable_dropout)
        groups = (c.num_layers - 1) // c.global_every
        if groups:
            grouped = stack(self, ModernBertGroup, groups, 5)
            x, _ = grouped(x, window, near, all_keys, far, enable_dropout)
        return layers.CenteredLayerNorm(c.dtype, c.norm_epsilon, False, name="encoder_norm")(x)


class ModernBert(nn.Module):
    """ModernBERT with a head that predicts masked tokens."""

    config: ModernBertConfig

    def setup(self):
        """Create the submodules."""
        c = self.config
        inner, outer = modern_inits(c)
        norm = functools.partial(layers.CenteredLayerNorm, c.dtype, c.norm_epsilon, use_bias=False)
        self.token_embedder = Embed(c.vocab_size, c.emb_dim, c.dtype, inner)
        self.embeddings_norm = norm()
        self.embeddings_dropout = dropout(c.dropout_rate, True)
        self.encoder = ModernBertEncoder(c)
        gelu = ACTIVATIONS["gelu_exact"]
        self.mlm_head = layers.PredictionHead(c.vocab_size, gelu, norm, c.dtype, False, outer)

    def encode(
        self, tokens, segment_ids=None, positions=None, type_ids=None, *, enable_dropout=True
    ) -> jax.Array:
        """Encode int32 [B, L] to [B, L, D]; segment 0 is padding, no segments mean no padding.

        Types are not known to this network; all must be 0.
        """
        x = self.embeddings_norm(self.token_embedder(tokens))
        if enable_dropout:
            x = self.embeddings_dropout(x)
        x = constrain(x, "batch", "length", "embed")
        segments, positions = segments_of(tokens, segment_ids), positions_of(tokens, positions)
        return self.encoder(x, segments, positions, enable_dropout)

    def predict(self, encoded: jax.Array) -> jax.Array:
        """Return float32 logits [B, L, V] of the tokens at encoded places [B, L, D]."""
        return self.mlm_head(encoded, self.token_embedder.attend)

    def __call__(self, tokens, segment_ids=None, positions=None, type_ids=None, **how) -> jax.Array:
        """Return float32 logits [B, L, V]."""
        return self.predict(self.encode(tokens, segment_ids, positions, type_ids, **how))
