"""The train step of a model compiles for a described slice and is counted."""

import dataclasses

import pytest

from preflight.aot.compiler import compile_step
from preflight.aot.synthetic_step import Request

TINY = {"vocab_size": 512, "dtype": "bfloat16", "emb_dim": 128, "num_heads": 2, "head_dim": 64,
        "mlp_dim": 256, "num_encoder_layers": 2, "num_decoder_layers": 2,
        "mlp_activations": ["gelu", "linear"], "dropout_rate": 0.0}  # fmt: skip
REQUEST = Request(slice="v4-8", network=TINY, batch=8, inputs=128, targets=64)


def test_an_unknown_slice_is_refused_before_anything_starts():
    with pytest.raises(ValueError, match="v4-9"):
        compile_step(dataclasses.replace(REQUEST, slice="v4-9"))


def test_layers_count_though_their_body_is_compiled_once():
    figures = compile_step(REQUEST)
    assert figures.cycles > 0
    assert figures.temp_gib < 0.1
    # Every device sums the gradients of all parameters, in the type they were computed in.
    assert figures.collectives["all-reduce"] > 0
    deeper = {**TINY, "num_encoder_layers": 6, "num_decoder_layers": 6}
    more = compile_step(dataclasses.replace(REQUEST, network=deeper))
    assert more.cycles > 1.3 * figures.cycles
    assert more.argument_gib > figures.argument_gib
