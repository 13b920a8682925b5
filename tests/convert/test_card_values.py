"""A model card gets only licences and languages that the hub knows."""

import argparse

import pytest

from convert.card_values import LICENSES, language_code, license_id


@pytest.mark.parametrize("value", ["apache-2.0", "cc-by-4.0", "mit", "openrail++", "other"])
def test_a_licence_of_the_hub_is_taken(value):
    assert license_id(value) == value
    assert all(known == known.lower() for known in LICENSES.split())


@pytest.mark.parametrize(
    ("value", "offered"),
    [
        ("Apache-2.0", "apache-2.0"),
        ("Apache License 2.0", "apache-2.0"),
        ("CC BY 4.0", "cc-by-4.0"),
        ("gpl-4", "gpl"),
        ("mine", "mit"),
        ("", "mit"),
    ],
)
def test_another_licence_is_refused_with_the_nearest(value, offered):
    with pytest.raises(argparse.ArgumentTypeError, match=f"such as {offered}, or 'other'"):
        license_id(value)


@pytest.mark.parametrize("value", ["ro", "en", "tzo", "multilingual", "code"])
def test_a_code_of_a_language_is_taken(value):
    assert language_code(value) == value


@pytest.mark.parametrize(
    ("value", "offered"),
    [
        ("romanian", "ro"),
        ("Moldovan", "ro"),
        ("RO", "ro"),
        ("ro-RO", "ro"),
        ("tzo_Latn", "tzo"),
        ("xx", "ro or tzo"),
        ("ron", "ro or tzo"),
        ("", "ro or tzo"),
    ],
)
def test_what_is_no_code_is_refused_with_the_one_meant(value, offered):
    with pytest.raises(argparse.ArgumentTypeError, match=f"such as {offered}$"):
        language_code(value)
