"""Corpora on the Hugging Face hub: the files of each split, at a fixed revision.

    repository = load_repository("dumitrescustefan/rlm", config=None, revision=None)
    repository.splits["train"]  # [CorpusFile("hf://datasets/dumitrescustefan/rlm@<commit>/...")]

`datasets` reads the repository's card and layout, as `load_dataset(..., streaming=True)` does, with
the same token: HF_TOKEN or the saved login. The commit is part of every address, so all reads are
of one revision. Formats other than ours (arrow, xml, ...) are streamed by `datasets` itself; then a
part is one of its shards, read by `read_shard`. For a data set made by a script, which `datasets`
no longer runs, the hub's own copy in parquet is read.
"""

import dataclasses
import difflib
import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tasks.corpus import files, formats
from tasks.corpus.files import CorpusFile

STREAMED = "datasets"  # the kind of shards that `datasets` reads
PARQUET = "refs/convert/parquet"  # the branch with the hub's copies of data sets made by scripts
_PLAIN_BUILDERS = ("json", "parquet", "csv", "text")


@dataclasses.dataclass(frozen=True)
class Repository:
    """A data set's files by split, and its builder for kinds that only `datasets` reads."""

    splits: Mapping[str, Sequence[CorpusFile]]
    builder: Any


@functools.lru_cache(maxsize=64)
def load_repository(corpus: str, config: str | None, revision: str | None) -> Repository:
    """Request a data set's files from the hub; None means its default and its main branch.

    Raises:
      ValueError: it does not exist, is private or gated without a valid token, or has no such
        configuration.
      ConnectionError: the hub cannot be reached; a retry may succeed.
    """
    import datasets

    try:
        builder = datasets.load_dataset_builder(corpus, config, revision=revision)
    except RuntimeError as error:
        if "scripts are no longer supported" not in str(error):
            raise
        builder = _parquet_copy(corpus, config)
    except Exception as error:
        raise _explain(error, corpus, config) from error
    data_files = {str(s): list(urls) for s, urls in (builder.config.data_files or {}).items()}
    found = {split: [formats.recognize(url) for url in urls] for split, urls in data_files.items()}
    splits = {split: [file for file in some if file] for split, some in found.items()}
    format_name = type(builder).__module__.rsplit(".", 1)[-1]
    if format_name not in _PLAIN_BUILDERS or splits != found:
        splits = {
            split: _shards(builder, corpus, split, urls) for split, urls in data_files.items()
        }
    return Repository(splits, builder)


def _parquet_copy(corpus: str, config: str | None):
    """Return the builder of the hub's copy, whose files are <config>/<split>/<number>.parquet."""
    import datasets

    script = f"corpus {corpus!r} is made by a script, which the datasets library no longer runs"
    try:
        builder = datasets.load_dataset_builder(corpus, data_dir=config, revision=PARQUET)
    except datasets.exceptions.DatasetNotFoundError as error:
        raise ValueError(
            f"{script}, and the hub has no copy of it in parquet: give its files by `files`"
        ) from error
    folders = [url.split("/")[-3:-1] for urls in builder.config.data_files.values() for url in urls]
    if len(configs := {name for name, _ in folders}) > 1:
        raise ValueError(f"{script}; of its copy set `config` to one of {sorted(configs)}")
    if any(split.startswith("partial-") for _, split in folders):
        raise ValueError(
            f"{script}, and the hub's copy holds only its beginning: give its files by `files`"
        )
    return builder


def _shards(builder, corpus: str, split: str, urls: list[str]) -> list[CorpusFile]:
    n = builder.as_streaming_dataset(split=split).num_shards
    name = f"{corpus}@{commit_of(urls[0])}" if urls and commit_of(urls[0]) else corpus
    return [CorpusFile(f"hf://{name}/{split}/{i}-of-{n}", STREAMED) for i in range(n)]


def with_lengths(listed: Sequence[CorpusFile]) -> list[CorpusFile]:
    """Return the files with their lengths, by one request for each folder on the hub."""
    lengths: dict[str, int | None] = {}
    for folder in {f.url.rpartition("/")[0] for f in listed if f.url.startswith("hf://")}:
        fs, path = files.filesystem(folder)
        lengths |= {entry["name"]: entry.get("size") for entry in fs.ls(path, detail=True)}
    length = lambda f: lengths.get(f.url.removeprefix("hf://"), f.length)
    return [dataclasses.replace(f, length=length(f)) for f in listed]


def know_files(listed: Iterable[CorpusFile]) -> None:
    """Enter files that another host has listed into the hub client's directory cache.

    The client would otherwise list their folders before the first read: once on every host.
    """
    for file in listed:
        if file.url.startswith("hf://") and file.length is not None:
            fs, path = files.filesystem(file.url)
            folder = fs.dircache.setdefault(path.rpartition("/")[0], [])
            if all(entry["name"] != path for entry in folder):
                unknown = dict.fromkeys(("blob_id", "lfs", "last_commit", "security"))
                folder.append({"name": path, "size": file.length, "type": "file", **unknown})


def commit_of(url: str) -> str | None:
    """Return the commit in the address of a file on the hub, None elsewhere."""
    found = re.match(r"hf://(?:datasets/)?[^@]+@([0-9a-f]{40})(?:/|$)", url)
    return found[1] if found else None


def read_shard(repository: Repository, shard: CorpusFile) -> Iterator[dict]:
    """Yield the rows of one shard of kind STREAMED."""
    split, numbers = shard.url.rsplit("/", 2)[1:]
    index, n = map(int, numbers.split("-of-"))
    dataset = repository.builder.as_streaming_dataset(split=split)
    yield from dataset.shard(num_shards=n, index=index)


def _explain(error: Exception, corpus: str, config: str | None) -> Exception:
    """Return the error to raise: one sentence if a user can fix the cause, else `error` itself."""
    import datasets
    import huggingface_hub

    names: set[str] = set()
    cause: BaseException | None = error
    while cause is not None:
        names.add(type(cause).__name__)
        cause = cause.__cause__ or cause.__context__
    if "OfflineModeIsEnabled" in names or huggingface_hub.constants.is_offline_mode():
        return ValueError(
            f"corpus {corpus!r} is on the hub, but HF_HUB_OFFLINE or HF_DATASETS_OFFLINE is set: "
            "unset it, or name local files"
        )
    if "LocalEntryNotFoundError" in names or "LocalEntryNotFoundError" in str(error):
        return ConnectionError("the hub does not answer")
    if "GatedRepoError" in names or "is a gated dataset" in str(error):
        token = "" if huggingface_hub.get_token() else ", and set HF_TOKEN or run `hf auth login`"
        return ValueError(
            f"corpus {corpus!r} is gated: accept its conditions at "
            f"https://huggingface.co/datasets/{corpus} with your account{token}"
        )
    if isinstance(error, datasets.exceptions.DatasetNotFoundError):
        if huggingface_hub.get_token() is None:
            return ValueError(
                f"corpus {corpus!r} is not on the hub or is private, and no token is set: check "
                "the name, and set HF_TOKEN or run `hf auth login`"
            )
        return ValueError(
            f"corpus {corpus!r} is not on the hub, or your token may not read it: check the name, "
            "and that the account of HF_TOKEN or `hf auth login` has access"
        )
    if isinstance(error, ValueError) and "BuilderConfig" in str(error):
        known = re.findall(r"'([^']+)'", str(error).partition("[")[2])
        close = difflib.get_close_matches(str(config), known, n=3) or known[:20]
        return ValueError(
            f"corpus {corpus!r} has no configuration {config!r}; of its {len(known)} the nearest "
            f"are {', '.join(close)}"
        )
    return error
