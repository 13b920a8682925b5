"""The check of an encoder's vocabulary passes what is sound, and names what is wrong elsewhere."""

import json
import shutil

import pytest

from fakes import tokenizer_files
from fakes.paths import ROOT
from fakes.small_vocabulary import TEXTS
from vocabulary import check
from vocabulary.check_results import table
from vocabulary.tokenizer_checks import check_texts, check_tokenizer, find_tokenizer

BUNDLED = tokenizer_files.WORDPIECE


def failures(checks, status="fail"):
    return [check.name for check in checks if check.status == status]


def test_the_bundled_vocabulary_passes():
    checks = [*check.check_any(BUNDLED, 2048), *check_texts(BUNDLED, TEXTS)]
    assert {found.status for found in checks} == {"ok"}, table(checks)


def test_the_command_checks_a_folder_and_its_file(capsys):
    check.main([BUNDLED, "--vocab_size", "2048", "--corpus", str(ROOT / "data/ro_mini/v*.jsonl")])
    printed = capsys.readouterr().out
    assert "2,048 of vocab_size 2,048" in printed
    assert "130 texts" in printed
    check.main([f"{BUNDLED}/tokenizer.json"])
    with pytest.raises(SystemExit, match="1"):
        check.main([BUNDLED, "--vocab_size", "1024"])


def test_a_tokenizer_without_a_mask_fails(tmp_path):
    folder = tokenizer_files.blanks_bpe(tmp_path, ("<pad>", "<bos>", "<eos>", "<unk>"))
    size, checks = check_tokenizer(folder)
    assert size == 400
    assert failures(checks) == ["mask id"]


def test_two_roles_of_one_token_fail(tmp_path):
    shutil.copytree(BUNDLED, tmp_path, dirs_exist_ok=True)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"pad_token": "[SEP]"}))
    assert failures(check_tokenizer(str(tmp_path))[1]) == ["distinct ids"]


def test_no_begins_of_words_are_a_warning(tmp_path):
    def rename(content):
        content["model"]["continuing_subword_prefix"] = "@@"

    folder = tokenizer_files.edit(BUNDLED, tmp_path, rename)
    assert failures(check_tokenizer(folder)[1], "warn") == ["begin a word"]


def test_other_ids_than_those_of_transformers_fail(tmp_path, monkeypatch):
    from tasks.tokenizer_vocabulary import TokenizerVocabulary

    encode = TokenizerVocabulary.encode_texts
    swapped = lambda self, texts: encode(self, [text.replace("Ana", "ana") for text in texts])
    monkeypatch.setattr(TokenizerVocabulary, "encode_texts", swapped)
    (found,) = check_texts(BUNDLED, ["Ana are mere"])
    assert found.status == "fail"
    assert found.detail == "they differ in 'Ana are mere'"


def test_unknown_pieces_are_a_warning():
    checks = check_texts(BUNDLED, ["漢 字"] * 1000)
    assert failures(checks, "warn") == ["unknown"]


def test_a_folder_of_t5s_is_not_an_encoders(tmp_path):
    shutil.copytree(BUNDLED, tmp_path, dirs_exist_ok=True)
    assert find_tokenizer(str(tmp_path)) == str(tmp_path)
    (tmp_path / "spiece.model").write_bytes(b"")
    assert find_tokenizer(str(tmp_path)) is None
    assert find_tokenizer(str(ROOT / "data/ro_mini/ro_mini.model")) is None
    assert find_tokenizer("gs://bucket/ro") is None
