"""The notebook is valid, without outputs, and calls what exists; a slow test executes it."""

import ast
import json
import os
import re
import shutil
import subprocess

import pytest

from fakes.hub_server import HubStandIn
from fakes.optional_env import optional_python
from fakes.paths import ROOT

NOTEBOOK = ROOT / "notebooks" / "your_language.ipynb"
CONTENT = json.loads(NOTEBOOK.read_text())
# A small run, which keeps its checkpoints on the hub.
PARAMETERS = """
NAME, CORPUS, CONFIG = "tiny", "./data/ro_mini", None
VOCABULARY_SIZE, SIZE = 1024, "t5x/examples/t5/t5_1_1/tiny.gin"
INPUTS, TARGETS, BATCH_SIZE, CHECKPOINT_STEPS, MINUTES = 64, 18, 8, 3, 8
KEEP_ON = "user/name"
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


@pytest.mark.slow
def test_it_trains_is_cut_off_resumes_and_publishes(tmp_path):
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True)
    for name in listed.stdout.decode().split("\0")[:-1]:
        if not name.startswith(("tests/", "docs/", "benchmarks/")):
            (tmp_path / "clone" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tmp_path / "clone" / name)

    def execute(cells, parameters):
        command = [optional_python(), "-c", EXECUTE, str(NOTEBOOK), str(cells)]
        done = subprocess.run(
            [*command, PARAMETERS + parameters],
            cwd=tmp_path / "clone",
            env=environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
        return done.stdout

    with HubStandIn() as hub:
        python = {"PYTHON": str(ROOT / ".venv" / "bin" / "python"), "JAX_PLATFORMS": "cpu"}
        environment = os.environ | hub.environment(tmp_path / "home") | python
        up_to_training = 1 + next(
            i for i, cell in enumerate(CONTENT["cells"]) if "keep_uploading" in str(cell["source"])
        )
        execute(up_to_training, "STEPS = 6\n")
        assert "checkpoint_6/commit_success.txt" in hub.files
        shutil.rmtree(tmp_path / "clone" / "runs")  # another machine
        said = execute(len(CONTENT["cells"]), "STEPS = 9\nPUBLISH_AS = 'user/name'\n")
        assert "Resuming from step 6" in said
        assert f"{hub.url}/user/name" in said
        assert "image/png" in said
        assert re.search(r"^  Copiii merg la \[.*\] în fiecare zi\.$", said, re.M)
        assert "checkpoint_9/commit_success.txt" in hub.files
        assert {"model.safetensors", "spiece.model", "README.md"} <= hub.files.keys()
