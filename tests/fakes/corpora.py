"""A small corpus in every format."""

import gzip
import json

import pyarrow as pa
import pyarrow.parquet as pq
import seqio
import zstandard

from tasks.jobs import downstream

LINES = [f"documentul {i} " + "x" * (i * 7 % 300) for i in range(600)]


def forget_jobs():
    """Removes the tasks of languages, which gin files register under the names of their jobs."""
    for name in downstream.JOBS:
        seqio.TaskRegistry.remove(name)
    downstream._registered.clear()


def jsonl(texts):
    return "".join(json.dumps({"text": t, "id": i}) + "\n" for i, t in enumerate(texts)).encode()


def write(folder, kind, texts, name="train-0"):
    if kind == "parquet":
        table = pa.table({"text": texts, "id": list(range(len(texts)))})
        pq.write_table(table, folder / f"{name}.parquet", row_group_size=50)
    elif kind == "json":
        (folder / f"{name}.json").write_text(json.dumps([{"text": t} for t in texts], indent=1))
    elif kind == "csv":
        rows = "".join(f'{i},"{t}\nși ""restul"""\n' for i, t in enumerate(texts))
        (folder / f"{name}.csv").write_text("id,text\n" + rows)
    elif kind == "txt":
        (folder / f"{name}.txt").write_text("\n".join(texts))
    elif kind == "jsonl.gz":
        (folder / f"{name}.jsonl.gz").write_bytes(gzip.compress(jsonl(texts)))
    elif kind == "jsonl.zst":
        (folder / f"{name}.jsonl.zst").write_bytes(zstandard.compress(jsonl(texts)))
    else:
        (folder / f"{name}.jsonl").write_bytes(jsonl(texts))
    return folder
