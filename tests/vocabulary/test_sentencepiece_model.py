"""A model is found, read, edited and written; other files are refused."""

import shutil

import pytest

from convert.formats.sentencepiece_model import (
    keep_character,
    processor,
    read_model,
    sentinel_ids,
    write_model,
)
from fakes import tokenizer_files
from fakes.paths import ROOT
from fakes.refuses import refuses
from vocabulary import files
from vocabulary.pieces import NewPiece, SentencePieces

MINI = ROOT / "data" / "ro_mini" / "ro_mini.model"


@pytest.fixture
def model():
    return read_model(str(MINI))


def test_a_model_is_found_in_a_run_or_a_converted_folder(tmp_path):
    assert files.find_model(str(MINI)) == str(MINI)
    with refuses(tmp_path):
        files.find_model(str(tmp_path))
    for name in ("vocabulary.model", "spiece.model"):
        (tmp_path / name).write_bytes(MINI.read_bytes())
        assert files.find_model(str(tmp_path)) == str(tmp_path / name)


@pytest.mark.parametrize("content", [b"", b"\x0a\x03abc"])
def test_no_model(tmp_path, content):
    path = tmp_path / "a.model"
    path.write_bytes(content)
    with refuses(path):
        read_model(str(path))
    with refuses(tmp_path / "b.model"):
        read_model(str(tmp_path / "b.model"))


def test_a_written_model_is_read_again_with_its_listing(model, tmp_path):
    path = tmp_path / "new.model"
    write_model(model, str(path))
    assert read_model(str(path)) == model
    assert path.with_suffix(".vocab").read_text(encoding="utf-8").count("\n") == 2048
    assert {p.name for p in tmp_path.iterdir()} == {"new.model", "new.vocab"}


def test_rebuilt_models_name_the_old_ids_of_every_piece(model):
    change = SentencePieces(model).change([0, 1, 2, 7, 9], [NewPiece("▁qxz", (7, 9))])
    new, sources = change.new.model, change.sources
    assert len(new.pieces) == new.trainer_spec.vocab_size == len(sources) == 106
    assert sources[:7] == [(0,), (1,), (2,), (7,), (9,), (7, 9), (1948,)]
    assert [new.pieces[3], new.pieces[4]] == [model.pieces[7], model.pieces[9]]
    score = model.pieces[7].score + model.pieces[9].score
    assert new.pieces[5].piece == "▁qxz"
    assert score < new.pieces[5].score < score + 1
    assert sentinel_ids(new)[0] == 105


def test_a_model_without_sentinels_must_say_where_they_are(model):
    del model.pieces[-100:]
    with refuses("the model") as refusal:
        SentencePieces(model).change([0, 1, 2])
    assert "--extra_ids 100" in refusal.value.to_set
    change = SentencePieces(model, 100).change([0, 1, 2])
    assert change.sources[-1] == (2047,)


def test_one_character_is_kept_and_all_others_are_normalized_as_before():
    model = read_model(str(ROOT / "data/ro_mini/ro_mini.model"))
    before = processor(model)
    keep_character(model, "\u200c")
    after = processor(model)
    assert after.normalize("a\u200ca") == "▁a\u200ca"
    others = [chr(i) for i in range(1, 0x20000) if not 0xD800 <= i < 0xE000 and i != 0x200C]
    assert [after.normalize(f"a{c}a") for c in others] == [
        before.normalize(f"a{c}a") for c in others
    ]


def test_a_folder_of_t5s_is_not_an_encoders(tmp_path):
    shutil.copytree(tokenizer_files.WORDPIECE, tmp_path, dirs_exist_ok=True)
    assert files.find_tokenizer(str(tmp_path)) == str(tmp_path)
    (tmp_path / "spiece.model").write_bytes(b"")
    for path in (str(tmp_path), str(MINI), "gs://bucket/ro"):
        assert files.find_tokenizer(path) is None
