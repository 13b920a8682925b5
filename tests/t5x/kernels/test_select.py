"""The right kernels are chosen, and refused where they cannot work."""

import os
import subprocess
import sys
import tomllib
import types

import jax.numpy as jnp
import numpy as np
import pytest
from packaging.requirements import Requirement

from fakes.paths import ROOT
from fakes.refuses import refuses
from t5x.examples.encoder.network import BertConfig
from t5x.examples.t5.network import T5Config
from t5x.kernels import attention_mask, select
from t5x.kernels.attention_mask import Segments

T5 = {"vocab_size": 8, "dtype": jnp.bfloat16}


@pytest.fixture
def on(monkeypatch):
    """A function that has programs traced for some devices of a platform."""

    def trace_for(platform, capability="9.0", count=1):
        device = types.SimpleNamespace(platform=platform, compute_capability=capability)
        monkeypatch.setattr(select, "devices", lambda: [device] * count)

    return trace_for


@pytest.mark.parametrize(
    ("platform", "capability", "count", "is_ampere", "preferred"),
    [
        ("gpu", "9.0", 1, True, True),
        ("gpu", "8.0", 8, True, False),
        ("gpu", "7.5", 1, False, False),
        ("gpu", "gfx90a", 1, False, False),
        ("cpu", None, 1, False, False),
    ],
)
def test_gpu_kernels_are_for_one_gpu_of_ampere_or_newer(
    on, platform, capability, count, is_ampere, preferred
):
    on(platform, capability, count)
    assert select.is_ampere() == is_ampere
    assert select.prefers_gpu_kernels() == preferred


def kind(**fields):
    return select.attention(T5Config(**T5 | fields))


def test_auto_is_flash_on_one_gpu_where_it_works(on):
    assert kind() == "xla"
    on("gpu")
    assert kind() == "flash"
    assert kind(attention="cudnn") == "cudnn"
    assert kind(head_dim=24) == kind(dtype=jnp.float32) == "xla"
    assert kind(float32_attention_logits=True) == "xla"


@pytest.fixture
def without_triton(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax.experimental.pallas.triton", None)  # as if it were absent


def test_without_triton_auto_is_cudnn(on, without_triton):
    on("gpu")
    assert kind() == select.CUDNN_OR_XLA
    assert kind(dtype=jnp.float32) == "xla"
    on("gpu", count=8)  # as with Triton
    assert kind() == "xla"
    q, k = jnp.ones((2, 3, 2, 8)), jnp.ones((2, 5, 2, 8))  # lengths that cuDNN does not take
    np.testing.assert_allclose(select.attend(select.CUDNN_OR_XLA, q, k, k, None), q, rtol=1e-5)


def test_without_triton_flash_names_the_jax_that_has_it(on, without_triton):
    on("gpu")
    with refuses("T5Config.attention", "flash") as refusal:
        kind(attention="flash")
    assert "'cudnn'" in refusal.value.to_set
    assert select.JAX_WITH_TRITON in refusal.value.to_set


def test_a_program_without_triton_builds_the_step_of_a_gpu_with_one_warning():
    """In a process of its own, which has not imported the module, nor warned."""
    program = """
import sys, types

sys.modules["jax.experimental.pallas.triton"] = None
import jax, jax.numpy as jnp
from t5x.examples.t5.network import T5Config, Transformer
from t5x.kernels import select

gpu = types.SimpleNamespace(platform="gpu", compute_capability="9.0")
select.devices = lambda: [gpu]
network = Transformer(T5Config(8, jnp.bfloat16, 16, 2, 1, 1, head_dim=16, mlp_dim=16))
ids = jnp.ones((2, 3), int)
for _ in range(2):
    out = jax.eval_shape(lambda: network.init_with_output(jax.random.key(0), ids, ids, ids))
    print(out[0].shape)
"""
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.stdout == "(2, 3, 8)\n" * 2, done.stderr
    (warning,) = [line for line in done.stderr.splitlines() if "Triton" in line]
    assert "cuDNN" in warning
    assert select.JAX_WITH_TRITON in warning


def test_the_ceiling_of_jax_is_where_the_kernels_end():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (cuda,) = map(Requirement, extras["optional-dependencies"]["cuda"])
    assert cuda.specifier == Requirement(select.JAX_WITH_TRITON).specifier
    assert select.has_triton(), "this JAX is below the ceiling"


@pytest.mark.parametrize("attention", ["flash", "cudnn"])
@pytest.mark.parametrize(
    ("config", "fields", "named"),
    [
        (T5Config, {"dtype": jnp.float32}, "T5Config.dtype"),
        (T5Config, {"float32_attention_logits": True}, "T5Config.float32_attention_logits"),
        (BertConfig, {"dtype": jnp.float32}, "BertConfig.dtype"),
    ],
)
def test_kernels_in_16_bits_are_refused_for_others(attention, config, fields, named):
    with refuses(f"{config.__name__}.attention", attention) as refusal:
        config(**T5 | fields | {"attention": attention})
    assert named in refusal.value.why


@pytest.mark.parametrize(
    ("fields", "setting"), [({"head_dim": 24}, "attention"), ({"dtype": "int32"}, "dtype")]
)
def test_what_no_device_can_compute_is_refused_by_its_name(fields, setting):
    with refuses(f"T5Config.{setting}") as refusal:
        T5Config(**T5 | {"attention": "flash"} | fields)
    assert f"T5Config.{next(iter(fields))}" in str(refusal.value)


@pytest.mark.parametrize("config", [T5Config, BertConfig])
@pytest.mark.parametrize("attention", ["flash", "cudnn"])
def test_a_gpus_attention_is_refused_elsewhere(config, attention):
    with refuses(f"{config.__name__}.attention", attention):
        select.attention(config(**T5, attention=attention))


def test_cudnn_takes_even_lengths_and_is_not_asked_for_one_query(on):
    on("gpu")
    q, k = jnp.ones((2, 3, 2, 8)), jnp.ones((2, 5, 2, 8))
    with refuses("The network's attention", "cudnn"):
        select.attend("cudnn", q, k, k, None)
    found, wanted = select.attend("cudnn", q[:, :1], k, k, None), k[:, :1]
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


# What is recomputed, and whether layers are compiled one by one.
@pytest.mark.parametrize(
    ("platform", "attention", "wanted"),
    [
        ("tpu", "auto", ("minimal", False)),
        ("gpu", "xla", ("minimal", False)),
        ("gpu", "auto", ("none", True)),
        ("gpu", "cudnn", ("products", True)),
        ("cpu", "auto", ("none", False)),
    ],
)
def test_layers_are_run_as_their_kernels_need_it(on, platform, attention, wanted):
    on(platform)
    config = T5Config(**T5, attention=attention)
    assert select.layer_loop(config, initializing=False) == wanted
    assert select.layer_loop(config, initializing=True) == (wanted[0], False)
    assert select.layer_loop(config.replace(remat_policy="full"), False)[0] == "full"


def test_every_kind_reads_its_own_form_of_segments_and_bias():
    ids, by_distance = jnp.asarray([[1, 1, 2, 0]]), jnp.ones((2, 7))
    everywhere, near = Segments(ids, ids), Segments(ids, ids, radius=1)
    assert select.seen("flash", near) is near
    assert select.bias("flash", by_distance, 4) is by_distance
    np.testing.assert_array_equal(select.seen("xla", everywhere), attention_mask.mask(everywhere))
    assert select.bias("xla", by_distance, 4).shape == (1, 2, 4, 4)
    q = jnp.ones((1, 4, 2, 16))
    found = select.attend("plain", q, q, q, select.seen("plain", near))
    np.testing.assert_allclose(found, q, rtol=1e-6)
