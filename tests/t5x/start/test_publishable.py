"""A run is asked once whether it can be published, before it starts."""

import dataclasses
import subprocess

import jax
import pytest
import seqio

import gin
from common.errors import UserError
from common.tables import NOT_CHECKED, OK
from convert.formats.sentencepiece_model import read_model, write_model
from fakes import toy, valid_run
from fakes.paths import MINI
from t5x.partitioning import PjitPartitioner
from t5x.start import publishable
from t5x.train_state import state_specs

SIZES = {"vocab_size": 2048, "emb_dim": 16, "num_heads": 2, "head_dim": 8, "mlp_dim": 32}
SIZES |= {"num_encoder_layers": 1, "num_decoder_layers": 1}


def asked(path, texts=("Ana are mere",)):
    """The result for a tiny T5 of a SentencePiece model, whose sizes gin binds."""
    vocabulary = seqio.SentencePieceVocabulary(str(path))
    both = {"input_vocabulary": vocabulary, "output_vocabulary": vocabulary}
    model = dataclasses.replace(toy.model(**SIZES), **both)
    specs = state_specs(model, PjitPartitioner(devices=jax.devices()[:1]))
    with valid_run.gin_apart():
        lines = [f"network.T5Config.{name} = {value}" for name, value in SIZES.items()]
        names = ["from __gin__ import dynamic_registration", "from t5x.examples.t5 import network"]
        gin.parse_config("\n".join([*names, *lines]))
        return publishable.check(model, specs, lambda: list(texts))


def test_an_answer_is_kept_for_the_same_vocabulary_network_and_text(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    commands, run = [], subprocess.run
    monkeypatch.setattr(subprocess, "run", lambda *a, **k: commands.append(a[0]) or run(*a, **k))
    exports = lambda: [command[2] for command in commands].count("convert.publishable")
    first, again = asked(MINI / "ro_mini.model"), asked(MINI / "ro_mini.model")
    assert (first.verdict, first, exports()) == (OK, again, 1)
    model = read_model(str(MINI / "ro_mini.model"))
    model.trainer_spec.model_type = model.trainer_spec.BPE
    write_model(model, str(tmp_path / "bpe.model"))
    with pytest.raises(UserError, match="bpe"):
        asked(tmp_path / "bpe.model")
    assert exports() == 2


def test_an_answer_of_another_version_of_the_converter_is_not_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    versions, exports = iter("aab"), []

    def run(command, **_):
        if "convert.version" in command:
            return subprocess.CompletedProcess(command, 0, next(versions), "")
        exports.append(command)
        return subprocess.CompletedProcess(command, 0, '{"verdict": "ok", "figure": "equal"}', "")

    monkeypatch.setattr(subprocess, "run", run)
    assert [asked(MINI / "ro_mini.model").verdict for _ in range(3)] == [OK] * 3
    assert len(exports) == 2


def test_without_a_library_of_the_converter_a_run_is_not_checked(monkeypatch):
    missing = subprocess.CompletedProcess("", 1, "torch is not installed", "")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: missing)
    result = asked(MINI / "ro_mini.model")
    assert (result.verdict, result.figure) == (NOT_CHECKED, "torch is not installed")


def test_a_run_that_no_gin_file_describes_is_not_checked():
    model = toy.shared_model()
    specs = state_specs(model, PjitPartitioner(devices=jax.devices()[:1]))
    with valid_run.gin_apart():
        gin.clear_config()
        assert publishable.check(model, specs, list).verdict == NOT_CHECKED


def test_the_first_lines_of_a_plain_source_are_its_texts():
    lines = publishable.first_lines(toy.data())
    assert set(toy.texts("train")) <= set(lines)
