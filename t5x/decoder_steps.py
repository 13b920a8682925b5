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
            _side_by_side(cast(jax.tree.map(lambda x, i=i: x[i], decoder["layers"])))
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
            [self._heads(x) for x in _products(encoded_BID, layer["cross_keys_values"])]
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
            y = self._normed(x, layer["pre_self_attention_layer_norm"]["scale"])
            q, *new = _products(y, layer["queries_keys_values"])
            new = [self._written(o, n, at) for o, n in zip(old, new, strict=True)]
            kept.append(new)
            y = self._attended(q, new, mask_T, self._bias(biases, at))
            x = x + y @ layer["self_attention"]["out"]["kernel"]

            y = self._normed(x, layer["pre_cross_attention_layer_norm"]["scale"])
            q = y @ layer["encoder_decoder_attention"]["query"]["kernel"]
            y = self._attended(q, cross, self.cross_mask_B11I)
            x = x + y @ layer["encoder_decoder_attention"]["out"]["kernel"]

            y = self._normed(x, layer["pre_mlp_layer_norm"]["scale"])
            x = x + self._hidden(y, layer["wi"]) @ layer["mlp"]["wo"]["kernel"]
        logits = jnp.einsum(
            "VD,MD->VM",
            self.head_VD,
            self._normed(x, self.norm),
            preferred_element_type=jnp.float32,
        ).T
        cache = {"position": at + 1, "keys_values": kept}
        return constrain(logits * self.scale, "batch", "vocab"), cache

    def _written(self, kept_MHTK, new_MF, at) -> jax.Array:
        """Keys or values with those of this place."""
        new_MH1K = self._heads(new_MF[:, None])
        return jax.lax.dynamic_update_slice_in_dim(kept_MHTK, new_MH1K, at, axis=2)

    def _attended(self, q_MF, keys_values, mask, bias_HT=None) -> jax.Array:
        """Values [M, H*K] by attention; keys and values of B rows serve the N decodes of each."""
        c, (keys, values) = self.config, keys_values
        q_BNHK = q_MF.reshape(keys.shape[0], -1, c.num_heads, c.head_dim)
        logits = jnp.einsum("BNHK,BHSK->BHNS", q_BNHK, keys, preferred_element_type=jnp.float32)
        if bias_HT is not None:
            logits = logits + bias_HT[:, None]
        weights = jax.nn.softmax(jnp.where(mask, logits, NEGATIVE)).astype(self.dtype)
        return jnp.einsum("BHNS,BHSK->BNHK", weights, values).reshape(q_MF.shape)

    def _hidden(self, y_MD, wi_DNF) -> jax.Array:
        """Hidden units [M, F] of the feed-forward sublayer."""
        activations = (layers.ACTIVATIONS[name] for name in self.config.mlp_activations)
        projected = _products(y_MD, wi_DNF)
        units = (f(y) for f, y in zip(activations, projected, strict=True))
        return functools.reduce(jnp.multiply, units)

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


def _side_by_side(layer: Params) -> Params:
    """The layer with kernels [D, N, F] of the products that read the same, besides its own."""
    stacked = lambda under, *names: jnp.stack([under[name]["kernel"] for name in names], 1)
    mlp = layer["mlp"]
    return layer | {
        "queries_keys_values": stacked(layer["self_attention"], "query", "key", "value"),
        "cross_keys_values": stacked(layer["encoder_decoder_attention"], "key", "value"),
        "wi": stacked(mlp, *sorted(name for name in mlp if name.startswith("wi"))),
    }


def _products(x: jax.Array, kernels_DNF: jax.Array) -> list[jax.Array]:
    """`x` [..., D] times each of N kernels, in one product."""
    y = jnp.einsum("...D,DNF->...NF", x, kernels_DNF)
    return [y[..., i, :] for i in range(kernels_DNF.shape[1])]
