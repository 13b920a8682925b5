"""Comparison of lists of named arrays."""

import numpy as np


def assert_equal_batches(found, wanted):
    """Assert that two lists of {name: array} have the same names and values, in the same order."""
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted, strict=True):
        assert a.keys() == b.keys()
        for name in a:
            np.testing.assert_array_equal(a[name], b[name], err_msg=name)
