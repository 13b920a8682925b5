"""The logits of the trainer's networks."""

import importlib
from typing import Any

import numpy as np

from convert.sizes import Sizes
from convert.t5x_params import Tree, nested


def module_of(sizes: Sizes) -> Any:
    """Return the network of these sizes from `t5x.examples`, in float32."""
    network = importlib.import_module(f"{sizes.package}.network")
    config = getattr(network, sizes.configuration)(**sizes.fields())
    return getattr(network, sizes.module)(config)


def trainer_logits(tree: Tree, sizes: Sizes, batch: dict[str, np.ndarray]) -> np.ndarray:
    """Return float32 logits of a probe batch: [B, T, V] of a T5, and as `joined` of an encoder."""
    import jax

    from t5x.checkpointing.layer_stacking import stack_layers

    module = module_of(sizes)
    arrays = {name: np.asarray(array.read(), np.float32) for name, array in tree.items()}
    compute = lambda params: module.apply({"params": params}, *batch.values(), enable_dropout=False)
    return joined(jax.jit(compute)(stack_layers(nested(arrays))))


def joined(logits: Any) -> np.ndarray:
    """Return logits of tokens [B, L, V], or [B, L, V + 2] with the two of the next sentence.

    The latter are those of the first token, at each place.
    """
    if not isinstance(logits, tuple):
        return np.asarray(logits)
    tokens, next_sentence = map(np.asarray, logits)
    first = np.broadcast_to(next_sentence[:, :1], next_sentence.shape)
    return np.concatenate([tokens, first], axis=-1)
