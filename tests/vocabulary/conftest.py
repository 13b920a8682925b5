"""The bundled vocabulary and held-out text, which the tests of trim and extend change and read."""

import pytest

from convert.formats.sentencepiece_model import read_model
from fakes.paths import ROOT
from vocabulary import corpus
from vocabulary.pieces import SentencePieces

DATA = ROOT / "data" / "ro_mini"


@pytest.fixture(scope="module")
def model():
    return read_model(str(DATA / "ro_mini.model"))


@pytest.fixture(scope="module")
def pieces(model):
    return SentencePieces(model)


@pytest.fixture(scope="module")
def lines():
    documents = corpus.read_documents(str(DATA / "validation.jsonl"))
    return [line for document in documents for line in corpus.lines_of(document)]
