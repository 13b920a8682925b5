"""The model of encoders: loss, metrics, scores and predictions, whatever is computed at once."""

import jax
import numpy as np
import pytest

from fakes.encoder_golden import EncoderGolden
from t5x import metrics


@pytest.fixture(scope="module")
def g():
    return EncoderGolden("bert")


def loss_and_sums(model, params, batch):
    (loss, (_, sums)), grads = jax.jit(jax.value_and_grad(model.loss_fn, has_aux=True))(
        params, batch, None
    )
    return {**sums, "loss": loss}, grads


# 40 places: all, room for all targets, and three times as many targets as there is room for.
@pytest.mark.parametrize("share", [0.5, 0.07])
def test_the_loss_is_the_same_however_many_places_are_computed_at_once(g, share):
    params, batch = g.params("init"), g.batch(0)
    wanted = loss_and_sums(g.model(predicted_share=1.0), params, batch)
    found = loss_and_sums(g.model(predicted_share=share), params, batch)
    close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
    jax.tree.map(close, found, wanted)


def test_logits_are_computed_of_the_predicted_places_only(g):
    params, batch = g.params("init"), g.batch(0)

    def widest(share):
        loss = lambda params: g.model(predicted_share=share).loss_fn(params, batch, None)[0]
        return jax.make_jaxpr(loss)(params).pretty_print().count("f32[4,40,60]")

    assert widest(0.25) == 0 < widest(1.0)


def test_metrics_count_masked_tokens(g):
    params, batch = g.params("init"), g.batch(0)
    model = g.model()
    sums, _ = loss_and_sums(model, params, batch)
    asked = batch["encoder_loss_weights"] > 0
    logits = np.asarray(jax.jit(model.logits)(params, batch))
    best = logits.argmax(-1)
    found = metrics.summarize({**sums, "steps": 1.0}, 1.0, 1)
    right = (best == batch["encoder_target_tokens"])[asked].mean()
    np.testing.assert_allclose(found["accuracy"], right)
    log_z = np.log(np.exp(logits).sum(-1))
    chosen = np.take_along_axis(logits, batch["encoder_target_tokens"][..., None], -1)[..., 0]
    nats = (log_z - chosen)[asked].mean()
    np.testing.assert_allclose(found["pseudo_perplexity"], np.exp(nats), rtol=1e-4)
    np.testing.assert_allclose(found[metrics.UNNORMALIZED_LOSS], nats, rtol=1e-4)
    np.testing.assert_allclose(found["timing/tokens_per_second"], asked.size)
    real = (batch["encoder_segment_ids"] > 0).mean()
    np.testing.assert_allclose(found["non_padding_fraction/encoder"], real)
    labels, wanted = batch["next_sentence_label"][:, 0], g.numbers["next_sentence_logits"]
    right = (wanted.argmax(-1) == labels).mean()
    np.testing.assert_allclose(found["next_sentence_accuracy"], right)

    np.testing.assert_allclose(
        jax.jit(model.score_batch)(params, batch),
        -((log_z - chosen) * asked).sum(-1),
        rtol=1e-4,
    )
    filled = jax.jit(model.predict_batch)(params, batch)
    np.testing.assert_array_equal(filled, np.where(asked, best, batch["encoder_input_tokens"]))


def test_next_sentences_of_packed_rows_are_those_of_unpacked_ones(g):
    model, params = g.model(), g.params("init")
    ids, types = (g.batch(0)[f"encoder_{name}"][:2, :18] for name in ("input_tokens", "type_ids"))
    weights = (np.arange(36) % 5 == 1).astype(np.float32).reshape(2, 18)
    alone = {
        "encoder_input_tokens": ids,
        "encoder_target_tokens": ids,
        "encoder_loss_weights": weights,
        "encoder_segment_ids": np.ones_like(ids),
        "encoder_type_ids": types,
    }
    packed = {k: v.reshape(1, -1) for k, v in alone.items()}
    packed["encoder_segment_ids"] = np.repeat([[1, 2]], 18, 1)
    packed["encoder_positions"] = np.arange(36)[None] % 18
    alone["next_sentence_label"] = np.array([[1], [0]])
    packed["next_sentence_label"] = np.full((1, 36), -1)
    packed["next_sentence_label"][0, [0, 18]] = 1, 0
    (found, _), (wanted, _) = (loss_and_sums(model, params, batch) for batch in (packed, alone))
    names = ("loss", "next_sentence_loss", "next_sentences", "next_sentences_correct", "correct")
    for name in names:
        np.testing.assert_allclose(found[name], wanted[name], rtol=1e-4)
    assert found["next_sentences"] == 2
