"""The tokenizer's files are copied, and its special ids known by its own names."""

import json

import pytest

from convert.encoders.tokenizer_folder import TokenizerFolder, tokenizer_of
from fakes.tokenizer_files import words


def test_special_ids_are_those_that_the_configuration_names(tmp_path):
    found = TokenizerFolder(words(tmp_path))
    assert found.vocab_size == 60
    assert found.special_ids() == {"cls_token_id": 0, "pad_token_id": 1, "sep_token_id": 2}
    assert found.token("mask") == "<mask>"
    path = tmp_path / "tokenizer_config.json"
    config = json.loads(path.read_text()) | {"bos_token": {"content": "ana", "special": False}}
    path.write_text(json.dumps(config))
    assert found.special_ids()["bos_token_id"] == 5


def test_only_files_of_a_tokenizer_are_copied(tmp_path):
    (tmp_path / "from").mkdir()
    (tmp_path / "to").mkdir()
    words(tmp_path / "from")
    (tmp_path / "from/notes.txt").write_text("private")
    TokenizerFolder(str(tmp_path / "from")).write(tmp_path / "to")
    names = {path.name for path in (tmp_path / "to").iterdir()}
    assert names == {"tokenizer.json", "tokenizer_config.json"}


def test_the_run_has_its_tokenizer_unless_another_is_given(tmp_path):
    (tmp_path / "tokenizer").mkdir()
    words(tmp_path / "tokenizer")
    assert tokenizer_of(str(tmp_path), None).path == f"{tmp_path}/tokenizer"
    assert tokenizer_of("elsewhere", f"{tmp_path}/tokenizer").path == f"{tmp_path}/tokenizer"
    with pytest.raises(ValueError, match=r"elsewhere/tokenizer holds no tokenizer.json: give the"):
        tokenizer_of("elsewhere", None)
