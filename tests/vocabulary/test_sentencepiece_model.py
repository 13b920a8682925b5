"""A model is found, read, edited and written; other files are refused."""

import shutil

import pytest

from convert.formats.sentencepiece_model import read_model, sentinel_ids
from fakes import tokenizer_files
from fakes.paths import ROOT
from vocabulary import sentencepiece_model as spm

MINI = ROOT / "data" / "ro_mini" / "ro_mini.model"


@pytest.fixture
def model():
    return read_model(str(MINI))


def test_a_model_is_found_in_a_run_or_a_converted_folder(tmp_path):
    assert spm.find_model(str(MINI)) == str(MINI)
    with pytest.raises(ValueError, match=r"holds neither spiece\.model nor vocabulary\.model"):
        spm.find_model(str(tmp_path))
    for name in ("vocabulary.model", "spiece.model"):
        (tmp_path / name).write_bytes(MINI.read_bytes())
        assert spm.find_model(str(tmp_path)) == str(tmp_path / name)


@pytest.mark.parametrize("content", [b"", b"\x0a\x03abc"])
def test_no_model(tmp_path, content):
    path = tmp_path / "a.model"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="is not a SentencePiece model"):
        read_model(str(path))
    with pytest.raises(ValueError, match="cannot be read"):
        read_model(str(tmp_path / "b.model"))


def test_a_written_model_is_read_again_with_its_listing(model, tmp_path):
    path = tmp_path / "new.model"
    spm.write_model(model, str(path))
    assert read_model(str(path)) == model
    assert path.with_suffix(".vocab").read_text(encoding="utf-8").count("\n") == 2048
    assert {p.name for p in tmp_path.iterdir()} == {"new.model", "new.vocab"}


def test_rebuilt_models_name_the_old_ids_of_every_piece(model):
    new, sources = spm.rebuild(model, [0, 1, 2, 7, 9], [("▁nou", -3.5, [7, 9])], extra_ids=0)
    assert len(new.pieces) == new.trainer_spec.vocab_size == len(sources) == 106
    assert sources[:7] == [(0,), (1,), (2,), (7,), (9,), (7, 9), (1948,)]
    assert [new.pieces[3], new.pieces[4]] == [model.pieces[7], model.pieces[9]]
    assert (new.pieces[5].piece, new.pieces[5].score) == ("▁nou", -3.5)
    assert sentinel_ids(new)[0] == 105


def test_a_model_without_sentinels_must_say_where_they_are(model):
    del model.pieces[-100:]
    with pytest.raises(ValueError, match=r"has no piece <extra_id_0>, .*: set --extra_ids 100"):
        spm.rebuild(model, [0, 1, 2], [], extra_ids=0)
    _, sources = spm.rebuild(model, [0, 1, 2], [], extra_ids=100)
    assert sources[-1] == (2047,)


def test_one_character_is_kept_and_all_others_are_normalized_as_before():
    model = read_model(str(ROOT / "data/ro_mini/ro_mini.model"))
    before = spm.processor(model)
    spm.keep_character(model, "\u200c")
    after = spm.processor(model)
    assert after.normalize("a\u200ca") == "▁a\u200ca"
    others = [chr(i) for i in range(1, 0x20000) if not 0xD800 <= i < 0xE000 and i != 0x200C]
    assert [after.normalize(f"a{c}a") for c in others] == [
        before.normalize(f"a{c}a") for c in others
    ]


def test_a_folder_of_t5s_is_not_an_encoders(tmp_path):
    shutil.copytree(tokenizer_files.WORDPIECE, tmp_path, dirs_exist_ok=True)
    assert spm.find_tokenizer(str(tmp_path)) == str(tmp_path)
    (tmp_path / "spiece.model").write_bytes(b"")
    for path in (str(tmp_path), str(MINI), "gs://bucket/ro"):
        assert spm.find_tokenizer(path) is None
