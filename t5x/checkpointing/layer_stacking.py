"""Stack the layers of a state dict on a leading axis, so that one scan runs them, and back.

  stacked = stack_layers({"encoder": {"layers_0": {"w": a}, "layers_1": {"w": b}, "norm": c}})
  # {"encoder": {"layers": {"w": [2, ...]}, "norm": c}}
  unstack_layers(stacked)                                  # the original

Both are pure and work at any depth, for parameters, gradients or a complete state dict, of numpy
arrays, jax arrays (traced ones too) or jax.ShapeDtypeStruct.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from t5x.array_types import PyTree

_LAYER = re.compile(r"layers_(\d+)")
_STACK = "layers"


def stack_layers(tree: PyTree, path: str = "") -> PyTree:
    """Replace all siblings `layers_0 … layers_{N-1}` by one `layers`.

    Args:
      tree: nested dicts of arrays or jax.ShapeDtypeStruct.
      path: of the tree, for messages.

    Returns:
      The same tree; each leaf below `layers` has a new leading axis N, its dtype unchanged. A
      ShapeDtypeStruct with a NamedSharding keeps it, the new axis unsharded.

    Raises:
      ValueError: layers are missing from the sequence, or differ in their parameters, shapes or
        dtypes.
    """
    if not isinstance(tree, Mapping):
        return tree
    tree = {key: stack_layers(value, _join(path, key)) for key, value in tree.items()}
    layers = {int(match[1]): tree.pop(key) for key in [*tree] if (match := _LAYER.fullmatch(key))}
    if not layers:
        return tree
    where = path or "The tree"
    if _STACK in tree:
        raise ValueError(f"{where} has both `layers` and `layers_0`; give one kind.")
    if absent := sorted(set(range(max(layers))) - set(layers)):
        raise ValueError(
            f"{where} has layers_{max(layers)} but lacks layers_{absent[0]}; layers are numbered "
            "from 0 without a gap."
        )
    return tree | {_STACK: _stack([layers[i] for i in range(len(layers))], path, "")}


def unstack_layers(tree: PyTree, path: str = "") -> PyTree:
    """Undo stack_layers: replace every `layers` by `layers_0 … layers_{N-1}`.

    Raises:
      ValueError: the leaves below one `layers` differ in their leading axis.
    """
    if not isinstance(tree, Mapping):
        return tree
    result = {}
    for key, value in tree.items():
        where = _join(path, key)
        if key != _STACK or not isinstance(value, Mapping):
            result[key] = unstack_layers(value, where)
            continue
        lengths = {leaf.shape[:1] for leaf in jax.tree.leaves(value)}
        if len(lengths) != 1 or lengths == {()}:
            raise ValueError(
                f"{where} has leaves with the leading axes {sorted(lengths)}; all must have one "
                "length, the number of layers."
            )
        for i in range(lengths.pop()[0]):
            result[f"layers_{i}"] = jax.tree.map(lambda leaf, i=i: _take(leaf, i), value)
    return result


def _stack(parts: Sequence[Any], where: str, name: str) -> Any:
    first = parts[0]
    if isinstance(first, Mapping):
        for i, part in enumerate(parts):
            if not isinstance(part, Mapping) or part.keys() != first.keys():
                odd = sorted(set(first) ^ set(part)) if isinstance(part, Mapping) else [name]
                raise ValueError(
                    f"{where}: layers_{i} and layers_0 do not hold the same parameters "
                    f"({_join(name, odd[0])}), so they cannot be stacked."
                )
        return {k: _stack([part[k] for part in parts], where, _join(name, k)) for k in first}
    for i, part in enumerate(parts):
        if (part.shape, part.dtype) != (first.shape, first.dtype):
            raise ValueError(
                f"{where}: {name} is {part.dtype}{list(part.shape)} in layers_{i} and "
                f"{first.dtype}{list(first.shape)} in layers_0, so they cannot be stacked."
            )
    if isinstance(first, jax.ShapeDtypeStruct):
        return _struct(first, (len(parts), *first.shape), lambda axes: (None, *axes))
    return (np if isinstance(first, np.ndarray | np.generic) else jnp).stack(parts)


def _take(leaf: Any, i: int) -> Any:
    if isinstance(leaf, jax.ShapeDtypeStruct):
        return _struct(leaf, leaf.shape[1:], lambda axes: tuple(axes)[1:])
    if isinstance(leaf, np.ndarray):
        return leaf[i]
    # A static slice, which leaves the parts of a sharded array on their devices.
    return jax.lax.index_in_dim(leaf, i, keepdims=False)


def _struct(
    leaf: jax.ShapeDtypeStruct, shape: tuple[int, ...], respec: Callable[..., tuple]
) -> jax.ShapeDtypeStruct:
    sharding = leaf.sharding
    if isinstance(sharding, NamedSharding):
        sharding = NamedSharding(sharding.mesh, PartitionSpec(*respec(sharding.spec)))
    return jax.ShapeDtypeStruct(shape, leaf.dtype, sharding=sharding)


def _join(path: str, key: str) -> str:
    return f"{path}/{key}" if path else key
