"""A remote parquet file's footer is fetched once, only wanted columns are, and no row is lost."""

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from common.errors import UserError
from tasks.corpus.records.formats import PartLayout
from tasks.corpus.storage import files
from tasks.corpus.storage.files import CorpusFile


def test_footers_of_many_remote_files_are_fetched_once_each(monkeypatch):
    table = pa.table({"text": [f"text {i}" for i in range(400)], "id": list(range(400))})
    out = io.BytesIO()
    pq.write_table(table, out, row_group_size=1)
    data, fetched = out.getvalue(), []
    footer = int.from_bytes(data[-8:-4], "little")
    assert footer > 1 << 16  # it needs a second read

    def read_range(file, start, stop):
        fetched.append((file.url, start, stop))
        return data[start:stop]

    monkeypatch.setattr(files, "read_range", read_range)
    names = [f"hf://datasets/user/name@main/{i}.parquet" for i in range(40)]
    many = [CorpusFile(name, "parquet", length=len(data)) for name in names]
    layout = PartLayout(("text",))
    for part in (7, 3):
        for file in many:
            assert layout.count(file) == 400
            assert list(layout.batches(file, part)) == [[{"text": f"text {part}"}]]
    for name in names:
        sizes = [stop - start for url, start, stop in fetched if url == name]
        assert len(sizes) == 2 + 2
        assert sum(sizes) < footer + (1 << 16) + 400  # of one column, of two parts


def test_a_row_group_of_which_arrow_reads_too_few_rows_is_damaged(monkeypatch, tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": [f"text {i}" for i in range(10)]}), path)
    file, layout = CorpusFile(str(path), "parquet"), PartLayout(("text",))
    assert sum(map(len, layout.batches(file, 0))) == 10
    read = pq.ParquetFile.iter_batches
    shorter = lambda *args, **options: (batch.slice(3) for batch in read(*args, **options))
    monkeypatch.setattr(pq.ParquetFile, "iter_batches", shorter)
    with pytest.raises(UserError, match=r"damaged.*row group 0 lacks 3 of 10 rows"):
        list(layout.batches(file, 0))
