"""A run on one device that compiles nothing, to look into a model."""

import jax

from common.errors import UserError
from t5x.partitioning import PjitPartitioner


def single_device(partitioner: PjitPartitioner) -> PjitPartitioner:
    """Disable jit, and return a partitioner of the first device; raise UserError on a pod."""
    if jax.process_count() > 1:
        raise UserError(
            "train.single_device",
            True,
            f"but {jax.process_count()} hosts run",
            "start it on one, without --process_count, or set it to False",
        )
    jax.config.update("jax_disable_jit", True)
    devices = jax.devices(partitioner.backend)[:1]
    return PjitPartitioner(devices=devices, logical_axis_rules=partitioner.rules)
