"""The command: what is wrong is one sentence, and nothing is left behind."""

from fakes.convert_fakes import golden_gin, refusal
from fakes.paths import ROOT
from fakes.shell import bash, executable


def test_bad_input_is_one_sentence_and_leaves_nothing(run_folder, capsys, tmp_path):
    out = tmp_path / "out"
    quick = ("--vocabulary", "none", "--out", out)
    assert "must be a file or a size" in refusal(capsys, run_folder, *quick, "--config", "t5/huge")
    assert "--average is 3, but" in refusal(capsys, run_folder, *quick, "--average", 3)
    gin = run_folder / "config.gin"
    gin.write_text(golden_gin("t5_1_0"))
    assert "no rule takes its" in refusal(capsys, run_folder, *quick)
    gin.write_text(golden_gin("t5_1_1").replace("vocab_size = 512", "vocab_size = 640"))
    assert "vocab_size 640" in refusal(capsys, run_folder, *quick)
    gin.unlink()
    assert "name the network with --config" in refusal(capsys, run_folder, *quick)
    assert not list(out.glob("**/*"))


def test_a_vocabulary_must_be_found(run_folder, capsys):
    assert "no vocabulary.model" in refusal(capsys, run_folder)
    assert "absent.model is no file" in refusal(capsys, run_folder, "--vocabulary", "absent.model")
    (run_folder / "absent.model").write_text("not a model")
    path = run_folder / "absent.model"
    assert "not a SentencePiece model" in refusal(capsys, run_folder, "--vocabulary", path)
    # 512 rows are more than bytes and their sentinels need.
    assert "359 ids and the embedding 512" in refusal(capsys, run_folder, "--vocabulary", "bytes")


def test_the_script_runs_from_anywhere_and_fails_with_its_converter(tmp_path):
    python = executable(tmp_path / "python", '#!/usr/bin/env bash\necho "$PWD $*"; exit 3\n')
    script = ROOT / "convert" / "convert.sh"
    done = bash(script, "a run", env={"PYTHON": str(python)}, cwd=tmp_path)
    assert done.returncode == 3
    assert "-m convert a run" in done.stdout
