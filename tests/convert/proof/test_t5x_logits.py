"""The layer-by-layer forward pass is the trainer's network."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from convert import t5x_params
from convert.proof import t5x_logits, verify
from fakes.convert_fakes import FAMILIES, arrays, tree
from t5x.checkpointing.layer_stacking import stack_layers
from t5x.examples.t5 import network


def transformer_logits(sizes, values, batch):
    names = {field.name for field in dataclasses.fields(network.T5Config)}
    config = network.T5Config(**{k: v for k, v in vars(sizes).items() if k in names})
    nested = t5x_params.nested({name: jnp.asarray(value) for name, value in values.items()})
    params = {"params": stack_layers(nested)}
    apply = functools.partial(network.Transformer(config).apply, enable_dropout=False)
    return jax.jit(apply)(params, **batch)


@pytest.mark.parametrize("name", FAMILIES)
def test_layer_by_layer_equals_the_complete_network(name):
    sizes = FAMILIES[name]
    values, batch = arrays(sizes), verify.probe_batch(sizes)
    ours = t5x_logits.trainer_logits(tree(values), sizes, batch)
    np.testing.assert_allclose(ours, transformer_logits(sizes, values, batch), rtol=1e-5, atol=1e-5)


def test_reading_large_arrays_in_blocks_changes_nothing(monkeypatch):
    sizes = FAMILIES["t5_1_1"]
    values, batch = tree(arrays(sizes)), verify.probe_batch(sizes)
    at_once = t5x_logits.trainer_logits(values, sizes, batch)
    monkeypatch.setattr(t5x_params, "_BLOCK", 700)  # 10 rows of the embedding, 1 of the head
    in_blocks = t5x_logits.trainer_logits(values, sizes, batch)
    np.testing.assert_allclose(at_once, in_blocks, rtol=1e-5, atol=1e-5)
