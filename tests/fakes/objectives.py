"""Random text for the objectives, the examples they make of it, and the text put together again."""

import functools
import math
from typing import NamedTuple

import numpy as np
import seqio
import tensorflow as tf

from tasks import vocabularies
from tasks.objectives import registry

MINI = vocabularies.sentencepiece(vocabularies.ro_mini_model)
SENTINELS = np.array(vocabularies.sentinels(MINI))
STARTS = vocabularies.word_starts(MINI)
PREFIXES = [list(vocabularies.ids_of(MINI, p)) for p in ("[R]", "[S]", "[X]")]
NAMES = sorted(registry.OBJECTIVES.keys() - {"masked_lm", "bert", "modernbert"})  # T5's
HIDING = [name for name in NAMES if name != "prefix_lm"]
MANY = 500_000  # tokens


@functools.cache
def text(size: int, word_starts: float = 0.65, seed: int = 0) -> np.ndarray:
    """Random ids; a share of them begin a word."""
    rng = np.random.default_rng(seed)
    ids = np.arange(3, SENTINELS.min())
    begin, inside = ids[STARTS[ids]], ids[~STARTS[ids]]
    begins = rng.random(size) < word_starts
    return np.where(begins, rng.choice(begin, size), rng.choice(inside, size)).astype(np.int32)


def run(objective, tokens, lengths, seed=3, vocabulary=MINI):
    """The examples that an objective makes of a text, before EOS."""
    size = max(len(tokens), 1)
    dataset = tf.data.Dataset.from_tensor_slices(tokens).batch(min(997, size))
    dataset = dataset.map(lambda x: {"targets": tf.ensure_shape(x, [None])})
    feature = seqio.Feature(vocabulary)
    with seqio.utils.map_seed_manager(seed):
        chosen = registry.get_objective(objective)
        dataset = chosen.preprocess(dataset, lengths, {"inputs": feature, "targets": feature}, "t")
    return list(dataset.as_numpy_iterator())


class Rebuilt(NamedTuple):
    """An example put together again: text, hidden spans, and visible stretches between them."""

    text: list[np.ndarray]
    spans: list[np.ndarray]
    shown: list[np.ndarray]


def rebuild(example, prefixed: bool = False) -> Rebuilt:
    """Puts the spans back, and checks prefix, sentinels and ids."""
    inputs, targets = example["inputs"], example["targets"]
    if prefixed:
        (prefix,) = [p for p in PREFIXES if inputs[: len(p)].tolist() == p]
        inputs = inputs[len(prefix) :]
    marks = [x[np.isin(x, SENTINELS)] for x in (inputs, targets)]
    np.testing.assert_array_equal(marks[0], SENTINELS[: len(marks[0])], "sentinels out of order")
    np.testing.assert_array_equal(marks[0], marks[1])
    assert (inputs > 2).all(), "padding, EOS or an unknown piece in the inputs"
    assert (targets > 2).all(), "padding, EOS or an unknown piece in the targets"
    cut = lambda x: np.split(x, np.flatnonzero(np.isin(x, SENTINELS)))
    before, *hidden = cut(targets)
    assert not len(before), "the targets begin with no sentinel"
    first, *others = cut(inputs)
    hidden, others = [s[1:] for s in hidden], [s[1:] for s in others]
    assert all(len(s) for s in hidden)
    pairs = [part for pair in zip(hidden, others, strict=True) for part in pair]
    return Rebuilt([first, *pairs], hidden, [first, *others])


@functools.cache
def examples_of(name: str):
    """The examples of MANY tokens at 512 inputs, and the lengths."""
    lengths = {"inputs": 512, "targets": registry.get_objective(name).lengths(512, MINI).targets}
    return run(name, text(MANY), lengths), lengths


def near(count, total, share, deviations=5):
    """Whether a binomial count is within so many standard deviations of its mean."""
    return abs(count - total * share) <= deviations * math.sqrt(total * share * (1 - share))
