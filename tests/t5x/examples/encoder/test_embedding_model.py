"""Vectors are transformers' means of tokens, and the loss is that of sentence-transformers."""

import jax
import numpy as np
import pytest
import torch
from flax.traverse_util import unflatten_dict

from convert.encoders.weight_map import from_torch
from fakes.published import labelled_encoder
from t5x.checkpointing.layer_stacking import stack_layers
from t5x.examples.encoder import network
from t5x.examples.encoder.embedding_model import EmbeddingModel
from t5x.examples.encoder.model import MaskedLanguageModel

FIRST, SECOND = (7, 4, 9), (5, 8, 6)


def batch_of(ids):
    """Return rows of a first and a second text, and padding."""
    place = np.arange(ids.shape[1])
    first, second = (np.array(x)[:, None] for x in (FIRST, SECOND))
    which = np.where(place < first, 1, np.where(place < first + second, 2, 0)).astype(np.int32)
    return {
        "encoder_input_tokens": ids,
        "encoder_target_tokens": which,
        "encoder_loss_weights": (place == first).astype(np.float32),
        "encoder_segment_ids": (which > 0).astype(np.int32),
        "encoder_positions": np.where(which > 0, place, 0).astype(np.int32),
    }


@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_vectors_and_loss_are_those_of_transformers(family):
    theirs, sizes = labelled_encoder(family, "words")
    sizes = sizes.with_vectors()
    fields, modern = sizes.fields(), sizes.modern
    if modern:
        module = network.ModernBert(network.ModernBertConfig(**fields))
    else:
        module = network.Bert(network.BertConfig(**fields))
    model = EmbeddingModel(MaskedLanguageModel(module, None, None, None), None)
    arrays = {name: value.detach().numpy() for name, value in theirs.state_dict().items()}
    params = stack_layers(unflatten_dict(from_torch(arrays, sizes), sep="/"))
    ids = np.random.default_rng(0).integers(5, 60, (3, 16), dtype=np.int32)
    batch = batch_of(ids)

    body = theirs.model if modern else getattr(theirs, family)
    vectors = []
    with torch.no_grad():
        for row, (a, b) in enumerate(zip(FIRST, SECOND, strict=True)):
            for part in (ids[row, :a], ids[row, a : a + b]):
                encoded = body(input_ids=torch.from_numpy(part[None]).long()).last_hidden_state
                vectors.append(encoded[0].mean(0))
        first, second = torch.stack(vectors[::2]), torch.stack(vectors[1::2])
        unit = torch.nn.functional.normalize
        cosines = unit(first) @ unit(second).T
        loss = torch.nn.functional.cross_entropy(20 * cosines, torch.arange(3))

    @jax.jit
    def compute(params):
        found = model.vectors(params, batch)
        return found, model.loss_fn(params, batch, None), model.score_batch(params, batch)

    found, (mine, (weight, sums)), scores = compute(params)
    np.testing.assert_allclose(found[0], first, atol=1e-4)
    np.testing.assert_allclose(found[1], second, atol=1e-4)
    np.testing.assert_allclose(scores, cosines.diagonal(), atol=1e-4)
    assert float(mine) == pytest.approx(float(loss), abs=1e-3)
    right = int((cosines.argmax(1) == torch.arange(3)).sum())
    assert (weight, sums["correct"], sums["target_tokens"]) == (3, right, 3)
    shapes = jax.eval_shape(
        lambda: model.get_initial_variables(jax.random.key(0), {"encoder_input_tokens": (1, 4)})
    )["params"]
    assert set(shapes) == set(params)


def test_pairs_are_learned():
    config = network.BertConfig(
        40, emb_dim=8, num_heads=1, num_layers=1, mlp_dim=8, max_length=16, dropout_rate=0.0
    )
    module = network.Bert(config.replace(attention_dropout_rate=0.0))
    model = EmbeddingModel(MaskedLanguageModel(module, None, None, None), None)
    ids = np.random.default_rng(0).integers(5, 40, (3, 16), dtype=np.int32)
    batch = batch_of(ids)
    shapes = {"encoder_input_tokens": (1, 4)}
    params = jax.jit(lambda key: model.get_initial_variables(key, shapes))(jax.random.key(0))

    @jax.jit
    def step(params):
        loss = lambda params: model.loss_fn(params, batch, None)[0]
        value, grads = jax.value_and_grad(loss)(params)
        return jax.tree.map(lambda p, g: p - 0.01 * g, params, grads), value

    params, losses = params["params"], []
    for _ in range(60):
        params, value = step(params)
        losses.append(float(value))
    assert losses[0] > 0.5
    assert losses[-1] < 0.1
