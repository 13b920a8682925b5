"""Sums add up over parts of a batch, and become upstream's numbers."""

import json

import jax
import numpy as np
import pytest

from fakes.golden import BATCHES, FACTORS, Golden, changed
from fakes.paths import GOLDEN
from t5x import metrics
from t5x.checkpointing.layer_stacking import stack_layers
from t5x.train_step import gradients


def test_names_and_divisions():
    sums = {"cross_ent_loss": 30.0, "z_loss": 2.0, "loss": 16.0, "correct": 5.0, "steps": 2.0}
    sums |= {"target_tokens": 10.0, "target_positions": 20.0, "sequences": 4.0}
    sums |= {"weights": 8.0, "unnormalized_z_loss": 4.0, "input_positions": 40.0}
    sums |= {"learning_rate": 0.5, "gradient_norm": 3.0}
    sums |= {"examples/encoder": 9.0, "non_padding/encoder": 30.0, "positions/encoder": 40.0}
    sums |= {"examples/decoder": 8.0, "non_padding/decoder": 15.0, "positions/decoder": 20.0}
    found = metrics.summarize(sums, seconds=2.0, devices=4)
    expected = {
        "accuracy": 0.5,
        "loss": 8.0,
        "loss_per_nonpadding_target_token": 2.0,
        "loss_per_all_target_tokens": 0.8,
        "unnormalized_loss_per_target_token": 3.4,
        "cross_ent_loss": 7.0,
        "cross_ent_loss_per_all_target_tokens": 0.7,
        "z_loss": 1.0,
        "z_loss_per_all_target_tokens": 0.1,
        "non_padding_fraction/loss_weights": 0.4,
        "non_padding_fraction/encoder": 0.75,
        "non_padding_fraction/decoder": 0.75,
        "non_padding_fraction/overall": 0.75,
        "effective_batch_size/encoder": 4.5,
        "effective_batch_size/decoder": 4.0,
        "learning_rate": 0.25,
        "gradient_norm": 1.5,
        "timing/seconds": 2.0,
        "timing/steps_per_second": 1.0,
        "timing/seqs": 4.0,
        "timing/seqs_per_second": 2.0,
        "timing/seqs_per_second_per_core": 0.5,
        "timing/target_tokens_per_second": 10.0,
        "timing/target_tokens_per_second_per_core": 2.5,
        "timing/tokens_per_second": 30.0,
        "timing/tokens_per_second_per_core": 7.5,
    }
    assert found == pytest.approx(expected)


def test_an_evaluation_has_neither_times_nor_rates():
    sums = {"cross_ent_loss": 1.0, "z_loss": 0.0, "loss": 1.0, "correct": 0.0, "steps": 1.0}
    sums |= {"target_tokens": 0.0, "target_positions": 4.0, "sequences": 1.0}
    sums |= {"weights": 0.0, "unnormalized_z_loss": 0.0}
    found = metrics.summarize(sums, seconds=None, devices=8)
    assert not [name for name in found if name.startswith("timing")]
    assert "learning_rate" not in found
    assert found["accuracy"] == 0.0  # no target token, and no division by none


def test_a_step_without_a_rate_has_a_norm():
    sums = {"cross_ent_loss": 1.0, "z_loss": 0.0, "loss": 1.0, "correct": 0.0, "steps": 2.0}
    sums |= {"target_tokens": 1.0, "target_positions": 4.0, "sequences": 1.0}
    sums |= {"weights": 1.0, "unnormalized_z_loss": 0.0, "gradient_norm": 3.0}
    found = metrics.summarize(sums, seconds=None, devices=8)
    assert found["gradient_norm"] == 1.5
    assert "learning_rate" not in found


QUICK = {"100.0|unpacked|1", "NUM_REAL_TARGET_TOKENS|weighted|4"}
CASES = [
    pytest.param(
        factor, how, parts, marks=() if f"{factor}|{how}|{parts}" in QUICK else pytest.mark.slow
    )
    for factor in FACTORS
    for how in BATCHES
    for parts in (1, 4)
]


@pytest.mark.parametrize(("factor", "how", "parts"), CASES)
def test_a_step_reports_upstreams_numbers(factor, how, parts):
    """See tests/golden/make_metrics.py."""
    golden = Golden("t5_1_1")
    params = stack_layers(golden.tree("final_state", "target"))
    model = golden.model()
    model.loss_normalizing_factor = factor
    loss_fn = lambda params, batch, _: model.loss_fn(params, batch, None)  # without dropout
    step = jax.jit(lambda p, b: gradients(loss_fn, p, b, jax.random.key(0), parts))
    grads, sums = step(params, changed(golden.batch(0), how))
    found = metrics.summarize({**sums, "steps": 1.0}, None, 1)
    found["gradient_norm"] = np.sqrt(sum(np.square(g).sum() for g in jax.tree.leaves(grads)))
    expected = json.loads((GOLDEN / "metrics.json").read_text())[f"{factor}|{how}|{parts}"]
    unnormalized = found.pop(metrics.UNNORMALIZED_LOSS)
    assert found == pytest.approx(expected, rel=1e-5)
    if (factor, how) in ((None, "packed"), (None, "unpacked")):
        assert unnormalized == pytest.approx(expected["loss_per_nonpadding_target_token"], rel=1e-5)
