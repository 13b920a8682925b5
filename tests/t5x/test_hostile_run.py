"""A run's folder is data: no command imports or calls what it names, or writes into it."""

import ast
import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
from gin.config_parser import ImportStatement

from common import gin_reader
from common.errors import UserError
from common.gin_reader import Bindings, Reference, leaves
from convert.run import model_dir, rewrite
from convert.sizes import T5Sizes
from evaluation import finetune
from fakes.convert_fakes import arrays, write_run
from fakes.paths import PACKAGES, ROOT
from report.history import History
from tasks.jobs.diacritics import restore

# What the gin of our own imports.
OURS = {"__gin__.dynamic_registration", "seqio", "tasks.jobs.diacritics"}
OURS |= {"t5x.examples.t5.network"}
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
    sizes = T5Sizes.from_fields(Bindings.follow(recipe, [ROOT]).of("T5Config"))
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
        "report": [sys.executable, "-m", "report", str(run), "--out", f"{out}.html"],
        "evaluation": [
            *(sys.executable, "-m", "evaluation", str(run), "--language", "ro"),
            *(
                "--text",
                str(ROOT / "data/ro_mini/validation.jsonl"),
                "--without",
                "pairs",
                "--passages",
                "9",
                "--out",
                f"{out}.json",
            ),
        ],
        "diacritics": ["bash", "launch/restore_diacritics.sh", str(run)],
    }


def content(folder):
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def callables():
    """Yield the name of every public function and class of the packages, which gin could call."""
    for path in sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name[0] != "_":
                yield module, f"{module}.{node.name}"


def gin_made_of(run):
    """Yield what is written as gin of a run's, to be executed, and what is shown of it."""
    for make in (
        lambda: restore.settings(str(run)),
        lambda: finetune.model_gin(model_dir.open_run(str(run))),
        lambda: rewrite.gin_of(model_dir.network(model_dir.open_run(str(run)))[0], {"Any": 1}),
    ):
        with contextlib.suppress(UserError):  # a value is no size
            yield make()
    config = (run / "config.gin").read_text()
    History(json.dumps({"event": "start", "time": 1, "config": config}), 1)


def check_harmless(text):
    for each in gin_reader.statements(text):
        if isinstance(each, ImportStatement):
            assert each.module in OURS, each
        found = {str(leaf) for leaf in leaves(getattr(each, "value", 0)) if type(leaf) is Reference}
        assert found <= {"seqio.ByteVocabulary"}


def test_no_callable_is_reached_by_a_runs_gin(hostile, tmp_path):
    """Each is imported, called, and the value of a size, the vocabulary and the task."""
    run, sound = tmp_path / "run", hostile[0] / "run"
    shutil.copytree(sound, run)
    lines = (sound / "config.gin").read_text().replace(CONFIG, "").splitlines()
    fields = [line.split(" = ")[0] for line in lines if ".T5Config." in line]
    fields += ["network.T5Config.dtype", "seqio.SentencePieceVocabulary.extra_ids"]
    fields += ["seqio.SentencePieceVocabulary.sentencepiece_model_file"]
    fields += ["MIXTURE_OR_TASK_NAME", "TASK_FEATURE_LENGTHS"]
    before, found = set(sys.modules), list(callables())
    assert len(found) > 1000
    usual = "MIXTURE_OR_TASK_NAME = 'a'\nTASK_FEATURE_LENGTHS = {'inputs': 8}"
    for start in range(0, len(found), len(fields)):
        attack, some = [usual], found[start : start + len(fields)]
        for i, ((module, name), field) in enumerate(zip(some, fields, strict=False)):
            value = f"%X{i}" if i % 2 else f"[@{name}()]"
            attack += [f"import {module}", f"X{i} = @{name}()", f"{name}.x = %X{i}"]
            attack += [f"{field} = {value}"]
        (run / "config.gin").write_text("\n".join([*lines, *attack]))
        for text in gin_made_of(run):
            check_harmless(text)
    assert {name for name in set(sys.modules) - before if name.split(".")[0] in PACKAGES} == set()


def test_no_text_of_a_runs_gin_leaves_its_quotes(hostile, tmp_path):
    run, sound = tmp_path / "run", hostile[0] / "run"
    shutil.copytree(sound, run)
    lines = (sound / "config.gin").read_text().replace(CONFIG, "").splitlines()
    fields = [line.split(" = ")[0] for line in lines if ".T5Config." in line]
    fields += ["network.T5Config.dtype", "seqio.SentencePieceVocabulary.extra_ids"]
    fields += ["seqio.ByteVocabulary.extra_ids"]
    usual = "MIXTURE_OR_TASK_NAME = 'a'\nTASK_FEATURE_LENGTHS = {'inputs': 8}"
    for field in fields:
        for text in ("1\nimport evil\n", "1'\nimport evil\nA = '", "@evil.work()"):
            (run / "config.gin").write_text("\n".join([*lines, usual, f"{field} = {text!r}"]))
            for made in gin_made_of(run):
                check_harmless(made)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["infer", "eval", "convert", "diacritics", "report", "evaluation"])
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
    after = content(folder / "run")
    if name == "evaluation":  # which adds its figures to the run's
        after = {path: found for path, found in after.items() if "/inference_eval/" not in path}
    assert after == before
