"""A language named on the command line gets a task, a recipe and a launch script that work."""

import importlib.util
import subprocess
import sys

import pytest
import seqio

from fakes.paths import ROOT
from tasks import new_language
from tasks.languages import table


def made(text, size="base"):
    return new_language.files(table.find(text), size)


@pytest.mark.parametrize(
    ("text", "module", "code"),
    [
        ("czech", "czech", "cs"),
        ("nob_Latn", "norwegian_bokmal", "nb"),
        ("ron_Cyrl", "romanian_cyrl", "ron_cyrl"),
    ],
)
def test_files_are_named_after_the_language(text, module, code):
    recipe = f"{code}_t5x_base"
    assert list(made(text)) == [f"tasks/{module}.py", f"gin/{recipe}.gin", f"launch/{recipe}.sh"]


def test_no_two_languages_share_a_name():
    every = [new_language.names(one, "base") for one in table.languages()]
    for key in ("module", "task", "recipe"):
        assert len({each[key] for each in every}) == len(every)


def test_no_language_takes_the_name_of_a_module_of_the_project():
    """Romanian alone has one already, and then --overwrite must be given."""
    modules = {path.stem for path in (ROOT / "tasks").iterdir()} - {"__pycache__"}
    every = {new_language.names(one, "base")["module"] for one in table.languages()}
    assert modules & every == {"romanian"}


@pytest.mark.parametrize("text", ["czech", "ron_Cyrl", "abi_Latn"])
def test_the_task_is_registered_by_its_module_and_passes_the_lint(tmp_path, text):
    language = table.find(text)
    path, text, *_ = next(iter(new_language.files(language, "base").items()))
    file = tmp_path / path.rsplit("/", 1)[1]
    file.write_text(text)
    spec = importlib.util.spec_from_file_location("made_by_new_language", file)
    task = new_language.names(language, "base")["task"]
    try:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
        source = seqio.TaskRegistry.get(task).source
        assert source.config == language.code
    finally:
        seqio.TaskRegistry.remove(task)
    lint = [sys.executable, "-m", "ruff", "check", "--config", str(ROOT / "pyproject.toml")]
    subprocess.run([*lint, str(file)], check=True)
    format_check = [sys.executable, "-m", "ruff", "format", "--check", "--line-length", "100"]
    subprocess.run([*format_check, str(file)], check=True)


def test_the_recipe_is_that_of_romanian_with_other_names():
    """So that whatever holds for ro_t5x_base and ro_t5x_large holds for it."""
    lines = made("czech")["gin/cs_t5x_base.gin"].splitlines()
    romanian = (ROOT / "gin/ro_t5x_base.gin").read_text().splitlines()
    settings = lambda some: {x.partition("=")[0] for x in some if x and not x.startswith("#")}
    only_romanian = {"VOCABULARY_FILE ", "tasks.vocabularies.ro_model.path "}
    assert settings(lines) - {"import tasks.czech"} == (
        settings(romanian) - only_romanian - {"import tasks.romanian"}
    )
    for size, partitions in new_language.PARTITIONS.items():
        text = made("czech", size)[f"gin/cs_t5x_{size}.gin"]
        assert f"num_partitions = {partitions}\n" in text
        assert (ROOT / f"t5x/examples/t5/t5_1_1/{size}.gin").exists()


def test_steps_follow_from_the_size_of_the_corpus():
    assert new_language.train_steps(table.find("rus_Cyrl")) == 2_000_000
    small = table.find("ron_Cyrl")
    assert new_language.train_steps(small) == 10_000
    middle = table.find("srp_Latn")
    assert 3.5 < new_language.epochs(middle, new_language.train_steps(middle)) < 4.5
    assert new_language.pieces(small) == 32_000
    assert "That is little text" in new_language.report(small, "base", [])


def test_existing_files_are_kept(tmp_path):
    for folder in ("tasks", "gin", "launch"):
        (tmp_path / folder).mkdir()
    (tmp_path / "gin/cs_t5x_base.gin").write_text("mine")
    language = table.find("cs")
    with pytest.raises(ValueError, match=r"gin/cs_t5x_base.gin exist: .* or give --overwrite"):
        new_language.write(language, "base", tmp_path)
    assert not (tmp_path / "tasks/czech.py").exists()
    written = new_language.write(language, "base", tmp_path, overwrite=True)
    assert (tmp_path / "gin/cs_t5x_base.gin").read_text() != "mine"
    said = new_language.report(language, "base", written)
    assert "--config ces_Latn " in said
    assert "--cedilla" not in said
    assert "bash launch/cs_t5x_base.sh" in said
