"""Models with labels: packing changes nothing, labels are learned and returned in their order."""

import flax
import jax
import numpy as np
import pytest

from t5x.examples.encoder import network
from t5x.examples.encoder.label_model import LabelModel
from t5x.examples.encoder.model import MaskedLanguageModel
from tasks.labels import LabelVocabulary

NAMES = ("bun", "rău")


def pretrained(family="bert", **changed):
    sizes = {"emb_dim": 16, "num_heads": 2, "mlp_dim": 16, "max_length": 16}
    none = {"dropout_rate": 0.0, "attention_dropout_rate": 0.0}
    if family == "bert":
        config = network.BertConfig(256, num_layers=1, **(sizes | none | changed))
        module = network.Bert(config)
    else:
        module = network.ModernBert(network.ModernBertConfig(256, num_layers=4, **sizes, **none))
    return MaskedLanguageModel(module, None, None, None)


def model(family="bert", names=NAMES, pooling="cls", **changed):
    return LabelModel(pretrained(family, **changed), LabelVocabulary(names), pooling)


def drawn(of):
    """Return random parameters of a model."""
    shapes = {"encoder_input_tokens": (1, 4)}
    variables = jax.eval_shape(lambda: of.get_initial_variables(jax.random.key(0), shapes))
    random = np.random.default_rng(0)
    return jax.tree.map(
        lambda x: random.normal(0, 0.3, x.shape).astype(np.float32) + (x.ndim == 1),
        flax.core.meta.unbox(variables["params"]),
    )


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_packed_rows_have_the_logits_of_single_ones(pooling):
    of = model("modernbert", pooling=pooling)
    ids = np.array([[2, 40, 41, 3, 2, 50, 3, 0]], np.int32)
    packed = {
        "encoder_input_tokens": ids,
        "encoder_segment_ids": np.array([[1, 1, 1, 1, 2, 2, 2, 0]], np.int32),
        "encoder_positions": np.array([[0, 1, 2, 3, 0, 1, 2, 0]], np.int32),
    }
    single = {
        "encoder_input_tokens": np.array([[2, 50, 3, 9]], np.int32),
        "encoder_segment_ids": np.array([[1, 1, 1, 0]], np.int32),
    }
    params = drawn(of)
    np.testing.assert_allclose(
        jax.jit(of.logits)(params, packed)[0, 4],
        jax.jit(of.logits)(params, single)[0, 0],
        atol=1e-5,
    )


def test_a_network_without_types_ignores_them():
    of = model(type_vocab_size=1)
    batch = {"encoder_input_tokens": np.full([1, 8], 40, np.int32)}
    params = drawn(of)
    wanted = jax.jit(of.logits)(params, batch)
    batch["encoder_type_ids"] = np.arange(8, dtype=np.int32)[None] // 4
    found = jax.jit(of.logits)(params, batch)
    np.testing.assert_array_equal(found, wanted)


def test_predictions_are_in_the_order_of_their_places():
    of = model()
    batch = {
        "encoder_input_tokens": np.arange(40, 56, dtype=np.int32).reshape(2, 8),
        "encoder_loss_weights": np.array([[0, 1, 0, 1, 0, 0, 1, 0], [1] + [0] * 7], np.float32),
        "encoder_target_tokens": np.array([[0, 1, 0, 2, 0, 0, 1, 0], [2] + [0] * 7], np.int32),
    }
    params = drawn(of)
    logits = np.asarray(jax.jit(of.logits)(params, batch))
    best, aux = jax.jit(of.predict_batch_with_aux)(params, batch)
    np.testing.assert_array_equal(best[0, :3], logits[0, [1, 3, 6]].argmax(-1) + 1)
    assert not best[0, 3:].any()
    log_probs = np.asarray(jax.nn.log_softmax(logits))
    np.testing.assert_allclose(aux["scores"][1], log_probs[1, 0].max(), rtol=1e-5)
    scores = jax.jit(of.score_batch)(params, batch)
    wanted = log_probs[0, 1, 0] + log_probs[0, 3, 1] + log_probs[0, 6, 0]
    np.testing.assert_allclose(scores[0], wanted, rtol=1e-5)


def test_parts_of_a_batch_add_up_to_its_loss():
    of = model()
    ids = np.arange(40, 56, dtype=np.int32).reshape(2, 8)
    weights = (np.arange(8) < [[1], [3]]).astype(np.float32)
    batch = {
        "encoder_input_tokens": ids,
        "encoder_loss_weights": weights,
        "encoder_target_tokens": np.ones_like(ids),
    }
    params, normalizers = drawn(of), of.normalizers(batch)
    compute = jax.jit(lambda part, given=None: of.loss_fn(params, part, None, given)[0])
    loss = compute(batch)
    halves = [jax.tree.map(lambda x, i=i: x[i : i + 1], batch) for i in range(2)]
    parts = sum(compute(half, normalizers) for half in halves)
    np.testing.assert_allclose(parts, loss, rtol=1e-5)


def test_poolings_that_transformers_lacks_are_refused():
    with pytest.raises(ValueError, match=r"LabelModel\.pooling is 'max'; set it to 'cls'"):
        model("modernbert", pooling="max")
    with pytest.raises(ValueError, match="for texts of a ModernBERT only; set it to 'cls'"):
        model(pooling="mean")


def test_gradients_reach_all_of_it_and_separate_texts():
    of = model()
    random = np.random.default_rng(0)
    ids = random.integers(100, 200, (16, 8), dtype=np.int32)
    ids[:, 0], ids[:, 5] = 2, np.where(np.arange(16) % 2, 40, 50)
    targets = np.zeros_like(ids)
    targets[:, 0] = np.arange(16) % 2 + 1
    weights = (np.arange(8) == 0).astype(np.float32)[None].repeat(16, 0)
    batch = {"encoder_input_tokens": ids, "encoder_target_tokens": targets}
    batch |= {"encoder_loss_weights": weights}

    @jax.jit
    def step(params):
        (loss, _), grads = jax.value_and_grad(of.loss_fn, has_aux=True)(params, batch, None)
        return jax.tree.map(lambda p, g: p - 0.3 * g, params, grads), loss, grads

    params = drawn(of)
    for n in range(60):
        params, loss, grads = step(params)
        if n == 0:
            first = loss
            leaves = jax.tree_util.tree_leaves_with_path(grads)
            still = {jax.tree_util.keystr(p) for p, g in leaves if np.abs(g).max() < 1e-7}
            assert still <= {"['encoder']['layers']['attention']['key']['bias']"}  # changes nothing
    assert first > 0.5 > 0.1 > loss
