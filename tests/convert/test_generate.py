"""A converted T5 is found in its folder, fills in masks and continues texts."""

import dataclasses

import pytest

from convert import generate
from convert.formats.tokenizer_files import write_byte_tokenizer, write_tokenizer
from fakes.convert_fakes import ENCODERS, FAMILIES, arrays, write_folder
from fakes.paths import ROOT
from fakes.refuses import refuses

MINI = ROOT / "data" / "ro_mini" / "ro_mini.model"


def write_model_of(folder, rows):
    sizes = dataclasses.replace(FAMILIES["t5_1_1"], vocab_size=rows)
    write_folder(folder, sizes, arrays(sizes))


@pytest.fixture(scope="module")
def converted(tmp_path_factory):
    """A random model with a real tokenizer, as checkpoint_20."""
    folder = tmp_path_factory.mktemp("run_hf") / "checkpoint_20"
    write_model_of(folder, 2048)
    write_tokenizer(str(MINI), str(folder))
    return folder.parent


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")  # which the commands set


def test_the_last_converted_checkpoint_is_taken(tmp_path):
    for name in ("5", "20", "20_mean_of_2"):  # a mean is taken if it is named
        (tmp_path / f"checkpoint_{name}").mkdir()
        (tmp_path / f"checkpoint_{name}" / "config.json").write_text("{}")
    (tmp_path / "checkpoint_100").mkdir()  # not converted
    assert generate.last_converted(tmp_path) == tmp_path / "checkpoint_20"
    assert generate.last_converted(tmp_path / "checkpoint_5") == tmp_path / "checkpoint_5"
    with refuses(tmp_path / "checkpoint_100"):
        generate.last_converted(tmp_path / "checkpoint_100")


def test_a_mask_is_filled_in(converted, capsys):
    generate.main([str(converted), "Ana are <extra_id_0> mere."])
    line = capsys.readouterr().out.rstrip("\n")
    assert line.startswith("  Ana are [")
    assert line.endswith("] mere.")
    assert "<extra_id" not in line
    assert "[]" not in line


def test_a_model_without_sentinels_fills_in_nothing(tmp_path, capsys):
    write_model_of(tmp_path, 384)
    write_byte_tokenizer(str(tmp_path), extra_ids=0)
    with pytest.raises(SystemExit, match="2"):
        generate.main([str(tmp_path), "Ana are <extra_id_0> mere."])
    assert "has no <extra_id_0>" in capsys.readouterr().err


@pytest.mark.parametrize("network", ["bert", "t5_1_1"])
def test_a_folder_that_cannot_write_a_text_is_refused(tmp_path, network):
    """An encoder, and weights without a tokenizer."""
    sizes = (FAMILIES | ENCODERS)[network]
    write_folder(tmp_path, sizes, arrays(sizes))
    with refuses(tmp_path):
        generate.main([str(tmp_path), "Ana are"])


def test_a_seed_gives_the_same_continuation_and_another_gives_another(converted):
    generator = generate.TextGenerator(converted)
    first, again, other = (generator.continue_text("Ana are", 30, seed) for seed in (0, 0, 1))
    assert first == again != other
    assert first
    assert "<extra_id" not in first + other


def test_the_text_ends_with_a_complete_sentence(converted, monkeypatch):
    generator = generate.TextGenerator(converted)
    for text, shown in {"Ana. Da! Și": "Ana. Da!", "Fără sfârșit": "Fără sfârșit"}.items():
        monkeypatch.setattr(generator.tokenizer, "decode", lambda *_, text=text, **__: text)
        assert generator.continue_text("Ana", 4) == shown


def test_each_beginning_is_printed_with_its_continuation(converted, capsys):
    generate.main([str(converted), "Ana are", "Afară", "--tokens", "8"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(" [")[0] for line in lines] == ["  Ana are", "  Afară"]
    assert all(line.endswith("]") for line in lines)
