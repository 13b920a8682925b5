"""The notebook is valid, without outputs, and calls what exists; a slow test executes it."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from fakes.hub_server import HubStandIn
from fakes.optional_env import optional_python
from fakes.paths import ROOT

NOTEBOOK = ROOT / "notebooks" / "your_language.ipynb"
CONTENT = json.loads(NOTEBOOK.read_text())
# A small run of local text, which keeps its checkpoints on the hub.
PARAMETERS = """
NAME, CORPUS, SIZE, MINUTES, KEEP_ON = "small_run", "./data/ro_mini", "tiny", 8, "user/name"
FLAGS = (
    "--gin.BATCH_SIZE=8 --gin.EVAL_STEPS=1 --gin.EVAL_PERIOD=3 "
    "--gin.network.T5Config.num_encoder_layers=1 --gin.network.T5Config.num_decoder_layers=1 "
    "--gin.utils.SaveCheckpointConfig.period=3 --gin.TRAIN_STEPS="
)
"""
EXECUTE = """
import sys
import nbformat
from nbclient import NotebookClient

path, cells, parameters = sys.argv[1], int(sys.argv[2]), sys.argv[3]
notebook = nbformat.read(path, 4)
nbformat.validate(notebook)
(given,) = [c for c in notebook.cells if "parameters" in c.metadata.get("tags", ())]
given.source += parameters
notebook.cells = notebook.cells[:cells]
try:
    NotebookClient(notebook, timeout=900).execute()
finally:
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            print(output.get("text", output.get("data", "")), end="")
"""


def test_it_is_valid_and_has_no_outputs():
    assert (CONTENT["nbformat"], CONTENT["nbformat_minor"]) == (4, 5)
    ids = [cell["id"] for cell in CONTENT["cells"]]
    assert len(set(ids)) == len(ids)
    for cell in CONTENT["cells"]:
        assert cell["cell_type"] in ("code", "markdown")
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None)
            ast.parse("".join(cell["source"]))
    tags = [cell["metadata"].get("tags") for cell in CONTENT["cells"]]
    assert tags.count(["parameters"]) == 1


def test_no_page_has_an_address_that_is_a_placeholder():
    for page in (NOTEBOOK, ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        assert not re.search(r"your-(name|fork)", page.read_text()), page


def cell_of(text):
    (source,) = [s for cell in CONTENT["cells"] if text in (s := "".join(cell["source"]))]
    return source


def test_minutes_that_are_over_are_said(tmp_path):
    """The trainer ends at once where it has no step to save."""
    names = {}
    code = cell_of("def sh(command").partition("if not pathlib.Path")[0]
    exec(code, names)
    with pytest.raises(AssertionError, match="set MINUTES to more"):
        names["sh"](f"{sys.executable} -c 'import time; time.sleep(60)'", minutes=0.005)
    with pytest.raises(AssertionError, match=r"status 3$"):
        names["sh"](f"{sys.executable} -c 'exit(3)'", minutes=5)
    code = cell_of("def keep_uploading").replace("sh(TRAIN, MINUTES)", "pass")
    given = {"threading": names["threading"], "ON_HUB": "", "MINUTES": 1, "RUN": tmp_path}
    with pytest.raises(AssertionError, match="set MINUTES to more"):
        exec(code, given)
    (tmp_path / "checkpoint_3").mkdir()
    exec(code, given)


def files_of(clone):
    """Return the contents of a clone's files, by path, without what is made in every run."""
    made = ("runs/", "vocabularies/")
    paths = {str(path.relative_to(clone)): path for path in clone.rglob("*") if path.is_file()}
    return {
        name: path.read_bytes()
        for name, path in paths.items()
        if not name.startswith(made) and "__pycache__" not in name
    }


@pytest.mark.slow
def test_it_trains_is_cut_off_resumes_and_publishes_and_runs_again(tmp_path):
    clone = tmp_path / "clone"
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True)
    for name in listed.stdout.decode().split("\0")[:-1]:
        if not name.startswith(("tests/", "docs/", "benchmarks/")):
            (clone / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, clone / name)
    (clone / "tasks/my_language.py").write_text("MINE = True\n")
    before = files_of(clone)

    def execute(cells, parameters):
        command = [optional_python(), "-c", EXECUTE, str(NOTEBOOK), str(cells)]
        done = subprocess.run(
            [*command, PARAMETERS + parameters],
            cwd=clone,
            env=environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
        assert "Traceback" not in done.stdout
        assert "Warning" not in done.stdout
        assert "\x1b" not in done.stdout
        assert done.stdout.count("\n") < 200, done.stdout  # a bar would print a line for each step
        return done.stdout

    with HubStandIn() as hub:
        python = {"PYTHON": sys.executable, "JAX_PLATFORMS": "cpu", "FORCE_COLOR": "1"}
        environment = os.environ | hub.environment(tmp_path / "home") | python
        up_to_training = 1 + next(
            i for i, cell in enumerate(CONTENT["cells"]) if "keep_uploading" in str(cell["source"])
        )
        execute(up_to_training, "FLAGS += '6'\n")
        assert "checkpoint_6/commit_success.txt" in hub.files
        shutil.rmtree(clone / "runs")  # another machine
        shutil.rmtree(clone / "vocabularies")
        for publish in ("PUBLISH_AS = 'user/name'\n", ""):
            output = execute(len(CONTENT["cells"]), "FLAGS += '9'\n" + publish)
            assert "image/png" in output
            assert re.search(r"^  Copiii merg la \[.*\] în fiecare zi\.$", output, re.M)
            if publish:
                assert "Resuming from step 6" in output
                assert f"{hub.url}/user/name" in output
        assert "checkpoint_9/commit_success.txt" in hub.files
        assert {"model.safetensors", "spiece.model", "README.md"} <= hub.files.keys()
    after = files_of(clone)
    assert {name: after[name] for name in before} == before
    assert after.keys() - before.keys() == {
        "tasks/notebook.py",
        "gin/notebook_t5x_tiny.gin",
        "launch/notebook_t5x_tiny.sh",
    }
