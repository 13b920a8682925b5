"""A language named on the command line, or a user's text, gets a recipe that works."""

import ast
import dataclasses
import importlib.util
import re
import shlex
import subprocess
import sys

import pytest
import seqio

from fakes.paths import MINI, ROOT
from tasks import new_language
from tasks.corpus.source import CorpusSource
from tasks.languages import table
from tasks.scaffold import files as new_files

LANGUAGES = [new_language.of_language(one) for one in table.languages()]


def of(text):
    return new_language.of_language(table.find(text))


def made(text, size="base"):
    return new_language.files(of(text), size)


@pytest.fixture
def root(tmp_path):
    for folder in ("tasks", "gin", "launch"):
        (tmp_path / folder).mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("text", "module", "code"),
    [
        ("czech", "czech", "cs"),
        ("nob_Latn", "norwegian_bokmal", "nb"),
        ("ron_Cyrl", "romanian_cyrl", "ron_cyrl"),
        ("greek", "modern_greek", "el"),
    ],
)
def test_files_are_named_after_the_language_or_by_name(text, module, code):
    recipe = f"{code}_t5x_base"
    assert list(made(text)) == [f"tasks/{module}.py", f"gin/{recipe}.gin", f"launch/{recipe}.sh"]
    named = new_language.of_language(table.find(text), "mine")
    paths = ["tasks/mine.py", "gin/mine_t5x_base.gin", "launch/mine_t5x_base.sh"]
    assert list(new_language.files(named, "base")) == paths
    assert named.source == of(text).source


def test_no_two_languages_share_a_name():
    every = [new_language.names(one, "base") for one in LANGUAGES]
    for key in ("module", "task", "recipe"):
        assert len({each[key] for each in every}) == len(every)


def test_no_language_takes_the_name_of_a_module_of_the_project():
    """Only Romanian has one already, and then --overwrite must be given."""
    modules = {path.stem for path in (ROOT / "tasks").iterdir()} - {"__pycache__"}
    assert modules & {one.module for one in LANGUAGES} == {"romanian"}


def own(tmp_path, name="uk"):
    return new_language.of_files(str(MINI / "train-*.jsonl"), name)


@pytest.mark.parametrize("language", ["czech", "ron_Cyrl", "abi_Latn", "ja", None])
def test_the_task_is_registered_by_its_module_and_passes_the_lint(tmp_path, language):
    text = of(language) if language else own(tmp_path)
    path, content = next(iter(new_language.files(text, "tiny").items()))
    file = tmp_path / path.rsplit("/", 1)[1]
    file.write_text(content)
    spec = importlib.util.spec_from_file_location("made_by_new_language", file)
    task = new_language.names(text, "tiny")["task"]
    try:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
        source = seqio.TaskRegistry.get(task).source
        if language:
            assert source.config == table.find(language).code
        else:
            assert len(source.peek("train", 2)) == 2
    finally:
        seqio.TaskRegistry.remove(task)
    ruff = [sys.executable, "-m", "ruff"]
    settings = ["--config", str(ROOT / "pyproject.toml")]
    if language:  # a path of the user may be long
        subprocess.run([*ruff, "check", *settings, str(file)], check=True)
        subprocess.run([*ruff, "format", "--check", "--line-length", "100", str(file)], check=True)


@pytest.mark.parametrize(
    ("line", "gap"),
    [
        ("a b c d e f g h i j k", ("a b c d e <extra_id_0> h i j",)),
        ("'a' \"b\" {c} %d \\e f g h i j", ("'a' \"b\" {c} %d \\e <extra_id_0> h i j",)),
        ("a b c", None),
    ],
)
def test_the_recipe_fills_in_a_sentence_of_ones_own_text(tmp_path, line, gap):
    (tmp_path / "a.txt").write_text(f"{line}\n" * 40)
    recipe = new_language.files(new_language.of_files(str(tmp_path), "uk"), "tiny")
    found = re.search("INFILL_SENTENCES = (.*)", recipe["gin/uk_t5x_tiny.gin"])
    assert (ast.literal_eval(found[1]) if found else None) == gap


def test_the_recipe_is_that_of_romanian_with_other_names():
    """So that whatever holds for ro_t5x_base and ro_t5x_tiny holds for it."""
    settings = lambda some: {x.partition("=")[0] for x in some if x and not x.startswith("#")}
    of_file = lambda name: settings((ROOT / f"gin/{name}.gin").read_text().splitlines())
    only_romanian = {"VOCABULARY_FILE ", "tasks.vocabularies.ro_model.path "}
    assert settings(made("czech")["gin/cs_t5x_base.gin"].splitlines()) - {"import tasks.czech"} == (
        of_file("ro_t5x_base") - only_romanian - {"import tasks.romanian"}
    )
    tiny = settings(made("czech", "tiny")["gin/cs_t5x_tiny.gin"].splitlines())
    expected = {"EXPECTED_LOSS ", "EXPECTED_LOSS_TASK ", "import __main__ as train_script"}
    expected |= {"train_script.train.run_eval_before_training ", "import tasks.romanian"}
    added = {"import tasks.czech", "from t5x import partitioning", "  keep "}
    added |= {"partitioning.PjitPartitioner.num_partitions "}
    assert tiny - added == of_file("ro_t5x_tiny") - expected
    for size, partitions in new_language.PARTITIONS.items():
        text = made("czech", size)[f"gin/cs_t5x_{size}.gin"]
        assert f"num_partitions = {partitions}\n" in text
        assert size == "tiny" or (ROOT / f"t5x/examples/t5/t5_1_1/{size}.gin").exists()


def test_size_vocabulary_and_steps_follow_from_the_amount_of_text(tmp_path):
    assert new_language.train_steps(of("rus_Cyrl"), "base") == 2_000_000
    small, middle = of("ron_Cyrl"), of("srp_Latn")
    assert new_language.train_steps(small, "base") == 10_000
    assert 3.5 < new_language.epochs(middle, "base", new_language.train_steps(middle, "base")) < 4.5
    sizes = [new_language.default_size(of(code)) for code in ("rus_Cyrl", "amh_Ethi", "abi_Latn")]
    assert sizes == ["base", "small", "tiny"]
    assert "little text for base" in new_language.report(of("amharic"), "base", [])
    assert "little text" not in new_language.report(of("amharic"), "small", [])
    assert new_language.pieces(of("amharic"), "small") > new_language.pieces(own(tmp_path), "tiny")


@pytest.mark.parametrize("size", [0.0, 50.0, 20e3, 100e3, 1e6, 50e6])
def test_steps_of_little_text_are_few_and_what_it_lacks_is_said(size):
    text = dataclasses.replace(of("abi_Latn"), text_bytes=size, tokens=size / 4)
    said, steps = new_language.report(text, "tiny", []), new_language.train_steps(text, "tiny")
    assert not re.search(r"\de[+-]?\d", said)
    assert 100 <= steps <= 2_000
    assert ("too little text" in said) == (size < 60e3)
    if size >= 20e3:
        assert new_language.epochs(text, "tiny", steps) < 1.5 * new_language.MOST_EPOCHS


@pytest.mark.parametrize("code", ["ja", "cmn_Hani", "kor_Hang"])
def test_a_script_of_thousands_of_characters_falls_back_to_bytes(code):
    assert "--byte_fallback --character_coverage" in new_language.report(of(code), "base", [])
    assert "--byte_fallback" not in new_language.report(of("cs"), "base", [])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["serbian"], "srp_Latn"),
        (["kurdish"], "ckb_Arab"),
        ([], "--corpus"),
        (["czech", "--corpus", "*.txt"], "--corpus"),
        (["czech", "--documents", "files"], "--corpus"),
        (["--corpus", "nowhere/*.txt"], "--name"),
        (["--corpus", "nowhere/*.txt", "--name", "uk"], "nowhere"),
        (["--corpus", "*.md", "--name", "Мова"], "--name"),
        (["--corpus", "*.md", "--name", "corpus"], "--name"),
        (["--corpus", "*.md", "--name", "mixtures", "--overwrite"], "mixtures.py"),
        (["czech", "--name", "new_language", "--overwrite"], "new_language.py"),
        (["czech", "--name", "Мова"], "--name"),
    ],
)
def test_what_is_not_clear_is_asked_for(words, said, capsys):
    with pytest.raises(SystemExit) as refused:
        new_language.main(words)
    assert refused.value.code == 2
    assert said in capsys.readouterr().err


def test_the_column_and_the_documents_of_own_text_are_in_the_task(tmp_path):
    (tmp_path / "messages.csv").write_text('source;target\n"an ""ö""";unu\ntwo;doi\n')
    text = new_language.of_files(str(tmp_path), "uk", column='{source}\n"{target}"')
    source = eval(text.source, {"CorpusSource": CorpusSource})
    assert {*source.peek("train"), *source.peek("validation")} == {'an "ö"\n"unu"', 'two\n"doi"'}
    flags = shlex.split(text.flags)
    assert f"--column={source.column.name}" in flags
    (tmp_path / "messages.csv").rename(tmp_path / "poems.txt")
    (tmp_path / "poems.txt").write_text("a\nb\n\nc\nd\n\ne\nf\n\n")
    assert "--documents" in new_language.of_files(str(tmp_path), "uk").found
    text = new_language.of_files(str(tmp_path), "uk", documents="paragraphs")
    assert "--documents" not in text.found
    source = eval(text.source, {"CorpusSource": CorpusSource})
    assert {*source.peek("train")} < {"a b", "c d", "e f"}
    assert "--documents=paragraphs" in shlex.split(text.flags)


@pytest.mark.parametrize("text", ["", "\n \n"])
def test_files_without_text_are_refused(tmp_path, text):
    (tmp_path / "a.txt").write_text(text)
    with pytest.raises(ValueError, match="no usable text"):
        new_language.of_files(str(tmp_path), "uk")


def test_existing_files_are_kept(root):
    (root / "gin/cs_t5x_base.gin").write_text("mine")
    text = of("cs")
    with pytest.raises(ValueError, match=r"gin/cs_t5x_base.gin exist: .* or give --overwrite"):
        new_files.write(new_language.files(text, "base"), root, overwrite=False)
    assert not (root / "tasks/czech.py").exists()
    written = new_files.write(new_language.files(text, "base"), root, overwrite=True)
    assert (root / "gin/cs_t5x_base.gin").read_text() != "mine"
    said = new_language.report(text, "base", written)
    assert "--config ces_Latn " in said
    assert "--cedilla" not in said
    assert "bash launch/cs_t5x_base.sh" in said
