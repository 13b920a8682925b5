"""A vocabulary's figures over a text, beside those of mT5 where that is cached."""

import huggingface_hub

from common.tables import OK, WARNING
from convert.formats.sentencepiece_model import processor, read_model
from fakes import small_vocabulary, tokenizer_files
from fakes.paths import ROOT
from vocabulary import coverage

MINI = str(ROOT / "data/ro_mini/ro_mini.model")
WORDPIECE = str(ROOT / "data/ro_mini/wordpiece")
TEXTS = ["Ana are mere și pere.", "un om de zăpadă ☃☃"]


def rows(*args, **settings):
    found = coverage.coverage(*args, **settings)
    assert all(row.to_set for row in found if row.verdict != OK)  # each says what to do
    return {row.check: row for row in found}


def test_what_is_counted():
    found = rows(MINI, TEXTS)
    row = found["characters not covered"]
    assert (row.verdict, row.figure) == (WARNING, f"1 of {len(set(''.join(TEXTS)))}: ☃ U+2603 × 2")
    own = processor(read_model(MINI))
    tokens = sum(len(own.encode(text)) for text in TEXTS)
    assert found["tokens a word"].figure == f"{tokens / 10:.2f}"
    size = sum(len(text.encode()) for text in TEXTS)
    assert found["bytes a token"].figure == f"{size / tokens:.2f}"
    assert rows(MINI, TEXTS[:1])["characters not covered"].figure.startswith("0 of ")
    assert coverage.coverage(MINI, []) == []
    of_an_encoder = rows(WORDPIECE, TEXTS)
    assert "☃" in of_an_encoder["characters not covered"].figure
    assert 1 < float(of_an_encoder["tokens a word"].figure) < 3


def test_in_scripts_without_blanks_tokens_are_counted_by_characters():
    texts = ["今天天气很好我们去公园。"]
    tokens = len(processor(read_model(MINI)).encode(texts[0]))
    assert rows(MINI, texts)["tokens a character"].figure == f"{tokens / len(texts[0]):.2f}"


def test_words_too_long_to_be_read_are_named():
    """Texts without spaces are such words, whose characters are all covered."""
    sentence = "anaaremere" * 12
    row = rows(WORDPIECE, [*TEXTS, sentence])["words not covered"]
    assert (row.verdict, "(120 characters)" in row.figure) == (WARNING, True)
    assert "byte_bpe" in row.to_set
    rare = [sentence, "Ana are mere. " * 20_000]
    assert rows(WORDPIECE, rare)["words not covered"].verdict == OK
    for vocabulary, texts in ((WORDPIECE, TEXTS), (MINI, [sentence])):
        assert "words not covered" not in rows(vocabulary, texts)


def test_a_short_word_is_not_called_too_long(tmp_path):
    """SentencePiece joins a letter and its mark to a letter that may have no piece."""
    model = read_model(MINI)
    model.pieces.add(piece="\u0306", score=0.0)
    (tmp_path / "own.model").write_bytes(model.SerializeToString())
    own = rows(str(tmp_path / "own.model"), ["o\u0306 om"] * 50)
    assert own["characters not covered"].verdict == OK
    assert "words not covered" not in own


def test_joiners_that_words_are_written_with_must_not_be_lost():
    joined = ["Ana are me\u200cre și pere."] * 50
    row = rows(MINI, joined)["zero-width joiners"]
    assert row.verdict == WARNING
    assert "U+200C becomes a blank" in row.figure
    assert "vocabulary.extend" in row.to_set
    without = tokenizer_files.WORDPIECE  # BERT's normalization leaves out what has no width
    assert "U+200C is left out" in rows(without, joined)["zero-width joiners"].figure
    strays = ["a\u200cb" + "Ana are mere. " * 1000]
    assert "zero-width joiners" not in rows(MINI, strays)
    assert (coverage.writes_joiners(joined), coverage.writes_joiners(strays)) == (True, False)


def test_characters_that_the_normalization_drops_are_named():
    texts = [
        "Ana are mere\u200bmulte\t\u00a0și\u2028pere\x07 e\u0301.",
        "\ufeffUn om\u200bbun",
    ] * 25
    row = rows(MINI, texts)["characters lost"]
    assert row.verdict == WARNING
    assert row.figure.endswith("never writes them: U+200B × 50, U+FEFF × 25")
    strays = ["a\u200bb" + "Ana are mere. " * 1000]
    assert rows(MINI, strays)["characters lost"].verdict == OK
    assert "characters lost" not in rows(MINI, [*TEXTS, "a\u200cb" * 50])


def test_another_vocabulary_is_shown_beside_it(tmp_path, monkeypatch):
    other = small_vocabulary.train(tmp_path)
    found = rows(MINI, TEXTS, beside=other)
    own, its = (detail.split()[0] for detail in found["tokens a word"].figure.split("; "))
    assert float(its) > float(own)
    assert found["tokens a word"].figure.endswith(f"with {other}")
    in_cache = lambda name, file: other if name == "google/mt5-base" else None
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", in_cache)
    assert rows(MINI, TEXTS)["tokens a word"].figure == f"{own}; {its} with mT5"
