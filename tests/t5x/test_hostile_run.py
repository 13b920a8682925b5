"""A run's folder is data: no command imports or calls what it names, or writes into it."""

import hashlib
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

from common.gin_reader import Bindings
from convert.sizes import T5Sizes
from fakes.convert_fakes import arrays, write_run
from fakes.paths import ROOT

RECIPE = "gin/ro_diacritics_tiny.gin"
CONFIG = """
from __gin__ import dynamic_registration
import evil
import evil as seqio
from t5x.examples.t5 import network
include 'more.gin'

MIXTURE_OR_TASK_NAME = 'ro_mini_diacritics'
MIXTURE_OR_TASK_MODULE = 'evil'
TASK_FEATURE_LENGTHS = {'inputs': 32, 'targets': 32}
EVIL = @evil.work()
OPTIMIZER = %EVIL
MODEL = @scope/evil.work()
evil.work.values = [(1, @evil.work()), {'a': %EVIL}]
network.T5Config.dropout_rate = %EVIL
network.T5Config.remat_policy = @evil.work()
seqio.SentencePieceVocabulary.sentencepiece_model_file = 'absent.model'
"""


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """A run's folder of an attacker, and the environment in which its module is found."""
    folder = tmp_path_factory.mktemp("theirs")
    (folder / "modules").mkdir()
    mark = f"import pathlib\npathlib.Path({str(folder / 'pwned')!r}).touch()\n"
    (folder / "modules/evil.py").write_text(f"{mark}def work(values=None):\n    pass\n")
    run, recipe = folder / "run", ROOT / RECIPE
    sizes = T5Sizes.of_fields(Bindings.follow(recipe, [ROOT]).of("T5Config"))
    run.mkdir()
    small = {name: value * np.float32(0.2) for name, value in arrays(sizes).items()}
    write_run(run, sizes, small)
    (run / "config.gin").write_text((run / "config.gin").read_text() + CONFIG)
    (run / "more.gin").write_text("import evil\n")
    (run / "compiled").mkdir()
    shutil.copy(ROOT / "data/ro_mini/ro_mini.model", run / "vocabulary.model")
    env = {**os.environ, "PYTHONPATH": f"{ROOT}:{folder}/modules", "JAX_PLATFORMS": "cpu"}
    env |= {"PYTHON": sys.executable, "XDG_CACHE_HOME": f"{folder}/cache"}
    for name in ("JAX_COMPILATION_CACHE_DIR", "XLA_FLAGS"):
        env.pop(name, None)
    return folder, env


def commands(run, out):
    checkpoint = f"--gin.CHECKPOINT_PATH='{run}/checkpoint_3'"
    of_t5x = lambda name: [
        *(sys.executable, "-m", f"t5x.{name}", f"--gin_file={RECIPE}"),
        *(f"--gin_file=t5x/configs/runs/{name}.gin", checkpoint, "--gin.BATCH_SIZE=2"),
        *(f"--gin.{name.upper()}_OUTPUT_DIR='{out}'", "--gin.MIXTURE_OR_TASK_SPLIT='validation'"),
    ]
    return {
        "infer": [*of_t5x("infer"), "--gin.infer_script.infer.max_examples=2"],
        "eval": [*of_t5x("eval"), "--gin.seqio.Evaluator.num_examples=2"],
        "convert": [
            sys.executable,
            "-m",
            "convert",
            str(run),
            "--out",
            str(out),
            "--formats",
            "pytorch",
        ],
        "diacritics": ["bash", "launch/restore_diacritics.sh", str(run)],
    }


def content(folder):
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["infer", "eval", "convert", "diacritics"])
def test_no_command_runs_what_a_folder_holds(name, hostile, tmp_path):
    folder, env = hostile
    before = content(folder / "run")
    command = commands(folder / "run", tmp_path / "out")[name]
    done = subprocess.run(
        command, cwd=ROOT, env=env, input="Fata vine\n", capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, done.stderr[-3000:]
    if name == "diacritics":
        assert done.stdout.translate(str.maketrans("ăâîșțĂÂÎȘȚ", "aaistAAIST")) == "Fata vine\n"
    assert not (folder / "pwned").exists()
    assert content(folder / "run") == before
