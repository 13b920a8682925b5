"""Options of XLA are set for GPUs, and TPUs are known by generation."""

import types

import jax
import pytest

from t5x.multihost.xla_options import ON_GPU, generation, options
from t5x.partitioning import PjitPartitioner
from t5x.trainer import Trainer


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("TPU v4", "v4"), ("TPU v5 lite", "v5e"), ("TPU v5", "v5p"), ("TPU v5p", "v5p"),
     ("TPU v6 lite", "v6e"), ("TPU7x", "tpu7x"), ("cpu", None)],
)  # fmt: skip
def test_the_generation_is_that_of_the_device(kind, expected):
    assert generation(kind) == expected


def test_gpus_of_nvidia_have_options_of_their_own():
    gpus = [types.SimpleNamespace(device_kind=kind) for kind in ("NVIDIA H100", "Radeon")]
    assert [options([gpu]) for gpu in gpus] == [ON_GPU, {}]


def test_a_trainer_compiles_with_its_options():
    partitioner = PjitPartitioner(num_partitions=1, devices=jax.devices()[:2])
    trainer = lambda **settings: Trainer(
        None, None, partitioner, None, jax.random.key(0), learning_rate_fn=None, **settings
    )
    assert trainer().xla_options == {}  # of CPUs
    given = {"xla_backend_optimization_level": 1}
    assert trainer(xla_options=given).xla_options == given
