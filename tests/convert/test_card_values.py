"""A model card gets only licences and languages that the hub knows."""

import argparse

import pytest

from convert.card_values import LICENSES, language_code, license_id


@pytest.mark.parametrize(
    ("check", "values"),
    [
        (license_id, ("apache-2.0", "cc-by-4.0", "mit", "openrail++", "other")),
        (language_code, ("ro", "en", "tzo", "multilingual", "code")),
    ],
)
def test_what_the_hub_knows_is_taken(check, values):
    assert [check(value) for value in values] == [*values]
    assert LICENSES.lower() == LICENSES


@pytest.mark.parametrize(
    ("check", "value", "offered"),
    [
        (license_id, "Apache-2.0", "apache-2.0"),
        (license_id, "Apache License 2.0", "apache-2.0"),
        (license_id, "CC BY 4.0", "cc-by-4.0"),
        (license_id, "gpl-4", "gpl"),
        (license_id, "", "mit"),
        (language_code, "romanian", "ro"),
        (language_code, "Moldovan", "ro"),
        (language_code, "ro-RO", "ro"),
        (language_code, "tzo_Latn", "tzo"),
        (language_code, "ron", "ro or tzo"),
        (language_code, "", "ro or tzo"),
    ],
)
def test_anything_else_is_refused_with_the_nearest(check, value, offered):
    with pytest.raises(argparse.ArgumentTypeError, match=f"such as {offered}"):
        check(value)
