"""A tokenizer that gives other ids than the trainer's vocabulary is noticed."""

import dataclasses
import json
import re

import pytest
from transformers import AutoTokenizer

from convert.formats import tokenizer_files
from convert.formats.sentencepiece_model import read_model, write_model
from convert.proof.odd_texts import odd_texts
from convert.proof.same_ids import compare, is_tie
from convert.tokenizer import TokenizerFolder, TrainedVocabulary
from fakes import tokenizer_files as tokenizer_fakes
from fakes.convert_fakes import ENCODERS
from fakes.paths import ROOT
from fakes.refuses import refuses

MINI = str(ROOT / "data" / "ro_mini" / "ro_mini.model")


def test_a_wrong_sentinel_behind_the_first_hundred_is_noticed(tmp_path, outside_model):
    tokenizer_files.write_tokenizer(outside_model, str(tmp_path), extra_ids=300)
    vocabulary = TrainedVocabulary(outside_model, 300)
    for path in tmp_path.glob("*.json"):
        swap = {"<extra_id_250>": "<extra_id_251>", "<extra_id_251>": "<extra_id_250>"}
        text = path.read_text(encoding="utf-8")
        path.write_text(re.sub("|".join(swap), lambda m, swap=swap: swap[m[0]], text))
    with refuses("<extra_id_250>") as refusal:
        compare(vocabulary, tmp_path, [])
    assert re.findall(r"\d{4}", refusal.value.why) == ["1996", "1997"]


def test_sentinels_that_the_trainer_has_not_are_noticed(tmp_path):
    tokenizer_files.write_byte_tokenizer(str(tmp_path), extra_ids=50)
    with refuses("<extra_id_0>") as refusal:
        compare(TrainedVocabulary("bytes", 0), tmp_path, [])
    assert re.findall(r"308|None", refusal.value.why) == ["308", "None"]


def test_another_vocabulary_is_noticed(tmp_path, outside_model):
    tokenizer_files.write_tokenizer(MINI, str(tmp_path))
    for extra_ids, theirs in ((0, None), (50, 1997)):
        vocabulary = TrainedVocabulary(outside_model, extra_ids)
        with refuses("<extra_id_0>") as refusal:
            compare(vocabulary, tmp_path, [])
        assert re.findall(r"\d{4}|None", refusal.value.why) == ["2047", str(theirs)]


def test_one_changed_score_is_noticed(tmp_path):
    model = read_model(MINI)
    word = next(i for i, piece in enumerate(model.pieces) if piece.piece == "▁face")
    model.pieces[word].score = -100.0
    changed = str(tmp_path / "changed.model")
    write_model(model, changed)
    tokenizer_files.write_tokenizer(changed, str(tmp_path / "hf"))
    with refuses("the published tokenizer") as refusal:
        compare(TrainedVocabulary(MINI, 0), tmp_path / "hf", ["Ce face Ana"])
    assert "face" in refusal.value.why


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (tokenizer_fakes.byte_bpe, "roberta"),
        (tokenizer_fakes.unigram, "xlm-roberta"),
        (tokenizer_fakes.cased, "bert"),
        (tokenizer_fakes.blanks_bpe, "modernbert"),
    ],
)
def test_an_encoders_tokenizer_is_completed_and_any_change_of_it_noticed(tmp_path, make, kind):
    vocabulary, out = TokenizerFolder(make(tmp_path / "own")), tmp_path / "hf"
    vocabulary.publish(out, dataclasses.replace(ENCODERS["bert"], max_length=64))
    (out / "config.json").write_text(json.dumps({"model_type": kind}))
    found = compare(vocabulary, out, odd_texts())
    assert found.texts > 1000
    tokenizer = AutoTokenizer.from_pretrained(out)
    assert tokenizer.model_max_length == 64
    assert len(tokenizer("ana are mere " * 99, truncation=True).input_ids) == 64
    content = json.loads((out / "tokenizer.json").read_text())
    content["normalizer"] = {"type": "Lowercase"}
    (out / "tokenizer.json").write_text(json.dumps(content))
    with refuses("the published tokenizer"):
        compare(vocabulary, out, odd_texts())


def test_a_text_that_spells_a_special_token_is_counted_and_no_difference(tmp_path):
    tokenizer_files.write_tokenizer(MINI, str(tmp_path))
    spelled = ["a </s> b", "<pad>", "x<unk>", "vezi <extra_id_7>"]
    assert compare(TrainedVocabulary(MINI, 0), tmp_path, [*spelled, "Ana"]).special == 4


def test_a_tie_is_no_difference():
    names = {1: "▁", 2: "..", 3: "."}
    look_up = lambda ids: [names[i] for i in ids]
    assert is_tie([1, 2, 3], [1, 3, 2], look_up)
    assert not is_tie([1, 2, 3], [2, 1, 3], look_up)
    assert not is_tie([1, 2], [1, 3, 3], look_up)


def test_sums_that_are_equal_in_float32_tie():
    names = {1: "un", 2: "ele", 3: "u", 4: "nele", 5: "une", 6: "le"}
    scores = {1: -6.769053, 2: -6.966567, 3: -4.885965, 4: -8.849652, 5: -6.77, 6: -6.967}
    look_up = lambda ids: [names[i] for i in ids]
    assert is_tie([1, 2], [3, 4], look_up, scores.__getitem__)
    assert not is_tie([1, 2], [5, 6], look_up, scores.__getitem__)
    assert not is_tie([1, 2], [3, 4], look_up)
