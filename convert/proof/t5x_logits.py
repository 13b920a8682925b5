"""The logits of the trainer's network, layer by layer.

Layers are read, run and dropped one at a time, and arrays as large as the vocabulary are read in
blocks of rows, so that a model larger than memory can be compared.
"""

import dataclasses
import functools

import numpy as np

from convert.model_config import Sizes
from convert.t5x_params import Tree, nested, read_rows, row_blocks
from t5x.checkpointing.lazy_array import LazyArray


def _params(tree: Tree, prefix: str) -> dict:
    """Read the arrays below a path, as Flax's nested dict of jax arrays.

    Each is handed to jax as it is read, so that no layer is in memory twice. Reading them as slices
    skips their checksums, which were verified when the compared file was written.
    """
    import jax.numpy as jnp

    prefix += "/"
    every = (slice(None),)
    return nested(
        {
            name.removeprefix(prefix): jnp.asarray(array.read(every), jnp.float32)
            for name, array in tree.items()
            if name.startswith(prefix)
        }
    )


@functools.cache  # layers of equal sizes are compiled once
def _compiled_layer(decoder: bool, config):
    import jax

    from t5x.examples.t5 import network

    layer = (network.DecoderLayer if decoder else network.EncoderLayer)(config)
    return jax.jit(lambda params, *args: layer.apply({"params": params}, *args, False)[0])


class _LayerwiseStack:
    """Runs the layers of one stack, reading the parameters of each when it runs."""

    def __init__(self, stack: str, tree: Tree, sizes: Sizes, config):
        from t5x.examples.t5 import layers

        decoder = stack == "decoder"
        self._table = layers.RelativePositionBiases(config.num_heads, not decoder, config.dtype)
        self._norm = layers.LayerNorm(config.dtype)
        self._stack, self._tree, self._own_bias = stack, tree, sizes.own_relative_bias
        self._depth = sizes.num_decoder_layers if decoder else sizes.num_encoder_layers
        self._apply = _compiled_layer(decoder, config)

    def _shared_bias(self, length: int):
        params = _params(self._tree, f"{self._stack}/relpos_bias")
        return self._table.apply({"params": params}, np.arange(length), length)

    def __call__(self, x, mask, *cross):
        """Map [B, L, D] to [B, L, D], normalized; `cross`: encoded inputs and their mask."""
        bias = None if self._own_bias else self._shared_bias(x.shape[1])
        # A decoder layer takes (x, encoded, mask, bias, cross_mask).
        others = (cross[0], mask, bias, cross[1]) if cross else (mask, bias)
        for i in range(self._depth):
            # Only the call holds the layer's parameters: they are freed before the next is read.
            x = self._apply(_params(self._tree, f"{self._stack}/layers_{i}"), x, *others)
            x.block_until_ready()
        norm = _params(self._tree, f"{self._stack}/{self._stack}_norm")
        return self._norm.apply({"params": norm}, x)


def _rows(table_VD: LazyArray, ids: np.ndarray) -> np.ndarray:
    """Return the table's rows [..., D] for ids [...]."""
    found = np.empty((*ids.shape, table_VD.shape[1]), np.float32)
    for block in row_blocks(table_VD.shape):
        here = (ids >= block.start) & (ids < block.stop)
        found[here] = read_rows(table_VD, block)[ids[here] - block.start]
    return found


def network_config(sizes: Sizes):
    """Return the `network.T5Config` of these sizes, in float32."""
    from t5x.examples.t5 import network

    names = {field.name for field in dataclasses.fields(network.T5Config)}
    return network.T5Config(**{k: v for k, v in vars(sizes).items() if k in names})


def trainer_logits(tree: Tree, sizes: Sizes, batch: dict[str, np.ndarray]) -> np.ndarray:
    """Return float32 logits [B, T, V] by the layers of `t5x.examples.t5.network`."""
    config = network_config(sizes)
    seen, target = batch["encoder_input_tokens"] > 0, batch["decoder_target_tokens"] > 0
    table_VD = tree["token_embedder/embedding"]
    ids = [batch["encoder_input_tokens"], batch["decoder_input_tokens"]]
    both = _rows(table_VD, np.concatenate(ids, axis=1))
    x, y = np.split(both, [ids[0].shape[1]], axis=1)
    # Only keys are masked: the output of a padding query is never used.
    cross_mask = seen[:, None, None, :]
    encoded = _LayerwiseStack("encoder", tree, sizes, config)(x, cross_mask)
    mask = np.tril(np.ones((y.shape[1], y.shape[1]), bool)) & target[:, None, None, :]
    decoder = _LayerwiseStack("decoder", tree, sizes, config)
    y = np.asarray(decoder(y, mask, encoded, cross_mask))
    if sizes.tied:
        y = y / np.sqrt(np.float32(sizes.emb_dim))
        parts = [y @ read_rows(table_VD, block).T for block in row_blocks(table_VD.shape)]
        return np.concatenate(parts, axis=-1)
    kernel_DV = tree["decoder/logits_dense/kernel"]
    return sum(y[..., block] @ read_rows(kernel_DV, block) for block in row_blocks(kernel_DV.shape))
