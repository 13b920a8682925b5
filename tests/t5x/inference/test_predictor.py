"""Decoding and scoring many examples: results in order, whatever the batch and the mesh."""

import functools

import jax
import numpy as np
import pytest

from fakes import toy
from t5x import decoding
from t5x.inference.predictor import Predictor
from t5x.monitoring.compile_stats import CompileStats
from t5x.partitioning import PjitPartitioner
from t5x.train_state import state_specs


@pytest.fixture(scope="module")
def case():
    """A model, its state over two devices, and 5 examples of unequal lengths."""
    model, partitioner = toy.shared_model(), PjitPartitioner(devices=jax.devices()[:2])
    state = toy.state(state_specs(model, partitioner))
    random, examples = np.random.default_rng(0), []
    for length in (3, 8, 5, 2, 7):
        ids = np.zeros((2, 8), np.int32)
        ids[:, :length] = random.integers(3, 200, (2, length))
        shifted = np.pad(ids[1], (1, 0))[:-1]
        features = ("encoder_input_tokens", "decoder_target_tokens", "decoder_input_tokens")
        examples.append(dict(zip(features, (*ids, shifted), strict=True)))
    return model, partitioner, state, examples


@pytest.fixture(scope="module")
def predictor(case):
    model, partitioner, _, _ = case
    return Predictor(model, partitioner, batch_size=4)


def test_results_come_in_order_and_a_short_batch_changes_none(case, predictor):
    model, _, state, examples = case
    scores = predictor("score", state.params, examples)
    assert len(scores) == 5
    score = jax.jit(model.score_batch)
    for example, found in zip(examples, scores, strict=True):
        alone = score(jax.device_get(state.params), {k: v[None] for k, v in example.items()})
        np.testing.assert_allclose(found, alone[0], rtol=1e-4)
    backwards = predictor("score", state.params, reversed(examples))
    np.testing.assert_allclose(backwards[::-1], scores, rtol=1e-5)


def test_buckets_change_no_result_and_compile_no_program_twice(case):
    """Inputs of 24 positions in 3 buckets: 8, 16 and 24."""
    model, partitioner, state, examples = case
    lengths = (3, 20, 8, 9, 2, 16, 12, 24, 1, 5)
    wide = []
    for i, length in enumerate(lengths):
        ids = np.zeros(24, np.int32)
        ids[:length] = np.random.default_rng(i).integers(3, 200, length)
        wide.append({**examples[i % 5], "encoder_input_tokens": ids})
    one = Predictor(model, partitioner, 2)
    some = Predictor(model, partitioner, 2, length_buckets=3)
    wanted = one("score", state.params, wide)
    np.testing.assert_allclose(some("score", state.params, wide), wanted, rtol=1e-4)
    stats = CompileStats()
    some("score", state.params, wide[::-1])
    assert not stats.seconds


def test_each_mode_gives_its_results(case, predictor):
    _, _, state, examples = case
    ids = predictor("predict", state.params, iter(examples))
    pairs = predictor("predict_with_aux", state.params, examples)
    assert {x.shape for x in ids} == {(8,)}
    for one, (again, aux) in zip(ids, pairs, strict=True):
        np.testing.assert_array_equal(one, again)
        assert np.isscalar(aux["scores"].item())
    assert predictor("predict", state.params, []) == []


def test_a_batch_is_sharded_over_the_devices_and_padded(case, predictor):
    (batch, indices, _), *_ = predictor.batches(case[3])
    assert indices == [0, 1, 2, 3]
    inputs = batch["encoder_input_tokens"]
    assert inputs.sharding.shard_shape(inputs.shape) == (2, 8)


def test_samples_differ_from_batch_to_batch_and_not_from_time_to_time(case):
    """The same inputs in two batches are sampled differently."""
    _, partitioner, state, examples = case
    sampling = toy.model()
    sampling.decode_fn = functools.partial(decoding.temperature_sample, topk=0, temperature=5.0)
    predictor = Predictor(sampling, partitioner, 2)
    four = [examples[0], examples[1], examples[0], examples[2]]
    first, second, third, _ = (ids.tolist() for ids in predictor("predict", state.params, four))
    assert first != third
    again = [ids.tolist() for ids in predictor("predict", state.params, four[:2])]
    assert again == [first, second]
