"""Corpora on the Hugging Face hub: the files of each split, at a fixed revision.

    splits = find_splits("dumitrescustefan/rlm", config=None, revision=None)
    splits["train"]  # [CorpusFile("hf://datasets/dumitrescustefan/rlm@<commit>/...")]

`datasets` reads the repository's card and layout, as `load_dataset(..., streaming=True)` does, with
the same token: HF_TOKEN or the saved login. The commit is part of every address, so all reads are
of one revision. Of a data set in another format (arrow, xml, …), or made by a script, which
`datasets` no longer runs, the hub's own copy in parquet is read.
"""

import contextlib
import dataclasses
import difflib
import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from absl import logging

from common.arguments import check_hub_token
from common.errors import UserError
from tasks.corpus.storage import files, names
from tasks.corpus.storage.files import CorpusFile
from tasks.corpus.storage.retry import causes

PARQUET = "refs/convert/parquet"  # the branch with the hub's copies
# Settings of a card that change which rows its files have, and their defaults.
_ROWS = {"filters": None, "sample_by": "line"}


@functools.lru_cache(maxsize=64)
def find_splits(
    corpus: str, config: str | None, revision: str | None
) -> Mapping[str, Sequence[CorpusFile]]:
    """Request a data set's files by split; None means its default and its main branch.

    Raises:
      UserError: it does not exist, is private or gated without a valid token, has no such
        configuration, is in another format and has no copy, or its card changes which rows it has.
      ConnectionError: the hub cannot be reached; a retry may succeed.
    """
    import datasets

    check_hub_token()
    try:
        builder = datasets.load_dataset_builder(corpus, config, revision=revision)
    except RuntimeError as error:
        if "scripts are no longer supported" not in str(error):
            raise
        why = "is made by a script, which the datasets library no longer runs"
    except Exception as error:
        if config and revision and "BuilderConfig" in str(error):
            # A run that reads a copy has pinned its commit, where configurations are folders.
            with contextlib.suppress(FileNotFoundError):
                return _copy_in_parquet(corpus, config, revision, why="")
        raise _explain(error, corpus, config) from error
    else:
        _check_rows(corpus, builder.config)
        urls = {
            str(s): list(addresses) for s, addresses in (builder.config.data_files or {}).items()
        }
        # Of archives `datasets` makes columns, which the copy in parquet has.
        file_of = lambda url: None if (f := names.recognize(url)) and f.kind == "tar" else f
        splits = {split: [file_of(url) for url in addresses] for split, addresses in urls.items()}
        if not any(None in addresses for addresses in splits.values()):
            _say_renamed(corpus)
            return splits  # type: ignore[return-value]  # without None
        why = "is of no format that is read here"
    if revision:
        raise UserError(
            f"corpus {corpus!r}",
            why=f"{why}, and the hub has no copy of revision {revision!r}",
            to_set="leave the revision out",
        )
    try:
        return _copy_in_parquet(corpus, config, PARQUET, why)
    except FileNotFoundError as error:
        raise UserError(
            f"corpus {corpus!r}",
            why=f"{why}, and the hub has no copy of it in parquet",
            to_set="give its files by `files`",
        ) from error


def _check_rows(corpus: str, config: Any) -> None:
    """Raise UserError if a data set's card says that `datasets` gives other rows than its files."""
    for name, default in _ROWS.items():
        if (value := getattr(config, name, default)) != default:
            raise UserError(
                f"corpus {corpus!r}",
                why=f"has {name} = {value!r} in its card, which is not applied here, so its files "
                "would be read as other documents",
                to_set="give its files by `files`, and choose documents by `documents`, or by "
                "`where` of its column",
            )


def _say_renamed(corpus: str) -> None:
    """Log the new name of a repository, which the hub leads to from the old one."""
    import huggingface_hub

    with contextlib.suppress(Exception):  # nothing depends on it
        if (name := huggingface_hub.HfApi().dataset_info(corpus).id) != corpus:
            logging.warning("corpus %s is called %s on the hub now, where it is read", corpus, name)


def _copy_in_parquet(
    corpus: str, config: str | None, revision: str, why: str
) -> dict[str, list[CorpusFile]]:
    """Return the files of the hub's copy, which are <config>/<split>/<number>.parquet."""
    import datasets

    builder = datasets.load_dataset_builder(corpus, data_dir=config, revision=revision)
    urls = {str(s): list(addresses) for s, addresses in builder.config.data_files.items()}
    folders = [url.split("/")[-3:-1] for addresses in urls.values() for url in addresses]
    if len(configs := {name for name, _ in folders}) > 1:
        raise UserError(
            f"corpus {corpus!r}",
            why=f"{why}, and the hub's copy has several configurations",
            to_set=f"set `config` to one of {sorted(configs)}",
        )
    if any(split.startswith("partial-") for _, split in folders):
        raise UserError(
            f"corpus {corpus!r}",
            why=f"{why}, and the hub's copy holds only its beginning",
            to_set="give its files by `files`",
        )
    return {
        split: [CorpusFile(url, "parquet") for url in addresses]
        for split, addresses in urls.items()
    }


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
    match = re.match(r"hf://(?:datasets/)?[^@]+@([0-9a-f]{40})(?:/|$)", url)
    return match[1] if match else None


class Offline(UserError):
    """The corpus is on the hub, which the environment forbids to use."""


def _explain(error: Exception, corpus: str, config: str | None) -> Exception:
    """Return the error to raise: one sentence if a user can fix the cause, else `error` itself."""
    import datasets
    import huggingface_hub

    names = {type(cause).__name__ for cause in [error, *causes(error)]}
    name = f"corpus {corpus!r}"
    if "OfflineModeIsEnabled" in names or huggingface_hub.constants.is_offline_mode():
        return Offline(
            name,
            why="is on the hub, but HF_HUB_OFFLINE or HF_DATASETS_OFFLINE is set",
            to_set="unset it, or name local files",
        )
    if "LocalEntryNotFoundError" in names or "LocalEntryNotFoundError" in str(error):
        return ConnectionError("the hub does not answer")
    if "GatedRepoError" in names or "is a gated dataset" in str(error):
        token = "" if huggingface_hub.get_token() else ", and set HF_TOKEN or run `hf auth login`"
        return UserError(
            name,
            why="is gated",
            to_set=f"accept its conditions at https://huggingface.co/datasets/{corpus} with your "
            f"account{token}",
        )
    if isinstance(error, datasets.exceptions.DatasetNotFoundError):
        if huggingface_hub.get_token() is None:
            return UserError(
                name,
                why="is not on the hub or is private, and no token is set",
                to_set="check the name, and set HF_TOKEN or run `hf auth login`",
            )
        return UserError(
            name,
            why="is not on the hub, or your token may not read it",
            to_set="check the name, and that the account of HF_TOKEN or `hf auth login` has access",
        )
    if isinstance(error, ValueError) and "BuilderConfig" in str(error):
        configs = re.findall(r"'([^']+)'", str(error).partition("[")[2])
        near = difflib.get_close_matches(str(config), configs, n=3) or configs[:20]
        return UserError(
            name,
            why=f"has no configuration {config!r}",
            to_set=f"name one of its {len(configs)}, of which the nearest are {', '.join(near)}",
        )
    return error
