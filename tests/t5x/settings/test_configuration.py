"""What gin has been given is read from the text that it writes."""

import pytest

import gin
from t5x.settings.configuration import current, settings_of

pytestmark = pytest.mark.usefixtures("gin_apart")


@gin.configurable(module="test_configuration")
def decode(length=1, search=None):
    return length, search


@gin.configurable(module="test_configuration")
def beam(width=1):
    return width


def test_settings_follow_macros_and_scoped_references():
    gin.parse_config(
        "LENGTH = 7\ndecode.length = %LENGTH\ndecode.search = @wide/beam()\n"
        "wide/beam.width = 5\nbeam.width = 2\nother/beam.width = 3\nUNRELATED = 1\n"
    )
    assert settings_of(current(), lambda function: function.__name__ == "decode") == {
        "decode.length": "%LENGTH",
        "LENGTH": "7",
        "decode.search": "@wide/beam()",
        "wide/beam.width": "5",
        "beam.width": "2",
    }
    assert current().scopes == {"wide"}


def test_missing_values_are_used_macros_and_required_parameters():
    gin.parse_config(
        "GIVEN = 1\nWANTED = %gin.REQUIRED\nUNUSED = %gin.REQUIRED\ndecode.length = %WANTED\n"
        "decode.search = (%GIVEN, %NEVER_SET)\nbeam.width = %gin.REQUIRED\n"
    )
    assert current().macros.keys() == {"GIVEN", "WANTED", "UNUSED"}
    assert current().macros_used == {"GIVEN", "WANTED", "NEVER_SET"}
    assert current().missing() == ["NEVER_SET", "WANTED", "beam.width"]


def test_values_are_named_by_what_the_user_sets():
    gin.parse_config("A = %B\nB = (1, %C)\nC = 2\ndecode.length = %A\nbeam.width = 3\n")
    bindings = current()
    named = {bindings.resolved(b.name, b.value) for b in bindings if b.parameter}
    assert named == {("B", (1, 2)), ("beam.width", 3)}
