"""The footer of a remote parquet file is fetched once, and only its wanted columns."""

import io
import time
from concurrent import futures

import pyarrow as pa
import pyarrow.parquet as pq

from tasks.corpus import files
from tasks.corpus.files import CorpusFile
from tasks.corpus.formats import PartLayout


def test_footers_are_parsed_one_at_a_time(monkeypatch):
    """Each takes memory in its thread's arena, and 128 shards of a host have 128 threads."""
    out = io.BytesIO()
    pq.write_table(pa.table({"text": list("abc")}), out)
    data, parse, active, most = out.getvalue(), pq.read_metadata, [], []

    def slow(raw):
        active.append(raw)
        most.append(len(active))
        time.sleep(0.01)
        active.remove(raw)
        return parse(raw)

    monkeypatch.setattr(files, "read_range", lambda file, start, stop: data[start:stop])
    monkeypatch.setattr(pq, "read_metadata", slow)
    names = [f"hf://datasets/user/parsed@main/{i}.parquet" for i in range(8)]
    many = [CorpusFile(name, "parquet", length=len(data)) for name in names]
    with futures.ThreadPoolExecutor(len(many)) as pool:
        assert list(pool.map(PartLayout(("text",)).count, many)) == [1] * len(many)
    assert most == [1] * len(many)


def test_footers_of_many_remote_files_are_fetched_once_each(monkeypatch):
    table = pa.table({"text": [f"text {i}" for i in range(400)], "id": list(range(400))})
    out = io.BytesIO()
    pq.write_table(table, out, row_group_size=1)
    data, fetched = out.getvalue(), []
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    assert len(data) - footer > 1 << 16  # it needs a second read

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
        mine = sorted((start, stop) for url, start, stop in fetched if url == name)
        (first, second), texts = mine[-2:], mine[:-2]
        assert (first[0], first[1], second[1]) == (footer, second[0], len(data))
        assert len(texts) == 2
        assert sum(stop - start for start, stop in texts) < 400  # of one column
