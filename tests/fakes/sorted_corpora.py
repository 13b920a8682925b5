"""Records of several classes, sorted by class, in every format.

source = sorted_source(folder, "csv", counts={"a": 900, "b": 300})
in_batches(source, batch_size=64)      # lists of classes as a stream of 8 shards gives them
"""

import csv
import json

import pyarrow as pa
import pyarrow.parquet as pq
import seqio

from fakes.corpora import write
from tasks.corpus.source import CorpusSource
from tasks.rows import Rows

KINDS = ("jsonl", "jsonl.gz", "jsonl.zst", "json", "csv", "tsv", "txt", "parquet", "parallel")
COUNTS = {"a": 1600, "b": 800, "c": 600, "d": 1000}
SHARDS = 8


def texts_of(counts=COUNTS):
    """Return texts that begin with their class, sorted by class."""
    return [f"{name} {i} " + "x" * (i % 50) for name, n in counts.items() for i in range(n)]


def sorted_source(folder, kind, counts=COUNTS):
    """Write sorted records and return their source."""
    texts = texts_of(counts)
    if kind == "parallel":
        for side in ("ro", "en"):
            (folder / f"train.{side}").write_text("".join(f"{text}\n" for text in texts))
        pair = (str(folder / "train.ro"), str(folder / "train.en"))
        return Rows(parallel={"train": pair}, held_out={})
    if kind == "tsv":
        with open(folder / "train.tsv", "w", newline="") as file:
            csv.writer(file, delimiter="\t").writerows([["text"], *([text] for text in texts)])
    elif kind == "parquet":
        table = pa.table({"text": texts})
        pq.write_table(table, folder / "train.parquet", row_group_size=500)
    elif kind == "csv":
        with open(folder / "train.csv", "w", newline="") as file:
            csv.writer(file).writerows([["text"], *([text] for text in texts)])
    elif kind == "jsonl":  # a file for each class
        for name in counts:
            lines = [json.dumps({"text": text}) for text in texts if text.startswith(name)]
            (folder / f"train-{name}.jsonl").write_text("\n".join(lines))
    else:
        write(folder, kind, texts, "train")
    return CorpusSource(str(folder), splits=["train"])


def in_batches(source, batch_size=64, epochs=1, **settings):
    """Return the classes in each batch, in which each shard fills an equal number of rows."""
    rows = batch_size // SHARDS
    shards = []
    for i in range(SHARDS):
        info = seqio.ShardInfo(i, SHARDS)
        dataset = source.get_dataset("train", seed=0, shard_info=info, **settings).repeat(epochs)
        records = dataset.as_numpy_iterator()
        shards.append([(r.get("text", r.get("inputs"))).decode() for r in records])
    steps = min(map(len, shards)) // rows
    return [
        [text[0] for shard in shards for text in shard[i * rows : (i + 1) * rows]]
        for i in range(steps)
    ]
