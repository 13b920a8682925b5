import pytest

from convert.formats.sentencepiece_model import read_model, write_model
from fakes.convert_fakes import golden_run
from fakes.paths import MINI


@pytest.fixture(scope="session")
def outside_model(tmp_path_factory):
    """The path of a SentencePiece model of 1948 pieces, without sentinels."""
    path = str(tmp_path_factory.mktemp("outside") / "outside.model")
    model = read_model(str(MINI / "ro_mini.model"))
    del model.pieces[-100:]
    write_model(model, path)
    return path


@pytest.fixture
def run_folder(tmp_path):
    """A run of upstream, with its gin."""
    golden_run(tmp_path / "run")
    return tmp_path / "run"
