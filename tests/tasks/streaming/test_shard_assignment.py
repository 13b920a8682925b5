"""What cannot be shared well is said once a split, however many shards find it so."""

import pytest

from tasks.rows import Rows
from tasks.streaming.shard_assignment import Share


@pytest.fixture
def source(tmp_path):
    """One CSV file a split, which cannot be cut."""
    for split in ("train", "test"):
        (tmp_path / f"{split}.csv").write_text("text\n" + "a line\n" * 9)
    return Rows(files={split: str(tmp_path / f"{split}.csv") for split in ("train", "test")})


def test_a_file_that_cannot_be_cut_is_told_once_a_split(source, caplog):
    for split in ("train", "test", "train"):
        assert all(Share.of(source, split, i, 8).by_records for i in range(8))
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2
    assert "has 1 file in split 'train', which cannot be cut into 8 shards" in said[0]
    assert "split 'test'" in said[1]


def test_a_whole_split_or_enough_parts_are_nothing_to_tell(source, tmp_path, caplog):
    assert not Share.of(source, "train", 0, 1).by_records
    (tmp_path / "train.jsonl").write_text('{"text": "a line of text"}\n' * 4000)
    cut = Rows(files={"train": str(tmp_path / "train.jsonl")})
    assert not Share.of(cut, "train", 0, 8).by_records
    assert not caplog.records
