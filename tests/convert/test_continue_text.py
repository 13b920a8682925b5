"""A converted model continues the beginning of a text."""

import dataclasses

import pytest

from convert import continue_text, text_model
from convert.tokenizer import write_tokenizer
from fakes.convert_fakes import FAMILIES, arrays, write_folder
from fakes.paths import ROOT

MODEL = ROOT / "data" / "ro_simple" / "ro_simple.model"


@pytest.fixture(scope="module")
def converted(tmp_path_factory):
    """A random model with a real tokenizer, as checkpoint_20."""
    folder = tmp_path_factory.mktemp("run_hf") / "checkpoint_20"
    sizes = dataclasses.replace(FAMILIES["t5_1_1"], vocab_size=2048)
    write_folder(folder, sizes, arrays(sizes))
    write_tokenizer(str(MODEL), str(folder))
    return folder.parent


def test_a_seed_gives_the_same_continuation_and_another_gives_another(converted, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    continuer = continue_text.TextContinuer(text_model.last_converted(converted))
    first, again, other = (continuer.continue_text("Ana are", 30, seed) for seed in (0, 0, 1))
    assert first == again != other
    assert first
    assert "<extra_id" not in first + other


def test_the_text_ends_with_a_complete_sentence(converted, monkeypatch):
    continuer = continue_text.TextContinuer(text_model.last_converted(converted))
    for text, shown in {"Ana. Da! Și": "Ana. Da!", "Fără sfârșit": "Fără sfârșit"}.items():
        monkeypatch.setattr(continuer.tokenizer, "decode", lambda *_, text=text, **__: text)
        assert continuer.continue_text("Ana", 4) == shown


def test_each_beginning_is_printed_with_its_continuation(converted, capsys, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    continue_text.main([str(converted), "Ana are", "Afară", "--tokens", "8"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(" [")[0] for line in lines] == ["  Ana are", "  Afară"]
    assert all(line.endswith("]") for line in lines)
