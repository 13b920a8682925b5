"""Corpora on the Hugging Face hub: which files each split has, at which revision.

    corpus = find("dumitrescustefan/rlm", config=None, revision=None)
    corpus.splits["train"]      # [File("hf://datasets/dumitrescustefan/rlm@<commit>/...", ...)]

`datasets` reads the repository's card and layout, just as `load_dataset(..., streaming=True)`
does, and the token is the one it uses: HF_TOKEN or the saved login. The commit is part of every
address, so all that is read is of one revision. Formats other than ours (arrow, xml, ...) are
streamed by `datasets` itself; then a part is one of its shards and `rows` reads it. Of a data set
that is made by a script, which `datasets` no longer runs, the hub's own copy in parquet is read.
"""

import dataclasses
import functools
import re
from collections.abc import Iterator, Mapping

from tasks.io import files
from tasks.io.files import File

STREAMED = "datasets"
PARQUET = "refs/convert/parquet"  # the branch to which the hub copies what a script makes
_PLAIN_BUILDERS = ("json", "parquet", "csv", "text")


@dataclasses.dataclass(frozen=True)
class Repository:
    """A data set's files by split, and its builder for kinds that only `datasets` reads."""

    splits: Mapping[str, list[File]]
    builder: object


@functools.lru_cache(maxsize=64)
def find(corpus: str, config: str | None, revision: str | None) -> Repository:
    """Asks the hub for a data set's files.

    Args:
      corpus: "user/name".
      config: the configuration, None for its default.
      revision: branch, tag or commit, None for the main branch as it is now.

    Raises:
      ValueError: it is missing, or private or gated and no token that may read it is at hand, or
        it has no such configuration.
      ConnectionError and the like: the hub cannot be reached; may be tried again.
    """
    import datasets

    try:
        builder = datasets.load_dataset_builder(corpus, config, revision=revision)
    except RuntimeError as error:
        if "scripts are no longer supported" not in str(error):
            raise
        builder = _converted(corpus, config)
    except Exception as error:
        raise _explain(error, corpus, config) from error
    data_files = {str(s): list(urls) for s, urls in (builder.config.data_files or {}).items()}
    splits = {split: [files.classify(url) for url in urls] for split, urls in data_files.items()}
    format_name = type(builder).__module__.rsplit(".", 1)[-1]
    if format_name not in _PLAIN_BUILDERS or None in [f for fs in splits.values() for f in fs]:
        splits = {
            split: _shards(builder, corpus, split, urls) for split, urls in data_files.items()
        }
    return Repository(splits, builder)


def _converted(corpus: str, config: str | None):
    """The builder of the hub's copy, whose files are <config>/<split>/<number>.parquet."""
    import datasets

    script = f"corpus {corpus!r} is made by a script, which the datasets library no longer runs"
    try:
        builder = datasets.load_dataset_builder(corpus, data_dir=config, revision=PARQUET)
    except datasets.exceptions.DatasetNotFoundError as error:
        raise ValueError(
            f"{script}, and the hub has no copy of it in parquet: give its files by `files`"
        ) from error
    places = [url.split("/")[-3:-1] for urls in builder.config.data_files.values() for url in urls]
    if len(configs := {name for name, _ in places}) > 1:
        raise ValueError(f"{script}; of its copy set `config` to one of {sorted(configs)}")
    if any(split.startswith("partial-") for _, split in places):
        raise ValueError(
            f"{script}, and the hub's copy holds only its beginning: give its files by `files`"
        )
    return builder


def _shards(builder, corpus: str, split: str, urls: list[str]) -> list[File]:
    n = builder.as_streaming_dataset(split=split).num_shards
    name = f"{corpus}@{commit(urls[0])}" if urls and commit(urls[0]) else corpus
    return [File(f"hf://{name}/{split}/{i}-of-{n}", STREAMED) for i in range(n)]


def commit(url: str) -> str | None:
    """Returns the commit in the address of a file on the hub, None elsewhere."""
    found = re.match(r"hf://(?:datasets/)?[^@]+@([0-9a-f]{40})(?:/|$)", url)
    return found[1] if found else None


def rows(repository: Repository, shard: File) -> Iterator[dict]:
    """Yields the rows of one shard of a data set whose kind is STREAMED."""
    split, place = shard.url.rsplit("/", 2)[1:]
    index, n = map(int, place.split("-of-"))
    dataset = repository.builder.as_streaming_dataset(split=split)
    yield from dataset.shard(num_shards=n, index=index)


def _explain(error: Exception, corpus: str, config: str | None) -> Exception:
    """Returns what to raise: one sentence for what a user can mend, `error` itself otherwise."""
    import datasets
    import huggingface_hub

    names = {type(e).__name__ for e in _chain(error)}
    if "OfflineModeIsEnabled" in names or huggingface_hub.constants.is_offline_mode():
        return ValueError(
            f"corpus {corpus!r} is on the hub, but HF_HUB_OFFLINE or HF_DATASETS_OFFLINE is set: "
            "unset it, or name local files"
        )
    if "LocalEntryNotFoundError" in names or "LocalEntryNotFoundError" in str(error):
        return ConnectionError("the hub does not answer")
    if names & {"GatedRepoError"} or isinstance(error, datasets.exceptions.DatasetNotFoundError):
        if huggingface_hub.get_token() is None:
            return ValueError(
                f"corpus {corpus!r} is not on the hub or is private, and there is no token: check "
                "the name, and set HF_TOKEN or run `hf auth login`"
            )
        return ValueError(
            f"corpus {corpus!r} is not on the hub, or the token at hand may not read it: check "
            "the name, and that the account of HF_TOKEN or `hf auth login` has access"
        )
    if isinstance(error, ValueError) and "BuilderConfig" in str(error):
        return ValueError(f"corpus {corpus!r} has no configuration {config!r}: {error}")
    return error


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
