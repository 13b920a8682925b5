"""Every error of a command is one sentence and a status; a bug's traceback goes to a log."""

import importlib.util
import os
import pathlib
import pickle
import re
import subprocess
import sys
import tomllib

import numpy as np
import pytest

import gin
from common import errors
from common.errors import Failure, UserError
from fakes.paths import ROOT
from fakes.refuses import refuses
from preflight.aot import slices
from tasks.cache.__main__ import check_beam_options

EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def ended(function, capsys) -> tuple[int, str]:
    """Return status and the one line printed."""
    with pytest.raises(SystemExit) as caught:
        errors.guarded(function)()
    (line,) = capsys.readouterr().err.splitlines()
    return caught.value.code, line


def raises(error):
    def function():
        raise error

    return function


def test_a_value_is_returned_and_an_exit_is_left_alone():
    assert errors.guarded(lambda: 3)() == 3
    with pytest.raises(SystemExit) as caught:
        errors.guarded(raises(SystemExit(7)))()
    assert caught.value.code == 7


X_IS_1 = "x is 1, but must be even; set it to 2."


class Unreachable(UserError, ConnectionError):
    pass


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (UserError("x", 1, "but must be even", "set it to 2"), 2, X_IS_1),
        (Failure("x", why="has not answered"), 1, "x has not answered."),
        (Unreachable("x", why="has not answered"), 1, "x has not answered."),
        (FloatingPointError("the loss is nan."), 1, "the loss is nan."),
        (OSError(28, "No space left on device", "a"), 1, "No space left on device: 'a'."),
        (PermissionError(13, "Permission denied"), 1, "Permission denied."),
        (ModuleNotFoundError("No module named 's3fs'"), 2, errors.missing("s3fs")),
        (ModuleNotFoundError("No module named 'a.b'"), 2, errors.missing("a")),
    ],
)
@pytest.mark.parametrize("through_gin", [False, True])
def test_what_is_no_bug_is_printed_as_one_sentence(error, status, said, through_gin, capsys):
    function = raises(error)
    if through_gin:  # which appends the place to a copy of the exception
        function = gin.external_configurable(function, f"raises_{id(error)}", module="test_errors")
    assert ended(function, capsys) == (status, f"Error: {said}")


@pytest.mark.parametrize(
    ("error", "fault", "to_set"),
    [
        (
            UserError("x", "a", "but must be b", "set it to b"),
            "x is 'a', but must be b",
            "set it to b",
        ),
        (UserError("x", None), "x is None", ""),
        (UserError("a.txt", why="has no text"), "a.txt has no text", ""),
        (UserError("a.txt", why=": no text").at("task t"), "task t: a.txt: no text", ""),
        (UserError(why="no text", to_set="add one").at("b").at("a"), "a: b: no text", "add one"),
    ],
)
def test_a_sentence_is_made_of_fields(error, fault, to_set):
    assert (error.fault, error.to_set) == (fault, to_set)
    assert str(error) == f"{fault}{'; ' * bool(to_set)}{to_set}."
    assert str(UserError(**error.as_fields)) == str(error)
    copied = pickle.loads(pickle.dumps(error))
    assert (str(copied), copied.setting) == (str(error), error.setting)


def test_the_fields_pass_through_gin():
    raising = raises(UserError("x", 3, "but must be even").at("task t"))
    configured = gin.external_configurable(raising, "raises_fields", module="test_errors")
    with refuses("x", 3, where="task t") as refusal:
        configured()
    assert refusal.value.fault == "task t: x is 3, but must be even"


@pytest.mark.parametrize("size", [10, 10**6])  # written at the end, and before
@pytest.mark.parametrize("how", ["return", "sys.exit(0)", "print(undefined)"])
def test_a_reader_that_leaves_ends_a_command_quietly(size, how):
    code = f"""
import sys
from common import errors
@errors.guarded
def main():
    print("x" * {size})
    {how}
main()
"""
    read, write = os.pipe()
    os.close(read)
    env = {**os.environ, "PYTHONUNBUFFERED": ""}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, cwd=ROOT, env=env)
    os.close(write)
    is_quiet = size > 10 or how != "print(undefined)"
    assert (done.returncode, done.stderr == b"") == (1, is_quiet)


def bugs():
    return [
        raises(TypeError("one\ntwo")),
        raises(KeyError("name")),
        raises(OSError("of a library")),
        raises(RecursionError("too deep")),
        raises(AssertionError()),
        raises(ModuleNotFoundError("No module named 't5x.absent'")),
        lambda: np.zeros(3).reshape(2),  # a ValueError of a library
    ]


@pytest.mark.parametrize("function", bugs())
def test_a_bug_names_the_log_with_its_traceback(function, capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(errors.tempfile, "tempdir", str(tmp_path))
    status, line = ended(function, capsys)
    assert status == 1
    assert "Traceback (most" not in line
    path = re.search(r"The traceback is in (\S+)\.$", line)[1]
    assert pathlib.Path(path).parent == tmp_path
    assert pathlib.Path(path).read_text().startswith("Traceback (most recent call last)")


@pytest.mark.parametrize("package", ["apache_beam", "libtpu", "s3fs"])
def test_the_sentence_of_a_missing_package_names_the_extra_that_has_it(package):
    sentence = errors.missing(package)
    extra = sentence.partition("'.[")[2].partition("]'")[0]
    (needs,) = EXTRAS[extra]
    assert {"libtpu": "jax[tpu]"}.get(package, package.replace("_", "-")) in needs
    assert f"launch/setup.sh --{extra} " in sentence


@pytest.mark.parametrize(
    ("package", "command"),
    [
        ("apache_beam", lambda: check_beam_options([], "")),
        ("libtpu", lambda: slices.find("v4-8").devices()),
    ],
)
def test_a_command_asks_for_its_packages_first(package, command, monkeypatch):
    find = importlib.util.find_spec
    seen = lambda name, *rest: None if name == package else find(name, *rest)
    monkeypatch.setattr(errors, "find_spec", seen)
    with pytest.raises(UserError, match=f"{package} is not installed"):
        command()
