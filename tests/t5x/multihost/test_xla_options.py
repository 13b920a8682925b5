"""Options of XLA are set for slices of a generation that has some, and for GPUs and CPUs."""

import subprocess
import sys
import types

import jax
import pytest

from fakes.paths import ROOT
from t5x.multihost import xla_options
from t5x.multihost.xla_options import (
    BY_DEFAULT,
    NARROW_WIDTH,
    ON_GPU,
    OPTIONS,
    generation,
    options,
    options_on_cpu,
    set_on_cpu,
)
from t5x.partitioning import PjitPartitioner
from t5x.trainer import Trainer


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("TPU v4", "v4"), ("TPU v5 lite", "v5e"), ("TPU v5", "v5p"), ("TPU v5p", "v5p"),
     ("TPU v6 lite", "v6e"), ("cpu", None)],
)  # fmt: skip
def test_the_generation_is_that_of_the_device(kind, expected):
    assert generation(kind) == expected
    device = types.SimpleNamespace(device_kind=kind)
    assert options([device, device]) == (OPTIONS[expected] if expected in BY_DEFAULT else {})
    assert options([device]) == {}


def test_gpus_of_nvidia_have_options_of_their_own():
    gpus = [types.SimpleNamespace(device_kind=kind) for kind in ("NVIDIA H100", "Radeon")]
    assert [options([gpu]) for gpu in gpus] == [ON_GPU, {}]


def test_a_trainer_compiles_with_its_options():
    partitioner = PjitPartitioner(num_partitions=1, devices=jax.devices()[:2])
    trainer = lambda **settings: Trainer(
        None, None, partitioner, None, jax.random.key(0), learning_rate_fn=None, **settings
    )
    assert trainer().xla_options == {}  # of CPUs
    assert trainer(xla_options={"xla_a": "true"}).xla_options == {"xla_a": "true"}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, f"--xla_backend_extra_options={options_on_cpu(128)}"),
        ("", f"--xla_backend_extra_options={options_on_cpu(128)}"),
        ("--xla_a=1", f"--xla_a=1 --xla_backend_extra_options={options_on_cpu(128)}"),
        ("--xla_backend_extra_options=-b", "--xla_backend_extra_options=-b"),
    ],
)
def test_options_are_added_where_there_are_none(given, expected, monkeypatch):
    monkeypatch.setattr(jax.config, "update", lambda *_: None)
    monkeypatch.setattr(xla_options, "keep_freed_memory", lambda _: None)
    flags = {} if given is None else {"XLA_FLAGS": given}
    on_cpu, on_tpu = {"JAX_PLATFORMS": "cpu", **flags}, {"JAX_PLATFORMS": "tpu", **flags}
    set_on_cpu(on_cpu, 128)
    set_on_cpu(on_tpu, 128)
    assert on_cpu["XLA_FLAGS"] == expected
    assert on_tpu.get("XLA_FLAGS") == given


def test_only_a_narrow_model_goes_without_tiles():
    narrow, wide = options_on_cpu(NARROW_WIDTH - 1), options_on_cpu(NARROW_WIDTH)
    assert narrow == f"{wide},xla_cpu_disable_tiled_emitter"


def test_a_process_has_its_options():
    program = """
import os
from t5x.multihost import xla_options
os.environ |= {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": ""}
xla_options.set_on_cpu(os.environ, 512)
import jax, jax.numpy as jnp
print(*(jnp.arange(3) + 1).tolist())
# What reads the same arrays is one operation.
both = jax.jit(lambda x, y: (jnp.sin(x) * y, jnp.cos(x) * y))
print(both.lower(jnp.ones(999), jnp.ones(999)).compile().as_text().count(" fusion("))
# A program runs in the thread that calls it, so its result is there.
x = jnp.ones((1000, 1000))
print(*((x @ x).is_ready() for _ in range(3)))
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.split() == ["1", "2", "3", "1", "True", "True", "True"]
    assert "Unknown" not in done.stderr  # as LLVM says of others, without an error
