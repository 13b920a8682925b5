"""A part of 'train' is held out by the documents' hashes, of a corpus that has no validation."""

import json

import pytest
import seqio

from common.errors import UserError
from fakes import loopback_hub
from fakes.corpora import LINES, jsonl, write
from tasks.corpus import held_out
from tasks.corpus.source import PARTS, RECORDS, CorpusSource


def texts(source, split, **settings):
    found = source.get_dataset(split, **{"shuffle": False, **settings}).as_numpy_iterator()
    return [row["text"].decode() for row in found]


@pytest.mark.parametrize("order", [RECORDS, PARTS])
@pytest.mark.parametrize("n", [1, 3])
def test_every_document_is_in_one_split_whatever_is_read(tmp_path, order, n):
    source = CorpusSource(str(write(tmp_path, "txt", LINES)))
    shards = [seqio.ShardInfo(i, n) for i in range(n)]
    of = lambda split: [
        t for s in shards for t in texts(source, split, shuffle=True, shard_info=s, order=order)
    ]
    train, validation = of("train"), of("validation")
    assert sorted(train + validation) == sorted(LINES)
    assert 0 < len(validation) < 20
    again = CorpusSource(files={"train": str(tmp_path)})
    assert sorted(texts(again, "validation")) == sorted(validation)
    assert source.peek("validation", 3) == texts(source, "validation")[:3]
    assert not {*source.peek("train", 100)} & {*validation}


@pytest.mark.parametrize("n", [2, 3, 10, 50, 300])
@pytest.mark.parametrize("seed", range(20))
def test_few_documents_give_one_at_least_and_never_all(n, seed):
    documents = [f"{seed}-{i}".encode() for i in range(n)]
    shares = {"validation": held_out.find_share([documents[:1], documents[1:]])}
    parts = [
        held_out.among(documents, held_out.of_split(shares, split))
        for split in ("train", "validation")
    ]
    assert all(parts)
    assert sorted(sum(parts, [])) == sorted(documents)  # noqa: RUF017
    assert len(parts[1]) < 12


def test_one_document_is_trained_on_and_cannot_be_held_out(tmp_path):
    (tmp_path / "a.txt").write_text("text\ntext\n")
    source = CorpusSource(str(tmp_path))
    assert texts(source, "train") == ["text", "text"]
    with pytest.raises(UserError, match="held out"):
        source.peek("validation")


def test_another_host_is_told_what_is_held_out(tmp_path):
    source = CorpusSource(str(write(tmp_path, "jsonl", LINES[:30])))
    known = {s: json.loads(json.dumps(source.listing(s))) for s in source.splits}
    other = CorpusSource("/nowhere")
    for split in source.splits:
        other.use_listing(split, known[split])
        assert other.identity(split) == source.identity(split)
        assert texts(other, split) == texts(source, split)
    first = CorpusSource(str(tmp_path))
    first.use_listing("validation", known["validation"])  # before it has asked for 'train'
    assert texts(first, "train") == texts(source, "train")
    assert first.shares("train") == source.shares("train")
    assert other.identity("train") != CorpusSource(str(tmp_path), held_out={}).identity("train")


@pytest.mark.parametrize("has_held_out", [False, True])
def test_a_position_goes_on_with_its_documents(tmp_path, has_held_out):
    began = CorpusSource(
        str(write(tmp_path, "jsonl", LINES)), held_out=None if has_held_out else {}
    )
    source, saved = CorpusSource(str(tmp_path)), json.loads(json.dumps(began.identity("train")))
    source.peek("train")
    source.pin_identity("train", saved)
    other = CorpusSource("/nowhere")
    other.use_listing("train", source.listing("train"))
    for resumed in (source, other):
        assert resumed.identity("train") == began.identity("train")
        assert texts(resumed, "train") == texts(began, "train")
        assert resumed.shares("train") == began.shares("train")
    assert 0 < len(texts(source, "validation")) < 20  # another split of the run is read as ever


def test_what_is_held_out_of_another_split_is_not_of_one_with_files(tmp_path):
    for split in ("train", "validation"):
        write(tmp_path, "txt", LINES[:20], split)
    source = CorpusSource(str(tmp_path), splits=("train", "validation"), held_out={"test": 0.1})
    assert (source.shares("train"), source.shares("validation")) == ({"test": 0.1}, {})


def test_a_data_set_of_the_hub_has_a_part_held_out_too(tmp_path):
    with loopback_hub.connected({"user/open": {"train-0.jsonl": jsonl(LINES)}}, tmp_path):
        source = CorpusSource("user/open")
        train, validation = texts(source, "train"), texts(source, "validation")
    assert validation
    assert sorted(train + validation) == sorted(LINES)
