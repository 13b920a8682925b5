"""The model of encoders: loss, metrics, scores and predictions, whatever is computed at once."""

import jax
import numpy as np
import pytest

from fakes.encoder_golden import EncoderGolden
from t5x import metrics
from t5x.train_step import gradients


@pytest.fixture(scope="module")
def g():
    return EncoderGolden("bert")


@pytest.fixture(scope="module")
def with_gradients(g):
    """A compiled (params, batch, key) -> ((loss, (weight sum, sums)), gradients)."""
    return jax.jit(jax.value_and_grad(g.model().loss_fn, has_aux=True))


@pytest.fixture(scope="module")
def logits(g):
    """A compiled (params, batch) -> float32 [B, L, V]."""
    return jax.jit(g.model().logits)


# 40 places: all, room for all targets, and three times as many targets as there is room for.
@pytest.mark.parametrize("share", [0.5, 0.07])
def test_the_loss_is_the_same_however_many_places_are_computed_at_once(g, with_gradients, share):
    params, batch = g.params("init"), g.batch(0)
    model = g.model(predicted_share=share)
    in_parts = jax.jit(jax.value_and_grad(model.loss_fn, has_aux=True))(params, batch, None)
    close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
    jax.tree.map(close, in_parts, with_gradients(params, batch, None))


def test_logits_are_computed_of_the_predicted_places_only(g):
    params, batch = g.params("init"), g.batch(0)

    def widest(share):
        loss = lambda params: g.model(predicted_share=share).loss_fn(params, batch, None)[0]
        return jax.make_jaxpr(loss)(params).pretty_print().count("f32[4,40,60]")

    assert widest(0.25) == 0 < widest(1.0)


def test_metrics_count_masked_tokens(g, with_gradients, logits):
    params, batch = g.params("init"), g.batch(0)
    (loss, (_, sums)), _ = with_gradients(params, batch, None)
    sums = {**sums, "loss": loss}
    asked = batch["encoder_loss_weights"] > 0
    logits = np.asarray(logits(params, batch))
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

    model = g.model()
    both = jax.jit(lambda p, b: (model.score_batch(p, b), model.predict_batch(p, b)))
    scores, filled = both(params, batch)
    np.testing.assert_allclose(scores, -((log_z - chosen) * asked).sum(-1), rtol=1e-4)
    np.testing.assert_array_equal(filled, np.where(asked, best, batch["encoder_input_tokens"]))


def test_microbatches_give_the_gradients_of_the_batch(g, with_gradients):
    model, params, batch = g.model(), g.params("init"), dict(g.batch(0))
    batch["encoder_loss_weights"] = batch["encoder_loss_weights"].copy()
    batch["encoder_loss_weights"][0, 5:] = 0  # so that the parts differ
    loss_fn = lambda params, batch, _, **how: model.loss_fn(params, batch, None, **how)
    (loss, (_, sums)), whole = with_gradients(params, batch, None)
    cut = jax.jit(lambda p: gradients(loss_fn, p, batch, jax.random.key(0), 2, model.normalizers))
    grads, summed = cut(params)
    close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-6)
    jax.tree.map(close, grads, whole)
    jax.tree.map(close, summed, {**sums, "loss": loss})


class Words:
    """A vocabulary in which the multiples of three begin words, and 0 and 3 are special."""

    vocab_size, special_ids = 60, (0, 3)

    def word_starts(self):
        return np.arange(60) % 3 == 0


@pytest.mark.parametrize("share", [1.0, 0.07])  # all places at once, or in turns
def test_a_word_is_correct_if_all_its_masked_tokens_are(g, logits, share):
    params, batch = g.params("init"), dict(g.batch(0))
    rng = np.random.default_rng(0)
    batch["encoder_target_tokens"] = rng.integers(0, 60, batch["encoder_input_tokens"].shape)
    model = g.model(predicted_share=share)
    best = np.asarray(logits(params, batch)).argmax(-1)
    known = rng.random(best.shape) < 0.7
    targets = np.where(known, best, batch["encoder_target_tokens"]).astype(np.int32)
    batch["encoder_target_tokens"] = targets
    batch["encoder_loss_weights"] = (rng.random(best.shape) < 0.5).astype(np.float32)
    words = {}
    for row, ids in enumerate(targets):
        number = 0
        for place, piece in enumerate(ids):
            new = (
                batch["encoder_segment_ids"][row, place]
                != batch["encoder_segment_ids"][row, max(place - 1, 0)]
            )
            number += bool(piece % 3 == 0 or new or (place and ids[place - 1] in (0, 3)))
            if batch["encoder_loss_weights"][row, place]:
                hit = best[row, place] == piece
                words[row, number] = words.get((row, number), True) and hit
    assert 0 < sum(words.values()) < len(words)
    model.output_vocabulary = Words()
    _, (_, sums) = jax.jit(model.eval_fn)(params, batch)
    assert (sums["masked_words"], sums["words_correct"]) == (len(words), sum(words.values()))
    found = metrics.summarize({**sums, "steps": 1.0, "loss": 1.0}, None, 1)
    np.testing.assert_allclose(found["word_accuracy"], sum(words.values()) / len(words))


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
    both = jax.jit(lambda params: [model.loss_fn(params, b, None) for b in (packed, alone)])
    (loss, (_, sums)), (loss_alone, (_, sums_alone)) = both(params)
    np.testing.assert_allclose(loss, loss_alone, rtol=1e-4)
    for name in ("next_sentence_loss", "next_sentences", "next_sentences_correct", "correct"):
        np.testing.assert_allclose(sums[name], sums_alone[name], rtol=1e-4)
    assert sums["next_sentences"] == 2
