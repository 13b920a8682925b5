"""The train step of a synthetic model compiles for a described slice and is counted."""

import dataclasses

import jax
import pytest

from benchmarks.step import settings
from benchmarks.synthetic_step import SyntheticRequest, train_step
from preflight.aot.compiler import compile_step

TINY = {"vocab_size": 512, "dtype": "bfloat16", "emb_dim": 128, "num_heads": 2, "head_dim": 64,
        "mlp_dim": 256, "num_encoder_layers": 2, "num_decoder_layers": 2,
        "mlp_activations": ["gelu", "linear"], "dropout_rate": 0.0}  # fmt: skip
REQUEST = SyntheticRequest(slice="v4-8", network=TINY, batch=8, inputs=128, targets=64)


def test_a_batch_that_does_not_divide_is_refused():
    with pytest.raises(ValueError, match="--batch"):
        train_step(dataclasses.replace(REQUEST, batch=6), jax.devices()[:4])


def test_a_step_compiles_for_a_slice_that_does_not_exist():
    """The one compilation by the real libtpu in the default suite."""
    figures = compile_step(REQUEST)
    assert figures.cycles > 0
    assert figures.used_gib < 0.1
    assert (figures.rows, figures.tokens) == (8, 8 * (128 + 64))
    # Every device sums the gradients of all parameters, in the type they were computed in.
    assert figures.collectives["all-reduce"] >= 0.45 * figures.parameter_gib * 2**30


def test_a_setting_has_a_value_that_python_reads_or_a_text():
    assert settings(["dtype=float32", "head_dim=64"]) == {"dtype": "float32", "head_dim": 64}
    with pytest.raises(SystemExit, match="'head_dim' sets no value: write FIELD=VALUE"):
        settings(["head_dim"])
