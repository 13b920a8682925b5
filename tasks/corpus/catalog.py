"""The splits of a corpus: the files of each, found once, and which of their documents are its.

    catalog = Catalog("/data/ro", texts=texts_of)        # a folder, pattern, list or hub name
    catalog.names                       # {"train": "train", "validation": "validation"}
    catalog.listing("train", policy)    # a Listing
    catalog.buckets("validation")       # (0, 100) of the documents' hashes; None is all of them

A split is a folder's or a hub data set's by its name, or has files of its own, or is held out of
'train': by `held_out`, or, where nothing is said of it and there is none, 1 % as 'validation'.
"""

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar, cast

from absl import logging

from common.errors import UserError
from common.secrets import public
from common.tables import counted
from tasks.corpus import folder, held_out, slices
from tasks.corpus.held_out import BUCKETS, USUAL
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


def reached(corpus: str, doing: str, fn: Callable[[], T], policy: RetryPolicy) -> T:
    """Return `fn()`, retried; raise Unreachable, one sentence, where that does not help."""
    try:
        return retry(fn, f"{doing} {corpus}", policy)
    except Exception as error:
        if not is_transient(error):
            raise
        reason = f"{type(error).__name__}: {error}".splitlines()[0][:300]
        raise Unreachable(
            f"corpus {corpus!r} cannot be reached ({reason}); a folder or files on this machine "
            "need no network"
        ) from error


class Catalog:
    """What a corpus has.

    Args:
      corpus, config, revision, files, splits, shares: as in `tasks.corpus.source.CorpusSource`,
        where `shares` is called `held_out`. `files` may be a function that returns them, which is
        called when reading begins.
      texts: returns the documents of a split in batches, to find what is held out of few.

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
        texts: Callable[[str], Iterable[Sequence[bytes]]] = lambda split: (),
    ):
        if (corpus is None) == (files is None):
            raise UserError("a corpus source needs either `corpus` or `files`, and not both")
        if corpus is not None and names.is_files(corpus):
            files, corpus = {next(iter(splits or ("train",))): corpus}, None
        self._function = files if callable(files) else None
        if callable(files):
            files = dict.fromkeys(splits or ("train",), files.__name__)
        self._corpus, self._config, self.revision, self._files = corpus, config, revision, files
        self.name = public(corpus or ", ".join(dict.fromkeys(map(str, (files or {}).values()))))
        has_usual = files is not None and not files.keys().isdisjoint(names.SPLITS[USUAL])
        if files is not None:
            is_said = has_usual or shares is not None or splits is not None
            splits = tuple(files) if is_said or "train" not in files else (*files, USUAL)
        elif splits is None:
            splits = ("train",) if shares else ("train", USUAL)
        self.names = dict(splits) if isinstance(splits, Mapping) else {s: s for s in splits}
        held_out.check(shares or {}, self.names)
        is_open = shares is None and "train" in self.names and self.names.get(USUAL) == USUAL
        self._may_lack_usual = is_open and not has_usual
        self._shares, self._texts = shares or {}, texts
        self.names |= dict.fromkeys(self._shares, self.names.get("train", ""))
        # Once they are known, by split: its own files, None if it has none, and `shares`.
        self._listings: dict[str, Listing | None] = {}
        self._held: dict[str, Mapping[str, float]] = {}

    def with_texts(self, texts: Callable[[str], Iterable[Sequence[bytes]]]) -> "Catalog":
        """Return the same splits where `texts` returns the documents."""
        other = copy.copy(self)
        other._texts, other._listings, other._held = texts, {**self._listings}, {}
        return other

    @property
    def is_local(self) -> bool:
        """Whether reading it never crosses the network."""
        if self._files is None:
            corpus = self._corpus or ""
            return "://" not in corpus and corpus.startswith(_FOLDER)
        every = [str(each) for found in self._files.values() for each in _as_list(found)]
        return not any("://" in each or each.startswith(LIST) for each in every)

    def listing(self, split: str, policy: RetryPolicy) -> Listing:
        """Return the files that a split's documents are in.

        Raises:
          UserError: there is no such split, or its files cannot be found or told apart.
        """
        split = slices.full(split)
        if split not in self.names:
            raise self._no_split(split, self.names)
        found = self._find(self._split_read(split, policy), policy)
        if found is None:
            raise self._no_split(split, [name for name in self.names if name != split])
        return found

    def complete(self, split: str, policy: RetryPolicy) -> Listing:
        """Return `listing` with all that servers report of each file."""
        found = self.listing(split, policy)
        if not found.is_complete:
            found = reached(self.name, "looking up", found.complete, policy)
            self._listings[self._split_read(slices.full(split), policy)] = found
        return found

    def shares(self, split: str, policy: RetryPolicy) -> Mapping[str, float]:
        """Return the shares of the documents in a split's files that are held out, by split.

        Raises:
          UserError: the split is held out and has none, since the corpus has one document alone.
        """
        split = slices.full(split)
        if split not in self._held and self._split_read(split, policy) != "train":
            self._held[split] = {}
        elif split not in self._held and self._lacks_usual(policy):
            find = lambda: held_out.find_share(self._texts("train"))
            share = reached(self.name, "reading the beginning of", find, policy)
            found = {USUAL: share} if share else {}
            self._held = {"train": found, USUAL: found, **self._held}
        shares = self._held.setdefault(split, self._shares)
        if split != "train" and not shares and self._split_read(split, policy) != split:
            raise UserError(
                f"corpus {self.name!r} has one document, or one many times, and none can be held "
                f"out as {split!r}: add others"
            )
        return shares

    def buckets(self, split: str, policy: RetryPolicy) -> held_out.Range | None:
        """Return which of the documents in a split's files are the split's, None for all."""
        return held_out.of_split(self.shares(split, policy), slices.full(split))

    def is_held_out(self, split: str) -> bool:
        """Return whether a split is known to be held out of 'train'."""
        return slices.full(split) != "train" and bool(self._held.get(slices.full(split)))

    def identity(self, split: str, policy: RetryPolicy) -> dict:
        """Return what a data position depends on, as JSON; see `Listing.identity`."""
        found = self.complete(split, policy).identity()
        held = self.buckets(split, policy) if self._may_lack_usual else None
        return {**found, **({"held_out": [*held]} if held else {})}

    def as_json(self, split: str, policy: RetryPolicy) -> list:
        """Return what is known of a split, for `use`."""
        return [self.complete(split, policy).as_json(), self.shares(split, policy)]

    def use(self, split: str, known: list) -> None:
        """Use what another host knows of a split."""
        files, shares = known
        found, split = Listing.of_another_host(files), slices.full(split)
        if found.commit:
            self.pin_revision(found.commit)
        # Of 'train' without shares it is not known: its data position may be older than they are.
        if self._may_lack_usual and (shares or split == USUAL):
            self._listings[USUAL] = None if shares else found
        self._listings["train" if shares else split] = found
        self._held[split] = shares or {}

    def pin_shares(self, split: str, saved: Mapping[str, Any]) -> None:
        """Read the documents of a split that its saved `identity` names."""
        if self._may_lack_usual:
            first, last = saved.get("held_out", (0, 0))
            self._held[slices.full(split)] = {USUAL: (first or last) / BUCKETS} if last else {}
            if self._listings.get(USUAL, True) is None and split == "train" and not last:
                logging.warning(
                    "corpus %s: the run goes on with all documents, as it began, so that it trains "
                    "on %r too: its loss is no measure",
                    *(self.name, USUAL),
                )

    def pin_revision(self, revision: str) -> None:
        """Read the hub's data set at a commit, unless a revision is already set."""
        if self.revision is None and self._corpus is not None:
            self.revision = revision
            self._listings, self._held = {}, {}

    def _split_read(self, split: str, policy: RetryPolicy) -> str:
        """Return the split whose files hold a split's documents: 'train' of one held out."""
        is_held_out = split in self._shares or (split == USUAL and self._lacks_usual(policy))
        return "train" if is_held_out else split

    def _lacks_usual(self, policy: RetryPolicy) -> bool:
        """Return whether the corpus has no files of USUAL, which is then held out."""
        return self._may_lack_usual and self._find(USUAL, policy) is None

    def _find(self, split: str, policy: RetryPolicy) -> Listing | None:
        if split not in self._listings:
            found = reached(self.name, "listing", lambda: self._find_now(split), policy)
            self._listings[split] = found
            if found and found.passed_over:
                logging.warning(
                    "corpus %s passes over %s beside split %r: %s",
                    *(self.name, counted(len(found.passed_over), "file"), split),
                    "; ".join(f"{public(url)} ({why})" for url, why in found.passed_over[:9]),
                )
        return self._listings[split]

    def _find_now(self, split: str) -> Listing | None:
        """Return the split's own files, None if the corpus has none."""
        if self._files is not None:
            return self._match(split)
        corpus, name = cast(str, self._corpus), self.names[split]
        if "://" in corpus or corpus.startswith(_FOLDER):
            return folder.match_folder(corpus, name, self.names.values())
        splits = hub.find_splits(corpus, self._config, self.revision)
        if name not in splits and not (self._may_lack_usual and split == USUAL):
            raise self._no_split(name, splits)
        return Listing(tuple(hub.with_lengths(splits[name]))) if name in splits else None

    def _match(self, split: str) -> Listing | None:
        files = self._function() if self._function else self._files or {}
        if split not in files and split != USUAL:
            raise self._no_split(split, files)
        try:
            patterns = _as_list(files[split if split in files else "train"])
            return folder.match(patterns, split, self.names, is_own=split in files)
        except UserError as error:
            if not self._function:
                raise
            setting = f"{self._function.__module__}.{self._function.__name__}"
            raise UserError(f"{error}: put it there, or set an argument of {setting}") from error

    def _no_split(self, split: str, known: Iterable[str]) -> UserError:
        instead = f", or held_out={{{split!r}: 0.01}}, a part of 'train'" * (split != "train")
        return UserError(
            f"corpus {self.name!r} has no split {split!r}, only {', '.join(sorted(known))}: set "
            f"the source's `splits`, which may map one name to another{instead}"
        )


def _as_list(patterns: str | Sequence[str] | Parallel) -> Sequence[str | Parallel]:
    return [patterns] if isinstance(patterns, str | Parallel) else patterns
