import dataclasses

import pytest

from convert import fill_masks
from convert.tokenizer import write_byte_tokenizer, write_tokenizer
from fakes.convert_fakes import FAMILIES, arrays, write_folder
from fakes.paths import ROOT

MINI = ROOT / "data" / "ro_mini" / "ro_mini.model"


@pytest.fixture(scope="module")
def converted(tmp_path_factory):
    """A random model with a real tokenizer, as checkpoint_20."""
    out = tmp_path_factory.mktemp("run_hf")
    folder = out / "checkpoint_20"
    sizes = dataclasses.replace(FAMILIES["t5_1_1"], vocab_size=2048)
    write_folder(folder, sizes, arrays(sizes))
    write_tokenizer(str(MINI), str(folder))
    return out


def test_the_last_converted_checkpoint_fills_in_the_mask(converted, capsys, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    fill_masks.main([str(converted), "Ana are <extra_id_0> mere."])
    line = capsys.readouterr().out.rstrip("\n")
    assert line.startswith("  Ana are [")
    assert line.endswith("] mere.")
    assert "<extra_id" not in line
    assert "[]" not in line


def test_a_model_without_sentinels_is_refused(tmp_path, capsys):
    sizes = dataclasses.replace(FAMILIES["t5_1_1"], vocab_size=384)
    write_folder(tmp_path, sizes, arrays(sizes))
    write_byte_tokenizer(str(tmp_path), extra_ids=0)
    with pytest.raises(SystemExit, match="2"):
        fill_masks.main([str(tmp_path), "Ana are <extra_id_0> mere."])
    assert "has no <extra_id_0> in its vocabulary" in capsys.readouterr().err
