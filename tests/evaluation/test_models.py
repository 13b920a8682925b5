"""Runs and Hugging Face folders are found, and give the same scores."""

import dataclasses
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from convert import from_hf
from convert.formats.tokenizer_files import write_tokenizer
from convert.generate import last_converted
from convert.run.rewrite import gin_of
from evaluation import models
from evaluation.hidden_text import HiddenText
from fakes.convert_fakes import (
    ENCODERS,
    FAMILIES,
    arrays,
    write_encoder_folder,
    write_folder,
    write_run,
)
from fakes.gcs_emulator import GcsEmulator
from fakes.paths import ROOT
from fakes.refuses import refuses

VOCABULARY = ROOT / "data" / "ro_mini" / "ro_mini.model"
TEXT = HiddenText(("Ana", "are", "mere", "și", "pere"), ((1, 3),))
SCHOOL = HiddenText(("Copiii", "merg", "la", "școală", "."), ((1, 3),))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_run_and_its_converted_folder_give_the_same_scores(tmp_path, family):
    sizes = dataclasses.replace(FAMILIES[family], vocab_size=2048)
    values = arrays(sizes)
    for step in (3, 20):
        write_run(tmp_path / "run", sizes, values, step)
    (tmp_path / "run" / "vocabulary.model").write_bytes(VOCABULARY.read_bytes())
    folder = tmp_path / "run_hf" / "checkpoint_20"
    write_folder(folder, sizes, values)
    write_tokenizer(str(VOCABULARY), str(folder))
    run, converted = tmp_path / "run", tmp_path / "run_hf"
    found = [models.find(str(path)) for path in (run, converted, folder)]
    assert [[m.step for m in each] for each in found] == [[20], [20], [20]]
    assert [m.step for m in models.find(str(run), every_checkpoint=True)] == [3, 20]
    assert found[0][0].run == run
    assert {m.count_parameters() for each in found for m in each} == {
        sum(array.size for array in values.values())
    }
    first, other = (each[0].load(models.SPAN_CORRUPTION).guess([TEXT])[0] for each in found[:2])
    assert first.log_prob == pytest.approx(other.log_prob, rel=1e-4)


def test_all_converted_checkpoints_are_found_in_order(tmp_path):
    sizes = dataclasses.replace(FAMILIES["t5_1_1"], vocab_size=2048)
    names = ["checkpoint_0", "checkpoint_20_mean_of_2", "checkpoint_20_mean_of_3", "checkpoint_20"]
    names += ["checkpoint_100_mean_of_2"]
    for name in names:
        write_folder(tmp_path / name, sizes, arrays(sizes))
        write_tokenizer(str(VOCABULARY), str(tmp_path / name))
    found = models.find(str(tmp_path), every_checkpoint=True)
    assert [pathlib.Path(model.path).name for model in found] == names
    assert (
        last_converted(tmp_path).name == names[-1]
    )  # the one that writes texts is the one measured


def test_a_checkpoint_of_another_network_than_its_run_says_is_refused(tmp_path):
    """Its gin was changed: a network that reads a part of the parameters gives wrong figures."""
    sizes = dataclasses.replace(FAMILIES["t5_1_1"], vocab_size=2048)
    write_run(tmp_path, sizes)
    tied = dataclasses.replace(sizes, logits_via_embedding=True)
    (tmp_path / "config.gin").write_text(gin_of(tied))
    (tmp_path / "vocabulary.model").write_bytes(VOCABULARY.read_bytes())
    (model,) = models.find(str(tmp_path))
    with refuses("the checkpoint"):
        model.load(models.SPAN_CORRUPTION)


def test_what_is_no_model_is_refused(tmp_path):
    with refuses(tmp_path):
        models.find(str(tmp_path))
    with refuses(tmp_path / "absent"):
        models.find(str(tmp_path / "absent"))
    write_folder(tmp_path, FAMILIES["t5_1_1"], arrays(FAMILIES["t5_1_1"]))
    with refuses(tmp_path) as refusal:
        models.find(str(tmp_path))
    assert "tokenizer" in refusal.value.why
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    with refuses("model_type", "gpt2"):
        models.find(str(tmp_path))


@pytest.mark.parametrize("family", ENCODERS)
def test_an_encoder_and_its_run_give_the_same_guesses(tmp_path, family):
    folder, run = write_encoder_folder(tmp_path / "hf", family), tmp_path / "run"
    from_hf.write_checkpoint(folder, run, step=7, verify_logits=False)
    found = [models.find(str(path))[0] for path in (folder, run)]
    assert [model.step for model in found] == [None, 7]
    assert found[1].run == run
    assert found[0].count_parameters() == found[1].count_parameters() > 8 * 2000
    assert found[0].encoder.ids_of("merg") == found[1].encoder.ids_of("merg")
    ways = [model.objective(models.SPAN_CORRUPTION) for model in found]
    assert ways == [models.MASKED_LM] * 2
    guesses = [model.load(way).guess([SCHOOL])[0] for model, way in zip(found, ways, strict=True)]
    assert guesses[0].log_prob == pytest.approx(guesses[1].log_prob, rel=1e-5)
    assert guesses[0].log_prob < -1


def test_the_tokenizer_that_a_recipe_names_is_found(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder, run = write_encoder_folder(tmp_path / "hf", "bert"), tmp_path / "run"
    from_hf.write_checkpoint(folder, run, verify_logits=False)
    (run / "tokenizer").rename(tmp_path / "elsewhere")
    with refuses(run):
        models.find(str(run))
    with open(run / "config.gin", "a") as file:
        file.write("a.TokenizerVocabulary.tokenizer_file = 'elsewhere'\n")
    assert models.find(str(run))[0].encoder.ids_of("merg")


_IDS = """
import sys
sys.path.insert(0, sys.argv[1])
from evaluation import models

for path in sys.argv[2:]:
    (model,) = models.find(path)
    print("IDS", model.encoder.ids_of("merg"))
"""


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl makes the certificate")
def test_the_tokenizer_of_an_encoder_in_a_bucket_is_found(tmp_path):
    """In the run's folder there, or where the recipe names an address."""
    folder, run = write_encoder_folder(tmp_path / "hf", "bert"), tmp_path / "run"
    from_hf.write_checkpoint(folder, run, verify_logits=False)
    wanted = models.find(str(run))[0].encoder.ids_of("merg")
    with GcsEmulator("bucket", certificates=tmp_path) as gcs:
        gcs.put_folder("bucket", "run", run)
        (run / "tokenizer").rename(tmp_path / "elsewhere")
        with open(run / "config.gin", "a") as file:
            file.write("a.tokenizer.path = 'gs://bucket/elsewhere'\n")
        gcs.put_folder("bucket", "elsewhere", tmp_path / "elsewhere")
        gcs.put_folder("bucket", "bare", run)
        done = subprocess.run(
            [sys.executable, "-c", _IDS, str(ROOT), "gs://bucket/run", "gs://bucket/bare"],
            env=os.environ | gcs.environment | {"XLA_FLAGS": ""},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if line.startswith("IDS")] == [
        f"IDS {wanted}"
    ] * 2
