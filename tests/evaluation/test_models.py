"""Runs and Hugging Face folders are found, and give the same scores."""

import dataclasses

import pytest

from convert.tokenizer import write_tokenizer
from evaluation import models
from evaluation.hidden_text import HiddenText
from fakes.convert_fakes import FAMILIES, arrays, write_folder, write_run
from fakes.paths import ROOT

VOCABULARY = ROOT / "data" / "ro_mini" / "ro_mini.model"
TEXT = HiddenText(("Ana", "are", "mere", "și", "pere"), ((1, 3),))


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


def test_what_is_no_model_is_refused(tmp_path):
    with pytest.raises(ValueError, match="holds no complete checkpoint_<step>"):
        models.find(str(tmp_path))
    with pytest.raises(ValueError, match="is not a folder"):
        models.find(str(tmp_path / "absent"))
    write_folder(tmp_path, FAMILIES["t5_1_1"], arrays(FAMILIES["t5_1_1"]))
    with pytest.raises(ValueError, match="has no tokenizer"):
        models.find(str(tmp_path))
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    with pytest.raises(ValueError, match="model_type 'gpt2' is not one of"):
        models.find(str(tmp_path))
