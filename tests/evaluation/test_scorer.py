"""Scores equal those of the network, one example at a time and without padding."""

import jax
import numpy as np
import pytest

from common.errors import UserError
from evaluation.scorer import EncodedExample, MaskedExample, MaskScorer, Scorer
from fakes.encoder_golden import EncoderGolden
from fakes.toy import SMALL, random_params, unigram
from t5x.examples.t5 import network

EXAMPLES = [
    EncodedExample([5, 95, 6, 7, 1], [95, 8, 9, 94, 10], (1, 93)),
    EncodedExample([5, 1], [11], (1,)),
    EncodedExample([95, 6, 1], [95, 8], (1, 94)),
]


def test_scores_equal_those_of_single_examples():
    params = random_params(SMALL)
    found = Scorer(SMALL, params).score(EXAMPLES)
    model = network.Transformer(SMALL)
    apply = jax.jit(lambda *arrays: model.apply({"params": params}, *arrays, enable_dropout=False))
    for (inputs, targets, ends), scores in zip(EXAMPLES, found, strict=True):
        # A last target that is never read makes the network see the position after the target.
        ids = np.asarray([[*targets, 2]])
        previous = np.asarray([[0, *targets]])
        logits = apply(np.asarray([inputs]), previous, ids)
        log_probs = np.asarray(jax.nn.log_softmax(logits))[0]
        wanted = log_probs[range(len(targets)), targets]
        np.testing.assert_allclose(scores.log_probs, wanted, rtol=1e-4)
        best = log_probs.argmax(-1)
        assert scores.is_best.tolist() == (best[:-1] == targets).tolist()
        end = np.logaddexp.reduce(log_probs[-1, list(ends)])
        assert scores.end_log_prob == pytest.approx(end, rel=1e-4)
        assert scores.next_id == best[-1]


def test_a_unigram_model_gives_each_target_its_share():
    shares = np.arange(1, 97) / np.arange(1, 97).sum()
    ends = (1, 95)
    (scores,) = Scorer(SMALL, unigram(SMALL, shares)).score([EncodedExample([5, 1], [7, 95], ends)])
    np.testing.assert_allclose(np.exp(scores.log_probs), shares[[7, 95]], rtol=1e-4)
    assert np.exp(scores.end_log_prob) == pytest.approx(shares[list(ends)].sum(), rel=1e-4)
    assert scores.is_best.tolist() == [False, True]  # 95 has the largest share
    assert scores.is_written(ends)  # 95 after the first id, then an end, 95
    assert not scores.is_written((1, 94))


def test_an_example_that_is_too_long_is_refused():
    with pytest.raises(UserError, match="8,193 ids"):
        Scorer(SMALL, random_params(SMALL)).score([EncodedExample([1] * 8193, [5], (1,))])
    golden = EncoderGolden("bert")
    long = MaskedExample([5] * (golden.sizes.max_length + 1), [0], [5])
    with pytest.raises(UserError, match=f"reads at most {golden.sizes.max_length}"):
        MaskScorer(golden.module(), golden.params("init")).score([long])
