"""Sums add up over parts of a batch, and become upstream's numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x import losses, metrics

B, T, V = 4, 5, 11
INPUTS = 6


def sums_of(batch, logits):
    token_losses, z_losses = losses.cross_entropy(
        logits, batch["decoder_target_tokens"], z_loss=1e-2
    )
    _, weights = losses.normalizing_factor_and_weights(None, batch)
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
    for name, value in (*counts, ("input_tokens", 22), ("input_positions", B * INPUTS)):
        assert sums[name] == value, name
    assert sums["sequences"] == B


def test_packed_examples_are_counted(case):
    batch, logits = case
    segments = np.array([[1, 1, 2, 2, 3], [1, 1, 1, 0, 0], [0, 0, 0, 0, 0], [1, 2, 3, 4, 0]])
    sums = sums_of({**batch, "decoder_segment_ids": segments}, logits)
    assert sums["decoder_examples"] == 3 + 1 + 0 + 4
    assert "encoder_examples" not in sums


def test_parts_of_a_batch_add_up(case):
    batch, logits = case
    half = lambda tree, i: jax.tree.map(lambda x: x[2 * i : 2 * i + 2], tree)
    parts = metrics.add(
        metrics.add(None, sums_of(half(batch, 0), logits[:2])),
        sums_of(half(batch, 1), logits[2:]),
    )
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), parts, sums_of(batch, logits)
    )


def test_names_and_divisions():
    sums = {"cross_ent_loss": 30.0, "z_loss": 2.0, "loss": 16.0, "correct": 5.0, "steps": 2.0}
    sums |= {"target_tokens": 10.0, "target_positions": 20.0, "sequences": 4.0}
    sums |= {"input_tokens": 30.0, "input_positions": 40.0}
    sums |= {"learning_rate": 0.5, "gradient_norm": 3.0}
    sums |= {"encoder_examples": 9.0, "decoder_examples": 8.0}
    found = metrics.summarize(sums, seconds=2.0, devices=4)
    expected = {
        "accuracy": 0.5,
        "loss": 8.0,
        "loss_per_nonpadding_target_token": 3.2,
        "loss_per_all_target_tokens": 1.6,
        "cross_ent_loss": 15.0,
        "cross_ent_loss_per_all_target_tokens": 1.5,
        "z_loss": 1.0,
        "z_loss_per_all_target_tokens": 0.1,
        "non_padding_fraction/loss_weights": 0.5,
        "non_padding_fraction/encoder": 0.75,
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
    found = metrics.summarize(sums, seconds=None, devices=8)
    assert not [name for name in found if name.startswith("timing")]
    assert "learning_rate" not in found
    assert found["accuracy"] == 0.0  # no target token, and no division by none
