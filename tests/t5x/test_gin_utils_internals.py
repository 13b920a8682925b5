"""Macros, missing values, imports and the settings of a function can be read back from gin."""

import pytest

import gin
from t5x import gin_utils


@gin.configurable(module="test_gin_internals")
def decode(length=1, search=None):
    return length, search


@gin.configurable(module="test_gin_internals")
def beam(width=1):
    return width


@pytest.fixture(autouse=True)
def cleared():
    gin.clear_config()
    yield
    gin.clear_config()


def test_settings_follow_macros_and_scoped_references():
    gin.parse_config(
        "LENGTH = 7\ndecode.length = %LENGTH\ndecode.search = @wide/beam()\n"
        "wide/beam.width = 5\nbeam.width = 2\nother/beam.width = 3\nUNRELATED = 1\n"
    )
    found = gin_utils.settings_of(lambda function: function.__name__ == "decode")
    assert found == {
        "test_gin_internals.decode.length": "%LENGTH",
        "LENGTH": "7",
        "test_gin_internals.decode.search": "@wide/beam()",
        "wide/test_gin_internals.beam.width": "5",
        "test_gin_internals.beam.width": "2",
    }


def test_missing_values_are_used_macros_and_required_parameters():
    gin.parse_config(
        "GIVEN = 1\nWANTED = %gin.REQUIRED\nUNUSED = %gin.REQUIRED\ndecode.length = %WANTED\n"
        "decode.search = (%GIVEN, %NEVER_SET)\nbeam.width = %gin.REQUIRED\n"
    )
    assert gin_utils.macros_bound() == {"GIVEN", "WANTED", "UNUSED"}
    assert {"GIVEN", "WANTED", "NEVER_SET"} <= gin_utils.macros_used()
    assert gin_utils.drop_required_macro("UNUSED")
    assert not gin_utils.drop_required_macro("GIVEN")
    missing = gin_utils.missing_values()
    assert missing == ["NEVER_SET", "WANTED", "test_gin_internals.beam.width"]


def test_parameters_are_those_of_a_signature_and_none_of_an_unknown_name():
    assert gin_utils.parameters_of("decode") == ["length", "search"]
    assert gin_utils.parameters_of("no_such_name") == []
    assert "test_gin_internals.beam" in gin_utils.configurable_names()
    gin.parse_config("decode.length = 2\nscope/decode.search = 3")
    assert gin_utils.bound_parameters()[decode.__wrapped__] == {"length", "search"}
