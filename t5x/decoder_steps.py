"""A decoder's next logits from its last ids, keys and values of all before kept.

  steps = DecoderSteps(config, params, encoded_BID, inputs_BI, length=64)
  cache = steps.empty_cache()
  logits_BV, cache = steps(ids_B, cache)              # float32; place 0 is fed the start id, 0

The numbers are those of `network.Transformer`. What differs is made for one place at a time, where
reading the weights is nearly all of the work: layers are written out, their kernels cut out of the
stack and cast before the first step; each head's keys and values lie together, [B, H, T, K]; keys
and values of the encoder are made once, and are not repeated for the N decodes of a row; the
logits' kernel is [V, D], which a CPU multiplies half again as fast with few rows.

Shapes: B rows of inputs, N decodes a row, M = B*N, I input length, T target length, D emb_dim,
H heads, K head_dim, F mlp_dim, V vocab, L layers.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp

from t5x.examples.t5 import layers
from t5x.partitioning import constrain

NEGATIVE = -1e10  # a masked logit
Cache = dict[str, Any]
Params = Any


class DecoderSteps:
    """The decoder of `network.Transformer` for one batch of inputs.

    Args:
      config: `network.T5Config`.
      params: parameters of the whole network, layers stacked.
      encoded_BID: output of the encoder.
      inputs_BI: its ids, int32; 0 is padding and is never looked at.
      length: places to decode, T.
    """

    def __init__(
        self, config: Any, params: Params, encoded_BID: jax.Array, inputs_BI: jax.Array, length: int
    ):
        self.config, self.length, self.dtype = config, length, jnp.dtype(config.dtype)
        self.rows = inputs_BI.shape[0]
        decoder = params["decoder"]
        cast = functools.partial(jax.tree.map, lambda x: x.astype(self.dtype))
        self.layers = [
            cast(jax.tree.map(lambda x, i=i: x[i], decoder["layers"]))
            for i in range(config.num_decoder_layers)
        ]
        self.norm = cast(decoder["decoder_norm"]["scale"])
        self.embedding_VD = cast(params["token_embedder"]["embedding"])
        tied = config.logits_via_embedding
        self.head_VD = self.embedding_VD if tied else cast(decoder["logits_dense"]["kernel"]).T
        self.scale = config.emb_dim**-0.5 if tied else 1.0
        shared = decoder.get("relpos_bias")
        self.biases = [
            self._biases_by_distance(layer.get("relpos_bias", shared)) for layer in self.layers
        ]
        self.cross_mask_B11I = (inputs_BI > 0)[:, None, None, :]
        self.cross = [
            [
                self._heads(self._dot(encoded_BID, layer["encoder_decoder_attention"][name]))
                for name in ("key", "value")
            ]
            for layer in self.layers
        ]

    def empty_cache(self) -> Cache:
        """The cache before the first step, for B rows; the batch is axis 0 of all its arrays."""
        c = self.config
        shape = (self.rows, c.num_heads, self.length, c.head_dim)
        zeros = lambda: constrain(jnp.zeros(shape, self.dtype), "batch", "heads", "length", "kv")
        both = [[zeros(), zeros()] for _ in self.layers]
        return {"position": jnp.zeros((), jnp.int32), "keys_values": both}

    def __call__(self, ids_M: jax.Array, cache: Cache) -> tuple[jax.Array, Cache]:
        """Float32 logits [M, V] after one more id a row, and the cache with it.

        Args:
          ids_M: int32; the N decodes of a row stand next to each other.
          cache: for M rows.
        """
        at = cache["position"]
        mask_T = jnp.arange(self.length) <= at
        x = jnp.take(self.embedding_VD, ids_M, axis=0)
        kept = []
        for layer, old, cross, biases in zip(
            self.layers, cache["keys_values"], self.cross, self.biases, strict=True
        ):
            x = constrain(x, "batch", "embed")
            new, bias_HT = self._keys_values(layer, x, old, at), self._bias(biases, at)
            kept.append(new)
            x = x + self._attention(layer, "self_attention", x, new, mask_T, bias_HT)
            name = "encoder_decoder_attention"
            x = x + self._attention(layer, name, x, cross, self.cross_mask_B11I, None)
            x = x + self._feed_forward(layer, x)
        logits = jnp.einsum(
            "VD,MD->VM",
            self.head_VD,
            self._normed(x, self.norm),
            preferred_element_type=jnp.float32,
        ).T
        cache = {"position": at + 1, "keys_values": kept}
        return constrain(logits * self.scale, "batch", "vocab"), cache

    def _keys_values(self, layer: Params, x_MD, kept, at) -> list[jax.Array]:
        """Keys and values [M, H, T, K] with those of this place."""
        y = self._normed(x_MD, layer["pre_self_attention_layer_norm"]["scale"])
        new = (self._dot(y[:, None], layer["self_attention"][name]) for name in ("key", "value"))
        write = functools.partial(jax.lax.dynamic_update_slice_in_dim, start_index=at, axis=2)
        return [write(old, self._heads(n)) for old, n in zip(kept, new, strict=True)]

    def _attention(self, layer: Params, name: str, x_MD, keys_values, mask, bias) -> jax.Array:
        """What an attention adds to `x_MD`; keys of B rows serve the N decodes of each."""
        c, (keys, values) = self.config, keys_values
        y = self._normed(x_MD, layer[f"pre_{_NORMS[name]}_layer_norm"]["scale"])
        q_M1F = self._dot(y, layer[name]["query"])
        q_BNHK = q_M1F.reshape(keys.shape[0], -1, c.num_heads, c.head_dim)
        logits = jnp.einsum("BNHK,BHSK->BHNS", q_BNHK, keys, preferred_element_type=jnp.float32)
        if bias is not None:
            logits = logits + bias[:, None]
        weights = jax.nn.softmax(jnp.where(mask, logits, NEGATIVE)).astype(self.dtype)
        out = jnp.einsum("BHNS,BHSK->BNHK", weights, values)
        return self._dot(out.reshape(x_MD.shape[0], -1), layer[name]["out"])

    def _feed_forward(self, layer: Params, x_MD) -> jax.Array:
        """What the feed-forward sublayer adds to `x_MD`."""
        c, kernels = self.config, layer["mlp"]
        y = self._normed(x_MD, layer["pre_mlp_layer_norm"]["scale"])
        one = len(c.mlp_activations) == 1
        hidden = 1
        for i, name in enumerate(c.mlp_activations):
            wi = kernels["wi" if one else f"wi_{i}"]
            hidden = hidden * layers.ACTIVATIONS[name](self._dot(y, wi))
        return self._dot(hidden, kernels["wo"])

    def _dot(self, x: jax.Array, kernel: Params) -> jax.Array:
        return jnp.dot(x.astype(self.dtype), kernel["kernel"])

    def _heads(self, x_BSF: jax.Array) -> jax.Array:
        """[B, S, H*K] to [B, H, S, K]."""
        c = self.config
        return x_BSF.reshape(*x_BSF.shape[:2], c.num_heads, c.head_dim).swapaxes(1, 2)

    def _normed(self, x: jax.Array, scale_D: jax.Array) -> jax.Array:
        return layers.LayerNorm(self.dtype).apply({"params": {"scale": scale_D}}, x)

    def _biases_by_distance(self, table: Params) -> jax.Array:
        """Float32 biases [H, 2T] whose entry T - 1 - d is that of a key d places back."""
        module = layers.RelativePositionBiases(self.config.num_heads, False, self.dtype)
        last = jnp.array([self.length - 1])
        biases = module.apply({"params": table}, last, self.length)[0, :, 0]
        return jnp.pad(biases.astype(jnp.float32), ((0, 0), (0, self.length)))

    def _bias(self, biases_H2T: jax.Array, at: jax.Array) -> jax.Array:
        """Biases [H, T] of the keys at all places, for a query at place `at`."""
        start = self.length - 1 - at
        return jax.lax.dynamic_slice_in_dim(biases_H2T, start, self.length, axis=1)


_NORMS = {"self_attention": "self_attention", "encoder_decoder_attention": "cross_attention"}
