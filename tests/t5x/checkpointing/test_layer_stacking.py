"""Stacking and unstacking layers are inverse and pure, and unequal layers do not stack."""

import jax
import numpy as np
import pytest

from t5x.checkpointing.layer_stacking import stack_layers, unstack_layers


def layer(i):
    return {"mlp": {"kernel": np.full((2, 3), i, np.float32)}, "norm": np.full(2, i, np.float32)}


def tree(n=3):
    encoder = {f"layers_{i}": layer(i) for i in range(n)} | {"encoder_norm": np.ones(2)}
    return {"target": {"encoder": encoder, "embedding": np.zeros((4, 2))}, "state": {"step": 7}}


def equal(a, b):
    return jax.tree.structure(a) == jax.tree.structure(b) and jax.tree.all(
        jax.tree.map(lambda x, y: np.array_equal(x, y), a, b)
    )


def test_each_stacked_leaf_gains_a_leading_axis_in_the_layers_order():
    # Twelve layers, so that sorting names as text (layers_10 before layers_2) would show.
    encoder = stack_layers(tree(12))["target"]["encoder"]
    assert set(encoder) == {"layers", "encoder_norm"}
    assert encoder["layers"]["mlp"]["kernel"].shape == (12, 2, 3)
    assert encoder["layers"]["norm"][:, 0].tolist() == list(range(12))


def test_the_complete_training_state_survives_in_both_directions(golden):
    state = golden.tree("final_state")
    stacked = stack_layers(state)
    assert equal(unstack_layers(stacked), state)
    # A slot that Adafactor does not use is [1] on disk, so [N, 1] here.
    slots = stacked["state"]["param_states"]["encoder"]["layers"]["attention"]["key"]["kernel"]
    depth = golden.settings["config"]["num_encoder_layers"]
    assert slots["m"].shape == (depth, 1)


@pytest.mark.parametrize(
    "bad",
    [
        {"layers_0": layer(0), "layers_2": layer(2)},
        {"layers_1": layer(1)},
        {"layers_0": {"w": np.ones(2)}, "layers_1": {"w": np.ones(3)}},
        {"layers_0": {"w": np.ones(2)}, "layers_1": {"v": np.ones(2)}},
    ],
)
def test_layers_that_do_not_stack_are_refused(bad):
    with pytest.raises((KeyError, ValueError)):
        stack_layers({"encoder": bad})
