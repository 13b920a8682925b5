"""A converted model is found in its folder and loaded once."""

import dataclasses

import pytest

from convert import text_model
from convert.tokenizer import write_tokenizer
from fakes.convert_fakes import FAMILIES, arrays, write_folder
from fakes.paths import ROOT
from vocabulary.sentencepiece_model import read_model, write_model


def test_the_last_converted_checkpoint_is_taken(tmp_path):
    for step in (5, 20):
        (tmp_path / f"checkpoint_{step}").mkdir()
        (tmp_path / f"checkpoint_{step}" / "config.json").write_text("{}")
    (tmp_path / "checkpoint_100").mkdir()  # not converted
    assert text_model.last_converted(tmp_path) == tmp_path / "checkpoint_20"
    assert text_model.last_converted(tmp_path / "checkpoint_5") == tmp_path / "checkpoint_5"
    with pytest.raises(ValueError, match="checkpoint_100 holds no converted model"):
        text_model.last_converted(tmp_path / "checkpoint_100")


@pytest.mark.parametrize("extra_ids", [50, 100, 300])
def test_sentinels_are_the_tokenizers_own(tmp_path, extra_ids):
    rows = 1948 + extra_ids
    sizes = dataclasses.replace(FAMILIES["t5_1_1"], vocab_size=rows)
    write_folder(tmp_path, sizes, arrays(sizes))
    model = read_model(str(ROOT / "data" / "ro_mini" / "ro_mini.model"))
    del model.pieces[-100:]
    write_model(model, str(tmp_path / "outside.model"))
    write_tokenizer(str(tmp_path / "outside.model"), str(tmp_path), extra_ids=extra_ids)
    loaded = text_model.TextModel(tmp_path)
    assert loaded.sentinels == list(range(rows - 1, 1947, -1))
    assert loaded.tokenizer.decode(loaded.sentinels[:2]) == "<extra_id_0><extra_id_1>"
