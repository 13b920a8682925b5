"""Corpora on web servers that break off, answer wrongly or replace a file: complete, or an error.

    python benchmarks/attacks/servers.py

Each of 7 formats is read from each of 9 kinds of servers with each of 8 faults, at a request that
follows from the seed. Survived: all records arrived once, in order, or reading ended in an error.
Lost: other records arrived and nothing was said. See tests/fakes/file_server.py.
"""

import argparse
import collections
import itertools
import pathlib
import random
import sys
import tempfile
from collections.abc import Sequence

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from absl import logging  # noqa: E402

from fakes.corpora import write  # noqa: E402
from fakes.file_server import FileServer  # noqa: E402
from tasks.io import formats, http_files  # noqa: E402
from tasks.io.retry import RetryPolicy  # noqa: E402
from tasks.sources import CorpusSource  # noqa: E402

FORMATS = ("jsonl", "jsonl.gz", "jsonl.zst", "json", "csv", "txt", "parquet")
SERVERS = {
    "ranges, ETag": {},
    "ranges, weak ETag": {"version": "weak ETag"},
    "ranges, Last-Modified": {"version": "Last-Modified"},
    "ranges, no version": {"version": None},
    "ranges, ignores If-Range": {"obeys": False},
    "length, ETag": {"ranges": False},
    "length, no version": {"ranges": False, "version": None},
    "chunks, ETag": {"ranges": False, "ends": "chunks"},
    "no mark of the end, ETag": {"ranges": False, "ends": "nothing"},
}
REPLACED, SHORTENED = "replaced", "replaced by half"
FAULTS = ("none", 503, 404, "cut", "other range", "half size", REPLACED, SHORTENED)
RECORDS = [f"{i} {'abcdefghij' * (i % 9)}" for i in range(600)]
PART_BYTES = 8 << 10
COMPLETE, REFUSED = "complete", "refused"
POLICY = RetryPolicy(limit_s=2, first_s=0.01, longest_s=0.05)


def rows(seed: int = 0) -> list[tuple[str, str, str, str]]:
    """Return (format, server, fault, outcome) of every attack; "lost: …" for a silent one."""
    logging.set_verbosity(logging.ERROR)
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        return [
            (kind, server, str(fault), attack(pathlib.Path(folder), kind, server, fault, rng))
            for kind, server, fault in itertools.product(FORMATS, SERVERS, FAULTS)
        ]


def attack(folder: pathlib.Path, kind: str, server: str, fault: str | int, rng) -> str:
    """Read a corpus from a server with one fault, and return what became of it."""
    http_files.probe.cache_clear()
    formats._footer.cache_clear()
    write(folder, kind, RECORDS)
    with FileServer(folder, **SERVERS[server]) as files:
        source = CorpusSource(files={"train": f"{files.url}/train-0.{kind}"}, retry_policy=POLICY)
        if fault not in ("none", REPLACED, SHORTENED):
            files.faults = [fault] + [None] * rng.randrange(4)
        got: list[str] = []
        try:
            for record in source.get_dataset("train", shuffle=False).as_numpy_iterator():
                if fault in (REPLACED, SHORTENED) and not got:
                    write(folder, kind, _other(fault, SERVERS[server].get("version", "ETag")))
                got.append(record["text"].decode().split("\n")[0])
        except Exception:
            return REFUSED
    return COMPLETE if got == RECORDS else f"lost: {len(got)} of {len(RECORDS)} records, or others"


def _other(fault: str, version: str | None) -> list[str]:
    """Return other records, of the same length if the server sends a version of the file."""
    if fault == SHORTENED:
        return RECORDS[: len(RECORDS) // 2]
    longer = "" if version else "longer"  # without a version only a length can be compared
    return [f"{record}{longer}"[::-1] for record in RECORDS]


def main(argv: Sequence[str] = ()) -> None:
    """Print a line per server and per fault, and what was lost; exit with 1 if anything was."""
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args(argv)
    formats.REMOTE_PART_BYTES = PART_BYTES
    found = rows()
    counts = collections.Counter((fault, outcome) for *_, fault, outcome in found)
    print("| fault | complete | refused | lost |\n|---|---|---|---|")
    for fault in map(str, FAULTS):
        complete, refused = counts[fault, COMPLETE], counts[fault, REFUSED]
        tried = sum(n for (name, _), n in counts.items() if name == fault)
        print(f"| {fault} | {complete} | {refused} | {tried - complete - refused} |")
    lost = [row for row in found if row[-1] not in (COMPLETE, REFUSED)]
    for row in lost:
        print("  ".join(row))
    print(f"\n{len(found)} tried, {len(found) - len(lost)} survived, {len(lost)} lost")
    sys.exit(bool(lost))


if __name__ == "__main__":
    main(sys.argv[1:])
