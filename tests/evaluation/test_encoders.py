"""Encoders are found in runs and in Hugging Face folders, and give the same guesses."""

import dataclasses
import json
import shutil

import numpy as np
import pytest
from safetensors.numpy import save_file

from convert.encoders import from_hf, weight_map
from convert.encoders.sizes import EncoderSizes, hugging_face_config
from evaluation import models
from evaluation.hidden_text import HiddenText
from fakes import tokenizer_files
from tasks.tokenizer_vocabulary import TokenizerVocabulary

TEXT = HiddenText(("Copiii", "merg", "la", "școală", "."), ((1, 3),))
SMALL = {"emb_dim": 8, "num_heads": 2, "mlp_dim": 12, "max_length": 64}
FAMILIES = {
    "bert": EncoderSizes("bert", 0, num_layers=2, **SMALL),
    "roberta": EncoderSizes("roberta", 0, num_layers=2, position_offset=2, **SMALL),
    "modernbert": EncoderSizes("modernbert", 0, num_layers=4, local_window=8, **SMALL),
}


def published(folder, family):
    """Write a Hugging Face folder of random weights, with a tokenizer."""
    shutil.copytree(tokenizer_files.WORDPIECE, folder)
    size = TokenizerVocabulary(str(folder)).vocab_size
    sizes = dataclasses.replace(FAMILIES[family], vocab_size=size)
    random = np.random.default_rng(0)
    save_file(
        {
            each.target: random.normal(0, 0.3, each.torch_shape).astype(np.float32)
            for each in weight_map.tensors(sizes)
        },
        folder / "model.safetensors",
    )
    (folder / "config.json").write_text(json.dumps(hugging_face_config(sizes)))
    return folder


@pytest.mark.parametrize("family", FAMILIES)
def test_a_folder_and_its_run_give_the_same_guesses(tmp_path, family):
    folder, run = published(tmp_path / "hf", family), tmp_path / "run"
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
    folder, run = published(tmp_path / "hf", "bert"), tmp_path / "run"
    from_hf.write_checkpoint(folder, run, verify_logits=False)
    (run / "tokenizer").rename(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match="run has no tokenizer: there is no"):
        models.find(str(run))
    with open(run / "config.gin", "a") as file:
        file.write(f"a.TokenizerVocabulary.tokenizer_file = '{tmp_path}/elsewhere'\n")
    assert models.find(str(run))[0].ids_of("merg")


def test_an_encoder_that_should_continue_text_is_refused(tmp_path):
    (model,) = models.find(str(published(tmp_path / "hf", "bert")))
    with pytest.raises(ValueError, match="is an encoder, which cannot continue a text"):
        model.objective(models.PREFIX_LM)


def test_a_folder_without_a_tokenizer_is_refused(tmp_path):
    folder = published(tmp_path / "hf", "bert")
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ValueError, match="hf has no tokenizer: there is no"):
        models.find(str(folder))
