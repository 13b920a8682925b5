"""A tokenizer that gives other ids than the trainer's vocabulary is noticed."""

import re

import pytest
import seqio
from transformers import AutoTokenizer

from convert.formats import tokenizer_files
from convert.proof.same_ids import assert_same_ids, is_tie
from convert.tokenizer import TrainedVocabulary
from fakes.paths import ROOT
from vocabulary.sentencepiece_model import read_model, write_model

MINI = str(ROOT / "data" / "ro_mini" / "ro_mini.model")


def test_a_wrong_sentinel_behind_the_first_hundred_is_noticed(tmp_path, outside_model):
    tokenizer_files.write_tokenizer(outside_model, str(tmp_path), extra_ids=300)
    vocabulary = TrainedVocabulary(outside_model, 300)
    for path in tmp_path.glob("*.json"):
        swap = {"<extra_id_250>": "<extra_id_251>", "<extra_id_251>": "<extra_id_250>"}
        text = path.read_text(encoding="utf-8")
        path.write_text(re.sub("|".join(swap), lambda m, swap=swap: swap[m[0]], text))
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"<extra_id_250> is 1996 .* and 1997 in the trainer's"):
        assert_same_ids(vocabulary, tokenizer, [])


def test_sentinels_that_the_trainer_has_not_are_noticed(tmp_path):
    tokenizer_files.write_byte_tokenizer(str(tmp_path), extra_ids=50)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    said = "<extra_id_0> is 308 .* and None in the trainer's"
    with pytest.raises(ValueError, match=said):
        assert_same_ids(seqio.ByteVocabulary(), tokenizer, [])


def test_another_vocabulary_is_noticed(tmp_path, outside_model):
    tokenizer_files.write_tokenizer(MINI, str(tmp_path))
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    for extra_ids, theirs in ((0, None), (50, 1997)):
        vocabulary = seqio.SentencePieceVocabulary(outside_model, extra_ids=extra_ids)
        with pytest.raises(ValueError, match=f"<extra_id_0> is 2047 .* and {theirs} in the"):
            assert_same_ids(vocabulary, tokenizer, [])


def test_one_changed_score_is_noticed(tmp_path):
    model = read_model(MINI)
    word = next(i for i, piece in enumerate(model.pieces) if piece.piece == "▁face")
    model.pieces[word].score = -100.0
    changed = str(tmp_path / "changed.model")
    write_model(model, changed)
    tokenizer_files.write_tokenizer(changed, str(tmp_path / "hf"))
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "hf")
    vocabulary = seqio.SentencePieceVocabulary(MINI)
    assert_same_ids(vocabulary, tokenizer, ["Ana vine."])
    with pytest.raises(ValueError, match="the tokenizers differ at id 1 of 'Ce face Ana'"):
        assert_same_ids(vocabulary, tokenizer, ["Ce face Ana"])


def test_a_tie_is_no_difference():
    names = {1: "▁", 2: "..", 3: "."}
    look_up = lambda ids: [names[i] for i in ids]
    assert is_tie([1, 2, 3], [1, 3, 2], look_up)
    assert not is_tie([1, 2, 3], [2, 1, 3], look_up)
    assert not is_tie([1, 2], [1, 3, 3], look_up)
