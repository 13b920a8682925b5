"""What a pod reads from the hub at each size, beside the hub's limits, and what a mirror costs.

    python benchmarks/internet_scale.py
    python benchmarks/internet_scale.py --language ces_Latn --price 0.026
    python benchmarks/internet_scale.py --simulate 4         # several hosts on a local hub

The first prints the table of docs/pods.md. Its inputs are in results/internet_scale.json: what
preflight estimates for `ro_t5x_base` with 128 rows a host (`rows`, `steps_per_second` of each
slice), and what the simulation has counted. Of larger slices, which the compiler here does not
describe, each host is taken to need what it needs on the largest one that was compiled.

What a host reads follows from its text tokens a second (568 a row: 512 inputs and 114 targets hold
so many): one request for each row group of a parquet file, and the bytes of the text in it. The
bytes are at most those of all columns (tasks/languages/fineweb2.tsv); a row group has 1,000
documents, as datatrove's ParquetWriter makes them, which wrote FineWeb-2.

The simulation starts host processes on a local server of the hub's interface. Each takes some
batches; then all take more at the same time, while the server counts. That is compared with what
the same formula says of the simulated files.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path += [str(ROOT), str(ROOT / "tests"), str(ROOT / "benchmarks")]

RESULTS = ROOT / "benchmarks/results/internet_scale.json"
SLICES = ("v4-8", "v4-16", "v4-32", "v4-64", "v4-128", "v4-256", "v4-512", "v4-1024", "v4-2048")
CORES_A_HOST = 8  # of a v4, by which slices are named
TOKENS_A_ROW = 568  # of text: they fill 512 inputs and 114 targets
GROUP = 1_000  # documents of a row group: datatrove's default
# Requests to files in 5 minutes, for a user by plan and without a token for an address; the table
# of September 2025 in https://huggingface.co/docs/hub/rate-limits, read 2026-11-23.
WINDOW, ANONYMOUS = 300, 3_000
LIMITS = {
    "free": 5_000,
    "PRO": 12_000,
    "Team": 20_000,
    "Enterprise": 50_000,
    "Enterprise Plus": 100_000,
}
# Dollars a GiB and month of standard storage in one region (0.000027397 a GiB and hour), from
# https://cloud.google.com/storage/pricing, as of 2026-09-20.
PRICE = 0.02
WARM_BATCHES, BATCHES, ROWS_A_HOST = 30, 300, 16
SHARDS = 8  # of a run, or one a host if there are more hosts


def rows_a_second(name: str, compiled: dict[str, dict]) -> tuple[float, float, bool]:
    """Return steps a second, rows a second of one host, and whether that slice was compiled."""
    hosts = lambda one: int(one.partition("-")[2]) // CORES_A_HOST
    known = max((s for s in compiled if hosts(s) <= hosts(name)), key=hosts)
    found = compiled[known]
    steps = found["steps_per_second"]
    return steps, steps * found["rows"] / hosts(known), known == name


def start_requests(hosts: int, listing: float) -> float:
    """Return the requests of all hosts until each shard has its first row group and the next.

    `listing`: how many a host needs to find the files. A file's footer takes two, and each host
    looks at one file more, to check the corpus.
    """
    shards = max(1, SHARDS // hosts)
    return hosts * (listing + 2 * (shards + 1) + 2 * shards)


def compiled(report: dict) -> dict[str, float]:
    """Return what the table needs of preflight's report as JSON."""
    checks = report["checks"]
    rows = int(checks["batch"]["figure"].split()[0].replace(",", ""))
    return {"rows": rows, "steps_per_second": checks["speed"]["numbers"]["steps_per_second"]}


def plan_of(requests: float) -> str:
    """Return the least plan whose limit allows so many requests a window, "a mirror" if none."""
    return next((plan for plan, limit in LIMITS.items() if requests <= limit), "a mirror")


def table(results: dict, language, price: float) -> str:
    """Return the table and the lines below it."""
    from tasks.languages import table as languages
    from tasks.languages.table import TOKENS_PER_WORD

    tokens = language.words * TOKENS_PER_WORD
    size = language.parquet_bytes / tokens  # bytes a token
    documents = language.documents / tokens
    found = results["simulated"]
    lines = [
        "| slice | hosts | steps/s | text tokens/s a host | MB/s a host | MB/s in all | requests/s "
        "in all | in 5 minutes | least plan | requests of the start | hours an epoch |",
        "|" + "---|" * 11,
    ]
    most = 0.0
    for name in SLICES:
        hosts = int(name.partition("-")[2]) // CORES_A_HOST
        steps, rows, is_compiled = rows_a_second(name, results["compiled"])
        need = rows * TOKENS_A_ROW
        requests = need * documents / GROUP * hosts
        most = max(most, requests / hosts)
        lines.append(
            f"| {name} | {hosts} | {'' if is_compiled else '≈ '}{steps:.2f} | {need:,.0f} | "
            f"{need * size / 1e6:.2f} | {need * size * hosts / 1e6:,.1f} | {requests:,.2f} | "
            f"{requests * WINDOW:,.0f} | {plan_of(requests * WINDOW)} | "
            f"{start_requests(hosts, found['listing']):,.0f} | "
            f"{tokens / need / hosts / 3600:,.2f} |"
        )
    every = languages.languages()
    mirror = lambda one: f"{one / 2**30:,.0f} GiB, ${one / 2**30 * price:,.2f} a month"
    lines += [
        "",
        f"Without a token, {ANONYMOUS:,} requests in 5 minutes are allowed to each address: a host "
        f"with an address of its own makes at most {most * WINDOW:,.0f}.",
        "",
        f"A mirror of {language.name} takes {mirror(language.parquet_bytes)}; one of all "
        f"{len(every):,} configurations {mirror(sum(one.parquet_bytes for one in every))} "
        f"(${price:g} a GiB and month).",
        "",
        f"Simulated with {found['hosts']} hosts at the same time on files of "
        f"{found['documents_a_group']} documents a row group: {found['requests_a_mtoken']:.0f} "
        f"requests a million tokens and {found['bytes_a_token']:.2f} bytes a token; the formula "
        f"says {found['expected_requests_a_mtoken']:.0f} and "
        f"{found['expected_bytes_a_token']:.2f}.",
    ]
    return "\n".join(lines)


# --- the simulation


def be_host(number: int, hosts: int) -> None:
    """Be one of the hosts: warm up, wait for a line of input, take more batches."""
    import numpy as np
    import real_size
    import seqio

    from t5x.batches import TrainStream
    from t5x.input_pipeline.config import DatasetConfig
    from t5x.input_pipeline.corpora import check_corpora
    from tasks import corpora, vocabularies
    from tasks.languages import public

    corpora.add("web", public.fineweb2(real_size.CONFIG), vocabularies.ro_mini_model)
    batch = ROWS_A_HOST * hosts
    cfg = DatasetConfig("web", real_size.LENGTHS, "train", batch, shuffle=True, seed=0, pack=True)
    check_corpora(cfg)
    rows = (number * ROWS_A_HOST, (number + 1) * ROWS_A_HOST)
    shards = real_size.HERE * hosts
    stream = TrainStream(cfg, seqio.EncDecFeatureConverter, rows, seed=0, shards=shards)
    next(stream)
    print(json.dumps("started"), flush=True)
    for _ in range(WARM_BATCHES):
        next(stream)
    print(json.dumps("warm"), flush=True)
    sys.stdin.readline()
    taken = [next(stream) for _ in range(BATCHES)]
    # Rows without padding hold 568 tokens of text each.
    full = np.mean([np.mean(one["encoder_input_tokens"] != 0) for one in taken])
    print(json.dumps({"rows": ROWS_A_HOST * BATCHES, "full": float(full)}), flush=True)
    sys.stdin.readline()
    os._exit(0)


def expected(data: bytes) -> dict[str, float]:
    """Return what the formula says of a file: its documents, requests and bytes a token."""
    import io

    import pyarrow.parquet as pq
    import sentencepiece

    from tasks import vocabularies

    file = pq.ParquetFile(io.BytesIO(data))
    groups = [file.metadata.row_group(i) for i in range(file.num_row_groups)]
    columns = [group.column(i) for group in groups for i in range(group.num_columns)]
    size = sum(one.total_compressed_size for one in columns if one.path_in_schema == "text")
    pieces = sentencepiece.SentencePieceProcessor(model_file=vocabularies.ro_mini_model())
    texts = file.read(columns=["text"])["text"].to_pylist()
    # One token more: documents are joined with an EOS between them.
    tokens = sum(len(ids) + 1 for ids in pieces.encode(texts))
    return {
        "documents_a_group": groups[0].num_rows,
        "expected_requests_a_mtoken": 1e6 * len(groups) / tokens,
        "expected_bytes_a_token": size / tokens,
    }


def simulate(hosts: int, files: int) -> dict:
    """Run host processes at the same time, and return what the server has counted."""
    import real_size

    from fakes.loopback_hub import LoopbackHub

    served = real_size.repository(files)
    data = served[f"data/{real_size.CONFIG}/train/000_00000.parquet"]
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    hub = LoopbackHub({real_size.REPOSITORY: served})
    with tempfile.TemporaryDirectory() as folder:
        started = []
        for number in range(hosts):
            environment = real_size.client(hub, f"{folder}/{number}")
            command = [sys.executable, __file__, "--host", str(number), str(hosts)]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            started.append(subprocess.Popen(command, env=environment, **pipes))

        def answers() -> list:
            return [json.loads(one.stdout.readline()) for one in started]

        answers()
        start = {k: n / hosts for k, n in real_size.requests(hub, footer)["requests"].items()}
        answers()
        hub.log.clear()
        for one in started:
            print(file=one.stdin, flush=True)
        done = answers()
        counted = real_size.requests(hub, footer)
        for one in started:
            print(file=one.stdin, flush=True)
            one.wait()
    hub.close()
    tokens = sum(one["rows"] for one in done) * TOKENS_A_ROW
    texts, size = counted["requests"].get("text", 0), 0
    for _, path, asked in hub.log:
        if path.endswith(".parquet") and asked:
            first, last = map(int, asked.removeprefix("bytes=").split("-"))
            size += (last - first + 1) * (first < footer)
    return {
        "hosts": hosts,
        "tokens": tokens,
        "full": sum(one["full"] for one in done) / hosts,
        "start": start,
        "listing": sum(n for kind, n in start.items() if kind not in ("footer", "text")),
        "requests": counted["requests"],
        "requests_a_mtoken": texts / tokens * 1e6,
        "bytes_a_token": size / tokens,
        **expected(data),
    }


def main() -> None:
    """Print the table, after a simulation if one is asked for."""
    if sys.argv[1:2] == ["--host"]:
        be_host(int(sys.argv[2]), int(sys.argv[3]))
    from tasks.languages import table as languages

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--language", default="ron_Latn")
    add("--price", type=float, default=PRICE, help="dollars a GiB and month")
    add("--simulate", type=int, metavar="HOSTS", help="count once more, with so many")
    add("--files", type=int, default=500, help="of the simulated corpus")
    add("--compiled", nargs="*", default=[], help="SLICE=FILE of preflight --json")
    args = parser.parse_args()
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"compiled": {}}
    for entry in args.compiled:
        name, _, path = entry.partition("=")
        results["compiled"][name] = compiled(json.loads(pathlib.Path(path).read_text()))
    if args.simulate:
        results["simulated"] = simulate(args.simulate, args.files)
    if args.simulate or args.compiled:
        RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
    print(table(results, languages.find(args.language), args.price))


if __name__ == "__main__":
    main()
