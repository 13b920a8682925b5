"""A command whose packages are missing says in one sentence what installs them."""

import importlib.util
import tomllib

import pytest

from common import errors, extras
from fakes.paths import ROOT
from preflight.aot import tpu_slices
from tasks.cache.__main__ import check_beam_options

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS = PYPROJECT["project"]["optional-dependencies"]


@pytest.fixture
def without(monkeypatch):
    """Return a function after which a package cannot be found."""
    find = importlib.util.find_spec

    def hide(hidden):
        seen = lambda name, *rest: None if name == hidden else find(name, *rest)
        monkeypatch.setattr(extras, "find_spec", seen)

    return hide


@pytest.mark.parametrize("package", ["apache_beam", "libtpu", "s3fs"])
def test_the_sentence_names_an_extra_that_has_the_package(package):
    sentence = extras.missing(package)
    extra = sentence.partition("'.[")[2].partition("]'")[0]
    (needs,) = EXTRAS[extra]
    assert {"libtpu": "jax[tpu]"}.get(package, package.replace("_", "-")) in needs
    assert f"launch/setup.sh --{extra} " in sentence


def test_a_package_of_no_extra_has_no_sentence():
    assert extras.missing("nosuch") is extras.missing(None) is None


def test_a_cache_without_beam(without):
    without("apache_beam")
    with pytest.raises(ValueError, match=r"apache_beam is not installed.*setup\.sh --cache"):
        check_beam_options([], "")


def test_a_compilation_for_tpus_without_libtpu(without):
    without("libtpu")
    with pytest.raises(ValueError, match=r"libtpu is not installed.*setup\.sh --tpu"):
        tpu_slices.find("v4-8").devices()


def test_an_import_that_fails_anywhere_is_the_same_sentence(capsys):
    def imports():
        raise ModuleNotFoundError("No module named 's3fs'", name="s3fs")

    with pytest.raises(SystemExit) as caught:
        errors.guarded(imports)()
    assert caught.value.code == 2
    assert capsys.readouterr().err == f"Error: {extras.missing('s3fs')}\n"
