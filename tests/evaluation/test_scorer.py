"""Scores equal those of the network, one example at a time and without padding."""

import jax
import numpy as np
import pytest

from evaluation.scorer import EncodedExample, MaskedExample, MaskScorer, Scorer
from fakes.encoder_golden import EncoderGolden
from fakes.refuses import refuses
from fakes.toy import SMALL, random_params, unigram
from t5x.examples.t5 import network

EXAMPLES = [
    EncodedExample([5, 95, 6, 7, 1], [95, 8, 9, 94, 10], 1, (1, 93), frozenset({1, 93})),
    EncodedExample([5, 95, 6, 7, 1], [95, 8, 9, 94, 10]),
    EncodedExample([5, 95, 6, 7, 1], [95, 8, 9, 94, 10], 4),
    EncodedExample([5, 1], [11], 0, (1,), frozenset(range(96))),
    EncodedExample([95, 6, 1], [95, 8], 1, (1, 94), frozenset({1, 94})),
]


def test_scores_equal_those_of_single_examples():
    params = random_params(SMALL)
    guesses = Scorer(network.Transformer(SMALL), params).score(EXAMPLES)
    model = network.Transformer(SMALL)
    apply = jax.jit(lambda *arrays: model.apply({"params": params}, *arrays, enable_dropout=False))
    for example, guess in zip(EXAMPLES, guesses, strict=True):
        inputs, targets, given, ends, stops = example
        # A last target that is never read makes the network see the position after the target.
        ids = np.asarray([[*targets, 2]])
        previous = np.asarray([[0, *targets]])
        logits = apply(np.asarray([inputs]), previous, ids)
        log_probs = np.asarray(jax.nn.log_softmax(logits))[0]
        expected = log_probs[range(len(targets)), targets][given:].sum()
        best = log_probs.argmax(-1)
        is_written = (best[:-1] == targets)[given:].all()
        if ends:
            expected += np.logaddexp.reduce(log_probs[-1, list(ends)])
            is_written = is_written and best[-1] in stops
        assert guess.log_prob == pytest.approx(expected, rel=1e-4)
        assert guess.is_written == is_written


def test_a_unigram_model_gives_each_target_its_share():
    shares = np.arange(1, 97) / np.arange(1, 97).sum()  # 95 has the largest
    scorer, ends = Scorer(network.Transformer(SMALL), unigram(SMALL, shares)), (1, 95)
    examples = [
        EncodedExample([5, 1], [7, 95]),
        EncodedExample([5, 1], [7, 95], 1),
        EncodedExample([5, 1], [7, 95], 1, ends, frozenset(ends)),
        EncodedExample([5, 1], [7, 95], 1, ends, frozenset({1, 94})),
    ]
    guesses = scorer.score(examples)
    end = shares[list(ends)].sum()
    expected = [shares[7] * shares[95], shares[95], shares[95] * end, shares[95] * end]
    np.testing.assert_allclose(np.exp([guess.log_prob for guess in guesses]), expected, rtol=1e-4)
    assert [guess.is_written for guess in guesses] == [False, True, True, False]


def test_an_example_that_is_too_long_is_refused():
    with refuses() as refusal:
        scorer = Scorer(network.Transformer(SMALL), random_params(SMALL))
        scorer.score([EncodedExample([1] * 8193, [5])])
    assert "8,193 ids" in refusal.value.why
    golden = EncoderGolden("bert")
    long = MaskedExample([5] * (golden.sizes.max_length + 1), [0], [5])
    with refuses() as refusal:
        MaskScorer(golden.module(), golden.params("init")).score([long])
    assert str(golden.sizes.max_length) in refusal.value.why
