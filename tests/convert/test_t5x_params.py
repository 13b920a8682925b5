import dataclasses

import numpy as np
import pytest

from convert import t5x_params
from fakes.convert_fakes import FAMILIES, arrays, tree
from fakes.refuses import refuses


@pytest.mark.parametrize("family", ["t5_1_1", "umt5"])
def test_the_kind_of_relative_bias_is_read_off_the_tree(family):
    sizes = FAMILIES[family]
    other = dataclasses.replace(sizes, own_relative_bias=not sizes.own_relative_bias)
    assert t5x_params.check_network(tree(arrays(sizes)), other) == sizes


def test_optimizer_state_stays_behind():
    checkpoint = tree(
        {"target/a/b": np.ones(2), "state/step": np.ones(()), "state/x/v": np.ones(2)}
    )
    assert list(t5x_params.parameters(checkpoint)) == ["a/b"]
    with refuses("the checkpoint"):
        t5x_params.parameters(tree({"state/step": np.ones(())}))


def test_different_networks_have_no_average():
    a, b = arrays(FAMILIES["t5_1_0"]), arrays(FAMILIES["t5_1_1"])
    with refuses() as refusal:
        t5x_params.average([tree(a), tree(b)])
    assert "averaged" in refusal.value.why
