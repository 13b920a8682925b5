"""TensorFlow does without oneDNN unless a user wants it."""

import os

import pytest

from command_line import no_onednn


@pytest.mark.parametrize(("given", "kept"), [(None, "0"), ("1", "1")])
def test_a_value_that_is_set_stays(monkeypatch, given, kept):
    monkeypatch.delenv("TF_ENABLE_ONEDNN_OPTS", raising=False)
    if given:
        monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", given)
    no_onednn.provide()
    assert os.environ["TF_ENABLE_ONEDNN_OPTS"] == kept
