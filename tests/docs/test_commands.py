"""Every command of README and docs: its script or module, its flags, and what it binds by gin."""

import importlib
import inspect
import re
import shlex
import sys
import types
from typing import NamedTuple

import pytest

import gin
from fakes.pages import PAGES, commands
from fakes.paths import ROOT
from t5x import eval as evaluation
from t5x import gin_utils, infer, precompile, train

# Modules of the user, which their commands name but no repository has.
WRITTEN_BY_THE_USER = ("gin/my_t5x_base.gin", "my_optimizer.gin", "my_corpus")


class Command(NamedTuple):
    """A command line of a page."""

    page: str
    words: tuple[str, ...]

    def __str__(self):
        return f"{self.page}: {' '.join(self.words)[:60]}"


def found_commands() -> list[Command]:
    found = []
    for page in PAGES:
        for line in commands(page.read_text()):
            words = shlex.split(line.rpartition("| ")[2] if line.startswith("echo") else line, True)
            while words and re.fullmatch(r"[A-Z0-9_]+=.*", words[0]):
                words = words[1:]  # a variable before the command
            if words:
                found.append(Command(page.name, tuple(words)))
    return found


COMMANDS = found_commands()
OTHERS = {"source", "cp", "git", "pip", "gcloud", "zensical", "pre-commit"}


def test_commands_are_found():
    assert len(COMMANDS) > 40


@pytest.mark.parametrize("command", COMMANDS, ids=str)
def test_a_command_exists_and_knows_its_flags(command):
    first, *rest = command.words
    if first in OTHERS:
        return
    assert first in ("bash", "python"), command
    path = ROOT / rest[0]
    if first == "python" and rest[0] == "-m":
        path = ROOT / rest[1].replace(".", "/")
        path = path / "__main__.py" if path.is_dir() else path.with_suffix(".py")
        rest = rest[1:]
    assert path.exists(), f"{path} of {command}"
    known = sources(path)
    for flag in re.findall(r"(?<!\S)--([\w]+)", " ".join(rest[1:])):
        assert flag == "gin" or re.search(rf"--{flag}\b|[\"']{flag}[\"']", known), f"--{flag}"


def sources(path) -> str:
    """A command's source, and that of the scripts and modules that it passes its flags to."""
    text = path.read_text()
    for script in re.findall(r"/(\w+\.sh)\"", text):
        if (path.parent / script).exists() and script != path.name:
            text += (path.parent / script).read_text()
    modules = re.findall(r"(?:-m|run_module) ([\w.]+)", text)
    if "train.sh" in text or any(module.startswith("t5x.") for module in modules):
        modules.append("t5x.cli.main")
    if path.parts[-2] == "t5x":
        modules.append("t5x.cli.main")
    for module in modules:
        file = ROOT / module.replace(".", "/")
        file = file / "__main__.py" if file.is_dir() else file.with_suffix(".py")
        text += file.read_text() if file.exists() else ""
    if path.parts[-2] in ("tests", "vocabulary"):  # flags of a sibling module, or of pytest
        text += "".join(other.read_text() for other in path.parent.glob("*.py")) + "'k'"
    return text


MAINS = {
    "t5x.train": ("train", train.train),
    "t5x.eval": ("evaluate", evaluation.evaluate),
    "t5x.infer": ("infer", infer.infer),
    "t5x.precompile": ("precompile", precompile.precompile),
}


def gin_of(command: Command) -> tuple[str, list[str], list[str]] | None:
    """The main, gin files and bindings of a command that trains, evaluates or decodes."""
    words = list(command.words)
    recipe = re.fullmatch(r"launch/(\w+)\.sh", words[1]) if len(words) > 1 else None
    if "launch/tpu_run.sh" in words:
        recipe, words = re.fullmatch(r"launch/(\w+)\.sh", words[-2]) or recipe, words
    files = [word.removeprefix("--gin_file=") for word in words if word.startswith("--gin_file=")]
    bindings = [word.removeprefix("--gin.") for word in words if word.startswith("--gin.")]
    bindings = [binding.replace("=", " = ", 1) for binding in bindings]
    if recipe and (ROOT / f"gin/{recipe[1]}.gin").exists():
        files, main = [f"gin/{recipe[1]}.gin", *files], "t5x.train"
        bindings.insert(0, "MODEL_DIR = 'runs/x'")
    elif words[:2] == ["python", "-m"] and words[2] in MAINS:
        main = words[2]
    else:
        return None
    skipped = any(file in WRITTEN_BY_THE_USER for file in files)
    return None if skipped else (main, files, bindings)


WITH_GIN = [command for command in COMMANDS if gin_of(command)]


@pytest.fixture
def real_main(monkeypatch, tmp_path):
    """A `__main__` that holds one of the real mains, and gin as in a fresh process."""
    for registry in ("_REGISTRY", "_INVERSE_REGISTRY"):
        monkeypatch.setattr(gin.config, registry, getattr(gin.config, registry).copy())
    for selector, _ in list(gin.config._REGISTRY.items()):
        if selector.split(".")[0] in ("train_script", "eval_script", "infer_script"):
            gin.config._REGISTRY.pop(selector)
    monkeypatch.setattr(gin.config, "_IMPORTS", set())
    monkeypatch.chdir(tmp_path)

    def install(main: str):
        module = types.ModuleType("__main__")
        name, function = MAINS[main]
        setattr(module, name, function)
        monkeypatch.setitem(sys.modules, "__main__", module)
        gin.clear_config()

    yield install
    gin.clear_config()


@pytest.mark.parametrize("command", WITH_GIN, ids=str)
def test_what_a_command_binds_is_known_and_complete(command, real_main):
    main, files, bindings = gin_of(command)
    real_main(main)
    gin_utils.parse_gin_flags([], files, bindings)


def test_commands_with_gin_are_found():
    assert {gin_of(command)[0] for command in WITH_GIN} == set(MAINS)


# Of the inline code of pages: module.Class.argument, as gin files and tables name it.
MODULES = {
    "utils": "t5x.utils",
    "trainer": "t5x.trainer",
    "partitioning": "t5x.partitioning",
    "network": "t5x.examples.t5.network",
    "batches": "t5x.batches",
    "adafactor": "t5x.adafactor",
    "decoding": "t5x.decoding",
    "train_script": "t5x.train",
    "infer_script": "t5x.infer",
}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_setting_that_a_page_names_exists(page):
    names = re.findall(rf"\b({'|'.join(MODULES)})\.(\w+)\.(\w+)\b", page.read_text())
    for module, owner, argument in names:
        main = "t5x.precompile" if owner == "precompile" else MODULES[module]
        configurable = getattr(importlib.import_module(main), owner)
        assert argument in inspect.signature(configurable).parameters, f"{owner}.{argument}"
