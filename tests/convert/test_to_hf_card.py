"""The card of a converted run says what its weights really do, and is written again alone."""

import contextlib
import dataclasses
import io
import json
import os
import re
import shutil

import pytest
import yaml
from transformers import pipeline

from convert import __main__ as converter
from fakes.convert_fakes import FAMILIES, write_run
from fakes.paths import ROOT
from t5x.monitoring import metric_writers

TEXTS = ("Ana are <extra_id_0> mere.", "Copiii merg la <extra_id_0> în zori.")


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("card") / "run"
    sizes = dataclasses.replace(FAMILIES["t5_1_1"], vocab_size=2048)
    write_run(folder, sizes)
    infill = f"from t5x import watch\nINFILL_SENTENCES = {TEXTS!r}\n"
    with (folder / "config.gin").open("a") as gin:
        gin.write(f"{infill}watch.Watch.infill_sentences = %INFILL_SENTENCES\n")
    shutil.copyfile(ROOT / "data" / "ro_mini" / "ro_mini.model", folder / "vocabulary.model")
    return folder


@pytest.fixture(scope="module")
def folder(run_folder):
    assert converter.main([str(run_folder), "--formats", "pytorch"]) == 0
    return run_folder.parent / "run_hf" / "checkpoint_3"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_code_of_the_card_prints_what_the_card_says(run_folder, tmp_path, monkeypatch, dtype):
    """Also of a folder whose weights are loaded, and multiplied, in bfloat16."""
    command = [str(run_folder), "--formats", "pytorch", "--dtype", dtype, "--out", str(tmp_path)]
    assert converter.main(command) == 0
    folder = tmp_path / "checkpoint_3"
    monkeypatch.chdir(folder)
    card = (folder / "README.md").read_text()
    code = re.search(r"```python\n(.*?)```", card, re.S)[1]
    said = re.search(r"These weights print:\n\n```\n(.*?)```", card, re.S)[1]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "card", "exec"), {})
    assert printed.getvalue() == said
    assert len(said.splitlines()) == len(TEXTS)
    assert repr(list(TEXTS)) in code


def test_the_pipeline_of_its_tag_generates_with_it(folder):
    front = yaml.safe_load((folder / "README.md").read_text().split("---\n")[1])
    generate = pipeline(front["pipeline_tag"], model=str(folder))
    assert type(generate.model).__name__ == "T5ForConditionalGeneration"
    (found,) = generate(TEXTS[0], max_new_tokens=5, do_sample=False)
    assert found["generated_text"]


def test_another_licence_writes_the_card_alone(run_folder, folder, capsys):
    before = {path.name: os.stat(path).st_mtime_ns for path in folder.iterdir()}
    flags = ("--formats", "pytorch", "--license", "cc0-1.0")
    assert converter.main([str(run_folder), *flags]) == 0
    said = capsys.readouterr().out
    assert "checkpoint_3 is done." in said
    assert "names no language:" in said
    assert "--language <code>" in said
    assert "license: cc0-1.0" in (folder / "README.md").read_text()
    assert json.loads((folder / "conversion.json").read_text())["metadata"]["license"] == "cc0-1.0"
    after = {path.name: os.stat(path).st_mtime_ns for path in folder.iterdir()}
    changed = {name for name in after if after[name] != before[name]}
    assert changed == {"README.md", "conversion.json"}


def test_several_outputs_of_a_text_are_not_shown_as_those_of_others(run_folder, tmp_path):
    run = shutil.copytree(run_folder, tmp_path / "run")
    settings = {"num_beams": 2, "num_return_sequences": 2}
    (run / "generation_config.json").write_text(json.dumps(settings))
    assert converter.main([str(run), "--formats", "pytorch"]) == 0
    folder = tmp_path / "run_hf" / "checkpoint_3"
    assert json.loads((folder / "conversion.json").read_text())["examples"] == []
    assert "These weights print" not in (folder / "README.md").read_text()


def write_loss(run, name):
    writer = metric_writers.TensorBoardWriter(str(run), name)
    writer.write_scalars(3, {"loss": 2.5})
    writer.close()


def test_figures_that_are_newer_than_the_conversion_get_into_the_card(run_folder, tmp_path):
    run = shutil.copytree(run_folder, tmp_path / "run")
    write_loss(run, "train")
    command = [str(run), "--formats", "pytorch", "--no_verify"]
    assert converter.main(command) == 0
    folder = tmp_path / "run_hf" / "checkpoint_3"
    before = os.stat(folder / "model.safetensors").st_mtime_ns
    write_loss(run, "mini")  # before train in the order of names
    (run / "inference_eval").mkdir()
    metrics = run / "inference_eval" / "evaluation_ron_Latn-metrics.jsonl"
    metrics.write_text('{"step": 3, "words": 0.1875}\n')
    assert converter.main(command) == 0
    assert os.stat(folder / "model.safetensors").st_mtime_ns == before
    assert "| words | 0.1875 |" in (folder / "README.md").read_text()
    parents = [path.parent.name for path in folder.glob("runs/**/events*")]
    assert sorted(parents) == ["mini", "train"], "each file once"
