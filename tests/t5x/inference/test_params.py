"""Parameters come from a checkpoint without the optimizer, onto any mesh."""

import jax
import numpy as np
import pytest

from fakes import toy
from fakes.refuses import refuses
from t5x import checkpoints
from t5x.checkpointing.config import RestoreCheckpointConfig, SaveCheckpointConfig
from t5x.inference.params import ParamsRestorer
from t5x.partitioning import PjitPartitioner
from t5x.train_state import state_specs, to_disk


@pytest.fixture(scope="module")
def state():
    model, partitioner = toy.shared_model(), PjitPartitioner(devices=jax.devices()[:2])
    return toy.state(state_specs(model, partitioner))


@pytest.fixture(scope="module")
def saved(state, tmp_path_factory):
    """The state as a checkpoint of step 0; and one that lacks the encoder's norm."""
    specs = state_specs(toy.shared_model(), PjitPartitioner(devices=jax.devices()[:2]))
    complete = to_disk(state, specs)
    target = {**complete["target"], "encoder": dict(complete["target"]["encoder"])}
    del target["encoder"]["encoder_norm"]
    folder = tmp_path_factory.mktemp("saved")
    for name, tree in (("complete", complete), ("partial", {**complete, "target": target})):
        with checkpoints.Checkpointer(str(folder / name), SaveCheckpointConfig()) as checkpointer:
            checkpointer.save(0, tree)
    return folder


def restorer(partitions, path, seed=None, **settings):
    config = RestoreCheckpointConfig(path, mode="specific", **settings)
    return ParamsRestorer(toy.shared_model(), PjitPartitioner(partitions), config, seed)


@pytest.mark.parametrize("partitions", [1, 4])
def test_parameters_are_restored_without_the_optimizer_on_any_mesh(state, saved, partitions):
    path = f"{saved}/complete/checkpoint_0"
    params, step = restorer(partitions, path)(path)
    assert step == 0
    jax.tree.map(np.testing.assert_array_equal, params, jax.device_get(state.params))
    kernel = params["encoder"]["layers"]["mlp"]["wi"]["kernel"]
    assert kernel.sharding.shard_shape(kernel.shape) == (1, 16, 32 // partitions)


def test_what_a_checkpoint_lacks_is_drawn_only_with_a_seed(state, saved):
    path = f"{saved}/partial/checkpoint_0"
    with pytest.raises(ValueError, match="target/encoder/encoder_norm/scale"):
        restorer(1, path)(path)
    with refuses("RestoreCheckpointConfig.fallback_to_scratch", True):
        restorer(1, path, fallback_to_scratch=True)
    params, _ = restorer(1, path, seed=3, fallback_to_scratch=True)(path)
    np.testing.assert_array_equal(params["encoder"]["encoder_norm"]["scale"], np.ones(16))
    wanted = jax.device_get(state.params["decoder"])
    jax.tree.map(np.testing.assert_array_equal, params["decoder"], wanted)
