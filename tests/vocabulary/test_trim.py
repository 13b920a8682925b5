"""Fewer pieces: texts are tokenized as before, and the kept pieces keep their embeddings."""

import pytest
import sentencepiece

from common import tables
from fakes.paths import ROOT
from vocabulary import trim
from vocabulary.check import check_vocabulary
from vocabulary.sentencepiece_model import write_model

DATA = ROOT / "data" / "ro_mini"


@pytest.fixture(scope="module")
def usage(model, lines):
    return trim.count_and_sample(model, lines, 0)[0]


def processor(model):
    return sentencepiece.SentencePieceProcessor(model_proto=model.SerializeToString())


def test_used_pieces_stay_and_texts_are_tokenized_as_before(model, lines, usage):
    small, sources = trim.trim(model, usage)
    old, new = processor(model), processor(small)
    assert len(small.pieces) % 128 == 0
    assert len(small.pieces) < len(model.pieces)
    for line in lines:
        text = f"<extra_id_5> {line} <extra_id_99>"
        assert [sources[i][0] for i in new.encode(text)] == old.encode(text)


def test_sources_name_the_same_pieces_and_the_check_passes(model, usage, tmp_path):
    small, sources = trim.trim(model, usage, 512)
    assert len(small.pieces) == len(sources) == 512
    for piece, (old,) in zip(small.pieces, sources, strict=True):
        assert piece == model.pieces[old]
    write_model(small, str(tmp_path / "small.model"))
    findings = check_vocabulary(str(tmp_path / "small.model"), 512)
    assert tables.passed(findings), tables.table(findings)


def test_every_word_can_still_be_spelled(model, lines, usage):
    small, _ = trim.trim(model, usage, 256)
    old, new = processor(model), processor(small)
    for line in lines:
        before, after = old.encode(line), new.encode(line)
        assert new.decode(after) == old.decode(before)
        assert after.count(2) == before.count(2)


@pytest.mark.parametrize("size", [128, 4096])
def test_size_out_of_bounds(model, usage, size):
    with pytest.raises(ValueError, match=rf"--size {size} must be a multiple of 128 from \d+ .*"):
        trim.trim(model, usage, size)


def test_all_lines_are_counted_and_few_are_kept(model, lines):
    usage, sample = trim.count_and_sample(model, iter(lines), 10)
    assert usage == trim.count_and_sample(model, lines, 0)[0]
    assert len(sample) == 10
    assert set(sample) <= set(lines)
