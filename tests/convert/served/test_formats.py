"""Formats on request: what they need is looked for before anything is converted."""

import contextlib
import dataclasses
import json
import os
import shutil
import socket
import subprocess
import time
import urllib.request

import pytest

from convert.formats import t5x_checkpoint_writer
from convert.run import rewrite
from convert.served import formats
from fakes.convert_fakes import FAMILIES, arrays, tree
from fakes.optional_env import optional_python
from fakes.paths import ROOT


def test_a_missing_package_is_one_sentence(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name if name == "onnx" else None)
    with pytest.raises(ValueError, match="onnxscript and onnxruntime, which no other") as error:
        formats.check(("pytorch", "onnx"), True)
    assert str(error.value).endswith("`python -m pip install onnx onnxscript onnxruntime`.")
    formats.check(("pytorch", "flax"), False)


def test_weights_and_tokenizer_are_needed(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    with pytest.raises(ValueError, match="is made of PyTorch's weights"):
        formats.check(("flax", "onnx"), True)
    with pytest.raises(ValueError, match="--formats ctranslate2 needs the tokenizer"):
        formats.check(("pytorch", "ctranslate2"), False)
    formats.check(("pytorch", "ctranslate2"), True)
    formats.check(("pytorch", "onnx"), False)


def test_each_requested_format_is_written_once_with_its_proof(monkeypatch, tmp_path):
    called = []

    def write(folder, sizes):
        called.append((folder, sizes))
        return {"largest_difference": 0.0}

    monkeypatch.setitem(formats.WRITERS, "onnx", formats.WRITERS["onnx"]._replace(write=write))
    assert formats.write(tmp_path, "sizes", ("pytorch", "flax"), False) == {}
    found = formats.write(tmp_path, "sizes", ("pytorch", "onnx"), False)
    assert found == {"onnx": {"largest_difference": 0.0}}
    assert called == [(tmp_path, "sizes")]


# Everything below runs in .venv-optional.

PROOF = """
import json, sys
import numpy as np
import torch
from convert.model_config import Sizes
from convert.proof import verify
from convert.proof.torch_logits import load_torch
from convert.served import onnx_writer
from pathlib import Path

folder = Path(sys.argv[1])
model, rng = load_torch(folder), np.random.default_rng(1)
for shape, steps in (((3, 41), 1), ((1, 7), 19)):  # others than those that were exported
    ids, shifted = rng.integers(2, 2000, shape), rng.integers(2, 2000, (shape[0], steps))
    ids[0, 5:] = 0
    mask = torch.from_numpy(ids > 0).long()
    with torch.inference_mode():
        theirs = model(torch.from_numpy(ids), mask, torch.from_numpy(shifted)).logits.numpy()
    ours = onnx_writer.onnx_logits(folder / "onnx", ids, shifted)
    verify.compare(theirs, ours)
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """The environment's Python, and a run of random weights converted there to all formats."""
    python, work = optional_python(), tmp_path_factory.mktemp("served")
    sizes = dataclasses.replace(FAMILIES["t5_1_1"], vocab_size=2048)
    values = {f"target/{name}": array for name, array in tree(arrays(sizes)).items()}
    t5x_checkpoint_writer.write(work / "run" / "checkpoint_3", values)
    (work / "run" / "config.gin").write_text(rewrite.gin_of(sizes))
    shutil.copyfile(ROOT / "data/ro_mini/ro_mini.model", work / "run" / "vocabulary.model")
    flags = ["--formats", "onnx", "ctranslate2", "--space", "--examples", "Ana <extra_id_0>."]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [python, "-m", "convert", str(work / "run"), *flags]
    done = subprocess.run(command, env=environment, cwd=work, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return python, work / "run_hf"


@pytest.mark.slow
def test_onnx_and_int8_compute_what_pytorch_does(served):
    python, out = served
    folder = out / "checkpoint_3"
    record = json.loads((folder / "conversion.json").read_text())
    assert record["onnx"]["largest_difference"] < 1e-3
    found = record["ctranslate2"]
    # Random weights choose between near ties, so int8 changes a few.
    assert found["tokens"] == 32 >= found["tokens_equal"] >= 16
    assert found["largest_difference"] < 1e-3 < found["drift"] < found["largest_logit"] / 10
    assert "of 32 greedy tokens are PyTorch's" in (folder / "README.md").read_text()
    command = [python, "-c", PROOF, str(folder)]
    subprocess.run(command, check=True, env=os.environ | {"PYTHONPATH": str(ROOT)})


@pytest.mark.slow
def test_another_model_is_refused(served):
    python, out = served
    program = f"""
import shutil, sys, tempfile
from pathlib import Path
import numpy as np
from convert.model_config import Sizes
from convert.served import ctranslate2_writer, onnx_writer
import json
folder = Path(tempfile.mkdtemp()) / "copy"
shutil.copytree({str(out / "checkpoint_3")!r}, folder)
shutil.rmtree(folder / "onnx"); shutil.rmtree(folder / "ctranslate2")
sizes = Sizes(**json.loads((folder / "conversion.json").read_text())["sizes"])
exact, onnx = ctranslate2_writer._by_ctranslate2, onnx_writer.onnx_logits
ctranslate2_writer._by_ctranslate2 = lambda *a: (
    (tokens, [x * 1.5 for x in logits]) for tokens, logits in [exact(*a)]).__next__()
onnx_writer.onnx_logits = lambda *a: onnx(*a)[:, ::-1]
for write in (ctranslate2_writer.write, onnx_writer.write):
    try:
        write(folder, sizes)
        sys.exit("not refused")
    except ValueError as error:
        print(error)
"""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [python, "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "CTranslate2's logits differ from PyTorch's" in done.stdout
    assert "onnxruntime's logits differ from PyTorch's" in done.stdout


@pytest.mark.slow
def test_the_space_starts_and_answers(served):
    python, out = served
    port = loopback_port()
    environment = os.environ | {
        "GRADIO_SERVER_PORT": str(port),
        "GRADIO_SERVER_NAME": "127.0.0.1",
        "GRADIO_ANALYTICS_ENABLED": "False",
        "HF_HUB_OFFLINE": "1",
    }
    with subprocess.Popen([python, "app.py"], cwd=out / "space", env=environment) as page:
        try:
            url = f"http://127.0.0.1:{port}"
            wait_for(url, page)
            said = call(url, "generate", ["Ana <extra_id_0>.", 20])
        finally:
            page.terminate()
    ((_, wanted),) = json.loads((out / "checkpoint_3" / "conversion.json").read_text())["examples"]
    assert said == wanted


def loopback_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def wait_for(url, process):
    for _ in range(240):
        assert process.poll() is None, "the page has ended"
        with contextlib.suppress(OSError):
            with urllib.request.urlopen(url, timeout=5) as answer:
                assert b"gradio" in answer.read()
                return
        time.sleep(0.5)
    raise AssertionError("the page did not answer")


def call(url, name, data):
    """Return the first output of a function of the page."""
    body = json.dumps({"data": data}).encode()
    place = f"{url}/gradio_api/call/{name}"
    request = urllib.request.Request(place, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        event = json.load(answer)["event_id"]
    with urllib.request.urlopen(f"{place}/{event}", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    assert "event: complete" in lines, lines
    (found,) = [line for line in lines if line.startswith("data: [")][-1:]
    return json.loads(found.removeprefix("data: "))[0]
