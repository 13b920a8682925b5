"""Sums add up over parts of a batch, and become upstream's numbers."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fakes.golden import BATCHES, FACTORS, Golden, changed
from fakes.paths import GOLDEN
from t5x import losses, metrics
from t5x.checkpointing.layer_stacking import stack_layers
from t5x.train_step import gradients

B, T, V = 4, 5, 11
INPUTS = 6


def sums_of(batch, logits):
    token_losses, z_losses = losses.cross_entropy(
        logits, batch["decoder_target_tokens"], z_loss=1e-2
    )
    weights = jnp.asarray(batch["decoder_target_tokens"] > 0, jnp.float32)
    return metrics.step_sums(logits, batch, token_losses, z_losses, weights)


@pytest.fixture
def case():
    random = np.random.default_rng(0)
    targets = random.integers(1, V, (B, T))
    targets[0, 3:] = targets[2, 1:] = 0
    inputs = random.integers(1, V, (B, INPUTS))
    inputs[1, 4:] = 0
    batch = {"decoder_target_tokens": targets, "encoder_input_tokens": inputs}
    return batch, jnp.asarray(random.normal(size=(B, T, V)), jnp.float32)


def test_sums_by_hand(case):
    batch, logits = case
    sums = sums_of(batch, logits)
    real = batch["decoder_target_tokens"] > 0
    right = (np.argmax(logits, -1) == batch["decoder_target_tokens"]) & real
    log_probs = np.asarray(jax.nn.log_softmax(logits))
    rows, places = np.nonzero(real)
    chosen = log_probs[rows, places, batch["decoder_target_tokens"][real]]
    np.testing.assert_allclose(sums["cross_ent_loss"], -chosen.sum(), rtol=1e-5)
    log_z = np.log(np.exp(np.asarray(logits, np.float64)).sum(-1))
    np.testing.assert_allclose(sums["z_loss"], 1e-2 * (log_z[real] ** 2).sum(), rtol=1e-5)
    counts = ("correct", right.sum()), ("target_tokens", 14), ("target_positions", B * T)
    for name, value in (*counts, ("input_positions", B * INPUTS), ("weights", 14)):
        assert sums[name] == value, name
    assert sums["sequences"] == B


def test_packed_examples_are_counted(case):
    batch, logits = case
    segments = np.array([[1, 1, 2, 2, 3], [1, 1, 1, 0, 0], [0, 0, 0, 0, 0], [1, 2, 3, 4, 0]])
    sums = sums_of({**batch, "decoder_segment_ids": segments}, logits)
    assert sums["examples/decoder"] == 3 + 1 + 0 + 4
    assert sums["non_padding/decoder"] == 5 + 3 + 0 + 4
    assert "examples/encoder" not in sums


def test_unpacked_rows_count_as_one_example_each_unless_they_are_padding(case):
    batch, logits = case
    batch = {**batch, "encoder_input_tokens": batch["encoder_input_tokens"] * [[1], [1], [0], [1]]}
    sums = sums_of(batch, logits)
    assert sums["examples/encoder_input_tokens"] == 3
    assert sums["examples/decoder_target_tokens"] == 4
    assert sums["non_padding/encoder_input_tokens"] == 22 - 6


def test_parts_of_a_batch_add_up(case):
    batch, logits = case
    half = lambda tree, i: jax.tree.map(lambda x: x[2 * i : 2 * i + 2], tree)
    parts = [sums_of(half(batch, 0), logits[:2]), sums_of(half(batch, 1), logits[2:])]
    found, expected = metrics.total(parts), sums_of(batch, logits)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5, err_msg=name)


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


QUICK = {"100.0|packed|1", "None|without_weights|1", "NUM_REAL_TARGET_TOKENS|weighted|4"}
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
