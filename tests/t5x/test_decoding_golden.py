"""Decoding the golden models gives upstream's ids and scores, and agrees with teacher forcing."""

import functools

import jax
import numpy as np
import pytest

from t5x import decoding
from t5x.checkpointing.layer_stacking import stack_layers

PARAMS = {"init": ("init_params", ""), "final": ("final_state", "target")}


@pytest.fixture(params=PARAMS)
def case(golden, request):
    """The model, its parameters, the batch, and upstream's results for it."""
    params = stack_layers(golden.tree(*PARAMS[request.param]))
    decode = golden.tree("decode")
    return golden.model(), params, decode["batch"], decode[request.param]


def predict(model, params, batch, num_decodes, decode_fn, **decoder_params):
    model.decode_fn = decode_fn
    predict = functools.partial(
        model.predict_batch_with_aux,
        num_decodes=num_decodes,
        decoder_params=decoder_params,
        return_all_decodes=True,
    )
    ids, aux = jax.jit(predict)(params, batch)
    return np.asarray(ids), np.asarray(aux["scores"])


def test_beam_search_is_upstreams(case):
    model, params, batch, expected = case
    ids, scores = predict(model, params, batch, 4, decoding.beam_search, alpha=0.6)
    np.testing.assert_array_equal(ids, expected["beam4"])
    np.testing.assert_allclose(scores, expected["beam4_scores"], rtol=1e-4, atol=1e-4)


def test_greedy_is_upstreams(case):
    model, params, batch, expected = case
    ids, scores = predict(
        model, params, batch, 1, decoding.temperature_sample, temperature=0.0, topk=0
    )
    np.testing.assert_array_equal(ids[:, 0], expected["greedy"])
    np.testing.assert_allclose(scores[:, 0], expected["greedy_scores"], rtol=1e-4, atol=1e-4)


def test_score_batch_is_upstreams(case):
    model, params, batch, expected = case
    scores = jax.jit(model.score_batch)(params, batch)
    np.testing.assert_allclose(scores, expected["score_batch"], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("golden", ["t5_1_1"], indirect=True)
def test_stepwise_decoding_has_the_scores_of_teacher_forcing(golden):
    """The cache loses nothing: drawn ids, scored as targets, have the same log-probability."""
    model, batch = golden.model(), golden.tree("decode")["batch"]
    params = stack_layers(golden.tree("init_params"))
    ids, scores = predict(
        model, params, batch, 1, decoding.temperature_sample, topk=0, rescale_log_probs=False
    )
    targets = ids[:, 0]
    again = {
        **batch,
        "decoder_target_tokens": targets,
        "decoder_input_tokens": np.pad(targets, ((0, 0), (1, 0)))[:, :-1],
        "decoder_loss_weights": (targets > 0).astype(np.int32),
    }
    forced = jax.jit(model.score_batch)(params, again)
    # A 0 that is drawn is an id to the decoder, but padding to the scorer.
    rows = [row for row, ids in enumerate(targets) if ids[: np.count_nonzero(ids)].all()]
    assert len(rows) > 2
    np.testing.assert_allclose(forced[rows,], scores[rows, 0], rtol=1e-4)


@pytest.mark.parametrize("golden", ["t5_1_1"], indirect=True)
@pytest.mark.parametrize("decode_fn", [decoding.beam_search, decoding.temperature_sample])
def test_a_sharded_batch_is_decoded_without_gathering_it(golden, decode_fn):
    model, batch = golden.model(), golden.tree("decode")["batch"]
    params = stack_layers(golden.tree("init_params"))
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("data",))
    spread = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
    here, scores = predict(model, params, batch, 2, decode_fn)
    there, scores_there = predict(model, params, jax.device_put(batch, spread), 2, decode_fn)
    np.testing.assert_array_equal(there, here)
    np.testing.assert_allclose(scores_there, scores, rtol=1e-4, atol=1e-5)
