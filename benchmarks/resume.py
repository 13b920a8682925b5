"""Seconds to resume deep inside one large file, by the file's format.

    python benchmarks/resume.py --gigabytes 2 --folder /tmp/resume

Writes a corpus of a single file of that size as parquet, JSONL and zstd-compressed JSONL, reads
nine tenths of it, saves the position, and resumes in a new process. Resuming reads one row group of
parquet again, or a byte range of one mebibyte of JSONL. A compressed file has to be decompressed
from its start, which is why a large corpus should not be one compressed file.
"""

import argparse
import json
import os
import pathlib
import resource
import subprocess
import sys
import time

import pyarrow as pa
import pyarrow.parquet as pq
import tensorflow as tf
import zstandard

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tasks import vocabularies  # noqa: E402
from tasks.sources import CorpusSource  # noqa: E402

KINDS = ("parquet", "jsonl", "jsonl.zst")


def documents(size: int):
    """Yield texts of the mini corpus, each made different by a number, `size` bytes in all."""
    texts = CorpusSource(vocabularies.resolve("data/ro_mini"), splits=["train"]).peek("train", 500)
    written, i = 0, 0
    while written < size:
        text = f"{i} {texts[i % len(texts)]}"
        written, i = written + len(text.encode()), i + 1
        yield text


def write(path: pathlib.Path, kind: str, size: int) -> None:
    """Write one file of `size` bytes of text."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "parquet":
        writer, rows = pq.ParquetWriter(path, pa.schema([("text", pa.string())])), []
        for text in documents(size):
            rows.append(text)
            if len(rows) == 10_000:
                writer.write_table(pa.table({"text": rows}))
                rows = []
        writer.write_table(pa.table({"text": rows}))
        writer.close()
        return
    with open(path, "wb") as raw:
        packed = zstandard.ZstdCompressor(1).stream_writer(raw) if kind.endswith("zst") else raw
        for text in documents(size):
            packed.write(json.dumps({"text": text}, ensure_ascii=False).encode() + b"\n")
        packed.flush()
        if packed is not raw:
            packed.close()


def open_iterator(folder: str):
    """Return the documents of a corpus in file order, with a position to save."""
    options = tf.data.Options()
    options.experimental_external_state_policy = tf.data.experimental.ExternalStatePolicy.IGNORE
    dataset = CorpusSource(folder, splits=["train"]).get_dataset("train", shuffle=False)
    return iter(dataset.batch(64).with_options(options))


def resume(folder: str, position: str) -> None:
    """Restore a position, and print the next record and the time to it."""
    start = time.monotonic()
    iterator = open_iterator(folder)
    tf.train.Checkpoint(it=iterator).read(position).assert_consumed()
    texts = next(iterator)["text"].numpy()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(json.dumps({"first": texts[0].decode()[:40], "s": time.monotonic() - start, "mib": peak}))


def measure(folder: pathlib.Path, kind: str, size: int) -> None:
    """Print the figures of one format."""
    path = folder / kind / f"train.{kind}"
    if not path.exists():
        write(path, kind, size)
    iterator, start, read = open_iterator(str(path.parent)), time.monotonic(), 0
    while read < 0.9 * size:
        read += sum(map(len, next(iterator)["text"].numpy()))
    passed = time.monotonic() - start
    position = tf.train.Checkpoint(it=iterator).write(str(folder / f"position-{kind}"))
    kept = sum(p.stat().st_size for p in folder.glob(f"position-{kind}.*"))
    wanted = next(iterator)["text"].numpy()[0].decode()[:40]
    command = [sys.executable, __file__, "--resume", str(path.parent), position]
    printed = subprocess.run(
        command, capture_output=True, text=True, check=True, env=os.environ
    ).stdout
    found = json.loads(printed.strip().splitlines()[-1])
    assert found["first"] == wanted, (found, wanted)
    print(
        f"{kind:10s} {path.stat().st_size / 1e9:5.2f} GB on disk, {read / 1e9:.2f} GB of text read "
        f"in {passed:5.1f} s; position {kept / 1e3:.0f} kB; resumes after {found['s']:6.2f} s, "
        f"{found['mib']} MiB at most",
        flush=True,
    )


def main() -> None:
    """Read the flags and measure each format."""
    flags = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    flags.add_argument("--gigabytes", type=float, default=2.0, help="of text in the file")
    flags.add_argument("--folder", type=pathlib.Path, help="where the files go, and stay")
    flags.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    flags.add_argument("--resume", nargs=2, help=argparse.SUPPRESS)
    args = flags.parse_args()
    if args.resume:
        resume(*args.resume)
        return
    for kind in args.kinds:
        measure(args.folder, kind, int(args.gigabytes * 1e9))


if __name__ == "__main__":
    main()
