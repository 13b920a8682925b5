"""A corpus of 2,000 parquet files on a local server of the hub's interface: start, resume, memory.

    python benchmarks/real_size.py
    python benchmarks/real_size.py --shards 8 128 --files 2000 --json figures.json
    python benchmarks/real_size.py --shards 128 --here 128    # a run of 16 hosts resumes on one

The server holds a repository like FineWeb-2: a card of 1,913 configurations, and files of 1,000 row
groups and its eleven columns, so that footers have their real size (1.2 MB), while a row group has
only 16 documents. Each run is a new process, as a host's is: it checks the corpus, makes the
training stream of packed batches of 128 rows of 512 and 114 tokens, takes a batch (cold), takes
more, saves its position and ends; a second process resumes there. The host has `--here` virtual
shards, of 8 or of 128 in the run. Seconds count from the start of the process, imports included.
Requests and bytes are those that the server has answered.
"""

import argparse
import collections
import io
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

CONFIG, REPOSITORY = "ron_Latn", "HuggingFaceFW/fineweb-2"
ROW_GROUPS, ROWS_A_GROUP = 1_000, 16
LENGTHS, BATCH = {"inputs": 512, "targets": 114}, 128
MORE_BATCHES = 4


def parquet_file() -> bytes:
    """Return a file with FineWeb-2's columns, of short texts of the mini corpus."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    lines = (ROOT / "data/ro_mini/validation.jsonl").read_text().splitlines()
    n = ROW_GROUPS * ROWS_A_GROUP
    texts = [f"{i} {json.loads(lines[i % len(lines)])['text'][:600]}" for i in range(n)]
    same = lambda value: [value] * n
    table = pa.table(
        {
            "text": texts,
            "id": [f"<urn:uuid:{i:032x}>" for i in range(n)],
            "dump": same("CC-MAIN-2024-10"),
            "url": [f"https://example.org/{i}" for i in range(n)],
            "date": same("2024-02-21T01:02:03Z"),
            "file_path": same("s3://commoncrawl/crawl-data/CC-MAIN-2024-10/warc.gz"),
            "language": same("ron"),
            "language_score": same(0.99),
            "language_script": same("Latn"),
            "minhash_cluster_size": [1 + i % 7 for i in range(n)],
            "top_langs": same('{"ron_Latn_score": 0.99}'),
        }
    )
    out = io.BytesIO()
    pq.write_table(table, out, row_group_size=ROWS_A_GROUP)
    return out.getvalue()


def card() -> bytes:
    """Return a card that lists the files of 1,913 configurations, as FineWeb-2's does."""
    from tasks.languages import table

    lines = ["---", "license: odc-by", "configs:"]
    for one in table.languages():
        lines += [f"- config_name: {one.code}", "  data_files:"]
        for split in ("train", "test"):
            lines += [f"  - split: {split}", f"    path: data/{one.code}/{split}/*"]
    return "\n".join([*lines, "---", "# FineWeb-2"]).encode()


def repository(files: int) -> dict[str, bytes]:
    """Return the repository's files by path; all of them are the same bytes."""
    from tasks.languages import table

    data, folder = parquet_file(), f"data/{CONFIG}/train"
    names = [f"{folder}/{i // 8:03d}_{i % 8:05d}.parquet" for i in range(files)]
    # `datasets` looks at the first configuration for the format.
    names += [f"data/{table.languages()[0].code}/train/000_00000.parquet"]
    names += [f"data/{code}/test/000_00000.parquet" for code in (CONFIG, table.languages()[0].code)]
    return {"README.md": card()} | dict.fromkeys(names, data)


def host(shards: int, rows: tuple[int, int], position: str, resume: bool, started: float) -> None:
    """Be one host of a run; print its figures as JSON."""
    import seqio

    from command_line import malloc
    from t5x.batches import TrainStream
    from t5x.input_pipeline.config import DatasetConfig
    from t5x.input_pipeline.corpora import check_corpora
    from tasks import corpora, vocabularies
    from tasks.languages import public

    malloc.keep_freed_memory(os.environ)  # as a run on a CPU does
    corpora.add("web", public.fineweb2(CONFIG), vocabularies.ro_mini_model)
    cfg = DatasetConfig("web", LENGTHS, "train", BATCH, shuffle=True, seed=0, pack=True)
    imported = time.time() - started
    check_corpora(cfg)
    stream = TrainStream(cfg, seqio.EncDecFeatureConverter, rows, seed=0, shards=shards)
    if resume:
        stream.restore(position)
    next(stream)
    first, busy = time.time() - started, time.process_time()
    if not resume:
        for _ in range(MORE_BATCHES):
            next(stream)
        stream.save(position)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    found = {"imports": imported, "first": first, "core_seconds": busy, "peak": peak}
    print(json.dumps(found), flush=True)
    os._exit(0)  # as a run that is killed: nothing is waited for


def measure(
    hub, footer: int, shards: int, rows: tuple[int, int], folder: str, resume: bool
) -> dict:
    """Run one host in a new process; return its figures and the requests it has made."""
    hub.log.clear()
    position = f"{folder}/{shards}-{rows[1]}"
    environment = client(hub, f"{position}-{'resume' if resume else 'cold'}")
    flags = [str(shards), str(rows[0]), str(rows[1]), position, str(int(resume)), str(time.time())]
    command = [sys.executable, __file__, "--host", *flags]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"a host ended with {done.returncode}: {done.stderr[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1]) | requests(hub, footer)


def client(hub, home: str) -> dict[str, str]:
    """Return the environment of a host that reads from a hub; `home` keeps what it fetches."""
    return os.environ | {
        "HF_ENDPOINT": hub.url,
        "HF_HOME": home,
        "HF_HUB_OFFLINE": "0",
        "HF_HUB_DISABLE_XET": "1",
        "JAX_PLATFORMS": "cpu",
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "PYTHONPATH": str(ROOT),
    }


def requests(hub, footer: int) -> dict:
    """Return what the server has answered; `footer` is where the footer of each file begins."""
    kinds: collections.Counter[str] = collections.Counter()
    opened, size = set(), 0
    for _, path, asked in list(hub.log):
        if path.startswith("/api/"):
            kinds["listing" if "/tree/" in path else "api"] += 1
        elif not path.endswith(".parquet"):
            kinds["card"] += 1
        else:
            opened.add(path)
            first, last = map(int, asked.removeprefix("bytes=").split("-")) if asked else (0, 0)
            size += last - first + 1
            kinds["footer" if first >= footer else "text"] += 1
    return {"requests": dict(kinds), "total": kinds.total(), "opened": len(opened), "bytes": size}


def main() -> None:
    """Start the server, run the hosts, print the table."""
    if sys.argv[1:2] == ["--host"]:
        shards, first, end, position, resume, started = sys.argv[2:]
        host(int(shards), (int(first), int(end)), position, resume == "1", float(started))
    from fakes.loopback_hub import LoopbackHub

    flags = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    flags.add_argument("--files", type=int, default=2000)
    flags.add_argument("--shards", type=int, nargs="+", default=[8, 128])
    flags.add_argument("--here", type=int, default=8, help="virtual shards of the host")
    flags.add_argument("--json", help="file for the figures")
    args = flags.parse_args()
    served = repository(args.files)
    data = served[f"data/{CONFIG}/train/000_00000.parquet"]
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    hub = LoopbackHub({REPOSITORY: served})
    found = []
    print(f"{args.files:,} files; load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory() as folder:
        for shards in args.shards:
            rows = (0, BATCH * args.here // shards)
            for resume in (False, True):
                one = measure(hub, footer, shards, rows, folder, resume)
                found.append({"shards": shards, "resume": resume, **one})
                print(
                    f"{args.here} of {shards:3} shards here, {'resumed' if resume else 'cold':7} "
                    f"first batch {one['first']:4.1f} s (imports {one['imports']:3.1f} s, "
                    f"{one['core_seconds']:.1f} s of a core), "
                    f"peak {one['peak'] / 1e9:.2f} GB, {one['total']:4} requests "
                    f"{one['requests']}, {one['opened']} files opened, "
                    f"{one['bytes'] / 1e6:,.1f} MB",
                    flush=True,
                )
    hub.close()
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
