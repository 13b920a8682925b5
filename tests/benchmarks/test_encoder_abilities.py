"""Finished stages are not repeated, and the n-gram models come first in the table."""

import json

import pytest

from benchmarks import encoder_abilities
from benchmarks.encoder_abilities import ENCODER, NGRAMS

MEASURES = {name: [0.25, 0.01, 100] for name in encoder_abilities.SHOWN}
CHECKPOINTS = [{"model": ENCODER, "step": step, "measures": MEASURES} for step in (1000, 1)]


def test_steps_that_no_checkpoint_ends_are_refused(tmp_path):
    with pytest.raises(ValueError, match="--steps is 750, but must be a multiple of 500"):
        encoder_abilities.pretrain(tmp_path, 750)


def test_finished_stages_are_not_repeated(tmp_path, monkeypatch):
    done, results = [], tmp_path / "results.jsonl"

    def ngrams(work, name):
        done.append(name)
        return {"model": name, "measures": MEASURES}

    def checkpoints(work, steps):
        done.append(steps)
        return CHECKPOINTS

    monkeypatch.setattr(encoder_abilities, "pretrain", lambda work, steps: done.append("pretrain"))
    monkeypatch.setattr(encoder_abilities, "measure_ngrams", ngrams)
    monkeypatch.setattr(encoder_abilities, "measure_checkpoints", checkpoints)
    encoder_abilities.run(tmp_path, results, 1000)
    assert done == ["pretrain", *NGRAMS, 1000]
    lines = results.read_text().splitlines()
    results.write_text("\n".join(lines[:2]) + "\n")  # cut before the last n-gram model
    done.clear()
    encoder_abilities.run(tmp_path, results, 1000)
    assert done == ["pretrain", [*NGRAMS][-1], 1000]
    assert results.read_text().splitlines() == lines


def test_the_table_has_the_ngrams_and_all_checkpoints_in_order():
    results = [*CHECKPOINTS, {"model": "unigram", "measures": {"filled_in": [0.05, 0.004, 100]}}]
    lines = list(encoder_abilities.table(json.loads(json.dumps(results))))
    assert lines[2] == "| unigram | 5.0 ± 0.4 % | – | – | – |"
    assert [line.split(" | ")[0] for line in lines[3:]] == [
        "| ModernBERT, 1 steps",
        "| ModernBERT, 1,000 steps",
    ]


def test_ngrams_choose_among_words_of_as_many_pieces(tmp_path, monkeypatch):
    """The other word is more frequent, but the hidden one is of two pieces, as masks tell."""
    monkeypatch.setattr(encoder_abilities, "PASSAGES", 1)
    records = [{"text": f"1 {word} 2"} for word in ("mare", "mare", "frumoasă") * 20]
    held_out = [{"text": "1 frumoasă 2 " * 10}]
    for name, lines in (("train", records), ("validation", held_out)):
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, lines)))
    sizes = {"frumoasă": 2}

    class Vocabulary:
        def __init__(self, path):
            assert path == str(tmp_path / "pieces")

        def encode_texts(self, texts):
            return ([0] * sizes.get(texts[0], 1),)

    monkeypatch.setattr("tasks.tokenizer_vocabulary.TokenizerVocabulary", Vocabulary)
    name = "trigram, two words on both sides"
    found = encoder_abilities.measure_ngrams(tmp_path, name)["measures"]["filled_in"]
    assert (found.value, found.cases) == (1, 4)
    sizes.clear()
    found = encoder_abilities.measure_ngrams(tmp_path, name)["measures"]["filled_in"]
    assert found.value < 1
