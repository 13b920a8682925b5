"""The command: what is wrong is one sentence, and nothing is left behind."""

import subprocess

import pytest

from convert import __main__ as converter
from fakes.convert_fakes import golden_gin, golden_run
from fakes.paths import ROOT


@pytest.fixture
def run_folder(tmp_path):
    golden_run(tmp_path / "run")
    return tmp_path / "run"


def wrong(capsys, *arguments):
    """Return the one line that the command prints."""
    with pytest.raises(SystemExit):
        converter.main([str(argument) for argument in arguments])
    message = capsys.readouterr().err.strip()
    assert "\n" not in message
    return message


def test_bad_input_is_one_sentence_and_leaves_nothing(run_folder, capsys, tmp_path):
    out = tmp_path / "out"
    quick = ("--vocabulary", "none", "--out", out)
    assert "is not a folder" in wrong(capsys, tmp_path / "absent", *quick)
    assert "holds no complete checkpoint" in wrong(capsys, tmp_path, *quick)
    assert "is neither a file nor a size of" in wrong(
        capsys, run_folder, *quick, "--config", "t5/huge"
    )
    assert "needs that many" in wrong(capsys, run_folder, *quick, "--average", 3)
    gin = run_folder / "config.gin"
    gin.write_text(golden_gin("t5_1_0"))
    assert "no rule takes its" in wrong(capsys, run_folder, *quick)
    gin.write_text(golden_gin("t5_1_1").replace("vocab_size = 512", "vocab_size = 640"))
    assert "vocab_size 640" in wrong(capsys, run_folder, *quick)
    gin.unlink()
    assert "name the network with --config" in wrong(capsys, run_folder, *quick)
    assert not list(out.glob("**/*"))


def test_metadata_that_the_hub_refuses_ends_the_command_before_the_checkpoint_is_read(
    capsys, tmp_path
):
    for flags, said in (
        (("--license", "GPLv9"), "'GPLv9' is no licence of a model card"),
        (("--language", "ro", "xx"), "'xx' is no language of a model card"),
    ):
        assert said in wrong(capsys, tmp_path / "absent", *flags)


def test_a_place_that_cannot_be_written_is_one_sentence(run_folder, capsys):
    out = run_folder / "config.gin" / "out"
    message = wrong(capsys, run_folder, "--vocabulary", "none", "--out", out)
    assert message.startswith("Error: ")
    assert str(run_folder / "config.gin") in message


def test_a_vocabulary_must_be_found(run_folder, capsys):
    assert "no vocabulary.model" in wrong(capsys, run_folder)
    assert "There is no vocabulary" in wrong(capsys, run_folder, "--vocabulary", "absent.model")
    (run_folder / "absent.model").write_text("not a model")
    path = run_folder / "absent.model"
    assert "not a SentencePiece model" in wrong(capsys, run_folder, "--vocabulary", path)
    # 512 rows are more than bytes and their sentinels need.
    assert "359 ids and the embedding 512" in wrong(capsys, run_folder, "--vocabulary", "bytes")


def test_the_help_names_the_other_command(capsys):
    with pytest.raises(SystemExit, match="0"):
        converter.main(["--help"])
    said = capsys.readouterr().out
    assert "python -m convert from_hf" in " ".join(said.split())


def test_the_script_runs_from_anywhere_and_fails_with_its_converter(tmp_path):
    script = ["bash", str(ROOT / "convert" / "convert.sh")]
    done = subprocess.run([*script, "absent"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("Error: absent is not a folder")
