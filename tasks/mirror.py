r"""Copies a corpus to a folder or bucket, from which it then streams.

python -m tasks.mirror --corpus dumitrescustefan/rlm --to /data/rlm
python -m tasks.mirror --corpus HuggingFaceFW/fineweb-2 --config ces_Latn --to /data/cs
python -m tasks.mirror --files 'train=@https://example.org/ro.map' --to gs://bucket/ro

The copy holds `<split>-00000-of-00012.<ending>`, by the corpus's own names of splits, and
`mirror.json`: the configuration, revision and commit, and each file's address, bytes and SHA-256.
After an interruption the same command continues at the commit it began with: complete files are not
fetched again, and a partial file on a disk is continued. `--check` reads the entire copy again and
compares. The corpus is then `CorpusSource("/data/rlm")`, or, without changing the task,
`tasks.sources.mirrors.folders = {"dumitrescustefan/rlm": "/data/rlm"}` in a gin file. Each
configuration has a folder: {"HuggingFaceFW/fineweb-2/ces_Latn": "/data/cs"}.
"""

if __name__ == "__main__":  # before any library writes to stderr
    from command_line import quiet

    quiet.start()

import hashlib
import json
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from concurrent import futures
from typing import Any

import tensorflow as tf

from command_line import arguments
from command_line.guard import guarded, one_sentence
from tasks.io import files, hub
from tasks.io.files import CorpusFile
from tasks.io.mirrored import MANIFEST
from tasks.io.retry import RetryPolicy, retry, shutting_down
from tasks.languages.table import FINEWEB2, FINEWEB2_SPLITS
from tasks.sources import CorpusSource, is_on_hub

SPLITS = ("train", "validation")
CHUNK_BYTES = 16 << 20
FIRST_ANSWER = RetryPolicy(limit_s=120)  # someone waits; later, a copy survives hours without
_SUFFIXES = {"text": "txt"}


class Mirror:
    """A copy of `source` in `folder`, on disk or in a bucket; a ValueError if of another corpus."""

    def __init__(self, source: CorpusSource, folder: str, report: Callable[[str], None] = print):
        self._source, self._folder, self._report = source, folder.rstrip("/"), report
        path = f"{self._folder}/{MANIFEST}"
        of = {"corpus": source.name, "config": source.config, "revision": source.revision}
        self._manifest: dict[str, Any] = {**of, "commit": None, "files": {}}
        if tf.io.gfile.exists(path):
            with tf.io.gfile.GFile(path) as file:
                self._manifest |= json.loads(file.read())
        if self._manifest["corpus"] != source.name:
            raise ValueError(
                f"{folder} holds a copy of {self._manifest['corpus']!r}, not of {source.name!r}: "
                "set --to to another folder"
            )
        if self._manifest["config"] != source.config:
            raise ValueError(
                f"{folder} holds configuration {self._manifest['config']!r} of {source.name!r}, "
                f"not {source.config!r}: set --to to another folder"
            )
        if self._manifest["commit"]:
            source.pin_revision(self._manifest["commit"])

    def _write_manifest(self) -> None:
        tf.io.gfile.makedirs(self._folder)
        path = f"{self._folder}/{MANIFEST}"
        with tf.io.gfile.GFile(f"{path}.new", "w") as file:
            file.write(json.dumps(self._manifest, indent=1))
        tf.io.gfile.rename(f"{path}.new", path, overwrite=True)

    def wanted(self) -> dict[str, CorpusFile]:
        """Return the files that a complete copy has, by name.

        Raises:
          ValueError: a file cannot be copied, or the folder has a copy of another by that name.
        """
        found = {}
        for split, own in self._source.split_names.items():
            listed = self._source.list_files(split)
            for i, file in enumerate(listed):
                if file.kind == hub.STREAMED:
                    raise ValueError(
                        f"{file.url} is of a format that cannot be copied: name a corpus of JSONL, "
                        "parquet, CSV or text files"
                    )
                suffix = _SUFFIXES.get(file.kind, file.kind)
                suffix += f".{file.compression}" if file.compression else ""
                found[f"{own}-{i:05d}-of-{len(listed):05d}.{suffix}"] = file
        self._check_commit(found)
        for name in found.keys() & self._manifest["files"].keys():
            copied = self._manifest["files"][name]["url"]
            if copied.split("?")[0] != found[name].url.split("?")[0]:
                raise ValueError(
                    f"{self._folder}/{name} is a copy of {copied}, not of {found[name].url}: set "
                    "--to to another folder"
                )
        return found

    def _check_commit(self, wanted: Mapping[str, CorpusFile]) -> None:
        commit = hub.commit_of(next(iter(wanted.values())).url)
        if self._manifest["commit"] not in (None, commit):
            raise ValueError(
                f"{self._folder} holds {self._source.name} at commit "
                f"{self._manifest['commit']}, not at {commit}: set --to to another folder, or "
                "leave --revision out to continue that copy"
            )
        self._manifest["commit"] = commit

    def copy(self, workers: int = 4) -> None:
        """Fetch missing files, `workers` at a time; check checksums, or raise ValueError."""
        wanted = self.wanted()
        self._write_manifest()
        missing = {name: file for name, file in wanted.items() if not self._has(name)}
        self._report(f"{len(wanted)} files, {len(wanted) - len(missing)} of them already copied")
        pool = futures.ThreadPoolExecutor(workers)
        fetches = {pool.submit(self._fetch, name, file): name for name, file in missing.items()}
        try:
            for done in futures.as_completed(fetches):
                name, (length, digest) = fetches[done], done.result()
                entry = {"url": wanted[name].url, "bytes": length, "sha256": digest}
                self._manifest["files"][name] = entry
                self._write_manifest()
                self._report(f"{name}  {length:,} bytes  sha256 {digest[:16]}…")
        except BaseException as error:
            # On Ctrl-C do not wait for the running fetches.
            wait = not isinstance(error, KeyboardInterrupt)
            pool.shutdown(wait=wait, cancel_futures=True)
            raise
        pool.shutdown()

    def _has(self, name: str) -> bool:
        entry, path = self._manifest["files"].get(name), f"{self._folder}/{name}"
        return bool(entry) and tf.io.gfile.exists(path) and _length(path) == entry["bytes"]

    def _fetch(self, name: str, file: CorpusFile) -> tuple[int, str]:
        path, policy = f"{self._folder}/{name}", self._source.retry_policy
        version = retry(lambda: files.version(file), f"looking up {file.url}", policy)
        # A part of another version of the file is not continued.
        mark = f"-{zlib.crc32(version.encode()):08x}" if version else ""
        part = f"{self._folder}/.{name}{mark}.part"
        length, digest = retry(lambda: _download(file, part), f"copying {file.url}", policy)
        published = retry(lambda: files.published_sha256(file), f"looking up {file.url}", policy)
        if published not in (None, digest) or _length(part) != length:
            tf.io.gfile.remove(part)
            raise ValueError(
                f"{file.url} arrived with SHA-256 {digest} and {length} bytes, which does not "
                f"match its server ({published}): start the same command again"
            )
        tf.io.gfile.rename(part, path, overwrite=True)
        return length, digest

    def check(self) -> list[str]:
        """Read the copy; return missing and damaged files, which the next `copy` fetches again."""
        wrong = []
        for name, entry in sorted(self._manifest["files"].items()):
            path = f"{self._folder}/{name}"
            if not tf.io.gfile.exists(path) or _digest(path)[1].hexdigest() != entry["sha256"]:
                wrong.append(name)
        missing = sorted(self.wanted().keys() - self._manifest["files"].keys())
        for name in wrong:
            del self._manifest["files"][name]
        self._write_manifest()
        return wrong + missing


def _length(path: str) -> int:
    return tf.io.gfile.stat(path).length


def _chunks(file) -> Iterator[bytes]:
    while chunk := file.read(CHUNK_BYTES):
        yield chunk


def _digest(path: str) -> tuple[int, Any]:
    """Return the size of a file and the running SHA-256 of its bytes."""
    digest, length = hashlib.sha256(), 0
    with tf.io.gfile.GFile(path, "rb") as file:
        for chunk in _chunks(file):
            digest.update(chunk)
            length += len(chunk)
    return length, digest


def _download(file: CorpusFile, part: str) -> tuple[int, str]:
    """Write `file` to `part`, continuing a partial one; return its size and SHA-256."""
    size, digest, at = files.size(file), hashlib.sha256(), 0
    by_ranges = size is not None and files.has_ranges(file)
    on_disk = "://" not in part
    if by_ranges and on_disk and tf.io.gfile.exists(part) and _length(part) <= (size or 0):
        at, digest = _digest(part)
    with tf.io.gfile.GFile(part, "ab" if at else "wb") as out:
        for chunk in _fetch_chunks(file, at, size if by_ranges else None):
            digest.update(chunk)
            out.write(chunk)
            if on_disk:  # flushing to a bucket would upload the entire file each time
                out.flush()
            at += len(chunk)
    if size is not None and at != size:
        raise ConnectionError(f"{file.url}: {at} bytes arrived of {size}")
    return at, digest.hexdigest()


def _fetch_chunks(file: CorpusFile, start: int, size: int | None) -> Iterator[bytes]:
    """Yield a file from `start` to `size` by ranges, or all of it in one stream."""
    if size is None:
        with files.open_raw(file) as raw:
            yield from _chunks(raw)
    else:
        for at in range(start, size, CHUNK_BYTES):
            yield files.read_range(file, at, min(at + CHUNK_BYTES, size))


def _splits(
    corpus: str, config: str | None, revision: str | None, named: list[str] | None
) -> dict[str, str]:
    """Return the splits of a hub corpus to copy, with their names there.

    `named` may have our names, by which tasks read FineWeb-2, or those of the corpus.
    """
    find = lambda: hub.load_repository(corpus, config, revision).splits
    known = retry(find, f"listing {corpus}", FIRST_ANSWER)
    ours = FINEWEB2_SPLITS if corpus == FINEWEB2 else {}
    found = {
        split: split if split in known else ours.get(split, split) for split in named or SPLITS
    }
    return found if named else {k: v for k, v in found.items() if v in known or k == "train"}


def _expression(folder: str, source: CorpusSource) -> str:
    """Return how a task reads the copy."""
    splits = dict(source.split_names)
    if [*splits.items()] == [(split, split) for split in SPLITS]:
        return f'CorpusSource("{folder}")'
    return f'CorpusSource("{folder}", splits={splits})'


@guarded
def main(argv: list[str]) -> int:
    """Copy or check; return the exit status."""
    parser = arguments.parser("python -m tasks.mirror", __doc__.split("\n")[0])
    add = parser.add_argument
    add("--corpus", type=arguments.text, help="a hub name, or the address of a folder")
    add("--config", help="configuration of a hub corpus")
    add("--revision", help="its branch, tag or commit; default the current main")
    add("--files", action="append", default=[], help="SPLIT=PATTERN, repeatable")
    add("--splits", nargs="+", help="of --corpus; default train and, if there is one, validation")
    add("--to", type=arguments.text, required=True, help="a folder, gs://… or s3://…")
    add("--workers", type=arguments.integer(1), default=4, help="files fetched at a time")
    add("--check", action="store_true", help="compare the copy with its checksums")
    args = parser.parse_args(argv)
    arguments.check_output_folder("--to", args.to, buckets_too=True)
    try:
        patterns: dict[str, list[str]] = {}
        for entry in args.files:
            split, found, pattern = entry.partition("=")
            if not found:
                raise ValueError(f"--files {entry!r} names no split: write --files train={entry}")
            patterns.setdefault(split, []).append(pattern)
        if unknown := set(args.splits or ()) - patterns.keys() if patterns else None:
            raise ValueError(
                f"--splits names {', '.join(sorted(unknown))}, for which --files has no pattern: "
                "leave --splits out, or add --files SPLIT=PATTERN"
            )
        splits: Any = args.splits or list(patterns) or SPLITS
        if args.corpus and not patterns and is_on_hub(args.corpus):
            splits = _splits(args.corpus, args.config, args.revision, args.splits)
        source = CorpusSource(
            args.corpus, args.config, args.revision, files=patterns or None, splits=splits
        )
        with one_sentence(tf.errors.OpError):  # a server, disk or bucket refuses
            mirror = Mirror(source, args.to)
            if not args.check:
                for split in splits:
                    source.list_files(split, FIRST_ANSWER)
                mirror.copy(args.workers)
            wrong = mirror.check() if args.check else []
    except KeyboardInterrupt:
        shutting_down.set()  # ends pending retries
        print("Stopped: the same command continues from here.", file=sys.stderr)
        return 130
    for name in wrong:
        remedy = "run the same command without --check"
        print(f"{name} is missing or damaged: {remedy}", file=sys.stderr)
    if not wrong:
        print(f"{args.to} is complete. Read it as {_expression(args.to, source)}.")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
