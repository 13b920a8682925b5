r"""Copies a corpus to a folder or bucket, from which it then streams.

python -m tasks.mirror --corpus dumitrescustefan/rlm --to /data/rlm
python -m tasks.mirror --files 'train=https://example.org/ro-*.jsonl.zst' --to gs://bucket/ro

The copy holds `<split>-00000-of-00012.<ending>` and `mirror.json`: commit, and each file's address,
bytes and SHA-256. The same command goes on after whatever has stopped it, at the commit it began
with: a file that is there whole is not fetched again, one on a disk is continued behind what had
come. `--check` reads the whole copy again and compares. The corpus is then
`CorpusSource("/data/rlm")`, or, without a change to the task,
`tasks.sources.mirrors.folders = {"dumitrescustefan/rlm": "/data/rlm"}` in a gin file.
"""

import argparse
import hashlib
import json
import sys
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any

import tensorflow as tf

from tasks.io import files, hub
from tasks.io.files import File
from tasks.io.retry import closing, patiently
from tasks.sources import CorpusSource

MANIFEST = "mirror.json"
PIECE_BYTES = 16 << 20
_ENDINGS = {"text": "txt"}


class Mirror:
    """A copy of `source` in `folder`.

    Args:
      source: the corpus.
      folder: on a disk, or gs://.
      say: receives a line a file.

    Raises:
      ValueError: the folder holds a copy of something else.
    """

    def __init__(self, source: CorpusSource, folder: str, say: Callable[[str], None] = print):
        self._source, self._folder, self._say = source, folder.rstrip("/"), say
        tf.io.gfile.makedirs(self._folder)
        self._manifest = self._read_manifest()
        of = self._manifest.setdefault("corpus", source.name)
        if of != source.name:
            raise ValueError(
                f"{folder} holds a copy of {of!r}, not of {source.name!r}: set --to to a folder "
                "of its own"
            )
        if self._manifest.setdefault("commit", None):
            source.pin_revision(self._manifest["commit"])
        self._manifest.setdefault("files", {})

    def _read_manifest(self) -> dict[str, Any]:
        path = f"{self._folder}/{MANIFEST}"
        if not tf.io.gfile.exists(path):
            return {}
        with tf.io.gfile.GFile(path) as file:
            return json.loads(file.read())

    def _write_manifest(self) -> None:
        path = f"{self._folder}/{MANIFEST}"
        with tf.io.gfile.GFile(f"{path}.new", "w") as file:
            file.write(json.dumps(self._manifest, indent=1))
        tf.io.gfile.rename(f"{path}.new", path, overwrite=True)

    def wanted(self) -> dict[str, File]:
        """Returns what the copy shall hold: {name: file}.

        Raises:
          ValueError: the corpus cannot be listed, or is of a kind that only its library reads.
        """
        found = {}
        for split in self._source.splits:
            listed = self._source.list_files(split)
            for i, file in enumerate(listed):
                if file.kind == hub.STREAMED:
                    raise ValueError(
                        f"{file.url} is of a format that is not copied: name a corpus of JSONL, "
                        "parquet, CSV or text files"
                    )
                ending = ".".join(filter(None, [_ENDINGS.get(file.kind, file.kind), file.packing]))
                found[f"{split}-{i:05d}-of-{len(listed):05d}.{ending}"] = file
        return found

    def copy(self, workers: int = 4) -> None:
        """Fetches what is missing.

        Raises:
          ValueError: what came is not what the hub holds.
          what a server refuses for good.
        """
        wanted = self.wanted()
        commit = hub.commit(next(iter(wanted.values())).url)
        if self._manifest["commit"] not in (None, commit):
            raise ValueError(
                f"{self._folder} holds {self._source.name} as it was at commit "
                f"{self._manifest['commit']}, not at {commit}: set --to to a folder of its own, or "
                "leave --revision out to go on"
            )
        self._manifest["commit"] = commit
        self._write_manifest()
        missing = {name: file for name, file in wanted.items() if not self._is_there(name)}
        self._say(f"{len(wanted)} files, {len(wanted) - len(missing)} of them are here already")
        pool = futures.ThreadPoolExecutor(workers)
        tasks = {pool.submit(self._fetch, name, file): name for name, file in missing.items()}
        try:
            for done in futures.as_completed(tasks):
                name, (length, digest) = tasks[done], done.result()
                about = {"url": wanted[name].url, "bytes": length, "sha256": digest}
                self._manifest["files"][name] = about
                self._write_manifest()
                self._say(f"{name}  {length:,} bytes  sha256 {digest[:16]}…")
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
        pool.shutdown()

    def _is_there(self, name: str) -> bool:
        about, path = self._manifest["files"].get(name), f"{self._folder}/{name}"
        return bool(about) and tf.io.gfile.exists(path) and _length(path) == about["bytes"]

    def _fetch(self, name: str, file: File) -> tuple[int, str]:
        path, part = f"{self._folder}/{name}", f"{self._folder}/.{name}.part"
        attempt = lambda: _download(file, part)
        length, digest = patiently(attempt, f"copying {file.url}", self._source.patience)
        ask = lambda: files.told_sha256(file)
        told = patiently(ask, f"asking about {file.url}", self._source.patience)
        if told not in (None, digest) or _length(part) != length:
            tf.io.gfile.remove(part)
            raise ValueError(
                f"{file.url} came with SHA-256 {digest} and {length} bytes, which is not what its "
                f"server holds ({told}): start the same command again"
            )
        tf.io.gfile.rename(part, path, overwrite=True)
        return length, digest

    def check(self) -> list[str]:
        """Reads the whole copy; returns the names of files that are missing or not as noted."""
        wrong = []
        for name, about in sorted(self._manifest["files"].items()):
            path = f"{self._folder}/{name}"
            if not tf.io.gfile.exists(path) or _digest(path)[1] != about["sha256"]:
                wrong.append(name)
        return wrong + sorted(self.wanted().keys() - self._manifest["files"].keys())

    def forget(self, names: list[str]) -> None:
        """Lets the next `copy` fetch these files anew."""
        for name in names:
            self._manifest["files"].pop(name, None)
        self._write_manifest()


def _length(path: str) -> int:
    return tf.io.gfile.stat(path).length


def _digest(path: str) -> tuple[int, str]:
    digest, length = hashlib.sha256(), 0
    with tf.io.gfile.GFile(path, "rb") as file:
        while piece := file.read(PIECE_BYTES):
            digest.update(piece)
            length += len(piece)
    return length, digest.hexdigest()


def _download(file: File, part: str) -> tuple[int, str]:
    """Writes `file` to `part`, behind what is there; returns its bytes and their SHA-256."""
    size, digest, at = files.size(file), hashlib.sha256(), 0
    by_ranges = size is not None and files.has_ranges(file)
    continues = by_ranges and "://" not in part and tf.io.gfile.exists(part)
    if continues and _length(part) <= size:
        with tf.io.gfile.GFile(part, "rb") as before:
            while piece := before.read(PIECE_BYTES):
                digest.update(piece)
                at += len(piece)
    with tf.io.gfile.GFile(part, "ab" if at else "wb") as out:
        for piece in _pieces(file, at, size) if by_ranges else _stream(file):
            digest.update(piece)
            out.write(piece)
            if "://" not in part:  # a bucket would be sent all that has come, each time
                out.flush()
            at += len(piece)
    if size is not None and at != size:
        raise ConnectionError(f"{file.url}: {at} bytes came of {size}")
    return at, digest.hexdigest()


def _pieces(file: File, start: int, size: int) -> Iterator[bytes]:
    for at in range(start, size, PIECE_BYTES):
        yield files.read_range(file, at, min(at + PIECE_BYTES, size))


def _stream(file: File) -> Iterator[bytes]:
    with files.open_raw(file) as raw:
        while piece := raw.read(PIECE_BYTES):
            yield piece


def main(arguments: list[str]) -> int:
    """Copies or checks; returns the exit status."""
    flags = argparse.ArgumentParser(
        prog="python -m tasks.mirror", description=__doc__.split("\n")[0]
    )
    flags.add_argument("--corpus", help="a hub name, or an address of a folder")
    flags.add_argument("--config", help="configuration of a hub corpus")
    flags.add_argument("--revision", help="its branch, tag or commit; default main as it is now")
    flags.add_argument("--files", action="append", default=[], help="SPLIT=PATTERN, several times")
    flags.add_argument("--splits", nargs="+", default=["train", "validation"])
    flags.add_argument("--to", required=True, help="a folder, or gs://…")
    flags.add_argument("--workers", type=int, default=4, help="files fetched at a time")
    flags.add_argument("--check", action="store_true", help="compare the copy with its notes")
    args = flags.parse_args(arguments)
    try:
        patterns: dict[str, list[str]] = {}
        for entry in args.files:
            split, found, pattern = entry.partition("=")
            if not found:
                raise ValueError(f"--files {entry!r} names no split: write --files train={entry}")
            patterns.setdefault(split, []).append(pattern)
        source = CorpusSource(
            args.corpus, args.config, args.revision, files=patterns or None, splits=args.splits
        )
        mirror = Mirror(source, args.to)
        if not args.check:
            mirror.copy(args.workers)
        wrong = mirror.check() if args.check else []
        mirror.forget(wrong)
    except (ValueError, OSError, tf.errors.OpError) as error:  # a server, disk or bucket refuses
        print("Error:", *str(error).split(), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        closing.set()  # whoever waits for a server stops waiting
        print("Stopped: the same command goes on from here.", file=sys.stderr)
        return 130
    for name in wrong:
        print(
            f"{name} is missing or damaged: run the same command without --check", file=sys.stderr
        )
    if not wrong:
        print(f'{args.to} is whole. Read it as CorpusSource("{args.to}").')
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
