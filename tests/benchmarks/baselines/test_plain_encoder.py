"""The plain encoders compute the same loss as those of the package, so that cycles compare."""

import jax
import numpy as np
import pytest

from benchmarks.baselines.plain_encoder import PlainEncoder
from fakes.encoder_golden import FAMILIES, EncoderGolden
from t5x.checkpointing.layer_stacking import unstack_layers
from t5x.examples.encoder.model import MaskedLanguageModel


def layer_by_layer(params, config):
    """The parameters by the plain network's names."""
    encoder = unstack_layers(params["encoder"])
    if "first_layer" in encoder:
        members = [*(f"local_{i}" for i in range(config.global_every - 1)), "global"]
        groups = [encoder.pop(f"layers_{i}") for i in range(len(encoder) - 2)]
        layers = [encoder.pop("first_layer"), *(g[name] for g in groups for name in members)]
        encoder |= {f"layers_{i}": layer for i, layer in enumerate(layers)}
    return {**params, "encoder": encoder}


# RoBERTa's network is BERT's.
@pytest.mark.parametrize(
    "family", [pytest.param(f, marks=pytest.mark.slow) if f == "roberta" else f for f in FAMILIES]
)
def test_the_plain_network_has_the_same_loss(family):
    g = EncoderGolden(family)
    ours, params, batch = g.model(), g.params("init"), g.batch(0)
    batch.pop("next_sentence_label", None)
    plain = MaskedLanguageModel(PlainEncoder(ours.module.config), None, None, None)
    wanted, _ = jax.jit(ours.loss_fn)(params, batch, None)
    found, _ = jax.jit(plain.loss_fn)(layer_by_layer(params, ours.module.config), batch, None)
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
