"""The folder of a Space, without starting it."""

import json
import pathlib

import pytest
import yaml

from convert import atomic_output
from convert.served import space, space_app


def converted(folder, **changes):
    folder.mkdir()
    record = {"source": "ro_t5x_tiny", "steps": [3], "tokenizer": True}
    atomic_output.write_record(
        folder, record | {"examples": [["Ana <extra_id_0>.", "x"]]} | changes
    )
    return folder


def test_the_space_loads_the_published_model(tmp_path):
    model = converted(tmp_path / "checkpoint_3")
    said = space.write(tmp_path / "space", model, "user/name")
    assert said.startswith(f"hf upload user/name-space {tmp_path / 'space'} --repo-type space")
    given = json.loads((tmp_path / "space" / "space.json").read_text())
    assert given == {
        "model": "user/name",
        "title": "ro_t5x_tiny",
        "examples": ["Ana <extra_id_0>."],
    }
    app = (tmp_path / "space" / "app.py").read_text()
    assert app == pathlib.Path(space_app.__file__).read_text()
    front = (tmp_path / "space" / "README.md").read_text().split("---\n")[1]
    assert yaml.safe_load(front)["sdk"] == "gradio"
    assert yaml.safe_load(front)["models"] == ["user/name"]
    needs = (tmp_path / "space" / "requirements.txt").read_text()
    assert "torch==" in needs
    assert "+" not in needs
    for path in (tmp_path / "space").iterdir():
        assert str(tmp_path) not in path.read_text()


def test_it_is_written_again_and_tries_an_unpublished_model_here(tmp_path):
    model = converted(tmp_path / "checkpoint_3")
    space.write(tmp_path / "space", model, "user/name")
    said = space.write(tmp_path / "space", model, None)
    assert said.startswith(f"python {tmp_path / 'space'}/app.py")
    assert json.loads((tmp_path / "space" / "space.json").read_text())["model"] == "../checkpoint_3"


def test_weights_alone_make_no_space(tmp_path):
    with pytest.raises(ValueError, match="--space needs a tokenizer"):
        space.write(tmp_path / "space", converted(tmp_path / "c", tokenizer=False), None)
