"""I.i.d. masking hides a fixed number of tokens anywhere."""

import numpy as np
import tensorflow as tf

from fakes.objectives import examples_of, rebuild, run, text
from fakes.refuses import refuses
from tasks.objectives.single_tokens import SingleTokens, token_mask


def test_the_number_of_hidden_tokens_is_bounded():
    for example in examples_of("single_tokens")[0][:-1]:
        assert sum(map(len, rebuild(example).spans)) == 77
    few = SingleTokens(density=0.4, max_predictions=9)
    examples = run(few, text(20_000), {"inputs": 64, "targets": 19})
    assert {sum(map(len, rebuild(e).spans)) for e in examples[:-1]} == {9}
    assert few.lengths(64).targets == 19


def test_every_position_is_hidden_equally_often():
    masks = token_mask(8, 2, tf.constant([1, 2]), 4000).numpy()
    assert (masks.sum(1) == 2).all()
    np.testing.assert_allclose(masks.mean(0), 0.25, atol=0.03)


def test_more_hidden_tokens_than_sentinels_are_refused():
    with refuses("TASK_FEATURE_LENGTHS['inputs']", 682) as refusal:
        run(SingleTokens(max_predictions=200), text(10), {"inputs": 682, "targets": 682})
    assert refusal.value.to_set == "set max_predictions to 100"
