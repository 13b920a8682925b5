"""Every share of the masking is what it says, in whole words, and never touches special tokens."""

import numpy as np
import pytest

from fakes import tokenizer_files
from fakes.objectives import near
from tasks import vocabularies
from tasks.objectives.masking import LONGEST_WORD, Masking, piece_facts

FACTS = piece_facts(vocabularies.tokenizer(tokenizer_files.WORDPIECE))
SPECIAL = (0, 1, 2, 3, 4)
ROWS, LENGTH = 2_000, 128


def rows(lengths, seed=0):
    """Random text of ordinary pieces, [CLS] at the begin and [SEP] at the end of each sequence."""
    rng = np.random.default_rng(seed)
    lengths = np.asarray(lengths)
    tokens = rng.choice(FACTS.ordinary, lengths.sum()).astype(np.int32)
    ends = np.cumsum(lengths)
    tokens[ends - lengths], tokens[ends - 1] = 2, 3
    return tokens, lengths


def hide(masking, tokens, lengths, density=None, seed=1):
    rng = np.random.default_rng(seed)
    return masking.hide(tokens, lengths, FACTS, density or masking.density, rng)


def words_of(tokens, lengths):
    """The number of each token's word, by a plain loop."""
    numbers, number, at = [], -1, 0
    for length in lengths:
        previous = None
        for place in range(at, at + length):
            piece = tokens[place]
            begins = FACTS.starts[piece] or previous is None or previous in SPECIAL
            number += begins or len([n for n in numbers if n == number]) == LONGEST_WORD
            numbers.append(number)
            previous = piece
        at += length
    return np.array(numbers)


@pytest.mark.parametrize("whole_words", [True, False])
@pytest.mark.parametrize(("density", "length"), [(0.15, LENGTH), (0.3, 32)])
def test_the_share_of_tokens_to_predict_is_the_density(density, whole_words, length):
    tokens, lengths = rows([length] * (ROWS * LENGTH // length))
    _, weights = hide(Masking(density, whole_words), tokens, lengths)
    ordinary = ~FACTS.special[tokens]
    assert near(weights[ordinary].sum(), ordinary.sum(), density)
    assert not weights[~ordinary].any()


@pytest.mark.parametrize("length", [3, 4, 6, 12, 64])
@pytest.mark.parametrize("masking", [Masking(), Masking(0.01), Masking(max_predictions=1)])
def test_every_sequence_has_a_token_to_predict(masking, length):
    tokens, lengths = rows([length] * 200)
    if masking.max_predictions:  # of one word that exceeds them
        inside = FACTS.ordinary[~FACTS.starts[FACTS.ordinary]][0]
        tokens[~FACTS.special[tokens]] = inside
    _, weights = hide(masking, tokens, lengths)
    counts = weights.reshape([-1, length]).sum(1)
    assert counts.min() >= 1
    assert not weights[FACTS.special[tokens]].any()
    if masking.max_predictions:
        assert counts.max() <= masking.max_predictions
    words = words_of(tokens, lengths)
    if not masking.max_predictions:
        assert all(len({*weights[words == number]}) == 1 for number in range(words[-1] + 1))


def test_sequences_that_have_a_prediction_keep_it(monkeypatch):
    tokens, lengths = rows([12] * 300)
    inputs, weights = hide(Masking(), tokens, lengths)
    choose = Masking._choose
    nothing = lambda *arguments: (choose(*arguments)[0], np.zeros(len(tokens), bool))
    monkeypatch.setattr(Masking, "_choose", nothing)
    before, weights_before = hide(Masking(), tokens, lengths)
    has_one = weights_before.reshape([-1, 12]).any(1).repeat(12)
    assert 0.5 < has_one.mean() < 0.9
    np.testing.assert_array_equal(inputs[has_one], before[has_one])
    np.testing.assert_array_equal(weights[has_one], weights_before[has_one])


def test_the_numbers_of_sequences_differ_by_less_than_chance_would_make_them():
    tokens, lengths = rows([LENGTH] * ROWS)
    _, weights = hide(Masking(whole_words=False), tokens, lengths)
    counts = weights.reshape([ROWS, LENGTH]).sum(1)
    assert {*counts} == {18, 19}  # of 126 x 0.15 = 18.9
    assert near((counts == 19).sum(), ROWS, 0.9)


@pytest.mark.parametrize(
    ("masking", "shares"),
    [(Masking(), (0.8, 0.1, 0.1)), (Masking(masked=0.5, random=0.5), (0.5, 0.5, 0.0))],
)
def test_the_tokens_to_predict_are_masked_random_and_kept_by_their_shares(masking, shares):
    tokens, lengths = rows([LENGTH] * ROWS)
    inputs, weights = hide(masking, tokens, lengths)
    chosen = weights == 1
    n = chosen.sum()
    masked = inputs[chosen] == FACTS.mask
    same = inputs[chosen] == tokens[chosen]
    by_chance = shares[1] / len(FACTS.ordinary)  # a random piece may be the same
    assert near(masked.sum(), n, shares[0])
    assert near(same.sum(), n, shares[2] + by_chance)
    assert near((~masked & ~same).sum(), n, shares[1] - by_chance)
    np.testing.assert_array_equal(inputs[~chosen], tokens[~chosen])
    assert set(tokens[~FACTS.special[tokens]]).isdisjoint(SPECIAL)


def test_random_pieces_are_any_ordinary_piece_equally_often():
    tokens, lengths = rows([LENGTH] * ROWS)
    inputs, weights = hide(Masking(0.9, masked=0.0, random=1.0), tokens, lengths)
    drawn = inputs[weights == 1]
    counts = np.bincount(drawn, minlength=len(FACTS.starts))
    assert not counts[list(SPECIAL)].any()
    mean = len(drawn) / len(FACTS.ordinary)
    assert (np.abs(counts[FACTS.ordinary] - mean) < 6 * np.sqrt(mean)).all()


def test_every_place_and_every_word_is_hidden_equally_often():
    tokens, lengths = rows([LENGTH] * ROWS)
    _, weights = hide(Masking(whole_words=False), tokens, lengths)
    by_place = weights.reshape([ROWS, LENGTH])[:, 1:-1].sum(0)
    assert all(near(count, ROWS, 0.15) for count in by_place)
    _, weights = hide(Masking(), tokens, lengths)
    first = FACTS.starts[tokens] & ~FACTS.special[tokens]
    continued = np.append(~FACTS.starts[tokens[1:]], False)
    for kind in (first & continued, first & ~continued):
        assert near(weights[kind].sum(), kind.sum(), 0.15)


def test_all_pieces_of_a_word_are_hidden_together():
    tokens, lengths = rows([64] * 40)
    _, weights = hide(Masking(0.3), tokens, lengths)
    words = words_of(tokens, lengths)
    for number in range(words[-1] + 1):
        assert len({*weights[words == number]}) == 1
    _, weights = hide(Masking(0.3, whole_words=False), tokens, lengths)
    assert any(len({*weights[words == number]}) == 2 for number in range(words[-1] + 1))


def test_text_without_blanks_is_hidden_in_parts():
    inside = FACTS.ordinary[~FACTS.starts[FACTS.ordinary]][0]
    tokens = np.full([400], inside, np.int32)
    tokens[0], tokens[-1] = 2, 3
    _, weights = hide(Masking(0.3), tokens, np.array([400]))
    assert 80 < weights.sum() < 160
    assert weights[1:-1].reshape([-1])[: 24 * LONGEST_WORD].reshape([24, -1]).std(1).max() == 0


@pytest.mark.parametrize("whole_words", [True, False])
def test_there_are_at_most_n_predictions(whole_words):
    tokens, lengths = rows([LENGTH, 32, 3] * 500)
    _, weights = hide(Masking(0.15, whole_words, max_predictions=10), tokens, lengths)
    ends = np.cumsum(lengths)
    counts = np.add.reduceat(weights, ends - lengths)
    assert counts.max() == 10
    assert counts[lengths == LENGTH].mean() > (9 if whole_words else 9.99)
    # Shorter sequences are not concerned.
    assert near(counts[lengths == 32].sum(), 500 * 30, 0.15)


def test_a_sequence_does_not_depend_on_the_length_of_others():
    # Its words come in an order of its own: all rows are hidden, wherever they are.
    tokens, lengths = rows([3, 300, 3, 50, 3, 3])
    counts = np.zeros(6)
    for seed in range(400):
        weights = hide(Masking(0.3), tokens, lengths, seed=seed)[1]
        counts += np.add.reduceat(weights, np.cumsum(lengths) - lengths)
    for count, length in zip(counts, lengths, strict=True):
        share = 1.0 if length == 3 else 0.3  # a text of one word is hidden
        assert near(count, 400 * (length - 2), share)
