"""A folder or bucket as a corpus: which files are data, and which split they belong to.

    match_splits("/data/ro")                           # {"train": a Listing, "test": …}
    match_folder("/data/ro", "train", splits)          # a Listing
    match_folder("/data/ro", "validation", splits)     # None: no file has this name
    match(["/data/ro", "/more/*.txt"], "train", splits)

A file named <split>* belongs to that split (the longest matching name wins). If there is none,
files do whose names begin or end with a word for the split, such as "dev" for validation. If no
file is named train*, 'train' also gets every file below the folder that names no other split. If
one is, subfolders are not searched. All files of a split must have one format; up to 1 % of the
bytes may be of others, which are passed over, and so are second copies that a browser made.
`Listing.passed_over` names the files not read, but not hidden ones.
"""

import collections
import dataclasses
import glob
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from common.errors import UserError
from common.secrets import public
from tasks.corpus.listing import (
    Listing,
    Parallel,
    bucket_facts,
    expand,
    match_files,
    match_parallel,
    no_match,
)
from tasks.corpus.storage import files, names
from tasks.corpus.storage.files import CorpusFile
from tasks.corpus.storage.names import SPLITS

# What browsers and desktops add to the name of a second copy.
_COPY = re.compile(r"^Copy of | ?\(\d+\)(?=\.)| - Copy( \(\d+\))?(?=\.)| copy( \d+)?(?=\.)")
_FEW_BYTES = 0.01  # the share of a folder's bytes in other formats that is passed over


def is_folder(address: str) -> bool:
    """Return whether an address is of a folder on this disk, or of one in a bucket."""
    if "://" not in address:
        return os.path.isdir(os.path.expanduser(address))
    is_list_or_web = address.startswith((names.LIST, "http"))
    if is_list_or_web or names.recognize(address) or glob.has_magic(address):
        return False
    fs, path = files.filesystem(address)
    return fs.isdir(path)


def match(patterns: Sequence[str | Parallel], split: str, splits: Iterable[str]) -> Listing:
    """Return a split's files, sorted by address.

    A pattern gives all files that it matches; a folder gives its files of this split.

    Raises:
      UserError: see `match_files`, `match_parallel` and `match_folder`.
    """
    listings = []
    for pattern in patterns:
        if isinstance(pattern, Parallel):
            listings.append(match_parallel(pattern))
        elif is_folder(pattern):
            listings.append(cast(Listing, match_folder(pattern, split, splits, is_its_own=True)))
        else:
            matches = {file.url: file for file in match_files([pattern])}
            copies = _copies(matches) if glob.has_magic(pattern) else {}
            matches = {url: file for url, file in matches.items() if url not in copies}
            listings.append(Listing(tuple(matches.values()), tuple(copies.items())))
    files = {file.url: file for listing in listings for file in listing.files}
    passed_over = {entry for listing in listings for entry in listing.passed_over}
    return Listing(tuple(files[url] for url in sorted(files)), tuple(sorted(passed_over)))


def match_splits(folder: str) -> dict[str, Listing]:
    """Return the splits found in the names of a folder's files, with their files.

    Raises:
      UserError: as `match_folder`.
    """
    listings = {split: match_folder(folder, split, SPLITS) for split in SPLITS}
    return {split: listing for split, listing in listings.items() if listing}


def match_folder(
    folder: str, name: str, others: Iterable[str], is_its_own: bool = False
) -> Listing | None:
    """Return the files of a split of a folder, None if it has none.

    `others` are the names of the corpus's splits. With `is_its_own` the folder holds only this
    split, so it also gets the files that name no split, as 'train' does.

    Raises:
      UserError: a file may be data but cannot be read; or no file belongs to 'train', or to a split
        with its own folder.
    """
    folder, others = folder.rstrip("/"), tuple(others)
    if "://" not in folder and os.path.isfile(os.path.expanduser(folder)):
        raise names.not_read(folder)
    top = expand(f"{glob.escape(f'{folder}/{name}'.rpartition('/')[0])}/*")
    for word in SPLITS.get(name, (name,)):
        if (listing_by_name := _named(folder, top, word, others)).files:
            return listing_by_name
    is_wanted = is_its_own or name == "train"
    if not is_wanted and _named(folder, top, "train", others).files:
        below = {url: (names.name_of(url), facts) for url, facts in top.items()}
    else:
        below = _everything(folder)
    listing = _by_words(folder, below, name, others, is_wanted)
    if listing.files or not is_wanted:
        return listing if listing.files else None
    unknown = [url for url in below if not names.is_beside(names.name_of(url), entirely=True)]
    if unknown and not any(names.is_file(url) for url in unknown):
        raise names.not_read(unknown[0])
    pattern = f"{glob.escape(folder)}/*"
    if not below:
        raise no_match(pattern)
    few = ", ".join(sorted(public(path) for path, _ in below.values())[:9])
    raise UserError(
        public(folder),
        why=f"has no file that is data of split {name!r}, but {few}",
        to_set="name its files by files={…}",
    )


def _named(
    folder: str, top: Mapping[str, dict[str, Any]], name: str, others: Iterable[str]
) -> Listing:
    """Return the files in `top` that begin with `name`, but with no longer name in `others`.

    Logs, checksums, notes, names that continue with a letter ("trainer"), and few bytes of other
    formats are passed over.
    """
    base = name.rpartition("/")[2]
    longer = [other.removeprefix(name[: len(name) - len(base)]) for other in others]
    longer = [other for other in longer if other != base and other.startswith(base)]
    choices = dict[str, CorpusFile | str]()
    for url, facts in top.items():
        file_name = names.name_of(url)
        ending = file_name.removeprefix(base)
        if file_name.startswith(base) and not any(file_name.startswith(other) for other in longer):
            choices[url] = _taken(url, facts, names.is_beside(ending))
            if base[-1:].isalpha() and ending[:1].isalpha():
                choices[url] = f"its name continues after {base!r}"
            elif isinstance(file := choices[url], CorpusFile) and not file.kind:
                raise names.not_read(url)
    if name == "train" and any(isinstance(choice, CorpusFile) for choice in choices.values()):
        for url in top.keys() - choices.keys():
            if names.data_in(url) and _split_of(names.name_of(url), _words(others)) is None:
                choices[url] = "its name does not begin with 'train', as others do"
    return _listed(folder, choices)


def _by_words(
    folder: str,
    below: Mapping[str, tuple[str, dict[str, Any]]],
    name: str,
    others: Sequence[str],
    with_rest: bool,
) -> Listing:
    """Return the files of a split by the words of their names; `below` is `_everything`.

    With `with_rest`, files that name no split belong to 'train', or to another split that no file
    names.
    """
    split_of_url = {url: _split_of(path, _words(others)) for url, (path, _) in below.items()}
    with_rest = with_rest and (name == "train" or name not in split_of_url.values())
    choices = dict[str, CorpusFile | str]()
    for url, (_, facts) in below.items():
        if split_of_url[url] == name or (with_rest and split_of_url[url] is None):
            choices[url] = _taken(url, facts, names.is_beside(names.name_of(url), entirely=True))
        elif with_rest and split_of_url[url] not in others:
            choices[url] = f"its name says that it is of split {split_of_url[url]!r}"
    return _listed(folder, choices)


def _taken(url: str, facts: Mapping[str, Any], is_beside: bool) -> CorpusFile | str:
    """Return a file, without a kind if its format is not read, or why it is passed over."""
    if is_beside:
        return "its name says that it is no data"
    if (file := names.recognize(url)) is not None:
        return dataclasses.replace(file, **facts)
    return CorpusFile(url, "", **facts) if names.is_other(url) else "it is of no known format"


def _words(others: Iterable[str]) -> dict[str, str]:
    """Return the splits by the words that mean them."""
    words = {word: split for split, more in SPLITS.items() for word in more}
    return words | {other.lower(): other for other in others}


def _everything(folder: str) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return (path in the folder, facts) of all files below it that are not hidden, by address."""
    if "://" not in folder:
        root = os.path.abspath(os.path.expanduser(folder))
        paths = filter(os.path.isfile, _walk(root))
        return {p: (os.path.relpath(p, root), files.disk_facts(p)) for p in paths}
    fs, root = files.filesystem(folder)
    listed = fs.find(root, detail=True)
    path_of = {p: p.lstrip("/").removeprefix(root.strip("/")).lstrip("/") for p in listed}
    visible = [p for p in listed if not any(map(_is_hidden, path_of[p].split("/")))]
    return {fs.unstrip_protocol(p): (path_of[p], bucket_facts(listed[p])) for p in visible}


def _walk(root: str) -> Iterator[str]:
    """Yield the paths below a folder of this disk; a folder that links reach again is left out."""
    seen = {os.path.realpath(root)}
    for parent, folders, file_names in os.walk(root, followlinks=True):
        visible = [name for name in sorted(folders) if not _is_hidden(name)]
        folders.clear()
        for name in visible:
            if (target := os.path.realpath(os.path.join(parent, name))) not in seen:
                seen.add(target)
                folders.append(name)
        yield from (os.path.join(parent, name) for name in file_names if not _is_hidden(name))


def _is_hidden(name: str) -> bool:
    return name.startswith((".", "_"))


def _split_of(path: str, words: Mapping[str, str]) -> str | None:
    """Return the split that a file's name names, or else the nearest folder's name."""
    for part in reversed(path.lower().split("/")):
        stem = part if (file := names.recognize(part)) is None else _stem(part, file)
        words_of_name = re.findall(r"[^\W\d_]+", stem)
        for word in (words_of_name[0], words_of_name[-1]) if words_of_name else ():
            if word in words:
                return words[word]
    return None


def _stem(name: str, file: CorpusFile) -> str:
    return name.removesuffix(f".{file.compression}").rpartition(".")[0]


def _copies(data: Mapping[str, CorpusFile]) -> dict[str, str]:
    """Return why files are passed over that by name and contents are second copies of others."""
    copies = {}
    for url, file in data.items():
        name = names.name_of(url)
        first = data.get(url.removesuffix(name) + _COPY.sub("", name, count=1))
        if first in (None, file) or (file.remote and not file.digest):
            continue
        if first.length == file.length and Listing((first,)).contents == Listing((file,)).contents:
            copies[url] = f"it is a copy of {names.name_of(first.url)!r}"
    return copies


def _listed(folder: str, choices: Mapping[str, CorpusFile | str]) -> Listing:
    """Return the files of the format that has most bytes; pass few bytes of others over."""
    data = {url: file for url, file in choices.items() if isinstance(file, CorpusFile)}
    passed_over = {url: why for url, why in choices.items() if isinstance(why, str)}
    passed_over |= (copies := _copies(data))
    data = {url: file for url, file in data.items() if url not in copies}
    stems = collections.Counter(url.removesuffix(f".{data[url].compression}") for url in data)
    for url, n in stems.items():
        if n > 1:
            raise UserError(public(url), why="is there compressed too", to_set="delete one")
    sizes = collections.Counter[str]()
    for file in data.values():
        sizes[file.kind] += file.length or 0
    readable = [kind for kind in sizes if kind]
    most = max(readable, key=lambda kind: sizes[kind], default="")
    others = {url: file for url, file in data.items() if file.kind != most or not most}
    if sum(file.length or 0 for file in others.values()) > _FEW_BYTES * sizes.total():
        first = next(iter(others.values()))
        if not first.kind:
            raise names.not_read(first.url)
        suffix = next(u for u in data if u not in others).rpartition(".")[2]
        raise UserError(
            str(first),
            why=f"is of another format than most of the files beside it ({most})",
            to_set="name the files that are data by a pattern, such as "
            f"{public(folder)}/*.{suffix}, several by files={{…}}, or move it away",
        )
    passed_over |= dict.fromkeys(others, f"it is of another format than the data, {most}")
    return Listing(
        tuple(data[url] for url in sorted(data) if url not in others),
        tuple(sorted(passed_over.items())),
    )
