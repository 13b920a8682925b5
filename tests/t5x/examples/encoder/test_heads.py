"""Heads that label compute what transformers computes with the same weights."""

import jax
import numpy as np
import pytest
import torch
from flax.traverse_util import unflatten_dict

from convert.encoders.weight_map import from_torch
from fakes.published import labelled_encoder
from t5x.checkpointing.layer_stacking import stack_layers
from t5x.examples.encoder import heads, network
from t5x.examples.encoder.label_model import LabelModel
from t5x.examples.encoder.model import MaskedLanguageModel

CASES = [(f, h, "cls") for f in ("bert", "roberta", "modernbert") for h in ("text", "words")]
CASES.append(("modernbert", "text", "mean"))


class Names:
    """Labels of a task."""

    def __init__(self, sizes):
        self.labels, self.of_words = sizes.labels, sizes.head == "words"


def ours(sizes):
    """Return the model of these sizes."""
    fields = sizes.fields()
    if sizes.modern:
        module = network.ModernBert(network.ModernBertConfig(**fields))
    else:
        module = network.Bert(network.BertConfig(**fields))
    pretrained = MaskedLanguageModel(
        module, None, None, None, loss_normalizing_factor="NUM_REAL_TARGET_TOKENS"
    )
    return LabelModel(pretrained, Names(sizes), sizes.pooling)


def params_of(model, sizes):
    """Return the parameters of transformers' model as the trainer has them."""
    arrays = {name: value.detach().numpy() for name, value in model.state_dict().items()}
    return stack_layers(unflatten_dict(from_torch(arrays, sizes), sep="/"))


@pytest.mark.parametrize(("family", "head", "pooling"), CASES)
def test_logits_and_loss_are_those_of_transformers(family, head, pooling):
    changed = {"classifier_pooling": pooling} if family == "modernbert" else {}
    theirs, sizes = labelled_encoder(family, head, **changed)
    model = ours(sizes)
    random = np.random.default_rng(0)
    ids = random.integers(5, 60, (3, 24), dtype=np.int32)
    segments = (np.arange(24) < [[24], [17], [9]]).astype(np.int32)
    labels = random.integers(0, 3, ids.shape if head == "words" else (3, 1), dtype=np.int32)
    asked = random.random(ids.shape) < 0.4 if head == "words" else np.arange(24) == [[0]] * 3
    asked = asked & (segments > 0)
    batch = {
        "encoder_input_tokens": ids,
        "encoder_target_tokens": np.where(asked, labels + 1, 0),
        "encoder_loss_weights": asked.astype(np.float32),
        "encoder_segment_ids": segments,
        "encoder_type_ids": np.zeros_like(ids),
    }
    params = params_of(theirs, sizes)
    specs = jax.eval_shape(
        lambda: model.get_initial_variables(jax.random.key(0), {"encoder_input_tokens": (1, 4)})
    )
    initial = jax.tree.map(np.shape, jax.tree.map(lambda x: x, specs["params"]))
    assert jax.tree.leaves(initial) == jax.tree.leaves(jax.tree.map(np.shape, params))
    logits = jax.jit(model.logits)(params, batch)
    loss, (weight, sums) = jax.jit(model.eval_fn)(params, batch)

    asked_labels = np.where(asked, labels, -100) if head == "words" else labels[:, 0]
    with torch.no_grad():
        wanted = theirs(
            input_ids=torch.from_numpy(ids).long(),
            attention_mask=torch.from_numpy(segments).long(),
            labels=torch.from_numpy(asked_labels).long(),
        )
    real = segments > 0
    found = np.asarray(logits)[real] if head == "words" else np.asarray(logits)[:, 0]
    np.testing.assert_allclose(
        found, wanted.logits.numpy()[real] if head == "words" else wanted.logits.numpy(), atol=1e-4
    )
    assert float(loss) == pytest.approx(float(wanted.loss), abs=1e-4)
    assert weight == sums["target_tokens"] == asked.sum()


def test_what_pretraining_learned_keeps_its_name():
    _, sizes = labelled_encoder("modernbert", "words")
    shapes = jax.eval_shape(
        lambda: ours(sizes).get_initial_variables(
            jax.random.key(0), {"encoder_input_tokens": (1, 4)}
        )
    )["params"]
    assert set(shapes) == {
        *("token_embedder", "embeddings_norm", "encoder", "classifier", "mlm_head")
    }
    assert set(shapes["mlm_head"]) == {"dense", "norm"}


def test_the_mean_is_of_each_segment():
    x = np.arange(10, dtype=np.float32).reshape(1, 5, 2)
    found = heads.mean_of_segments(x, np.array([[1, 1, 2, 2, 0]]))
    np.testing.assert_allclose(found[0, 0], [1, 2])
    np.testing.assert_allclose(found[0, 3], [5, 6])
    np.testing.assert_allclose(found[0, 4], [8, 9])
