import dataclasses
import json

import pytest

from convert import fill_masks, to_hf, weight_map
from convert.model_config import hugging_face_config
from convert.to_hf import ConversionOptions
from convert.tokenizer import write_tokenizer
from fakes.convert_fakes import FAMILIES, arrays, tree
from fakes.paths import ROOT

MINI = ROOT / "data" / "ro_mini" / "ro_mini.model"


@pytest.fixture(scope="module")
def converted(tmp_path_factory):
    """A random model with a real tokenizer, as checkpoint_20, beside an empty checkpoint_100."""
    out = tmp_path_factory.mktemp("run_hf")
    folder = out / "checkpoint_20"
    folder.mkdir()
    (out / "checkpoint_100").mkdir()
    sizes = dataclasses.replace(FAMILIES["t5_1_1"], vocab_size=2048)
    job = ConversionOptions(sizes=sizes, out=folder, formats=("pytorch",))
    to_hf.write_weights(folder, tree(arrays(sizes)), weight_map.tensors(sizes), job)
    (folder / "config.json").write_text(json.dumps(hugging_face_config(sizes, "t5")))
    write_tokenizer(str(MINI), str(folder))
    return out


def test_the_last_converted_checkpoint_fills_in_the_mask(converted, capsys, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert fill_masks.last_converted(converted) == converted / "checkpoint_20"
    assert fill_masks.main([str(converted), "Ana are <extra_id_0> mere."]) == 0
    line = capsys.readouterr().out.rstrip("\n")
    assert line.startswith("  Ana are [")
    assert line.endswith("] mere.")
    assert "<extra_id" not in line
    assert "[]" not in line


@pytest.mark.parametrize(
    ("folder", "sentence", "said"),
    [
        ("absent", "Ana <extra_id_0>", "absent holds no converted model"),
        (".", "Ana are mere.", "must hold <extra_id_0> once"),
    ],
)
def test_an_error_is_one_sentence(converted, capsys, folder, sentence, said):
    assert fill_masks.main([str(converted / folder), sentence]) == 1
    message = capsys.readouterr().err
    assert said in message
    assert message.count("\n") == 1
