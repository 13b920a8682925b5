"""Small training states, and checkpoints of them."""

import os

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from t5x.checkpointing.config import SaveCheckpointConfig
from t5x.checkpoints import Checkpointer


def mesh(data, model):
    devices = np.array(jax.devices()[: data * model])
    return Mesh(devices.reshape(data, model), ("data", "model"))


def placed(tree, on):
    """Return the arrays of `tree`, split along the last axis over `model` where it divides them."""

    def put(x):
        cut = x.ndim and x.shape[-1] % on.shape["model"] == 0
        spec = PartitionSpec(*[None] * (x.ndim - 1), "model") if cut else PartitionSpec()
        return jax.device_put(x, NamedSharding(on, spec))

    return jax.tree.map(put, tree)


def like(tree):
    return jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=getattr(x, "sharding", None)),
        tree,
    )


def state(step=1, width=4, scale=1.0):
    kernel = scale * np.arange(3 * width, dtype=np.float32).reshape(3, width) / 7
    slots = {"m": np.zeros(1, np.float32), "v": kernel**2}
    return {
        "target": {"encoder": {"w": kernel}, "decoder": {"w": kernel + 1}},
        "state": {
            "step": np.int32(step),
            "param_states": {"encoder": {"w": slots}, "decoder": {"w": slots}},
        },
    }


def zeros(**sizes):
    return jax.tree.map(np.zeros_like, state(**sizes))


def same(a, b):
    return jax.tree.structure(a) == jax.tree.structure(b) and jax.tree.all(
        jax.tree.map(lambda x, y: x.dtype == y.dtype and np.array_equal(x, y), a, b)
    )


def saved(folder, *steps, tree=None, **config):
    with Checkpointer(folder, SaveCheckpointConfig(**config)) as checkpointer:
        for step in steps:
            checkpointer.save(step, tree or state(step))
    return os.path.join(folder, f"checkpoint_{steps[-1]}")
