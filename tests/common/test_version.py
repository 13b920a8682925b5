"""Every command answers --help and --version, and a mistake, in the same way."""

import importlib
import re
import subprocess
import sys
import tomllib

import pytest
from absl.testing import flagsaver

from common import arguments
from common.errors import ROOT
from fakes.refuses import refuses
from t5x.cli import main as trainer

COMMANDS = [
    *("convert.__main__", "convert.generate"),
    *("convert.run.loss_curve", "evaluation.__main__", "preflight.__main__"),
    *("tasks.look.__main__", "tasks.new_job", "tasks.new_language"),
    *("report.__main__", "report.misclassified", "tasks.cache.__main__"),
    *("vocabulary.check", "vocabulary.extend", "vocabulary.train", "vocabulary.trim"),
]


# They load no library that writes to stderr.
LIGHT = {"convert.run.loss_curve", "report.__main__", "report.misclassified", "tasks.new_language"}


@pytest.mark.parametrize("module", COMMANDS)
def test_a_command_answers(module, capsys):
    command = f"python -m {module.removesuffix('.__main__')} "
    for flag, begin in (("--version", "t5x-"), ("--help", f"usage: {command}")):
        with pytest.raises(SystemExit) as end:
            importlib.import_module(module).main([flag])
        out, err = capsys.readouterr()
        assert (end.value.code, err) == (0, "")
        assert out.startswith(begin)
    assert f"\n    {command}" in out, "an example"
    flags = re.split(r"\n  (?=\S)", out.partition("\npositional arguments:")[2] or out)[1:]
    assert all(re.search(r"\S(  |\n {10,})", flag) for flag in flags), flags
    if module not in LIGHT:
        source = (ROOT / module.replace(".", "/")).with_suffix(".py").read_text()
        assert "log.start()" in source.partition("\nimport ")[0]


def test_a_light_command_loads_no_library_that_writes_there():
    program = "import importlib, sys\nfor name in sys.argv[1:]: importlib.import_module(name)\n"
    program += "print({'tensorflow', 'jax', 'torch'} & set(sys.modules))"
    command = [sys.executable, "-c", program, *sorted(LIGHT)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("set()\n", "")


@flagsaver.flagsaver
def test_the_trainers_commands_refuse_a_mistyped_flag_and_take_dashes():
    with refuses("--gin_fil") as refusal:
        trainer.parse_flags(["t5x.train", "--gin_fil=x.gin"])
    assert "'gin_file'" in refusal.value.why
    trainer.parse_flags(["t5x.train", "--gin-file=x.gin", "--roll-call-seconds", "3"])
    assert trainer.flags.FLAGS.roll_call_seconds == 3


@pytest.mark.parametrize(("flag", "has"), [("--help", "--gin_file: "), ("--version", "t5x-")])
def test_the_trainers_commands_answer(flag, has, capsys):
    with pytest.raises(SystemExit) as end, flagsaver.flagsaver():
        trainer.parse_flags(["t5x.train", "--gin_file=x.gin", flag])
    assert end.value.code == 0
    assert has in capsys.readouterr().out


def test_the_version_is_the_projects_and_the_commit(monkeypatch):
    number = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert arguments.version().startswith(f"t5x-recipes {number} (")

    def no_git(*_, **__):
        raise FileNotFoundError("git")

    monkeypatch.setattr(subprocess, "run", no_git)
    assert arguments.version() == f"t5x-recipes {number}"
