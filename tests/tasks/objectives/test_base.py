"""What all objectives share: a seed decides everything, the rest counts, lengths are checked."""

import numpy as np
import pytest
import tensorflow as tf

from fakes.objectives import HIDING, MINI, NAMES, rebuild, run, text
from fakes.refuses import refuses
from tasks.objectives import registry
from tasks.objectives.base import Lengths, Objective, by_chunks
from tasks.objectives.masked_lm import MaskedLM
from tasks.objectives.masking import Masking
from tasks.objectives.single_tokens import SingleTokens
from tasks.objectives.span_corruption import SpanNoise


class Copy(Objective):
    """Predicts the text that it reads."""

    def lengths(self, inputs_length, vocabulary=None):
        return Lengths(inputs_length - 1, inputs_length)

    def corruption(self, sequence_length, vocabulary, task):
        ragged = tf.RaggedTensor.from_tensor
        return by_chunks(sequence_length["inputs"] - 1, lambda x, seed: (ragged(x), ragged(x)))


def test_an_objective_is_its_lengths_and_a_corruption_of_chunks():
    examples = run(Copy(), text(200), {"inputs": 64, "targets": 64})
    assert [len(e["inputs"]) for e in examples] == [63, 63, 63, 11]
    np.testing.assert_array_equal(np.concatenate([e["targets"] for e in examples]), text(200))
    alone = run(Copy(), text(64), {"inputs": 64})  # a single last token is dropped
    assert [len(e["inputs"]) for e in alone] == [63]


@pytest.mark.parametrize("name", NAMES)
def test_a_seed_decides_everything(name):
    lengths = {"inputs": 256, "targets": 256}  # at which bytes have more than one span
    same = lambda x, y: [a["inputs"].tolist() for a in x] == [b["inputs"].tolist() for b in y]
    a, b, c = (run(name, text(2_000), lengths, seed) for seed in (0, 0, 1))
    assert same(a, b)
    assert not same(a, c)


@pytest.mark.parametrize("name", NAMES)
def test_the_rest_at_the_end_is_hidden_too(name):
    lengths = {"inputs": 64, "targets": 64}
    for size in (2, 1_111):
        tokens = text(size, seed=size)
        examples = run(name, tokens, lengths)
        if name == "prefix_lm":
            parts = [part for e in examples for part in (e["inputs"], e["targets"])]
        else:
            parts = [part for e in examples for part in rebuild(e, name == "ul2").text]
        rebuilt = np.concatenate(parts)
        missing = size - len(rebuilt)
        assert missing <= (name != "whole_words"), "only a single token cannot be hidden in part"
        np.testing.assert_array_equal(rebuilt, tokens[: size - missing])


@pytest.mark.parametrize("name", HIDING)
def test_targets_too_short_are_refused_with_the_length_to_set(name):
    needed = registry.get_objective(name).lengths(128, MINI).targets
    with refuses("TASK_FEATURE_LENGTHS['targets']", needed - 1, where="task t") as refusal:
        run(name, text(10), {"inputs": 128, "targets": needed - 1})
    assert refusal.value.to_set == f"set it to {needed}"


@pytest.mark.parametrize(
    ("make", "settings", "named", "value"),
    [
        (Masking, {"density": 0.0}, "masking density", 0.0),
        (Masking, {"max_predictions": 0}, "max_predictions", 0),
        (Masking, {"masked": 0.8, "random": 0.3}, "the shares of masks and random pieces", ...),
        (Masking, {"masked": -0.1}, "the shares of masks and random pieces", ...),
        (MaskedLM, {"short": 1.5}, "short", 1.5),
        (MaskedLM, {"sentences": "words"}, "sentences", "words"),
        (MaskedLM, {"pairs": True, "sentences": "none"}, "sentences", "none"),
        (SingleTokens, {"max_predictions": 0}, "max_predictions", 0),
        (SingleTokens, {"density": 1.0}, "noise density", 1.0),
        (SpanNoise, {"density": 1.0}, "noise density", 1.0),
        (SpanNoise, {"density": 0.1, "mean_span": 0.5}, "mean noise span", 0.5),
    ],
)
def test_settings_without_meaning_are_refused(make, settings, named, value):
    with refuses(named, value):
        make(**settings)
