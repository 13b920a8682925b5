"""Fewer pieces: texts are tokenized as before, and the kept pieces keep their embeddings."""

import pytest

from common import tables
from common.new_files import write_files
from convert.formats.sentencepiece_model import read_model
from fakes import small_vocabulary
from fakes.paths import ROOT
from fakes.refuses import refuses
from vocabulary import trim
from vocabulary.check import check_vocabulary
from vocabulary.pieces import SentencePieces

DATA = ROOT / "data" / "ro_mini"


@pytest.fixture(scope="module")
def usage(pieces, lines):
    return trim.count_and_sample(pieces, lines, 0)[0]


def test_used_pieces_stay_and_texts_are_tokenized_as_before(pieces, lines, usage):
    change = trim.trim(pieces, usage)
    small, sources = change.new, change.sources
    old, new = pieces.encoder, small.encoder
    assert small.size % 128 == 0
    assert small.size < pieces.size
    for line in lines:
        text = f"<extra_id_5> {line} <extra_id_99>"
        assert [sources[i][0] for i in new.encode(text)] == old.encode(text)


def test_sources_name_the_same_pieces_and_the_check_passes(pieces, usage, tmp_path):
    change = trim.trim(pieces, usage, 512)
    small, sources = change.new, change.sources
    assert small.size == len(sources) == 512
    for piece, (old,) in zip(small.model.pieces, sources, strict=True):
        assert piece == pieces.model.pieces[old]
    write_files(small.files(str(tmp_path / "small.model")))
    findings = check_vocabulary(str(tmp_path / "small.model"), 512)
    assert tables.passed(findings), tables.table(findings)


def test_every_word_can_still_be_spelled(pieces, lines, usage):
    small = trim.trim(pieces, usage, 256).new
    old, new = pieces.encoder, small.encoder
    for line in lines:
        before, after = old.encode(line), new.encode(line)
        assert new.decode(after) == old.decode(before)
        assert after.count(2) == before.count(2)


@pytest.mark.parametrize("size", [128, 4096])
def test_size_out_of_bounds(pieces, usage, size):
    with refuses("--size", size):
        trim.trim(pieces, usage, size)


def test_all_lines_are_counted_and_few_are_kept(pieces, lines):
    usage, sample = trim.count_and_sample(pieces, iter(lines), 10)
    assert usage == trim.count_and_sample(pieces, lines, 0)[0]
    assert len(sample) == 10
    assert set(sample) <= set(lines)


def test_special_ids_follow_their_pieces(lines, tmp_path):
    """They need not be the first ones."""
    path = small_vocabulary.train(tmp_path, "▁<extra_id_{}>", eos_id=299, texts=lines)
    large = SentencePieces(read_model(path))
    usage, _ = trim.count_and_sample(large, lines[:3], 0)
    small = trim.trim(large, usage, 256).new
    write_files(small.files(str(tmp_path / "trimmed.model")))
    findings = check_vocabulary(str(tmp_path / "trimmed.model"), 256)
    assert tables.passed(findings), tables.table(findings)
