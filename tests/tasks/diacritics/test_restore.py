"""Lines come back as lines, with their own blanks, whatever pieces the model was given."""

import io
import json
import os
import subprocess
import sys

import pytest

from fakes.paths import ROOT
from fakes.refusals import refused
from tasks.diacritics import restore


def test_blanks_are_those_of_the_original():
    assert restore.onto("  fata\tvine ", "fața vine") == "  fața\tvine "
    assert restore.onto("fata", "fața mea") == "fața mea"  # not its letters: as it was written
    assert restore.onto("fata", "fața\nmea ") == "fața mea"  # but one line


def test_pieces_are_put_together_line_by_line():
    texts = ["una doua", "", "  tata.", " "]
    pieces = [("una", "una"), ("doua", "două"), ("tata.", "tată.")]
    assert list(restore.lines(texts, pieces)) == ["una două", "", "  tată.", " "]


@pytest.mark.parametrize("pieces", [[], [("unadoua trei", "x")]])
def test_pieces_of_another_text_are_refused(pieces):
    with pytest.raises(ValueError, match="not those of the line 'una'"):
        list(restore.lines(["una"], pieces))


class Stdin:
    def __init__(self, data):
        self.buffer = io.BytesIO(data)


def test_the_way_there_and_back(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(sys, "stdin", Stdin("Fata  şi\n\ntata".encode("utf-8-sig")))
    restore.main(["read"])
    lines = capsys.readouterr().out
    assert lines == "Fata  şi\n\ntata\n"  # cedillas are letters of other languages
    (tmp_path / "lines").write_text(lines)
    pairs = [("Fata si", "Fața și"), ("tata", "tată")]
    made = [{"inputs": {"inputs_pretokenized": a}, "prediction": b} for a, b in pairs]
    (tmp_path / "made").write_text("\n".join(map(json.dumps, made)))
    restore.main(["write", str(tmp_path / "lines"), str(tmp_path / "made")])
    assert capsys.readouterr() == ("Fața  și\n\ntată\n", "")


def test_lines_that_lost_letters_are_counted(capsys, tmp_path):
    (tmp_path / "lines").write_text("una doua\ntata\n")
    pairs = [("una doua", "una do"), ("tata", "tată")]
    made = [{"inputs": {"inputs_pretokenized": a}, "prediction": b} for a, b in pairs]
    (tmp_path / "made").write_text("\n".join(map(json.dumps, made)))
    restore.main(["write", str(tmp_path / "lines"), str(tmp_path / "made")])
    out, err = capsys.readouterr()
    assert out == "una do\ntată\n"
    assert err.startswith("1 of 2 lines have fewer letters than the input")


@pytest.mark.parametrize(
    ("data", "said"), [(b"r\xe3u", "is not UTF-8"), (b"\xef\xbb\xbf \n", "no text")]
)
def test_bad_input_is_one_sentence(monkeypatch, capsys, data, said):
    monkeypatch.setattr(sys, "stdin", Stdin(data))
    with refused(capsys, rf"^Error: .*{said}.*\n$"):
        restore.main(["read"])


@pytest.mark.parametrize("data", [b"\x80", b"{", b"[]\n", b"3\n", b'{"prediction": "a"}\n'])
def test_what_holds_no_predictions_is_one_sentence(capsys, tmp_path, data):
    (tmp_path / "lines").write_text("una\n")
    (tmp_path / "made").write_bytes(data)
    with refused(capsys, r"^Error: .*made holds no predictions \(.*\n$"):
        restore.main(["write", str(tmp_path / "lines"), str(tmp_path / "made")])


def test_an_unknown_command_is_refused_with_the_known_ones(capsys):
    with refused(capsys, "must be `read`"):
        restore.main(["sing"])


# --- launch/restore_diacritics.sh


SCRIPT = ROOT / "launch/restore_diacritics.sh"
RECORDER = """#!/usr/bin/env bash
printf '%s\\n' "$@" >> {calls}
for word in "$@"; do
  if [[ "$word" == --gin_file=*/tasks.gin ]]; then cat "${{word#*=}}" >> {calls}; fi
done
if [[ "$2" == tasks.diacritics.restore && "$3" == write ]]; then echo restored; fi
"""


def run_script(tmp_path, *flags):
    """Runs the script with an interpreter that writes down how it was called."""
    python, calls = tmp_path / "python", tmp_path / "calls"
    python.write_text(RECORDER.format(calls=calls))
    python.chmod(0o755)
    env = {**os.environ, "PYTHON": str(python)}
    command = ["bash", str(SCRIPT), *map(str, flags)]
    done = subprocess.run(command, input="Fata", env=env, capture_output=True, text=True)
    return done, calls.read_text().splitlines() if calls.exists() else []


@pytest.fixture
def run_folder(tmp_path):
    folder = tmp_path / "my run"
    (folder / "checkpoint_7").mkdir(parents=True)
    text = "MIXTURE_OR_TASK_MODULE = 'mine'\nMIXTURE_OR_TASK_NAME = 'my_diacritics'\n"
    (folder / "config.gin").write_text(text)
    return folder


def test_the_script_asks_the_runs_own_task_for_its_lines(tmp_path, run_folder):
    done, calls = run_script(tmp_path, run_folder, "--gin.BATCH_SIZE=2")
    assert (done.returncode, done.stdout) == (0, "restored\n"), done.stderr
    assert f"--gin_file={run_folder}/config.gin" in calls
    assert '--gin.MIXTURE_OR_TASK_NAME="my_diacritics_lines"' in calls
    assert "--gin.MIXTURE_OR_TASK_MODULE='mine'" in calls
    assert "import tasks.diacritics" in calls  # whose settings follow, whatever the run imports
    assert '--gin.utils.RestoreCheckpointConfig.mode="latest"' in calls
    assert calls.index("--gin.BATCH_SIZE=8") < calls.index("--gin.BATCH_SIZE=2")  # ours win
    assert not [call for call in calls if "constraint" in call]


def test_the_best_checkpoint_is_taken_where_one_was_noted(tmp_path, run_folder):
    (run_folder / "best.json").write_text("{}")
    best, specific = (
        f'--gin.utils.RestoreCheckpointConfig.mode="{m}"' for m in ("best", "specific")
    )
    assert best in run_script(tmp_path, run_folder)[1]
    assert run_script(tmp_path, run_folder / "checkpoint_7")[1].count(specific) == 1


def test_a_checkpoint_may_be_named_and_output_be_held_to_the_letters(tmp_path, run_folder):
    _, calls = run_script(tmp_path, run_folder / "checkpoint_7", "--constrained")
    assert f'--gin.CHECKPOINT_PATH="{run_folder}/checkpoint_7"' in calls
    assert '--gin.utils.RestoreCheckpointConfig.mode="specific"' in calls
    assert "--gin.infer_script.infer.constraint=@tasks.diacritics.only_diacritics()" in calls


@pytest.mark.parametrize("name", ["gs://bucket/my run", "gs://bucket/my run/checkpoint_7/"])
def test_a_run_in_a_bucket_is_to_be_copied_and_the_sentence_says_how(tmp_path, name):
    done, calls = run_script(tmp_path, name)
    assert (done.returncode, calls) == (2, [])
    assert done.stderr.count("\n") == 1
    assert "gcloud storage cp -r 'gs://bucket/my run' runs/" in done.stderr
    assert "config.gin" not in done.stderr


def test_a_folder_that_is_no_run_is_refused_in_one_sentence(tmp_path):
    done, calls = run_script(tmp_path, tmp_path)
    assert (done.returncode, calls) == (2, [])
    assert done.stderr.count("\n") == 1
    assert "has no config.gin" in done.stderr
