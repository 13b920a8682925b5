"""The size of a split decides its order, a setting the size, and a saved position wins."""

import pytest

import gin
from fakes.corpora import LINES, write
from fakes.refuses import refuses
from tasks.corpus import source as sources
from tasks.corpus.listing import Listing
from tasks.corpus.source import EPOCHS, PARTS, RECORDS, CorpusSource
from tasks.corpus.storage import files
from tasks.corpus.storage.files import CorpusFile
from tasks.rows import Rows

SETTING = "tasks.corpus.source.full_shuffle.gigabytes"


@pytest.fixture
def limit():
    """A function that sets the setting until the test ends."""
    yield lambda gigabytes: gin.bind_parameter(SETTING, gigabytes)
    gin.clear_config()


@pytest.mark.parametrize(
    ("kind", "expansion"), [("jsonl", 1), ("csv", 1), ("parquet", 2), ("jsonl.gz", 4)]
)
def test_a_split_up_to_the_limit_is_permuted(tmp_path, limit, kind, expansion):
    source = CorpusSource(str(write(tmp_path, kind, LINES)), splits=["train"])
    size = (tmp_path / f"train-0.{kind}").stat().st_size * expansion
    for gigabytes, order in (
        (1.001 * size / 1e9, RECORDS),
        (0.999 * size / 1e9, PARTS),
        (0, PARTS),
    ):
        limit(gigabytes)
        assert source.order("train") == order


def test_a_negative_limit_is_refused(limit):
    limit(-1)
    with refuses("tasks.corpus.source.full_shuffle.gigabytes", -1):
        sources.full_shuffle()


def test_parallel_files_are_measured_too(tmp_path, limit):
    for side in ("ro", "en"):
        (tmp_path / f"train.{side}").write_text("x\n" * 500)
    source = Rows(parallel={"train": (str(tmp_path / "train.ro"), str(tmp_path / "train.en"))})
    assert source.order("train") == EPOCHS
    limit(1500e-9)
    assert source.order("train") == PARTS


def test_a_split_of_unknown_size_is_streamed():
    many = [f"https://example.org/{i}.csv" for i in range(100)]
    source = CorpusSource(files={"train": many})
    assert source.order("train") == PARTS
    assert "since their size is unknown" in source.mixing("train", 8)


def test_the_sizes_of_very_many_remote_files_are_not_requested(monkeypatch):
    asked = []
    monkeypatch.setattr(files, "size", lambda file: asked.append(file) or 1)
    many = tuple(CorpusFile(f"https://example.org/{i}.jsonl", "jsonl") for i in range(100))
    assert Listing(many).text_bytes() is None
    assert not asked
    assert Listing(many[:3]).text_bytes() == 3
    assert len(asked) == 3


def test_the_order_of_a_saved_position_is_kept(tmp_path):
    source = CorpusSource(str(write(tmp_path, "csv", LINES)), splits=["train"])
    for order in (RECORDS, PARTS):
        source.pin_order("train", order)
        assert source.order("train") == order
    assert "keeps the order of its saved data position" in source.mixing("train", 8)
