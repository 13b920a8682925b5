"""Lines come back as lines, with their own blanks, whatever pieces the model was given."""

import io
import os
import subprocess
import sys

import pytest

from common.gin_reader import Bindings
from fakes.paths import ROOT
from fakes.refuses import refuses
from tasks.jobs.diacritics import restore


def test_pieces_are_put_together_line_by_line():
    texts = ["una doua", "", "  tata\tvine.", " "]
    pieces = [("una", "una"), ("doua", "două"), ("tata vine.", "tată  bine")]
    found = restore.lines(texts, [(*pair, "ro") for pair in pieces])
    assert list(found) == ["una două", "", "  tată\tvine.", " "]


@pytest.mark.parametrize("pieces", [[], [("unadoua trei", "x", "ro")]])
def test_pieces_of_another_text_are_refused(pieces):
    with refuses() as refusal:
        list(restore.lines(["una"], pieces))
    assert "the line 'una'" in refusal.value.why


class Stdin:
    def __init__(self, data):
        self.buffer = io.BytesIO(data)


@pytest.mark.parametrize(
    ("data", "reason"), [(b"r\xe3u", "is not UTF-8"), (b"\xef\xbb\xbf \n", "no text")]
)
def test_bad_input_is_one_sentence(monkeypatch, data, reason):
    monkeypatch.setattr(sys, "stdin", Stdin(data))
    with refuses() as refusal:
        restore.main(["read"])
    assert reason in refusal.value.why


@pytest.mark.parametrize("data", [b"\x80", b"[]\n", b'{"prediction": "a"}\n'])
def test_what_holds_no_predictions_is_one_sentence(tmp_path, data):
    (tmp_path / "lines").write_text("una\n")
    (tmp_path / "made").write_bytes(data)
    with refuses(str(tmp_path / "made")):
        restore.main(["write", str(tmp_path / "lines"), str(tmp_path / "made")])


# --- the settings of a run's model

SAVED = """
from __gin__ import dynamic_registration
import seqio
from t5x import models
from t5x.examples.t5 import network
MIXTURE_OR_TASK_NAME = 'my_diacritics'
MIXTURE_OR_TASK_MODULE = 'mine'
FILE = 'a.model'
TASK_FEATURE_LENGTHS = {'inputs': 32, 'targets': 48}
VOCABULARY = @seqio.SentencePieceVocabulary()
models.EncoderDecoderModel.output_vocabulary = %VOCABULARY
network.T5Config.emb_dim = 16
network.T5Config.mlp_activations = ('gelu', 'linear')
network.T5Config.dropout_rate = 0.5
network.T5Config.attention = 'cudnn'
seqio.SentencePieceVocabulary.extra_ids = 100
seqio.SentencePieceVocabulary.sentencepiece_model_file = %FILE
"""


def read_settings(folder, text=SAVED):
    (folder / "config.gin").write_text(text)
    return restore.settings(str(folder))


def test_a_runs_settings_are_sizes_names_and_lengths(tmp_path):
    expected = """\
include 't5x/examples/t5/t5_1_1/base.gin'
MIXTURE_OR_TASK_NAME = 'my_diacritics_lines'
TASK_FEATURE_LENGTHS = {'inputs': 32, 'targets': 48}
network.T5Config.emb_dim = 16
network.T5Config.mlp_activations = ('gelu', 'linear')
seqio.SentencePieceVocabulary.extra_ids = 100
"""
    assert expected in read_settings(tmp_path)


def test_model_and_task_get_the_vocabulary_of_the_run(tmp_path):
    def paths(text):
        read = Bindings.read(read_settings(tmp_path, text))
        of_task = read.of("ro_model")["path"]
        return {of_task, read.first("sentencepiece_model_file")}

    bound = SAVED.replace("'a.model'", "'data/ro_mini/ro_mini.model'")
    assert paths(SAVED) == {"a.model"}
    copy = tmp_path / "vocabulary.model"
    copy.write_bytes((ROOT / "data/ro_mini/ro_mini.model").read_bytes())
    assert paths(SAVED) == {str(copy)}  # where it is, and not where it was
    assert paths(bound) == {"data/ro_mini/ro_mini.model"}  # by which tasks may know it
    copy.write_text("another")
    assert paths(bound) == {str(copy)}


def test_a_runs_settings_are_those_of_bytes_too(tmp_path):
    text = SAVED.replace("SentencePiece", "Byte")
    found = read_settings(tmp_path, text)
    assert "include 't5x/examples/t5/byt5/base.gin'" in found
    assert "seqio.ByteVocabulary.extra_ids = 100" in found
    assert "model" not in found.replace("restore", "").split("byt5/base.gin'")[1]


def test_only_plain_values_are_taken_from_a_run(tmp_path):
    """Whatever a folder's gin holds, what is made of it imports and calls nothing of it."""
    breaking_out = "float32'\nimport evil\nA = 'b"
    hostile = f"""
import evil
import evil as seqio
include 'evil.gin'
network.T5Config.num_heads = @evil.work()
network.T5Config.head_dim = [1, @evil.work]
network.T5Config.mlp_dim = {{'a': %EVIL}}
network.T5Config.dtype = {breaking_out!r}
network.T5Config.evil = 1
EVIL = @evil.work()
seqio.SentencePieceVocabulary.extra_ids = %EVIL
"""
    found = read_settings(tmp_path, SAVED + hostile)
    read = Bindings.read(found)
    kept = {"emb_dim": 16, "mlp_activations": ("gelu", "linear"), "dtype": breaking_out}
    assert read.of("T5Config") == kept
    assert not read.names("evil")
    assert "extra_ids" not in found
    assert "import evil" not in found.splitlines()


@pytest.mark.parametrize("name", ["'a/../../b'", "'$(touch pwned)'", "@a.b()", "3"])
def test_a_task_that_is_no_name_is_refused(name, tmp_path):
    with refuses(tmp_path / "config.gin") as refusal:
        read_settings(tmp_path, f"MIXTURE_OR_TASK_NAME = {name}\n")
    assert "names no task" in refusal.value.why


def test_the_run_of_a_t5gemma2_is_refused(tmp_path):
    text = SAVED.replace("T5Config", "T5Gemma2Config").replace("examples.t5", "examples.t5gemma2")
    with refuses(tmp_path / "config.gin") as refusal:
        read_settings(tmp_path, text)
    assert "a T5Gemma 2" in refusal.value.why


def test_a_run_without_a_vocabulary_or_lengths_is_refused(tmp_path):
    text = "MIXTURE_OR_TASK_NAME = 'x'\n"
    with refuses(tmp_path / "config.gin") as refusal:
        read_settings(tmp_path, text)
    assert "TASK_FEATURE_LENGTHS, " in refusal.value.why
    assert "sentencepiece_model" in refusal.value.why


# --- launch/restore_diacritics.sh


SCRIPT = ROOT / "launch/restore_diacritics.sh"
RECORDER = """#!/usr/bin/env bash
printf '%s\\n' "$@" >> {calls}
if [[ "$2" == tasks.jobs.diacritics.restore && "$3" == write ]]; then echo restored; fi
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
    (folder / "config.gin").write_text(SAVED)
    return folder


def test_the_script_decodes_with_the_settings_of_the_run(tmp_path, run_folder):
    done, calls = run_script(tmp_path, run_folder, "--gin.BATCH_SIZE=2")
    assert (done.returncode, done.stdout) == (0, "restored\n"), done.stderr
    assert calls[calls.index("settings") + 1] == str(run_folder)
    assert not [call for call in calls if "config.gin" in call]
    assert '--gin.utils.RestoreCheckpointConfig.mode="latest"' in calls
    assert calls.index("--gin.BATCH_SIZE=8") < calls.index("--gin.BATCH_SIZE=2")  # ours win


def test_the_best_checkpoint_is_taken_where_one_was_noted(tmp_path, run_folder):
    (run_folder / "best.json").write_text("{}")
    best, specific = (
        f'--gin.utils.RestoreCheckpointConfig.mode="{m}"' for m in ("best", "specific")
    )
    assert best in run_script(tmp_path, run_folder)[1]
    _, calls = run_script(tmp_path, run_folder / "checkpoint_7")
    assert calls.count(specific) == 1
    assert f'--gin.CHECKPOINT_PATH="{run_folder}/checkpoint_7"' in calls
