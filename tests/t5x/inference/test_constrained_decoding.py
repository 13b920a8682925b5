"""Constrained decoding yields allowed ids only, and with all ids allowed it is greedy."""

import itertools

import jax
import numpy as np
import pytest

from fakes.golden import Golden
from t5x.checkpointing.layer_stacking import stack_layers
from t5x.inference import constrained_decoding

ROWS, LENGTH, EOS = 3, 6, 1


@pytest.fixture(scope="module")
def case():
    golden = Golden("t5_1_1")
    inputs = np.random.default_rng(0).integers(2, 512, (ROWS, 7)).astype(np.int32)
    batch = {"encoder_input_tokens": inputs, "decoder_input_tokens": np.zeros((ROWS, LENGTH), int)}
    return golden.model(), stack_layers(golden.tree("init_params")), batch


@pytest.fixture(scope="module")
def likelihoods(case):
    """Function of (row, ids) to the log-likelihood of these targets, by teacher forcing."""
    model, params, batch = case
    score = jax.jit(model.score_batch)

    def of(row, sequences):
        targets = np.array(sequences, np.int32)
        inputs = np.repeat(batch["encoder_input_tokens"][row : row + 1], len(targets), 0)
        shifted = np.pad(targets, ((0, 0), (1, 0)))[:, :-1]
        features = {"decoder_target_tokens": targets, "decoder_input_tokens": shifted}
        return np.asarray(score(params, {"encoder_input_tokens": inputs, **features}))

    return of


def test_each_id_is_the_best_of_those_allowed(case, likelihoods):
    """Two ids a place, different in each row; decoding chooses what teacher forcing prefers."""
    model, params, batch = case
    pair = lambda row, place: [10 + 40 * row + 5 * place, 12 + 40 * row + 5 * place]
    asked = []

    def allowed(row, prefix):
        asked.append((row, tuple(prefix)))
        return pair(row, len(prefix)) if len(prefix) < 3 else [EOS]

    ids = constrained_decoding.decode(model, params, batch, allowed)
    assert ids.dtype == np.int32
    for row in range(ROWS):
        prefix = []
        for place in range(3):
            both = [[*prefix, choice] + [0] * (2 - place) for choice in pair(row, place)]
            prefix.append(pair(row, place)[int(np.argmax(likelihoods(row, both)))])
        assert ids[row].tolist() == [*prefix, EOS, 0, 0]
    assert len(asked) == len(set(asked)) == 4 * ROWS


def test_with_all_allowed_it_is_greedy(case):
    model, params, batch = case
    ids = constrained_decoding.decode(model, params, batch, lambda row, prefix: range(512))
    place = jax.jit(model.logits)
    for i, (row, t) in enumerate(itertools.product(range(ROWS), range(2))):
        targets = ids.copy()
        shifted = np.pad(targets, ((0, 0), (1, 0)))[:, :-1]
        logits = place(params, {**batch, "decoder_target_tokens": np.maximum(targets, 1),
                                "decoder_input_tokens": shifted})  # fmt: skip
        assert ids[row, t] == np.argmax(logits[row, t]), i


def test_rows_end_by_themselves_and_where_nothing_is_allowed(case):
    model, params, batch = case
    ends = {0: [EOS], 1: [], 2: [7]}
    ids = constrained_decoding.decode(
        model, params, batch, lambda row, prefix: ends[row] if prefix else [5 + row]
    )
    assert ids.tolist() == [[5, EOS, 0, 0, 0, 0], [6, 0, 0, 0, 0, 0], [7, 7, 7, 7, 7, 7]]


def test_an_id_of_another_vocabulary_is_refused(case):
    model, params, batch = case
    with pytest.raises(
        ValueError, match=r"allows id 512 in row 0, but the model's ids are 0 to 511"
    ):
        constrained_decoding.decode(model, params, batch, lambda row, prefix: [512])
