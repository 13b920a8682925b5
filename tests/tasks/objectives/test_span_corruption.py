"""Span corruption hides what it says, loses nothing, and gives upstream's numbers."""

import functools
import json
import operator

import numpy as np
import pytest
import seqio
import tensorflow as tf

from fakes.paths import GOLDEN
from fakes.refuses import refuses
from tasks.objectives import span_corruption

LENGTHS = json.loads((GOLDEN / "span_lengths.json").read_text())
CASES = np.load(GOLDEN / "span_corruption.npz")
SENTINELS = tuple(range(358, 258, -1))


@pytest.mark.parametrize("case", LENGTHS, ids=lambda c: "-".join(str(v) for v in c.values()))
def test_lengths_fit_and_are_upstreams_where_upstream_trims_nothing(case):
    noise = span_corruption.SpanNoise(case["noise_density"], case["mean_noise_span_length"])
    found = noise.lengths(case["inputs_length"])
    hidden, n_spans = noise.counts(found.tokens)
    assert found.tokens - hidden + n_spans + 1 <= case["inputs_length"]
    slack = found.targets - (hidden + n_spans + 1)
    assert slack in ((0, 1) if noise.density == 0.5 else (0,))
    if round(hidden / noise.mean_span):
        assert found == (case["tokens_length"], case["targets_length"])


@pytest.mark.parametrize("i", range(7))
def test_a_mask_decides_inputs_and_targets_as_upstream(i):
    inputs, targets = span_corruption.corrupt(
        tf.constant(CASES[f"{i}/tokens"], tf.int32)[tf.newaxis],
        tf.constant(CASES[f"{i}/noise_mask"])[tf.newaxis],
        tuple(range(999, 499, -1)),
    )
    np.testing.assert_array_equal(inputs[0], CASES[f"{i}/inputs"])
    np.testing.assert_array_equal(targets[0], CASES[f"{i}/targets"])


def test_the_docstrings_example():
    tokens = tf.constant([11, 12, 13, 14, 15, 16, 17, 18, 12, 19])
    mask = tf.constant([0, 0, 1, 1, 0, 0, 0, 0, 0, 1]) == 1
    inputs, targets = span_corruption.corrupt(tokens[tf.newaxis], mask[tf.newaxis], (999, 998))
    assert inputs.to_list() == [[11, 12, 999, 15, 16, 17, 18, 12, 998]]
    assert targets.to_list() == [[999, 13, 14, 998, 19]]
    assert span_corruption.SpanNoise(0.3, 1.5).counts(10) == (3, 2)


def _masks(length, noise, n, first_seed=0):
    seeds = tf.constant([[first_seed + i, 7] for i in range(n)], tf.int64)
    fn = tf.function(lambda seed: span_corruption.noise_mask(tf.constant(length), seed, noise)[0])
    return np.stack([fn(seed).numpy() for seed in seeds])


@pytest.mark.parametrize("length", [2, 5, 568])
@pytest.mark.parametrize(
    "noise", [span_corruption.SpanNoise(), span_corruption.SpanNoise(0.5, 8.0)]
)
def test_a_mask_has_just_the_noise_and_spans_of_its_length(length, noise):
    masks = _masks(length, noise, 20).astype(int)
    hidden, n_spans = noise.counts(length)
    assert (masks.sum(1) == hidden).all()
    assert ((np.diff(masks, axis=1) == 1).sum(1) == n_spans).all()
    assert not masks[:, 0].any()
    assert masks[:, -1].all()


def test_every_way_to_cut_is_equally_likely():
    # 6 tokens, 3 of them hidden in 2 spans: 2 ways to cut the noise by 2 ways to cut the rest.
    masks = _masks(6, span_corruption.SpanNoise(0.5, 1.5), 2000)
    _, counts = np.unique(masks, axis=0, return_counts=True)
    assert len(counts) == 4
    assert (abs(counts / 2000 - 0.25) < 0.05).all()


def _rebuild(inputs, targets):
    """Puts each span of the targets back at the place of its sentinel in the inputs."""
    behind = {}
    for token in targets:
        if token in SENTINELS:
            span = behind[token] = []
        else:
            span.append(token)
    return [t for token in inputs for t in behind.get(token, [token])]


def _corrupt_all(documents, lengths, seed=3):
    feature = seqio.Feature(seqio.ByteVocabulary(extra_ids=100))
    ragged = tf.ragged.constant(documents, dtype=tf.int32)
    dataset = tf.data.Dataset.from_tensor_slices({"targets": ragged})
    dataset = dataset.map(lambda x: {"targets": tf.ensure_shape(x["targets"], [None])})
    with seqio.utils.map_seed_manager(seed):
        out = span_corruption.T5_NOISE.preprocess(
            dataset, lengths, {"inputs": feature, "targets": feature}
        )
    return list(out.as_numpy_iterator())


def _documents(n=60, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.integers(3, 259, rng.integers(1, 400)).tolist() for _ in range(n)]


def test_chunks_are_full_and_the_text_in_order():
    documents = _documents()
    examples = _corrupt_all(documents, {"inputs": 128, "targets": 29})
    assert {(len(e["inputs"]), len(e["targets"])) for e in examples[:-1]} == {(127, 28)}
    for part in (e[key].tolist() for e in examples for key in e):
        assert 0 not in part
        marks = [t for t in part if t in SENTINELS]
        assert marks == list(SENTINELS[: len(marks)])
    text = [t for e in examples for t in _rebuild(e["inputs"].tolist(), e["targets"].tolist())]
    assert text == functools.reduce(operator.iadd, documents, [])


def test_more_spans_than_sentinels_are_refused():
    with refuses("TASK_FEATURE_LENGTHS['inputs']", 4096):
        _corrupt_all([[5, 6]], {"inputs": 4096, "targets": 4096})
