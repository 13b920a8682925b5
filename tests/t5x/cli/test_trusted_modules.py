"""A model's gin imports and binds this project's and T5X's modules, and others only if allowed."""

import os
import subprocess
import sys

import pytest

import gin
from fakes.paths import ROOT
from fakes.shell import bash
from gin import config as gin_config
from t5x import gin_utils
from t5x.cli import trusted_modules
from t5x.input_pipeline.config import DatasetConfig

DYNAMIC = "from __gin__ import dynamic_registration\n"
EVIL = "import pathlib\npathlib.Path({path!r}).touch()\ndef work(): pass\n"


@pytest.fixture
def model(monkeypatch, tmp_path):
    """Return a function that parses a model's gin, which may import `evil` from its own folder."""
    (tmp_path / "evil.py").write_text(EVIL.format(path=str(tmp_path / "pwned")))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(trusted_modules._Policy, "allowed", None)
    monkeypatch.setattr(gin_config, "ParseContext", gin_config.ParseContext)
    monkeypatch.setattr(gin_config, "_IMPORTS", set())
    monkeypatch.setattr(gin_config, "_LOCATION_PREFIXES", [""])
    for registry in ("_REGISTRY", "_INVERSE_REGISTRY"):
        monkeypatch.setattr(gin_config, registry, getattr(gin_config, registry).copy())
    gin.clear_config()

    def parse(text, trusted=(), bindings=(), name="config.gin"):
        trusted_modules.restrict(trusted)
        gin_utils.check_names(trusted_modules.check_import, trusted_modules.check_object)
        (tmp_path / name).write_text(text)
        gin_utils.parse_gin_flags([], [str(tmp_path / name)], bindings)
        return gin.config_str()

    yield parse
    sys.modules.pop("evil", None)
    gin.clear_config()


HONEST = """
import seqio
import tasks.diacritics
from t5x import models
from t5x import utils
from t5x.examples.t5 import network
MODEL = @models.EncoderDecoderModel()
models.EncoderDecoderModel.module = @network.Transformer()
network.Transformer.config = @network.T5Config()
network.T5Config.emb_dim = 16
VOCABULARY = @seqio.SentencePieceVocabulary()
models.EncoderDecoderModel.input_vocabulary = %VOCABULARY
seqio.SentencePieceVocabulary.sentencepiece_model_file = 'a.model'
utils.RestoreCheckpointConfig.path = 'runs/x'
utils.SaveCheckpointConfig.period = 10
utils.DatasetConfig.split = 'train'
"""


def test_what_the_trainer_saves_is_read(model, tmp_path):
    text = model(DYNAMIC + HONEST)
    assert "network.T5Config.emb_dim = 16" in text
    assert "import tasks.diacritics" in text
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize(
    ("text", "module"),
    [
        ("import evil", "evil"),
        (DYNAMIC + "import evil\nA = @evil.work", "evil"),
        (DYNAMIC + "import evil as seqio\nA = @seqio.work", "evil"),
        (DYNAMIC + "import os\nA = @os.system()", "os"),
        (DYNAMIC + "import subprocess as t5x\nA = [(1, @x/t5x.run())]", "subprocess"),
        (DYNAMIC + "from os import path\nA = @path.exists", "os.path"),
        (DYNAMIC + "import tasksevil\ngin.macro.value = @tasksevil.A", "tasksevil"),
    ],
)
def test_what_another_module_provides_is_refused(model, tmp_path, text, module):
    with pytest.raises(ValueError, match=r"neither") as refused:
        model(text)
    said = str(refused.value)
    assert f"The module {module!r} is neither of this project nor of T5X" in said
    assert said.endswith(f"add --trusted_modules={module}.")
    assert "\n" not in said
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize(
    "lines", ["import evil", "import evil as theirs\ntheirs.work.a = 1\ns/theirs.Deep.work.a = 2"]
)
def test_a_model_is_read_without_what_only_its_training_needed(model, tmp_path, caplog, lines):
    text = model(DYNAMIC + lines + HONEST)
    assert "network.T5Config.emb_dim = 16" in text
    assert "evil" not in text
    assert "left out: The module 'evil' is neither of this project nor of T5X" in caplog.text
    assert not (tmp_path / "pwned").exists()


def test_a_reference_to_another_module_can_be_replaced(model, tmp_path):
    lines = "import evil\nOPTIMIZER = @evil.work()\nA = %OPTIMIZER\n"
    with pytest.raises(ValueError, match=r"^OPTIMIZER refers to evil\.work\. The module 'evil'"):
        model(DYNAMIC + lines)
    model(DYNAMIC + lines, bindings=["OPTIMIZER = None"])
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize(
    "lines",
    [
        "from t5x import infer\nA = @infer.os.system()",
        "from t5x import infer\ninfer.os.system.command = 'true'",
        "from t5x import infer\ninfer.json.loads.s = ''",
        "from t5x import gin_utils\nA = @gin_utils.sys.exit()",
        "from t5x import gin_utils\nA = @gin_utils.gin.parse_config_file()",
        "from t5x import gin_utils\nA = {'a': [(@a/gin_utils.Path(),)]}",
        "import seqio\nA = @seqio.utils.os.system",
        "from t5x.multihost import startup_check\nA = @startup_check.subprocess.run()",
    ],
)
def test_what_an_allowed_module_has_imported_is_not_bound(model, lines):
    with pytest.raises(ValueError, match="which is neither of this project nor of T5X; if you"):
        model(DYNAMIC + lines)


@pytest.mark.parametrize(
    "lines",
    [
        "from t5x.loop import model_dir\nA = @model_dir.delete_damaged_after()",
        "from t5x.cli import log_capture\nA = @log_capture.write_to()",
        "from t5x import gin_utils\nA = @gin_utils.parse_gin_flags()",
        "from t5x.cli import trusted_modules\nA = @trusted_modules.restrict()",
        "from tasks.cache import atomic_files\nA = @atomic_files.publish()",
    ],
)
def test_what_writes_or_deletes_is_not_bound(model, lines):
    with pytest.raises(ValueError, match=r"is no setting of a model|has no '") as refused:
        model(DYNAMIC + lines)
    assert "is no setting of a model; if you trust this file, add --trusted_modules=t5x." in str(
        refused.value
    ) or "atomic_files" in str(refused.value)


def test_a_file_that_includes_another_and_bindings_are_restricted_too(model, tmp_path):
    (tmp_path / "more.gin").write_text("import evil\n")
    with pytest.raises(ValueError, match=r"more.gin:1: The module 'evil' is neither"):
        model(f"include '{tmp_path}/more.gin'")
    with pytest.raises(ValueError, match=r"'evil' is neither"):
        model("A = 1", bindings=["import evil\nB = 2"])
    assert not (tmp_path / "pwned").exists()


def test_an_allowed_module_is_imported_and_bound(model, tmp_path):
    model(DYNAMIC + "import evil\nA = @evil.work\n", trusted=["evil"])
    assert (tmp_path / "pwned").exists()


def test_the_module_of_a_task_is_restricted_too(model, tmp_path):
    model("A = 1")
    with pytest.raises(ValueError, match="The module 'evil' is neither"):
        DatasetConfig("a", None, "train", 1, False, None, module="evil")
    assert not (tmp_path / "pwned").exists()
    DatasetConfig("a", None, "train", 1, False, None, module="tasks.diacritics")


def test_a_recipe_of_the_repository_may_import_what_it_likes(model, tmp_path, monkeypatch):
    monkeypatch.setattr(trusted_modules, "ROOT", tmp_path)
    (tmp_path / "gin").mkdir()
    model("import evil\n", name="gin/mine.gin")
    assert (tmp_path / "pwned").exists()


def test_without_a_restriction_nothing_is_refused(monkeypatch):
    monkeypatch.setattr(trusted_modules._Policy, "allowed", None)
    trusted_modules.check_import("os", None)
    trusted_modules.check_object("os.system", os.system)


@pytest.mark.slow
@pytest.mark.parametrize("script", ["eval", "infer", "restore_diacritics"])
def test_the_commands_do_not_run_a_models_code(script, tmp_path):
    (tmp_path / "evil.py").write_text(EVIL.format(path=str(tmp_path / "pwned")))
    text = "import evil\nMIXTURE_OR_TASK_NAME = 'a'\nMIXTURE_OR_TASK_MODULE = 'evil'\n"
    (tmp_path / "config.gin").write_text(text)
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{tmp_path}", "PYTHON": sys.executable}
    environment["JAX_PLATFORMS"] = "cpu"
    if script == "restore_diacritics":
        command = ["bash", f"{ROOT}/launch/restore_diacritics.sh", str(tmp_path)]
    else:
        command = [sys.executable, "-m", f"t5x.{script}", f"--gin_file={tmp_path}/config.gin"]
    done = subprocess.run(
        command, env=environment, cwd=ROOT, input="Fata", capture_output=True, text=True
    )
    assert done.returncode in (1, 2), done.stderr
    assert "The module 'evil' is neither of this project nor of T5X" in done.stderr
    assert "--trusted_modules=evil" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize("line", ["'a/../../b'", '"a"', "'$(touch pwned)'", "@a.b()", "''"])
def test_a_task_that_is_no_name_is_refused_before_anything_runs(line, tmp_path):
    (tmp_path / "config.gin").write_text(f"MIXTURE_OR_TASK_NAME = {line}\n")
    script = f"{ROOT}/launch/restore_diacritics.sh"
    done = bash(script, tmp_path, env={"PYTHON": "false"}, cwd=tmp_path)
    assert done.returncode == 2
    assert "names no task" in done.stderr
    assert not (tmp_path / "pwned").exists()
