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
    """Return float32 logits of a probe batch: [B, T, V] of a T5, [B, L, V] of an encoder."""
    import jax

    from t5x.checkpointing.layer_stacking import stack_layers

    module = module_of(sizes)
    arrays = {name: np.asarray(array.read(), np.float32) for name, array in tree.items()}
    compute = lambda params: module.apply({"params": params}, *batch.values(), enable_dropout=False)
    logits = jax.jit(compute)(stack_layers(nested(arrays)))
    return np.asarray(logits[0] if isinstance(logits, tuple) else logits)
