"""Shards have their own files, or parts, or records; the last is reported."""

import pytest

from tasks.corpus.shard_assignment import assign
from tasks.rows import Rows


@pytest.fixture
def source(tmp_path):
    """One CSV file per split, which cannot be cut."""
    for split in ("train", "test"):
        (tmp_path / f"{split}.csv").write_text("text\n" + "a line\n" * 9)
    return Rows(files={split: str(tmp_path / f"{split}.csv") for split in ("train", "test")})


def test_a_file_that_cannot_be_cut_is_reported_once_a_split(source, caplog):
    for split in ("train", "test", "train"):
        assert all(assign(source.corpus_split(split), i, 8).by_records for i in range(8))
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2
    assert "has 1 file in split 'train', which cannot be cut into 8 shards" in said[0]
    assert "split 'test'" in said[1]


def test_enough_files_or_parts_are_shared_without_a_warning(source, tmp_path, caplog):
    assert not assign(source.corpus_split("train"), 0, 1).by_records
    (tmp_path / "train.jsonl").write_text('{"text": "a line of text"}\n' * 4000)
    split = Rows(files={"train": str(tmp_path / "train.jsonl")}).corpus_split("train")
    parts = [assign(split, i, 8).parts(0) for i in range(8)]
    assert all(len(own) > 1 for own in parts)
    assert sorted(part for own in parts for part in own) == list(range(sum(map(len, parts))))
    assert not caplog.records


def test_files_are_dealt_in_turn(tmp_path):
    for i in range(5):
        (tmp_path / f"train-{i}.txt").write_text("a line\n")
    split = Rows(str(tmp_path), splits=["train"]).corpus_split("train")
    assert [assign(split, i, 2).files for i in range(2)] == [(0, 2, 4), (1, 3)]
