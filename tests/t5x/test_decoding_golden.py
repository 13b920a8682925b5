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
def test_a_sharded_batch_is_decoded_as_on_one_device(golden):
    model, batch = golden.model(), golden.tree("decode")["batch"]
    params = stack_layers(golden.tree("init_params"))
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("data",))
    spread = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
    here, scores = predict(model, params, batch, 2, decoding.beam_search)
    there, scores_there = predict(
        model, params, jax.device_put(batch, spread), 2, decoding.beam_search
    )
    np.testing.assert_array_equal(there, here)
    np.testing.assert_allclose(scores_there, scores, rtol=1e-4, atol=1e-5)
