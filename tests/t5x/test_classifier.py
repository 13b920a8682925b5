"""A class is one step of the decoder: the best of the classes' ids, whatever else is likely."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fakes import toy
from fakes.refuses import refuses
from t5x import classifier
from t5x.inference.predictor import Predictor
from t5x.partitioning import PjitPartitioner
from t5x.start.preconditions import check_decoding
from t5x.train_state import state_specs

LETTERS = tuple("abcdefghijklmnopqrstuvwxyz")
OF_LETTERS = np.array([toy.VOCABULARY.encode(letter)[0] for letter in LETTERS])
IDS = OF_LETTERS[:3].tolist()


@pytest.fixture(scope="module")
def case():
    model, partitioner = toy.model(), PjitPartitioner(devices=jax.devices()[:2])
    model.decode_fn = classifier.one_token(lambda: OF_LETTERS)
    params = toy.state(state_specs(model, partitioner)).params
    inputs = np.random.default_rng(0).integers(3, 200, (8, 6)).astype(np.int32)
    return model, partitioner, params, inputs


def test_the_class_is_the_best_of_its_ids_by_teacher_forcing(case):
    model, partitioner, params, inputs = case
    examples = [
        {"encoder_input_tokens": row, "decoder_input_tokens": np.zeros(2, np.int32)}
        for row in inputs
    ]
    predictor = Predictor(model, partitioner, 4)
    found = predictor("predict_with_aux", params, examples)
    batch = {
        "encoder_input_tokens": inputs,
        "decoder_input_tokens": np.zeros((8, 1), np.int32),
        "decoder_target_tokens": np.ones((8, 1), np.int32),
    }
    logits = np.asarray(jax.jit(model.logits)(jax.device_get(params), batch))[:, 0]
    logits = logits[:, OF_LETTERS]
    best = np.argmax(logits, -1)
    assert [ids.tolist() for ids, _ in found] == [[OF_LETTERS[i], 1] for i in best]
    scores = np.max(jax.nn.log_softmax(logits), -1)
    np.testing.assert_allclose([aux["scores"] for _, aux in found], scores, rtol=1e-4)
    assert {toy.VOCABULARY.decode(ids.tolist()) for ids, _ in found} <= set(LETTERS)


def choose(length=2, num_decodes=1):
    logits = (
        jnp.zeros((1, 264)).at[0, np.array(IDS)].set(jnp.array([0.0, 2.0, 1.0])).at[0, 9].set(9)
    )
    decode = classifier.one_token(lambda: IDS)
    calls = []

    def tokens_to_logits(state):
        calls.append(state.cur_token.shape)
        return logits, state.cache

    inputs = jnp.zeros((1, length), jnp.int32)
    ids, scores = decode(
        inputs=inputs, cache={}, tokens_to_logits=tokens_to_logits, eos_id=1,
        num_decodes=num_decodes,
    )  # fmt: skip
    assert calls == [(1, 1)]
    return ids.tolist(), scores


def test_the_best_classes_stand_worst_first():
    ids, scores = choose(length=3, num_decodes=2)
    assert ids == [[[IDS[2], 1, 0], [IDS[1], 1, 0]]]
    np.testing.assert_allclose(
        scores, jax.nn.log_softmax(jnp.array([[1.0, 2.0, 0.0]]))[:, :2], rtol=1e-5
    )
    assert choose(length=1)[0] == [[[IDS[1]]]]
    with refuses("EncoderDecoderModel.predict_batch_with_aux.num_decodes", 4):
        choose(num_decodes=4)


def test_a_run_is_refused_before_it_begins():
    """By whoever knows the classes; they are asked for when needed, and once."""
    asked = []
    model = toy.model()
    check_decoding(model)
    model.decode_fn = classifier.one_token(lambda: asked.append(1) or IDS)
    assert not asked
    check_decoding(model)
    check_decoding(model)
    assert asked == [1]

    def refuse():
        raise ValueError("class 'bad' is 3 tokens")

    model.decode_fn = classifier.one_token(refuse)
    with pytest.raises(ValueError, match="class 'bad'"):
        check_decoding(model)
