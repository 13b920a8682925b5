r"""Write a corpus without near-duplicates: keep one of the documents that share most words.

    python -m tasks.deduplicate --module tasks.my_language --task my_corpus --to /data/unique

reads the documents of a task's corpus with all of the corpus's filters, and writes
`train-00000-of-00016.jsonl.zst` and so on, which `CorpusSource("/data/unique")` reads. MinHash is
datatrove's, with its numbers: 14 bands of 8 hashes of runs of 5 words, so documents are taken for
the same from about 72 % of common runs on. Of each cluster one document is kept.

On one machine, in four steps: signatures, equal bands, clusters, and the documents that are kept.
The folder `work` in --to holds what is done, 1 KB a document; after an interruption the same
command continues there, part by part. Clusters are found in memory, by the documents that have
near-duplicates.
"""

if __name__ == "__main__":  # before any library writes to stderr
    from command_line import quiet

    quiet.start()

import contextlib
import dataclasses
import functools
import io
import json
import multiprocessing
import os
import pathlib
import re
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import seqio
import zstandard

from command_line import arguments, extras
from command_line.atomic_file import replace_file
from command_line.guard import guarded
from command_line.results import counted
from tasks import registered
from tasks.record_counts import SKIPS
from tasks.sources import CorpusSource
from tasks.streaming.shard_assignment import assign

BANDS = 14  # of datatrove's configuration
PART_BYTES, MOST_PARTS = 256_000_000, 500  # of text; files that are open at the same time
UNKNOWN_PARTS = 64  # of a corpus of unknown size
WORK, DONE = "work", "deduplicated.json"
# Scripts that put no blank between words: Thai, Lao, Burmese, Khmer, kana and Han.
_NO_BLANKS = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
_WORD = re.compile(rf"[{_NO_BLANKS}]|[^\W{_NO_BLANKS}]+")


@dataclasses.dataclass(frozen=True)
class Deduplication:
    """A split of a task's corpus, cut into `parts`, whose near-duplicates `folder` shall lack."""

    modules: tuple[str, ...]
    task: str
    split: str
    folder: str
    parts: int
    revision: str | None = None

    def path(self, *names: str) -> str:
        """Return a path in the folder of what is done so far."""
        return str(pathlib.Path(self.folder, WORK, *names))

    def output(self, part: int) -> str:
        """Return the name of a file to write."""
        return f"{self.split}-{part:05d}-of-{self.parts:05d}.jsonl.zst"


def source_of(modules: tuple[str, ...], task: str) -> CorpusSource:
    """Return the source of a registered task, or raise ValueError."""
    source = registered.find(task, "--task", modules).source
    if not isinstance(source, CorpusSource):
        raise ValueError(
            f"task {task!r} reads from {type(source).__name__}, but must read from a CorpusSource"
        )
    return source


def parts_of(source: CorpusSource, split: str) -> int:
    """Return the number of parts to cut a split into: by its text, and no more than can be cut."""
    size = source.text_bytes(split)
    wanted = UNKNOWN_PARTS if size is None else min(-(-size // PART_BYTES), MOST_PARTS)
    corpus = source.corpus_split(split)
    # Of what cannot be cut, every part would read all.
    uncut = assign(corpus, 0, max(wanted, 1)).by_records
    return max(min(wanted, len(corpus.files)) if uncut else wanted, 1)


def documents(job: Deduplication, part: int) -> Iterator[dict[str, str]]:
    """Yield the documents of a part, always in the same order."""
    source = source_of(job.modules, job.task)
    if job.revision:
        source.pin_revision(job.revision)
    info = seqio.ShardInfo(part, job.parts)
    for row in source.get_dataset(job.split, False, 0, info).as_numpy_iterator():
        yield {name: value.decode("utf-8", "replace") for name, value in row.items()}


# --- the steps; each writes nothing that counts before it returns its numbers


def write_signatures(job: Deduplication, part: int) -> dict[str, int]:
    """Write the sorted signatures of a part; return how its records are counted."""
    from datatrove.data import Document
    from datatrove.pipeline.dedup import MinhashDedupSignature

    count = 0

    def texts() -> Iterator[Document]:
        nonlocal count
        for row in documents(job, part):
            yield Document(text="\n".join(row.values()), id=str(count))
            count += 1

    counter = source_of(job.modules, job.task).counter
    before = counter.counts()
    step = MinhashDedupSignature(job.path("signatures"), _config(), _words())
    step.run(texts(), part, job.parts)
    after = counter.counts()
    skipped = {name: after[name] - before[name] for name in ("read", *SKIPS)}
    return {"documents": count, **{name: n for name, n in skipped.items() if n}}


def write_equal_bands(job: Deduplication, band: int) -> dict[str, int]:
    """Write the pairs of documents with an equal band."""
    from datatrove.pipeline.dedup import MinhashDedupBuckets

    step = MinhashDedupBuckets(job.path("signatures"), job.path("pairs"), config=_config())
    step.run(None, band, BANDS)
    return {}


def write_clusters(job: Deduplication, _: int) -> dict[str, int]:
    """Write which documents of each part to leave out."""
    from datatrove.pipeline.dedup import MinhashDedupCluster

    shutil.rmtree(job.path("removed"), ignore_errors=True)
    step = MinhashDedupCluster(job.path("pairs"), job.path("removed"), _config())
    with contextlib.redirect_stderr(io.StringIO()):  # a bar of tqdm
        step.run(None, 0, 1)
    return {}


def write_kept(job: Deduplication, part: int) -> dict[str, int]:
    """Write the documents of a part that are kept.

    Raises:
      ValueError: the part has another number of documents than before.
    """
    from datatrove.data import Document
    from datatrove.pipeline.dedup import MinhashDedupFilter

    read = kept = 0

    def rows() -> Iterator[Document]:
        nonlocal read
        for row in documents(job, part):
            yield Document(text="", id=str(read), metadata=row)
            read += 1

    path = job.path("kept", job.output(part))
    with open(f"{path}.new", "wb") as raw, zstandard.ZstdCompressor().stream_writer(raw) as file:
        for document in MinhashDedupFilter(job.path("removed")).run(rows(), part, job.parts):
            line = json.dumps(document.metadata, ensure_ascii=False)
            file.write(line.encode() + b"\n")
            kept += 1
    expected = _done(job, "signatures", part)["documents"]
    if read != expected:
        raise ValueError(
            f"part {part} of task {job.task!r} has {read:,} documents, but had {expected:,} when "
            f"their signatures were made: remove {job.folder}, and begin again"
        )
    os.replace(f"{path}.new", path)
    return {"kept": kept, "near_duplicates": read - kept}


STEPS: Mapping[str, Callable[[Deduplication, int], dict[str, int]]] = {
    "signatures": write_signatures,
    "bands": write_equal_bands,
    "clusters": write_clusters,
    "kept": write_kept,
}


def _config() -> Any:
    from datatrove.pipeline.dedup.minhash import HashConfig, MinhashConfig

    # Its default is xxhash, which takes no texts any more (xxhash 4).
    return MinhashConfig(num_buckets=BANDS, hash_config=HashConfig(hash_fc="sha1"))


def _words() -> Any:
    """Return how a text is cut into words, as datatrove asks for it: in any language."""
    from datatrove.utils.word_tokenizers import WordTokenizer

    class Words(WordTokenizer):
        def word_tokenize(self, text: str) -> list[str]:
            return _WORD.findall(text)

        def sent_tokenize(self, text: str) -> list[str]:
            return [text]

        def span_tokenize(self, text: str) -> list[tuple[int, int]]:
            return [match.span() for match in _WORD.finditer(text)]

    return Words()


# --- all steps


def _done_path(job: Deduplication, step: str, item: int) -> str:
    return job.path("done", f"{step}-{item:05d}.json")


def _done(job: Deduplication, step: str, item: int) -> dict[str, int]:
    return json.loads(pathlib.Path(_done_path(job, step, item)).read_text())


def _do(job: Deduplication, step: str, item: int) -> None:
    from loguru import logger

    logger.disable("datatrove")  # whose lines are for its own executors
    counts = STEPS[step](job, item)
    replace_file(_done_path(job, step, item), json.dumps(counts).encode())


def run(job: Deduplication, workers: int, report: Callable[[str], None] = print) -> Counter[str]:
    """Do what is left of all steps; return how the records are counted.

    Raises:
      ValueError: the corpus has changed since the first start.
    """
    for name in ("done", "kept"):
        os.makedirs(job.path(name), exist_ok=True)
    numbers = {"bands": BANDS, "clusters": 1}
    total: Counter[str] = Counter()
    with _processes(min(workers, job.parts)) as in_processes:
        for step in STEPS:
            items = range(numbers.get(step, job.parts))
            left = [i for i in items if not os.path.exists(_done_path(job, step, i))]
            done, shown = len(items) - len(left), None
            for _ in in_processes(functools.partial(_do, job, step), left):
                done += 1
                if (twentieth := done * 20 // len(items)) != shown:
                    report(f"{step}: {done} of {len(items)}")
                    shown = twentieth
            for item in items:
                total.update(_done(job, step, item))
    for part in range(job.parts):
        with contextlib.suppress(FileNotFoundError):  # an earlier start has moved it
            name = job.output(part)
            os.replace(job.path("kept", name), pathlib.Path(job.folder, name))
    return total


@contextlib.contextmanager
def _processes(workers: int) -> Iterator[Callable[..., Iterator[None]]]:
    """Make a function like `map` that calls in other processes, which end with the block."""
    if workers == 1:
        yield map
        return
    # Threads of TensorFlow do not survive a fork.
    with multiprocessing.get_context("spawn").Pool(workers, _ignore_interrupts) as pool:
        yield pool.imap_unordered


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its children


def begin(modules: tuple[str, ...], task: str, split: str, folder: str) -> Deduplication:
    """Return the job that --to holds, or a new one.

    Raises:
      ValueError: it holds another one, or other files.
    """
    source = source_of(modules, task)
    path = pathlib.Path(folder, WORK, "job.json")
    found = json.loads(path.read_text()) if path.exists() else None
    if found and found["corpus"].get("revision"):
        source.pin_revision(found["corpus"]["revision"])
    corpus = json.loads(json.dumps(source.identity(split)))
    wanted = {"task": task, "split": split, "corpus": corpus}
    if found is None:
        if (there := pathlib.Path(folder)).exists() and any(there.iterdir()):
            raise ValueError(f"--to is {folder!r}, which holds files: name an empty folder")
        found = wanted | {"parts": parts_of(source, split)}
        path.parent.mkdir(parents=True)
        replace_file(str(path), json.dumps(found, indent=1).encode())
    if other := [name for name in wanted if found[name] != wanted[name]]:
        raise ValueError(
            f"--to is {folder!r}, where {found['task']!r} of another {other[0]} is deduplicated: "
            "name another folder, or remove that one"
        )
    return Deduplication(modules, task, split, folder, found["parts"], corpus.get("revision"))


def sentence(counts: Mapping[str, int]) -> str:
    """Return what was read, skipped, left out and kept."""
    skipped = [(counts[name], name.removeprefix("skipped_")) for name in SKIPS if name in counts]
    reasons = ", ".join(f"{n:,} {reason.replace('_', ' ')}" for n, reason in skipped) or "none"
    return (
        f"{counted(counts.get('read', 0), 'record')} read, skipped {reasons}; kept "
        f"{counts['kept']:,} of {counted(counts['documents'], 'document')}, near-duplicates: "
        f"{counts['near_duplicates']:,}"
    )


@guarded
def main(argv: list[str]) -> int:
    """Write the corpus without near-duplicates; return the exit status."""
    parser = arguments.parser("python -m tasks.deduplicate", __doc__.splitlines()[0])
    add = parser.add_argument
    add("--task", type=arguments.text, required=True, help="the task whose corpus is read")
    add(
        "--module",
        action="append",
        default=[],
        help="module that registers the task; default: all of tasks/",
    )
    add("--split", type=arguments.text, default="train", help="split to read, default train")
    add("--to", type=arguments.text, required=True, help="empty folder on a disk, for the result")
    add(
        "--workers",
        type=arguments.integer(1),
        default=os.cpu_count() or 1,
        help="number of processes",
    )
    args = parser.parse_args(argv)
    arguments.check_output_folder("--to", args.to)
    extras.require("datatrove")
    summary = pathlib.Path(args.to, DONE)
    try:
        if not summary.exists():
            modules = tuple(args.module) or registered.every_module()
            job = begin(modules, args.task, args.split, args.to)
            counts = run(job, args.workers)
            replace_file(str(summary), json.dumps({"task": args.task, **counts}).encode())
        shutil.rmtree(pathlib.Path(args.to, WORK), ignore_errors=True)
    except KeyboardInterrupt:
        print("Stopped: the same command continues from here.", file=sys.stderr)
        return 130
    print(f"{args.to}: {sentence(json.loads(summary.read_text()))}.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
