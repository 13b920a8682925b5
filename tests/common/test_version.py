"""Every command answers --help and --version, and a mistake, in the same way."""

import importlib
import subprocess
import sys
import tomllib

import pytest
from absl.testing import flagsaver

from common import arguments
from common.errors import ROOT
from t5x.cli import main as trainer

COMMANDS = [
    *("convert.__main__", "convert.continue_text", "convert.fill_masks"),
    *("convert.run.loss_curve", "evaluation.__main__", "preflight.__main__"),
    *("tasks.look.__main__", "tasks.new_language"),
    *("report.__main__", "report.misclassified", "tasks.cache.__main__"),
    *("vocabulary.check", "vocabulary.extend", "vocabulary.train", "vocabulary.trim"),
]


# They load no library that writes to stderr.
LIGHT = {"convert.run.loss_curve", "report.__main__", "report.misclassified", "tasks.new_language"}
SUBCOMMAND = ["convert.__main__", "from_hf"]


@pytest.mark.parametrize("module", COMMANDS)
@pytest.mark.parametrize("flag", ["--help", "--version"])
def test_a_command_answers(module, flag, capsys):
    with pytest.raises(SystemExit) as end:
        importlib.import_module(module).main([flag])
    out, err = capsys.readouterr()
    assert (end.value.code, err) == (0, "")
    begin = f"usage: python -m {module.removesuffix('.__main__')} " if flag == "--help" else "t5x-"
    assert out.startswith(begin)


@pytest.mark.parametrize("module", sorted(set(COMMANDS) - LIGHT))
def test_a_command_keeps_libraries_out_of_the_terminal(module):
    source = (ROOT / module.replace(".", "/")).with_suffix(".py").read_text()
    assert "log.start()" in source.partition("\nimport ")[0]


def test_a_light_command_loads_no_library_that_writes_there():
    program = "import importlib, sys\nfor name in sys.argv[1:]: importlib.import_module(name)\n"
    program += "print({'tensorflow', 'jax', 'torch'} & set(sys.modules))"
    command = [sys.executable, "-c", program, *sorted(LIGHT)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("set()\n", "")


def test_a_subcommand_answers(capsys):
    module, command = SUBCOMMAND
    with pytest.raises(SystemExit) as end:
        importlib.import_module(module).main([command, "--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out == f"{arguments.version()}\n"


@pytest.mark.parametrize("words", [*([module] for module in COMMANDS), SUBCOMMAND], ids=" ".join)
def test_a_mistyped_flag_is_one_sentence(words, capsys):
    """With the status after which --supervise does not start again."""
    module, *before = words
    values = ["a", "b"] * (module != "preflight.__main__")
    needed = {"tasks.cache.__main__": ["--task", "a", "--out", "b"]}
    needed |= {"vocabulary.extend": ["a", "--pieces", "b", "--out", "c"]}
    with pytest.raises(SystemExit) as end:
        importlib.import_module(module).main([*before, *needed.get(module, values), "--versoin"])
    out, err = capsys.readouterr()
    assert (end.value.code, out) == (2, "")
    assert err.startswith("Error: ")
    assert err.count("\n") == 1


@flagsaver.flagsaver
def test_the_trainers_commands_refuse_a_mistyped_flag_and_take_dashes():
    with pytest.raises(ValueError, match=r"'gin_fil'.*\(--help lists all flags\)$"):
        trainer.parse_flags(["t5x.train", "--gin_fil=x.gin"])
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
