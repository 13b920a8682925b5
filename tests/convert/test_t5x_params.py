import dataclasses

import numpy as np
import pytest

from convert import t5x_params
from fakes.convert_fakes import FAMILIES, arrays, scanned, tree


def read(found):
    return {name: array.read() for name, array in found.items()}


def test_a_scanned_tree_is_the_same_network():
    sizes = FAMILIES["umt5"]
    values = arrays(sizes)
    found = t5x_params.per_layer(tree(scanned(values, sizes)))
    assert found.keys() == values.keys()
    for name, array in found.items():
        assert array.shape == values[name].shape
        np.testing.assert_array_equal(array.read(), values[name])
    unknown = dataclasses.replace(sizes, own_relative_bias=False)
    assert t5x_params.check_network(found, unknown) == sizes


def test_a_tree_of_layers_passes_unchanged():
    sizes = FAMILIES["t5_1_1"]
    values = arrays(sizes)
    found = t5x_params.per_layer(tree(values))
    assert read(found).keys() == values.keys()
    assert t5x_params.check_network(found, sizes) == sizes


def test_layers_of_one_scanned_array_read_it_once():
    class Counted:
        shape, dtype, reads = (4, 3), np.dtype(np.float32), 0

        def read(self):
            self.reads += 1
            return np.zeros(self.shape, np.float32)

    array = Counted()
    for layer in t5x_params.per_layer({"encoder/encoder/norm/scale": array}).values():
        layer.read()
    assert array.reads == 1


def test_optimizer_state_stays_behind():
    checkpoint = tree(
        {"target/a/b": np.ones(2), "state/step": np.ones(()), "state/x/v": np.ones(2)}
    )
    assert list(t5x_params.parameters(checkpoint)) == ["a/b"]
    with pytest.raises(ValueError, match="no `target`"):
        t5x_params.parameters(tree({"state/step": np.ones(())}))


def test_average_is_the_mean():
    sizes = FAMILIES["t5_1_0"]
    parts = [arrays(sizes, seed) for seed in range(3)]
    found = read(t5x_params.average([tree(part) for part in parts]))
    for name, value in found.items():
        np.testing.assert_allclose(value, np.mean([part[name] for part in parts], 0), rtol=1e-6)


def test_different_networks_have_no_average():
    a, b = arrays(FAMILIES["t5_1_0"]), arrays(FAMILIES["t5_1_1"])
    with pytest.raises(ValueError, match="cannot be averaged"):
        t5x_params.average([tree(a), tree(b)])
