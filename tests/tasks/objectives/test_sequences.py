"""Sequences end with sentences, lose nothing, and pairs are half continued and half random."""

import itertools

import numpy as np
import pytest

from fakes.objectives import near
from tasks.objectives.sequences import Documents, free_spans, lay_out, pair_spans, single_spans


def documents(count=50, sentences=(1, 12), tokens=(3, 30), seed=0):
    """Documents whose ids are their places, so that a span says where it is from."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(*sentences, size=count)
    sizes = rng.integers(*tokens, size=lengths.sum())
    return Documents(np.arange(sizes.sum(), dtype=np.int32), sizes, lengths)


def document_of(found):
    """The document of each token."""
    sizes = [sum(each) for each in np.split(found.sentences, np.cumsum(found.lengths)[:-1])]
    return np.repeat(np.arange(len(found.lengths)), sizes)


@pytest.mark.parametrize("make", [single_spans, free_spans])
@pytest.mark.parametrize("short", [0.0, 0.5])
def test_all_text_is_used_once_in_its_order_and_no_sequence_has_two_documents(make, short):
    text = documents()
    spans = make(text, 64, short, np.random.default_rng(0))
    places = np.concatenate([np.arange(a, b) for a, b, *_ in spans])
    np.testing.assert_array_equal(places, text.ids)
    assert all(0 < b - a <= 64 and c == d and not label for a, b, c, d, label in spans)
    owner = document_of(text)
    assert all(owner[a] == owner[b - 1] for a, b, *_ in spans)


def test_sequences_end_with_sentences_and_are_as_long_as_possible():
    text = documents()
    borders = {0, *np.cumsum(text.sentences).tolist()}
    spans = single_spans(text, 64, 0.0, np.random.default_rng(0))
    assert all({a, b} <= borders for a, b, *_ in spans)
    owner = document_of(text)
    for (a, b, *_), (c, _, *_) in itertools.pairwise(spans):
        following = min(border for border in borders if border > b)
        assert c == b
        assert owner[a] != owner[c] or following - a > 64


def test_a_sentence_that_is_too_long_is_cut_and_nothing_is_lost():
    text = Documents(np.arange(100, dtype=np.int32), np.array([10, 80, 10]), np.array([3]))
    spans = single_spans(text, 30, 0.0, np.random.default_rng(0))
    assert [span[:2] for span in spans] == [(0, 10), (10, 40), (40, 70), (70, 100)]


def test_a_share_of_the_sequences_is_short():
    text = documents(400, sentences=(400, 401), tokens=(1, 2))
    lengths = lambda short: np.array(
        [b - a for a, b, *_ in single_spans(text, 100, short, np.random.default_rng(1))]
    )
    assert (lengths(0.0) == 100).all()
    # Not those that end with their document.
    ends = np.cumsum(text.sentences)[np.cumsum(text.lengths) - 1]
    spans = single_spans(text, 100, 0.1, np.random.default_rng(1))
    inner = np.array([b - a for a, b, *_ in spans if b not in set(ends.tolist())])
    short = inner[inner < 100]
    assert near(len(short), len(inner), 0.1, 6)
    assert 2 <= short.min() < 10
    assert abs(short.mean() - 51) < 6 * 29 / np.sqrt(len(short))


def test_pairs_are_two_parts_of_a_document_or_a_random_other():
    text = documents(300, sentences=(4, 12))
    owner, borders = document_of(text), {0, *np.cumsum(text.sentences).tolist()}
    spans = pair_spans(text, 4_000, 0.0, np.random.default_rng(0))
    labels = np.array([span[-1] for span in spans])
    for a, b, c, d, label in spans:
        assert a < b
        assert c < d
        assert {a, b, c, d} <= borders
        assert (owner[a] != owner[c]) == bool(label)
        assert owner[a] == owner[b - 1]
        assert owner[c] == owner[d - 1]
        assert label or b == c
    # A single last sentence is always followed by a random one.
    free = [n for n, (a, *_) in enumerate(spans) if _sentences_from(a, text, owner) > 1]
    assert near(labels[free].sum(), len(free), 0.5)
    assert len(free) > 300


def _sentences_from(place, text, owner):
    ends = np.cumsum(text.sentences)
    return int(((ends > place) & (owner[ends - 1] == owner[place])).sum())


def test_the_other_document_of_a_pair_is_any():
    text = documents(20, sentences=(6, 7))
    owner = document_of(text)
    found = np.zeros([20, 20])
    for seed in range(300):
        for a, _, c, _, label in pair_spans(text, 60, 0.0, np.random.default_rng(seed)):
            found[owner[a], owner[c]] += label
    assert not found.diagonal().any()
    share = found / found.sum(1, keepdims=True)
    expected = (1 - np.eye(20)) / 19
    assert np.abs(share - expected).max() < 6 * np.sqrt(1 / 19 / found.sum(1).min())


@pytest.mark.parametrize("short", [0.0, 0.3])
def test_pairs_fit_and_the_longer_text_is_cut_at_either_end(short):
    text = documents(200, sentences=(3, 9), tokens=(20, 60))
    spans = pair_spans(text, 64, short, np.random.default_rng(0))
    borders = {0, *np.cumsum(text.sentences).tolist()}
    sizes = np.array([[b - a, d - c] for a, b, c, d, _ in spans])
    assert sizes.sum(1).max() == 64
    assert sizes.min() > 0
    fronts = sum(a not in borders for a, *_ in spans)
    backs = sum(b not in borders for _, b, *_ in spans)
    assert fronts > 20
    assert backs > 20


def test_a_single_sentence_alone_gives_no_pair():
    text = Documents(np.arange(5, dtype=np.int32), np.array([5]), np.array([1]))
    assert pair_spans(text, 40, 0.0, np.random.default_rng(0)) == []
    empty = Documents(np.zeros([0], np.int32), np.zeros([0], int), np.array([0, 0]))
    assert pair_spans(empty, 40, 0.0, np.random.default_rng(0)) == []
    assert single_spans(empty, 40, 0.0, np.random.default_rng(0)) == []


def test_special_tokens_and_types_surround_the_texts():
    ids = np.array([11, 12, 13, 14, 15, 16], np.int32)
    laid = lay_out(ids, [(0, 2, 2, 2, 0), (1, 4, 4, 6, 1)], cls=2, sep=3)
    assert laid.tokens.tolist() == [2, 11, 12, 3, 2, 12, 13, 14, 3, 15, 16, 3]
    assert laid.types.tolist() == [0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1]
    assert laid.lengths.tolist() == [4, 8]
    assert laid.tokens.dtype == laid.types.dtype == np.int32
    assert len(lay_out(ids, [], cls=2, sep=3).tokens) == 0
