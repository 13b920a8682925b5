"""Tokenizers are compared text by text, and kept pieces word by word."""

from fakes.paths import ROOT
from vocabulary import sentencepiece_model as spm
from vocabulary import tokenization_equality

MINI = str(ROOT / "data" / "ro_mini" / "ro_mini.model")


def test_sample_covers_every_sentinel_and_most_pieces():
    texts = spm.sample_texts(spm.read_model(MINI))
    assert texts == spm.sample_texts(spm.read_model(MINI))
    assert len(texts) >= 200


def test_seqio_and_hugging_face_give_the_same_ids():
    check = tokenization_equality.check_equal_ids(MINI, ["Ana are mere, 3 kg", "  două  spații "])
    assert check.status == "ok", check.detail
    assert check.detail.startswith("4 texts")


def test_a_wrong_number_of_sentinels_is_found():
    check = tokenization_equality.check_equal_ids(MINI, ["Ana"], extra_ids=100)
    assert check.status == "fail"
    assert "▁<extra_id_99> is already defined" in check.detail


def test_words_that_are_tokenized_differently_are_named():
    old, new = spm.read_model(MINI), spm.read_model(MINI)
    sources = [(i,) for i in range(len(old.pieces))]
    same = tokenization_equality.check_same_pieces(old, new, sources, ["Ce face Ana"])
    assert (same.status, same.detail[:6]) == ("ok", "3 of 3")
    word = next(i for i, piece in enumerate(new.pieces) if piece.piece == "▁face")
    new.pieces[word].score = -100.0
    other = tokenization_equality.check_same_pieces(old, new, sources, ["Ce face Ana"])
    assert other.status == "fail"
    assert other.detail.startswith("'face' was")
