"""A vocabulary's figures over a text, beside those of mT5 where that is cached."""

import huggingface_hub
import pytest

from fakes import small_vocabulary
from fakes.paths import ROOT
from vocabulary import check, coverage
from vocabulary import sentencepiece_model as spm

MINI = str(ROOT / "data/ro_mini/ro_mini.model")
TEXTS = ["Ana are mere și pere.", "un om de zăpadă ☃☃"]


def rows(*args, **settings):
    return {row.name: row for row in coverage.coverage(*args, **settings)}


def test_what_is_counted():
    found = rows(MINI, TEXTS)
    row = found["characters not covered"]
    assert (row.status, row.detail) == ("warn", f"1 of {len(set(''.join(TEXTS)))}: ☃ U+2603 × 2")
    own = spm.processor(spm.read_model(MINI))
    tokens = sum(len(own.encode(text)) for text in TEXTS)
    assert found["tokens a word"].detail == f"{tokens / 10:.2f}"
    size = sum(len(text.encode()) for text in TEXTS)
    assert found["bytes a token"].detail == f"{size / tokens:.2f}"
    assert rows(MINI, TEXTS[:1])["characters not covered"].detail.startswith("0 of ")
    assert coverage.coverage(MINI, []) == []


def test_joiners_that_words_are_written_with_must_not_be_lost():
    joined = ["Ana are me\u200cre și pere."] * 50
    row = rows(MINI, joined)["zero-width joiners"]
    assert row.status == "warn"
    assert "U+200C becomes a blank" in row.detail
    strays = ["a\u200cb" + "Ana are mere. " * 1000]
    assert "zero-width joiners" not in rows(MINI, strays)
    assert (coverage.writes_joiners(joined), coverage.writes_joiners(strays)) == (True, False)


def test_characters_that_the_normalization_drops_are_named():
    texts = [
        "Ana are mere\u200bmulte\t\u00a0și\u2028pere\x07 e\u0301.",
        "\ufeffUn om\u200bbun",
    ] * 25
    row = rows(MINI, texts)["characters lost"]
    assert row.status == "warn"
    assert row.detail.endswith("never writes them: U+200B × 50, U+FEFF × 25")
    strays = ["a\u200bb" + "Ana are mere. " * 1000]
    assert rows(MINI, strays)["characters lost"].status == "ok"
    assert "characters lost" not in rows(MINI, [*TEXTS, "a\u200cb" * 50])


def test_another_vocabulary_is_shown_beside_it(tmp_path, monkeypatch):
    other = small_vocabulary.train(tmp_path)
    found = rows(MINI, TEXTS, beside=other)
    own, its = (detail.split()[0] for detail in found["tokens a word"].detail.split("; "))
    assert float(its) > float(own)
    assert found["tokens a word"].detail.endswith(f"with {other}")
    in_cache = lambda name, file: other if name == "google/mt5-base" else None
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", in_cache)
    assert rows(MINI, TEXTS)["tokens a word"].detail == f"{own}; {its} with mT5"


def test_the_check_shows_it_with_a_corpus(capsys):
    check.main([MINI, "--corpus", str(ROOT / "data/ro_simple"), "--max_documents", "20"])
    said = capsys.readouterr().out
    assert "characters not covered" in said
    assert "tokens a word" in said


def test_a_vocabulary_that_does_not_exist_is_one_sentence(tmp_path):
    with pytest.raises((ValueError, OSError), match=r"none\.model"):
        coverage.coverage(MINI, TEXTS, beside=str(tmp_path / "none.model"))
