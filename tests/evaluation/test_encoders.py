"""Encoders are found in runs and in Hugging Face folders, and give the same guesses."""

import pytest

from command_line.gin_reader import Bindings
from convert.encoders import from_hf
from convert.run.model_dir import TrainedRun
from evaluation import encoders, models
from evaluation.hidden_text import HiddenText
from fakes.convert_fakes import ENCODERS, write_encoder_folder
from fakes.paths import ROOT

TEXT = HiddenText(("Copiii", "merg", "la", "școală", "."), ((1, 3),))


@pytest.mark.parametrize("family", ENCODERS)
def test_a_folder_and_its_run_give_the_same_guesses(tmp_path, family):
    folder, run = write_encoder_folder(tmp_path / "hf", family), tmp_path / "run"
    from_hf.write_checkpoint(folder, run, step=7, verify_logits=False)
    found = [models.find(str(path))[0] for path in (folder, run)]
    assert [model.step for model in found] == [None, 7]
    assert found[1].run == run
    assert found[0].count_parameters() == found[1].count_parameters() > 8 * 2000
    assert found[0].ids_of("merg") == found[1].ids_of("merg")
    ways = [model.objective(models.SPAN_CORRUPTION) for model in found]
    assert ways == [models.MASKED_LM] * 2
    guesses = [model.load(way).guess([TEXT])[0] for model, way in zip(found, ways, strict=True)]
    assert guesses[0].log_prob == pytest.approx(guesses[1].log_prob, rel=1e-5)
    assert guesses[0].log_prob < -1


def test_the_tokenizer_that_a_recipe_names_is_found(tmp_path):
    folder, run = write_encoder_folder(tmp_path / "hf", "bert"), tmp_path / "run"
    from_hf.write_checkpoint(folder, run, verify_logits=False)
    (run / "tokenizer").rename(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match="run has no tokenizer: there is no"):
        models.find(str(run))
    with open(run / "config.gin", "a") as file:
        file.write(f"a.TokenizerVocabulary.tokenizer_file = '{tmp_path}/elsewhere'\n")
    assert models.find(str(run))[0].ids_of("merg")


def test_the_network_and_tokenizer_of_a_recipe_are_found(tmp_path):
    bindings = Bindings.follow(ROOT / "gin" / "ro_bert_tiny.gin", [ROOT])
    found = encoders.of_run(TrainedRun(str(tmp_path), {}), bindings, [tmp_path, ROOT])
    assert found.module.config.max_length == 128
    assert not found.module.config.next_sentence
    assert found.vocabulary.vocab_size == found.module.config.vocab_size == 2048
    bindings = Bindings.follow(ROOT / "gin" / "ro_t5x_tiny.gin", [ROOT])
    assert encoders.of_run(TrainedRun(str(tmp_path), {}), bindings, [ROOT]) is None


def test_an_encoder_that_should_continue_text_is_refused(tmp_path):
    (model,) = models.find(str(write_encoder_folder(tmp_path / "hf", "bert")))
    with pytest.raises(ValueError, match="is an encoder, which cannot continue a text"):
        model.objective(models.PREFIX_LM)


def test_a_folder_without_a_tokenizer_is_refused(tmp_path):
    folder = write_encoder_folder(tmp_path / "hf", "bert")
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ValueError, match="hf has no tokenizer: there is no"):
        models.find(str(folder))
