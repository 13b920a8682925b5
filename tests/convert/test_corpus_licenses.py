"""Licences of corpora come from their pages on the hub, and what is missing is said."""

import types

import huggingface_hub
import pytest

from convert import corpus_licenses


@pytest.mark.parametrize(
    ("card", "said"),
    [
        ({"license": "odc-by"}, "odc-by"),
        ({"license": ["cc0-1.0", "odc-by"]}, "cc0-1.0, odc-by"),
        ({"license": None}, corpus_licenses.MISSING),
        ({}, corpus_licenses.MISSING),
        (None, corpus_licenses.MISSING),
    ],
)
def test_the_licence_is_that_of_the_page(monkeypatch, card, said):
    data = None if card is None else huggingface_hub.DatasetCardData(**card)
    info = lambda self, name, timeout: types.SimpleNamespace(card_data=data)
    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", info)
    assert corpus_licenses.look_up(["user/name"]) == {"user/name": said}


def test_a_hub_that_cannot_be_reached_is_said():
    found = corpus_licenses.look_up(["user/name"])["user/name"]
    assert found == "its licence could not be looked up (OfflineModeIsEnabled)"
