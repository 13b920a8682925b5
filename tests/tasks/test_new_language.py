"""The command writes the files of a language and prints what follows, or refuses its flags."""

import re

import pytest

from fakes.clone import Clone
from fakes.paths import ROOT
from fakes.refuses import refuses
from tasks import new_language
from tasks.scaffold import files
from tasks.scaffold.kinds import KINDS


@pytest.mark.parametrize(
    ("words", "setting", "value"),
    [
        (["czech", "--documents", "files"], "--column and --documents", ...),
        (["--corpus", "nowhere/*.txt"], "--corpus", ...),
        (["--corpus", "*.md", "--name", "Мова"], "--name", "Мова"),
        (["--corpus", "*.md", "--name", "mixtures", "--overwrite"], "--name", "mixtures"),
        (["czech", "--name", "new_language", "--overwrite"], "--name", "new_language"),
        (["serbian"], "serbian", ...),
        (["czech", "--keep", "ron"], "--from and --keep", ...),
        (["czech", "--kind", "bert", "--size", "xl"], "--size", "xl"),
        (["czech", "--from_corpora", "fineweb2,fineweb9"], "corpus", "fineweb9"),
        (["czech", "--from_corpora", "finewiki,finewiki"], "corpus", "finewiki"),
        (["romanian", "--from_corpora", "fineweb2_hq"], "language", "ron_Latn"),
        (
            ["czech", "--from_corpora", "hplt3", "--from", "x", "--keep", "all"],
            "--from_corpora",
            "hplt3",
        ),
        (["czech", "--kind", "t5", "--from", "x", "--keep", "all"], "--kind", ...),
        *((["czech", "--kind", kind, "--phases"], "--phases", ...) for kind in ("t5", "bert")),
    ],
)
def test_what_is_not_clear_is_asked_for(words, setting, value):
    with refuses(setting, value):
        new_language.main(words)


@pytest.mark.parametrize("words", [[], ["czech", "--corpus", "*.txt"]])
def test_either_a_language_or_a_corpus_is_named(words):
    with refuses() as refusal:
        new_language.main(words)
    assert "--corpus" in refusal.value.why


def test_files_that_do_not_exist_are_refused():
    with refuses() as refusal:
        new_language.main(["--corpus", "nowhere/*.txt", "--name", "uk"])
    assert "nowhere" in str(refusal.value)


def test_existing_files_are_kept(tmp_path, monkeypatch, capsys):
    for folder in ("tasks", "gin", "launch"):
        (tmp_path / folder).mkdir()
    for module in (new_language, files):
        monkeypatch.setattr(module, "ROOT", tmp_path)
    (tmp_path / "gin/cs_t5x_base.gin").write_text("mine")
    with refuses(str(tmp_path / "gin/cs_t5x_base.gin")):
        new_language.main(["cs", "--size", "base"])
    assert not (tmp_path / "tasks/czech.py").exists()
    new_language.main(["cs", "--size", "base", "--overwrite"])
    assert (tmp_path / "gin/cs_t5x_base.gin").read_text() != "mine"
    script = (tmp_path / "launch/cs_t5x_base.sh").read_text()
    assert script.replace("cs_", "ro_") == (ROOT / "launch/ro_t5x_base.sh").read_text()
    said = capsys.readouterr().out
    assert "--config ces_Latn " in said
    assert "--cedilla" not in said
    assert "\n  bash launch/cs_t5x_base.sh\n" in said


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_commands_that_are_printed_run(kind, tmp_path):
    clone = Clone(tmp_path, None)
    words = f"--corpus 'data/ro_mini/train-*.jsonl' --name zz --size tiny --kind {kind}"
    printed = clone.run(f"python -m tasks.new_language {words}")
    vocabulary, train, convert = re.findall(
        r"^  ((?:python|bash) (?:.*\\\n)*.*)", printed, re.MULTILINE
    )
    clone.run(vocabulary)
    assert "fails" not in clone.run(f"{train} --dry_run")
    few = "TRAIN_STEPS=2 EVAL_PERIOD=2 utils.create_learning_rate_scheduler.warmup_steps=1"
    clone.run(f"{train} {' '.join(f'--gin.{setting}' for setting in few.split())}")
    clone.run(convert)
    recipe = train.split("/")[1].removesuffix(".sh")
    assert (tmp_path / f"runs/{recipe}_hf/checkpoint_2/config.json").is_file()
