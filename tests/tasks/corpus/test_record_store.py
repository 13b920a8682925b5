"""A store has all records by number, after one pass over the files, whatever fails in it."""

import errno
import io

import numpy as np
import pytest

from fakes.corpora import LINES, write
from tasks.corpus import formats, record_store
from tasks.corpus.counts import code
from tasks.corpus.record_store import RecordStore
from tasks.corpus.retry import RetryPolicy
from tasks.corpus.source import CorpusSource


def store_of(folder, **settings):
    source = CorpusSource(str(folder), retry_policy=RetryPolicy(20, 0.01, 0.02), **settings)
    return RecordStore(source.corpus_split("train"))


def test_records_are_read_by_number_in_any_order(tmp_path):
    store = store_of(write(tmp_path, "jsonl", LINES))
    assert len(store) == len(LINES)
    numbers = np.array([599, 0, 17, 0])
    texts, codes = store.read(numbers)
    assert [text.decode() for text in texts] == [LINES[i] for i in numbers]
    assert codes.tolist() == [0, 0, 0, 0]
    assert store.mean_bytes == pytest.approx(np.mean([len(line.encode()) for line in LINES]))


def test_a_skipped_record_keeps_its_number_and_reason(tmp_path):
    lines = ['{"text": "a"}', '{"text": ""}', '{"text": "b\\ud800"}', "[1]"]
    (tmp_path / "train.jsonl").write_text("\n".join(lines))
    store = store_of(tmp_path)
    assert len(store) == 4
    texts, codes = store.read(np.arange(4))
    assert texts == [b"a", b"b?"]
    counted = ["", "skipped_empty", "kept_with_replaced_characters", "skipped_malformed"]
    assert codes.tolist() == [code(filter(None, [name])) for name in counted]


def test_a_corpus_without_records_has_none(tmp_path):
    (tmp_path / "train.txt").write_text("\n\n")
    store = store_of(tmp_path)
    assert len(store) == 0
    assert store.mean_bytes == 1


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_a_read_that_fails_half_way_leaves_nothing_behind(tmp_path, kind, monkeypatch):
    monkeypatch.setattr(formats, "LOCAL_PART_BYTES", 8192)
    write(tmp_path, kind, LINES)
    attempts, original = [], formats.PartLayout.batches

    def failing(layout, file, part, *required):
        attempts.append(part)
        for i, batch in enumerate(original(layout, file, part, *required)):
            yield batch
            if len(attempts) in (1, 4) and i == 0:
                raise ConnectionError("reset")

    monkeypatch.setattr(formats.PartLayout, "batches", failing)
    store = store_of(tmp_path)
    assert len(store) == len(LINES)
    texts, _ = store.read(np.arange(len(LINES)))
    assert [text.decode().split("\n")[0] for text in texts] == LINES
    assert len(attempts) >= 2


def test_a_full_folder_for_temporary_files_is_one_sentence(tmp_path, monkeypatch):
    class Full(io.BytesIO):
        def write(self, data):
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(record_store, "_temporary", Full)
    with pytest.raises(ValueError, match=r"cannot hold .* \(No space left .*: set TMPDIR .* to 0"):
        len(store_of(write(tmp_path, "csv", LINES)))


def test_no_file_is_left_in_the_folder_for_temporary_files(tmp_path, monkeypatch):
    corpus, temporary = tmp_path / "corpus", tmp_path / "temporary"
    corpus.mkdir()
    temporary.mkdir()
    monkeypatch.setattr(record_store.tempfile, "tempdir", str(temporary))
    store = store_of(write(corpus, "csv", LINES))
    assert len(store) == len(LINES)
    assert list(temporary.iterdir()) == []
