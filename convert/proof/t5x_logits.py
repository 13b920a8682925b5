"""The logits of the trainer's network."""

import dataclasses
from typing import Any

import numpy as np

from convert.sizes import Sizes
from convert.t5x_params import Tree, nested


def network_config(sizes: Sizes):
    """Return the `network.T5Config` of these sizes, in float32."""
    from t5x.examples.t5 import network

    names = {field.name for field in dataclasses.fields(network.T5Config)}
    return network.T5Config(**{k: v for k, v in vars(sizes).items() if k in names})


def trainer_logits(tree: Tree, sizes: Sizes, batch: dict[str, np.ndarray]) -> np.ndarray:
    """Return float32 logits [B, T, V] by `t5x.examples.t5.network`."""
    import jax

    from t5x.checkpointing.layer_stacking import stack_layers
    from t5x.examples.t5 import network

    module: Any = network.Transformer(network_config(sizes))
    params = stack_layers(
        nested({name: np.asarray(array.read(), np.float32) for name, array in tree.items()})
    )
    compute = lambda params: module.apply({"params": params}, **batch, enable_dropout=False)
    return np.asarray(jax.jit(compute)(params))
