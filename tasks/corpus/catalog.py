"""The splits of a corpus: their names, their files, and which documents belong to each.

    catalog = Catalog("/data/ro", shares={"validation": 0.01})     # a folder, pattern or hub name
    catalog.names(policy)                   # {split: the split it is read from}
    catalog.listing("train", policy)        # a Listing
    catalog.buckets("validation")           # (0, 100) of 10,000 hash buckets; None: all

Three arguments define the splits. `splits` names splits of the folder or of the hub data set.
`files` gives each split files of its own. `shares` holds splits out of 'train'. If none of them is
given, the catalog finds the splits in the names of the folder's files, or asks the hub. `policy`,
a RetryPolicy, says how often a failed request is repeated. Nothing is read until a method is
called.

`identity` and `check_saved` tell whether a saved data position still fits the corpus. `as_json`
and `use` pass the files that one host has listed to the other hosts.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar, cast

from absl import logging

from common.errors import UserError, class_and_line
from common.secrets import public
from common.tables import counted
from tasks.corpus import folder, held_out, slices
from tasks.corpus.listing import Listing, Parallel
from tasks.corpus.storage import hub, names
from tasks.corpus.storage.names import LIST
from tasks.corpus.storage.retry import RetryPolicy, is_transient, retry

T = TypeVar("T")
Patterns: TypeAlias = Mapping[str, str | Sequence[str] | Parallel]
Files: TypeAlias = Patterns | Callable[[], Patterns]
_FOLDER = ("/", ".", "~")


class Unreachable(UserError, ConnectionError):
    """A corpus that is temporarily unreachable; a retry may succeed."""


def call_with_retries(corpus: str, action: str, fn: Callable[[], T], policy: RetryPolicy) -> T:
    """Return `fn()`, retried; raise Unreachable if it still fails."""
    try:
        return retry(fn, f"{action} {corpus}", policy)
    except Exception as error:
        if not is_transient(error):
            raise
        reason = class_and_line(error)[:300]
        raise Unreachable(
            f"corpus {corpus!r}",
            why=f"cannot be reached ({reason})",
            to_set="try again later, or name a folder or files on this machine",
        ) from error


class Catalog:
    """The splits of a corpus.

    The arguments are those of `tasks.corpus.source.CorpusSource`, where `shares` is called
    `held_out`. `files` may be a function that returns them, which is called when reading begins.

    Raises:
      UserError: impossible settings.
    """

    def __init__(
        self,
        corpus: str | None,
        config: str | None = None,
        revision: str | None = None,
        files: Files | None = None,
        splits: Sequence[str] | Mapping[str, str] | None = None,
        shares: Mapping[str, float] | None = None,
    ):
        if (corpus is None) == (files is None):
            which = "neither `corpus` nor" if corpus is None else "both `corpus` and"
            raise UserError("a corpus source", why=f"has {which} `files`", to_set="give one")
        if corpus is not None and names.is_files(corpus):
            files, corpus = {next(iter(splits or ("train",))): corpus}, None
        self._function = files if callable(files) else None
        if callable(files):
            files = dict.fromkeys(splits or ("train",), files.__name__)
        self._corpus, self._config, self.revision, self._files = corpus, config, revision, files
        self.name = public(corpus or ", ".join(dict.fromkeys(map(str, (files or {}).values()))))
        self._shares = dict(shares or {})
        if files is not None:
            splits = tuple(files)
        elif splits is None and shares:
            splits = ("train",)
        # {our name of a split: the corpus's name}; None until the corpus has been listed.
        self._names: dict[str, str] | None = None
        if splits is not None:
            self._names = dict(splits) if isinstance(splits, Mapping) else {s: s for s in splits}
            held_out.check(self._shares, self._names)
        self._listings: dict[str, Listing] = {}  # {split: Listing}, filled as splits are looked up

    @property
    def is_local(self) -> bool:
        """Whether reading it never crosses the network."""
        if self._files is None:
            corpus = self._corpus or ""
            return "://" not in corpus and corpus.startswith(_FOLDER)
        return not any("://" in pattern or pattern.startswith(LIST) for pattern in self._patterns)

    @property
    def lists(self) -> list[str]:
        """The paths of lists of files on this machine; a list in a bucket is not among them."""
        paths = [p.removeprefix(LIST).partition("#")[0] for p in self._patterns if p[:1] == LIST]
        return [path for path in paths if "://" not in path]

    @property
    def _patterns(self) -> list[str]:
        files = self._files or {}
        return [str(pattern) for several in files.values() for pattern in _as_list(several)]

    @property
    def knows_splits(self) -> bool:
        """Whether the names of the splits are known without a request to the corpus."""
        return self._names is not None

    def names(self, policy: RetryPolicy) -> dict[str, str]:
        """Return, for the name of each split, the name of the corpus's split that it is read from.

        Raises:
          UserError: the corpus does not exist or cannot be read.
        """
        if self._names is None:
            self._names = call_with_retries(self.name, "listing", self._names_in_corpus, policy)
        return self._names | {split: self._names.get("train", "train") for split in self._shares}

    def use_names(self, splits: Iterable[str]) -> None:
        """Use the names that another host has found."""
        if self._names is None:
            self._names = {split: split for split in splits}

    def _names_in_corpus(self) -> dict[str, str]:
        corpus = cast(str, self._corpus)
        if self._is_folder:
            for split, listing in folder.match_splits(corpus).items():
                self._add(split, listing)
            return {split: split for split in self._listings}
        return {split: split for split in hub.find_splits(corpus, self._config, self.revision)}

    @property
    def _is_folder(self) -> bool:
        return "://" in cast(str, self._corpus) or cast(str, self._corpus).startswith(_FOLDER)

    def listing(self, split: str, policy: RetryPolicy) -> Listing:
        """Return the files that a split's documents are in.

        Raises:
          UserError: there is no such split, or its files cannot be found or told apart.
        """
        split = slices.full(split)
        if split not in (splits := self.names(policy)):
            raise self._no_split(split, splits)
        origin = self._origin(split)
        if origin not in self._listings:
            self._add(
                origin, call_with_retries(self.name, "listing", lambda: self._find(origin), policy)
            )
        return self._listings[origin]

    def complete(self, split: str, policy: RetryPolicy) -> Listing:
        """Return `listing` with all that servers report of each file."""
        listing = self.listing(split, policy)
        if not listing.is_complete:
            listing = call_with_retries(self.name, "looking up", listing.complete, policy)
            self._listings[self._origin(split)] = listing
        return listing

    def shares(self, split: str) -> Mapping[str, float]:
        """Return the shares of the documents in a split's files that are held out, by split."""
        return self._shares if self._origin(split) == "train" else {}

    def buckets(self, split: str) -> held_out.Range | None:
        """Return which of the documents in a split's files are the split's, None for all."""
        return held_out.range_of(self.shares(split), slices.full(split))

    def is_held_out(self, split: str) -> bool:
        """Return whether a split is held out of 'train'."""
        return slices.full(split) in self._shares

    def identity(self, split: str, policy: RetryPolicy, group: str = "") -> dict:
        """Return what a data position depends on, as JSON; see `Listing.identity`.

        `group` is the column by which documents are held out, "" for all of their text.
        """
        buckets = self.buckets(split)
        listing, groups = self.complete(split, policy), [group] if group else []
        return listing.identity() | ({"held_out": [*buckets, *groups]} if buckets else {})

    def check_saved(self, split: str, saved: Mapping[str, Any], group: str = "") -> None:
        """Raise UserError if a saved `identity` was held out by another share or group than now.

        The message names both. A position that was saved without shares is accepted, unless rows
        are now held out by group.
        """
        first, last, *groups = saved.get("held_out") or (0, 0)
        buckets, saved_group = self.buckets(split), "".join(groups)
        if buckets and saved_group != group:
            name = lambda column: f"column {column!r}" if column else "the whole row"
            raise UserError(
                f"corpus {self.name!r}",
                why=f"holds out rows by {name(group)}, but the run to resume began with rows held "
                f"out by {name(saved_group)}",
                to_set=f"write group={saved_group!r} in the task's source",
            )
        if not last or (first, last) == buckets:
            return
        share = (first or last) / held_out.BUCKETS
        raise UserError(
            f"corpus {self.name!r}",
            why=f"has held_out {self._shares}, but the run to resume began with {100 * share:g} % "
            "of 'train' held out",
            to_set=f"write held_out={{'validation': {share:g}}} in the task's source",
        )

    def as_json(self, split: str, policy: RetryPolicy) -> list:
        """Return a split's files, for `use`."""
        return self.complete(split, policy).as_json()

    def use(self, split: str, files: list) -> None:
        """Use a split's files as another host has listed them."""
        listing = Listing.from_json(files)
        if listing.commit:
            self.pin_revision(listing.commit)
        self._listings[self._origin(split)] = listing

    def pin_revision(self, revision: str) -> None:
        """Read the hub's data set at a commit, unless a revision is already set."""
        if self.revision is None and self._corpus is not None:
            self.revision, self._listings = revision, {}

    def _origin(self, split: str) -> str:
        """Return the split whose files hold a split's documents: 'train' if it is held out."""
        split = slices.full(split)
        return "train" if split in self._shares else split

    def _add(self, split: str, listing: Listing) -> None:
        self._listings[split] = listing
        if listing.passed_over:
            logging.warning(
                "corpus %s passes over %s beside split %r: %s",
                *(self.name, counted(len(listing.passed_over), "file"), split),
                "; ".join(f"{public(url)} ({why})" for url, why in listing.passed_over[:9]),
            )

    def _find(self, split: str) -> Listing:
        """Return the files of a split that is not held out."""
        if self._files is not None:
            return self._match(split)
        corpus, splits = cast(str, self._corpus), cast(dict, self._names)
        name = splits[split]
        if self._is_folder:
            listing = folder.match_folder(corpus, name, splits.values())
            if listing is None:
                raise self._no_split(name, [s for s in splits if s != split])
            return listing
        in_data_set = hub.find_splits(corpus, self._config, self.revision)
        if name not in in_data_set:
            raise self._no_split(name, in_data_set)
        return Listing(tuple(hub.with_lengths(in_data_set[name])))

    def _match(self, split: str) -> Listing:
        files = self._function() if self._function else self._files or {}
        if split not in files:
            raise self._no_split(split, files)
        try:
            return folder.match(_as_list(files[split]), split, files)
        except UserError as error:
            if not self._function:
                raise
            setting = f"{self._function.__module__}.{self._function.__name__}"
            error.to_set = f"put it there, or set an argument of {setting}"
            raise

    def _no_split(self, split: str, splits: Iterable[str]) -> UserError:
        to_set = "name its files by `files`, or its own name in the corpus by `splits`"
        if split != "train":
            to_set = (
                f"write held_out={{{split!r}: 0.01}} in the source, a part of 'train', or {to_set}"
            )
        return UserError(
            f"corpus {self.name!r}",
            why=f"has no split {split!r}, only {', '.join(sorted(splits)) or 'none'}",
            to_set=to_set,
        )


def _as_list(patterns: str | Sequence[str] | Parallel) -> Sequence[str | Parallel]:
    return [patterns] if isinstance(patterns, str | Parallel) else patterns
