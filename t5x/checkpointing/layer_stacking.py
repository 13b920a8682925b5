"""Stack the layers of a state dict on a leading axis, so that one scan runs them, and back.

  stacked = stack_layers({"encoder": {"layers_0": {"w": a}, "layers_1": {"w": b}, "norm": c}})
  # {"encoder": {"layers": {"w": [2, ...]}, "norm": c}}
  unstack_layers(stacked)                                  # the original

Both are pure and work at any depth, for parameters, gradients or a complete state dict, of numpy
arrays or jax arrays (traced ones too); `unstack_layers` also of jax.ShapeDtypeStruct.
"""

import re
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from t5x.array_types import PyTree

_LAYER = re.compile(r"layers_(\d+)")
_STACK = "layers"


def stack_layers(tree: PyTree) -> PyTree:
    """Replace all siblings `layers_0 … layers_{N-1}` of nested dicts by one `layers`.

    Each leaf below `layers` has a new leading axis N, its dtype unchanged. Raise KeyError for a
    layer that is missing, UserError for layers that differ in their parameters or shapes.
    """
    if not isinstance(tree, Mapping):
        return tree
    tree = {key: stack_layers(value) for key, value in tree.items()}
    layers = {int(match[1]): tree.pop(key) for key in [*tree] if (match := _LAYER.fullmatch(key))}
    if not layers:
        return tree
    return tree | {_STACK: jax.tree.map(_stack, *(layers[i] for i in range(len(layers))))}


def unstack_layers(tree: PyTree) -> PyTree:
    """Undo stack_layers: replace every `layers` by `layers_0 … layers_{N-1}`.

    A ShapeDtypeStruct keeps the other axes of its NamedSharding.
    """
    if not isinstance(tree, Mapping):
        return tree
    result = {}
    for key, value in tree.items():
        if key != _STACK or not isinstance(value, Mapping):
            result[key] = unstack_layers(value)
            continue
        for i in range(jax.tree.leaves(value)[0].shape[0]):
            result[f"layers_{i}"] = jax.tree.map(lambda leaf, i=i: _take(leaf, i), value)
    return result


def _stack(*parts: Any) -> Any:
    return (np if isinstance(parts[0], np.ndarray | np.generic) else jnp).stack(parts)


def _take(leaf: Any, i: int) -> Any:
    if isinstance(leaf, jax.ShapeDtypeStruct):
        sharding = leaf.sharding
        if isinstance(sharding, NamedSharding):
            sharding = NamedSharding(sharding.mesh, PartitionSpec(*tuple(sharding.spec)[1:]))
        return jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype, sharding=sharding)
    if isinstance(leaf, np.ndarray):
        return leaf[i]
    # A static slice, which leaves the parts of a sharded array on their devices.
    return jax.lax.index_in_dim(leaf, i, keepdims=False)
