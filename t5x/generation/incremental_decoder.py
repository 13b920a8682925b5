"""A decoder's next logits from its last ids, keys and values of all before kept.

  weights = DecoderWeights.of(config, params)         # once for many batches
  steps = DecoderSteps.begin(config, weights, encoded_BID, inputs_BI, length=64)
  cache = steps.empty_cache()
  logits_BV, cache = steps(ids_B, cache)              # float32; place 0 is fed the start id, 0

The numbers are those of `network.Transformer`. What differs is made for one place at a time, where
reading the weights is nearly all of the work: layers are written out, their kernels cut out of the
stack and cast before the first step; each head's keys and values lie together, [B, H, T, K]; keys
and values of the encoder are made once, and are not repeated for the N decodes of a row; kernels
lie output by input, [F, D], and stand on the left of a product, which a CPU makes a fifth faster
where the rows are few.

Shapes: B rows of inputs, N decodes a row, M = B*N, I input length, T target length, D emb_dim,
H heads, K head_dim, F mlp_dim, V vocab, L layers.
"""

import functools
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

from t5x.examples.t5 import layers
from t5x.partitioning import constrain

NEGATIVE = -1e10  # a masked logit
Cache = dict[str, Any]
Params = Any


@flax.struct.dataclass
class DecoderWeights:
    """A decoder's parameters laid out for steps, in the dtype of its arithmetic; a pytree."""

    layers: list[Params]
    tables: list[Params]
    norm_D: jax.Array
    embedding_VD: jax.Array
    head_VD: jax.Array

    @classmethod
    def of(cls, config: Any, params: Params) -> "DecoderWeights":
        """Those of `network.T5Config` and the parameters of the whole network, layers stacked."""
        decoder, tied = params["decoder"], config.logits_via_embedding
        cast = functools.partial(jax.tree.map, lambda x: x.astype(jnp.dtype(config.dtype)))
        shared = decoder.get("relpos_bias")
        parts = [
            cast(jax.tree.map(lambda x, i=i: x[i], decoder["layers"]))
            for i in range(config.num_decoder_layers)
        ]
        embedding_VD = cast(params["token_embedder"]["embedding"])
        return cls(
            layers=[_side_by_side(layer) for layer in parts],
            tables=[layer.get("relpos_bias", shared) for layer in parts],
            norm_D=cast(decoder["decoder_norm"]["scale"]),
            embedding_VD=embedding_VD,
            head_VD=embedding_VD if tied else cast(decoder["logits_dense"]["kernel"]).T,
        )


@flax.struct.dataclass
class DecoderSteps:
    """The decoder of `network.Transformer` for one batch of inputs; a pytree, made by `begin`."""

    weights: DecoderWeights
    biases: list[jax.Array]
    cross: list[list[jax.Array]]
    cross_mask_B11I: jax.Array
    num_heads: int = flax.struct.field(pytree_node=False)
    activations: tuple[str, ...] = flax.struct.field(pytree_node=False)
    scale: float = flax.struct.field(pytree_node=False)
    length: int = flax.struct.field(pytree_node=False)

    @classmethod
    def begin(
        cls,
        config: Any,
        weights: DecoderWeights,
        encoded_BID: jax.Array,
        inputs_BI: jax.Array,
        length: int,
    ) -> "DecoderSteps":
        """All that the steps need and that does not change with them.

        Args:
          config: `network.T5Config`.
          weights: of the decoder.
          encoded_BID: output of the encoder.
          inputs_BI: its ids, int32; 0 is padding and is never looked at.
          length: places to decode, T.
        """
        heads = functools.partial(_heads, num_heads=config.num_heads)
        cross = [
            [heads(encoded_BID @ kernel_FD.T) for kernel_FD in layer["cross_keys_values"]]
            for layer in weights.layers
        ]
        return cls.over((cross, (inputs_BI > 0)[:, None, None, :]), config, weights, length)

    @classmethod
    def over(
        cls, read: tuple[Any, jax.Array], config: Any, weights: DecoderWeights, length: int
    ) -> "DecoderSteps":
        """The steps over what is `read` of the inputs, as another has it."""
        return cls(
            weights=weights,
            biases=[_biases_by_distance(config, table, length) for table in weights.tables],
            cross=read[0],
            cross_mask_B11I=read[1],
            num_heads=config.num_heads,
            activations=tuple(config.mlp_activations),
            scale=config.emb_dim**-0.5 if config.logits_via_embedding else 1.0,
            length=length,
        )

    @property
    def read(self) -> tuple[Any, jax.Array]:
        """Keys, values and mask of the inputs; the batch is axis 0 of all arrays."""
        return self.cross, self.cross_mask_B11I

    def empty_cache(self) -> Cache:
        """The cache before the first step, for B rows; the batch is axis 0 of all its arrays."""
        shape = list(self.cross[0][0].shape)
        shape[2] = self.length
        zeros = lambda: jnp.zeros(shape, self.weights.embedding_VD.dtype)
        place = lambda x: constrain(x, "batch", "heads", "length", "kv")
        both = [[place(zeros()), place(zeros())] for _ in self.weights.layers]
        return {"position": jnp.zeros((), jnp.int32), "keys_values": both}

    def __call__(self, ids_M: jax.Array, cache: Cache) -> tuple[jax.Array, Cache]:
        """Float32 logits [M, V] after one more id a row, and the cache with it.

        Args:
          ids_M: int32; the N decodes of a row stand next to each other.
          cache: for M rows.
        """
        at = cache["position"]
        mask_T = jnp.arange(self.length) <= at
        x = jnp.take(self.weights.embedding_VD, ids_M, axis=0)
        kept = []
        for layer, old, cross, biases in zip(
            self.weights.layers, cache["keys_values"], self.cross, self.biases, strict=True
        ):
            x = constrain(x, "batch", "embed")
            y = _normed(x, layer["self_norm"])
            q, *new = _products(layer["self_queries_keys_values"], y)
            new = [self._written(o, n, at) for o, n in zip(old, new, strict=True)]
            kept.append(new)
            bias_HT = jax.lax.dynamic_slice_in_dim(biases, self.length - 1 - at, self.length, 1)
            y = self._attended(q, new, mask_T, bias_HT)
            x = x + _product(layer["self_out"], y)

            y = _normed(x, layer["cross_norm"])
            y = _product(layer["cross_queries"], y)
            y = self._attended(y, cross, self.cross_mask_B11I)
            x = x + _product(layer["cross_out"], y)

            y = _normed(x, layer["mlp_norm"])
            x = x + _product(layer["wo"], self._hidden(y, layer["wi"]))
        x = _normed(x, {"scale": self.weights.norm_D})
        logits = _product(self.weights.head_VD, x, jnp.float32)
        cache = {"position": at + 1, "keys_values": kept}
        return constrain(logits * self.scale, "batch", "vocab"), cache

    def _written(self, kept_MHTK, new_MF, at) -> jax.Array:
        """Keys or values with those of this place."""
        new_MH1K = _heads(new_MF[:, None], self.num_heads)
        return jax.lax.dynamic_update_slice_in_dim(kept_MHTK, new_MH1K, at, axis=2)

    def _attended(self, q_MF, keys_values, mask, bias_HT=None) -> jax.Array:
        """Values [M, H*K] by attention; keys and values of B rows serve the N decodes of each."""
        keys, values = keys_values
        q_BNHK = q_MF.reshape(keys.shape[0], -1, self.num_heads, keys.shape[-1])
        logits = jnp.einsum("BNHK,BHSK->BHNS", q_BNHK, keys, preferred_element_type=jnp.float32)
        if bias_HT is not None:
            logits = logits + bias_HT[:, None]
        weights = jax.nn.softmax(jnp.where(mask, logits, NEGATIVE)).astype(values.dtype)
        return jnp.einsum("BHNS,BHSK->BNHK", weights, values).reshape(q_MF.shape)

    def _hidden(self, y_MD, wi_NFD) -> jax.Array:
        """Hidden units [M, F] of the feed-forward sublayer."""
        activations = (layers.ACTIVATIONS[name] for name in self.activations)
        projected = _products(wi_NFD, y_MD)
        units = (f(y) for f, y in zip(activations, projected, strict=True))
        return functools.reduce(jnp.multiply, units)


def _heads(x_BSF: jax.Array, num_heads: int) -> jax.Array:
    """[B, S, H*K] to [B, H, S, K]."""
    return x_BSF.reshape(*x_BSF.shape[:2], num_heads, -1).swapaxes(1, 2)


def _normed(x: jax.Array, params: Params) -> jax.Array:
    return layers.LayerNorm(x.dtype).apply({"params": params}, x)


def _biases_by_distance(config: Any, table: Params, length: int) -> jax.Array:
    """Float32 biases [H, 2T] whose entry T - 1 - d is that of a key d places back."""
    module = layers.RelativePositionBiases(config.num_heads, False, jnp.dtype(config.dtype))
    last = jnp.array([length - 1])
    biases_HT = module.apply({"params": table}, last, length)[0, :, 0]
    return jnp.pad(biases_HT.astype(jnp.float32), ((0, 0), (0, length)))


def _side_by_side(layer: Params) -> Params:
    """The layer with kernels [F, D]; [N, F, D] for the products that read the same."""
    turned = lambda under, name: under[name]["kernel"].T
    stacked = lambda under, *names: jnp.stack([turned(under, name) for name in names])
    self_attention, cross = layer["self_attention"], layer["encoder_decoder_attention"]
    mlp = layer["mlp"]
    return {
        "self_norm": layer["pre_self_attention_layer_norm"],
        "self_queries_keys_values": stacked(self_attention, "query", "key", "value"),
        "self_out": turned(self_attention, "out"),
        "cross_norm": layer["pre_cross_attention_layer_norm"],
        "cross_queries": turned(cross, "query"),
        "cross_keys_values": stacked(cross, "key", "value"),
        "cross_out": turned(cross, "out"),
        "mlp_norm": layer["pre_mlp_layer_norm"],
        "wi": stacked(mlp, *sorted(name for name in mlp if name.startswith("wi"))),
        "wo": turned(mlp, "wo"),
    }


def _product(kernel_FD: jax.Array, x_MD: jax.Array, dtype: Any = None) -> jax.Array:
    """[M, F], in `dtype` if one is given."""
    return jnp.einsum("FD,MD->FM", kernel_FD, x_MD, preferred_element_type=dtype).T


def _products(kernels_NFD: jax.Array, x_MD: jax.Array) -> list[jax.Array]:
    """[M, F] of each of N kernels, in one product."""
    kernels, size = kernels_NFD.shape[:2]
    y_NFM = _product(kernels_NFD.reshape(kernels * size, -1), x_MD).T.reshape(kernels, size, -1)
    return [y_FM.T for y_FM in y_NFM]
