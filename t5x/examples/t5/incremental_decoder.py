"""Decodes one position at a time, with the keys and values of earlier positions cached.

It runs the layers of `network.Decoder`. Only their parameters are laid out differently: reading
them is nearly all the work of a step, so each layer's are cut from the stack and cast before the
first step. Keys and values of the encoder's output are computed once, and the N decodes of a row
attend to them as N queries, so nothing is repeated.

Shapes: B rows of inputs, N decodes a row, M = B*N, I input length, T target length, D emb_dim,
H heads, K head_dim, V vocab.
"""

from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

from t5x.array_types import Cache, Params
from t5x.checkpointing.layer_stacking import unstack_layers
from t5x.partitioning import constrain


def decoding_params(config: Any, params: Params) -> Params:
    """Return parameters with one tree per decoder layer, in `config.dtype`, if not so already."""
    if "layers" not in params["decoder"]:
        return params
    decoder_params = {"decoder": unstack_layers(params["decoder"])}
    decoder_params["token_embedder"] = params["token_embedder"]
    return {**params, **jax.tree.map(lambda x: x.astype(jnp.dtype(config.dtype)), decoder_params)}


@flax.struct.dataclass
class IncrementalDecoder:
    """The decoder of `network.Transformer` for one batch of inputs; a pytree."""

    params: Params  # those of the decoder and the token embedding, see `decoding_params`
    cross: list[tuple[jax.Array, jax.Array]]  # a layer's keys and values [B, H, I, K] of the inputs
    cross_mask_B11I: jax.Array  # True at inputs that are not padding
    module: Any = flax.struct.field(pytree_node=False)
    length: int = flax.struct.field(pytree_node=False)  # positions to decode, T

    @classmethod
    def start(
        cls, module: Any, params: Params, encoded_BID: jax.Array, inputs_BI: jax.Array, length: int
    ) -> "IncrementalDecoder":
        """Return the decoder for inputs int32 (0 is padding) and the encoder's output for them."""
        params = decoding_params(module.config, params)
        layers = [params["decoder"][f"layers_{i}"] for i in range(module.config.num_decoder_layers)]
        pairs = [module.keys_values_of(layer, encoded_BID) for layer in layers]
        # Without the barrier XLA moves the transposition into the loop over positions.
        swapped = jax.tree.map(lambda x: x.swapaxes(1, 2), pairs)
        cross = jax.lax.optimization_barrier(swapped)
        # Plain attention: the hand-written gradients of the others are of no use here, and their
        # forward passes copy or pad the keys and values, here the entire cache, at every call.
        module = module.clone(config=module.config.replace(attention="plain"))
        decoder_params = {name: params[name] for name in ("decoder", "token_embedder")}
        return cls(
            decoder_params, cross, (inputs_BI > 0)[:, None, None, :], module=module, length=length
        )

    def empty_cache(self) -> Cache:
        """Return the cache for B rows before the first step; the batch is axis 0 of its arrays."""
        # Each head's keys are contiguous, [B, H, T, K], as products over one head read them.
        rows, heads, _, width = self.cross[0][0].shape
        zeros = jnp.zeros((rows, heads, self.length, width), self.cross[0][0].dtype)
        zeros = constrain(zeros, "batch", "heads", "length", "kv")
        return {"position": jnp.int32(0), "keys_values": [(zeros, zeros) for _ in self.cross]}

    def __call__(self, ids_M: jax.Array, cache: Cache) -> tuple[jax.Array, Cache]:
        """Return float32 logits [M, V] after one more int32 id per row, and the updated cache.

        The N decodes of a row are adjacent in `ids_M` and in the cache.
        """
        return self.module.apply(
            {"params": self.params},
            ids_M,
            self.cross,
            self.cross_mask_B11I,
            cache,
            method="decode_step",
        )
