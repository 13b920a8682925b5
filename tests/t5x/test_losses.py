"""Losses are what the formulas say, by hand and at their bounds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x import losses
from t5x.losses import cross_entropy, normalizing_factor_and_weights

# Probabilities 1/8, 2/8, 5/8; the logits' normalizer is 8.
LOGITS = np.log(np.array([[[1.0, 2.0, 5.0], [1.0, 2.0, 5.0]]], np.float32))
TARGETS = np.array([[2, 0]])


def test_cross_entropy_is_the_negative_log_of_the_targets_probability():
    loss, z = cross_entropy(LOGITS, TARGETS)
    np.testing.assert_allclose(loss, [[np.log(8 / 5), np.log(8)]], rtol=1e-6)
    np.testing.assert_array_equal(z, np.zeros((1, 2)))


def test_z_loss_is_in_the_loss_and_beside_it():
    plain, _ = cross_entropy(LOGITS, TARGETS)
    loss, z = cross_entropy(LOGITS, TARGETS, z_loss=0.01)
    np.testing.assert_allclose(z, np.full((1, 2), 0.01 * np.log(8) ** 2), rtol=1e-6)
    np.testing.assert_allclose(loss, plain + z, rtol=1e-6)


def test_smoothing_by_hand():
    # 0.8 on the target, 0.1 on each of the other two.
    loss, _ = cross_entropy(LOGITS[:, :1], TARGETS[:, :1], label_smoothing=0.2)
    wanted, probs = np.array([0.1, 0.1, 0.8]), np.array([1, 2, 5]) / 8
    np.testing.assert_allclose(loss[0, 0], (wanted * np.log(wanted / probs)).sum(), rtol=1e-5)


def test_the_gradient_is_probability_less_target():
    grad = jax.grad(lambda x: cross_entropy(x, TARGETS)[0].sum())(LOGITS)
    probs = np.array([1, 2, 5]) / 8
    np.testing.assert_allclose(grad[0, 0], probs - [0, 0, 1], rtol=1e-5)
    np.testing.assert_allclose(grad[0, 1], probs - [1, 0, 0], rtol=1e-5)


def test_the_gradient_scatters_nothing():
    """A scatter is one more pass over all logits."""
    gradient = jax.grad(lambda x: cross_entropy(x, TARGETS)[0].sum())
    assert "scatter" not in str(jax.make_jaxpr(gradient)(LOGITS))


def test_bfloat16_logits_are_summed_in_float32():
    vocab = 1000
    logits = jnp.zeros((1, 1, vocab), jnp.bfloat16)
    loss, _ = cross_entropy(logits, np.array([[0]]))
    assert loss.dtype == jnp.float32
    np.testing.assert_allclose(loss, np.log(vocab), rtol=1e-6)


BATCH = {"decoder_target_tokens": np.array([[5, 6, 1, 0], [7, 1, 0, 0]])}


@pytest.mark.parametrize(
    ("factor", "divisor"),
    [
        (None, None),
        (12.0, 12.0),
        ("NUM_REAL_TARGET_TOKENS", 5),
        ("SpecialLossNormalizingFactor.num_real_target_tokens", 5),
        (losses.SpecialLossNormalizingFactor.NUM_TOTAL_TARGET_TOKENS, 8),
        ("AVERAGE_PER_SEQUENCE", 2),
    ],
)
def test_divisors(factor, divisor):
    found, weights = normalizing_factor_and_weights(factor, BATCH)
    assert found is None if divisor is None else np.isclose(found, divisor)
    assert weights.dtype == jnp.float32
    per_sequence = [[1 / 3, 1 / 3, 1 / 3, 0], [1 / 2, 1 / 2, 0, 0]]
    wanted = per_sequence if factor == "AVERAGE_PER_SEQUENCE" else [[1, 1, 1, 0], [1, 1, 0, 0]]
    if factor in (None, 12.0):  # padding counts, as in upstream
        wanted = np.ones((2, 4))
    np.testing.assert_allclose(weights, wanted, rtol=1e-6)


def test_given_weights_take_the_place_of_padding():
    batch = {**BATCH, "decoder_loss_weights": np.array([[0, 1, 1, 0], [0, 0, 0, 0]])}
    total, weights = normalizing_factor_and_weights("NUM_REAL_TARGET_TOKENS", batch)
    assert total == 2
    np.testing.assert_array_equal(weights, batch["decoder_loss_weights"])


def test_every_packed_sequence_weighs_the_same():
    batch = {
        "decoder_target_tokens": np.array([[5, 1, 8, 9, 9, 1, 0]]),
        "decoder_segment_ids": np.array([[1, 1, 2, 2, 2, 2, 0]]),
        "decoder_loss_weights": np.ones((1, 7)),  # also where there is no sequence
    }
    total, weights = normalizing_factor_and_weights("AVERAGE_PER_SEQUENCE", batch)
    np.testing.assert_allclose(weights, [[0.5, 0.5, 0.25, 0.25, 0.25, 0.25, 0]])
    np.testing.assert_allclose(total, 2)


@pytest.mark.parametrize("factor", ["NUM_REAL_TARGET_TOKENS", "AVERAGE_PER_SEQUENCE"])
def test_a_batch_without_weights_has_a_divisor(factor):
    batch = {"decoder_target_tokens": jnp.zeros([2, 3], jnp.int32)}
    total, weights = normalizing_factor_and_weights(factor, batch)
    assert (float(total), float(weights.sum())) == (1.0, 0.0)
    half = {**batch, "decoder_loss_weights": jnp.full([2, 3], 0.05)}
    assert float(normalizing_factor_and_weights("NUM_REAL_TARGET_TOKENS", half)[0]) < 1
